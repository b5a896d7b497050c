"""Align the heights of beads, leave out those that differ, and fit curves through the others.

Curves of widths against z are Huang's, or smoothing splines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimation.noise_line import SIGMA_PER_MAD
from ..models.calibration import Curve, unique_range
from ..models.columns import IN_PLANE, STDERR
from .bead_fits import BeadFits
from .bead_stack import LEAST_PLANES

Array = NDArray[np.float64]

#: Widths beyond this part of the ROI's side are not determined by it, and those of lobes far from
#: the focus, less high than this part of a bead's greatest height, mean nothing; the least slope of
#: the difference of both widths, of the steepest; the part of the beads that must show a height;
#: and planes beside the range.
_WIDEST, _LOBE, _LEAST_SLOPE, _SHOWN, _BESIDE = 0.33, 0.07, 0.1, 0.5, 2
#: Beads differ by this part of a width, and by as many pixels in place.
_ALIKE = 0.01
#: Rounds of alignment and rejection; the part of a range that a bead must show; how far it may
#: differ from the others, in deviations and in times the usual; and its least drift in pixels.
_ROUNDS, _COVERED, _DEVIATIONS, _TIMES, _DRIFT = 4, 0.7, 6.0, 2.0, 0.15
#: Folds, and the part of Huang's misfit below which a spline is taken.
_FOLDS, _GAIN = 5, 0.96
#: Number of beads that shows how beads differ.
FEW = 3
WIDTHS = ("sigma_x", "sigma_y")
_NO_RANGE = (
    f"the widths of the beads do not determine z: over fewer than {LEAST_PLANES} planes around "
    "where they are round does the difference of both rise, or fall. Check that the lens is in "
    "place, that the stack goes through the focus in steps of 10 to 50 nm, and that the ROI is "
    "large enough (roi_size)"
)
#: Nodes of a spline; its most pieces; the most parts of the range in which points count apart; a
#: ridge that keeps what no point determines; and the strengths of smoothing that are tried.
_NODES, _PIECES, _DISTINCT, _RIDGE = 61, 24, 200, 1e-10
_STRENGTHS = tuple(10.0**power for power in np.arange(-3, 6.1, 0.25))


@dataclass
class Curves:
    """Both widths against z, and the smoothing that splines were made with."""

    x: Curve
    y: Curve
    smoothing: tuple[float | None, float | None] = (None, None)

    def residuals(self, z: Array, widths: Array) -> Array:
        """Return how far widths along x and y are above the curves."""
        return widths - np.stack([self.x(z), self.y(z)])

    def slopes(self, z: Array) -> Array:
        """Return the slopes of the widths along x and y."""
        return np.stack([(one(z + 1) - one(z - 1)) / 2 for one in (self.x, self.y)])

    def moved(self, by: float) -> Curves:
        """Return the same curves, moved along z."""
        return Curves(_moved(self.x, by), _moved(self.y, by), self.smoothing)


def _moved(curve: Curve, by: float) -> Curve:
    if curve.kind == "spline":
        return curve._replace(nodes=tuple(z + by for z in curve.nodes))
    least, center, *others = curve.numbers
    return curve._replace(numbers=(least, center + by, *others))


class Alignment:
    """Beads whose heights are aligned, and the curves that go through all.

    Arrays of widths have the axes (x or y, bead, plane).
    """

    curves: Curves

    def __init__(self, fits: BeadFits) -> None:
        self.fits = fits
        self.step = float(np.diff(fits.z).max())
        self.take(fits.columns)
        self.zero = np.full(len(fits.places), np.nan)
        self.residual = np.full(len(fits.places), np.nan)
        self.low = self.high = 0.0

    def take(self, columns: Mapping[str, Array]) -> None:
        """Take the fits whose curves are to be found."""
        fits, self.columns = self.fits, columns
        self.widths = np.stack([columns[name] for name in WIDTHS])
        errors = np.stack([columns[name + STDERR] for name in WIDTHS])
        wrong = ~(np.isfinite(errors) & (self.widths < _WIDEST * min(fits.settings.roi_shape)))
        height = np.nan_to_num(columns["amplitude"])
        self.widths[:, wrong.any(0) | (height < _LOBE * height.max(1, keepdims=True))] = np.nan
        # Beads differ by more than their noise.
        self.weights = 1 / (errors**2 + (_ALIKE * self.widths) ** 2)

    @property
    def z(self) -> Array:
        """The height of each bead in each plane, from where it is round."""
        heights: Array = self.fits.z - self.zero[:, None]
        return heights

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which beads show widths in which planes, in the range."""
        shown: NDArray[np.bool_] = np.isfinite(self.widths[0])
        return shown & (self.z >= self.low) & (self.z <= self.high)

    def run(self) -> None:
        """Align the beads, leave out those that differ, and choose the kind of curve."""
        for bead in self.fits.numbers:
            self.zero[bead] = crossing(self.fits.z, *self.widths[:, bead])
            if np.isnan(self.zero[bead]):
                self.fits.reject(
                    bead, "never round: its widths along x and y are not equal in any plane"
                )
        for _ in range(_ROUNDS):
            self._find_range()
            self.curves = self.fitted(self.fits.used, "spline")
            self._align()
            if not self._reject():
                break
        self._find_range()
        self.curves = self._chosen()
        self._align()
        self.curves = self.fitted(self.fits.used, self.curves.x.kind)
        # z is 0 where the curves cross.
        middle = np.linspace(self.low, self.high, 2001)
        zero = crossing(middle, self.curves.x(middle), self.curves.y(middle))
        if np.isnan(zero):
            raise ValueError(_NO_RANGE)
        self.curves = self.curves.moved(-zero)
        self.low, self.high, self.zero = self.low - zero, self.high - zero, self.zero + zero

    def _find_range(self) -> None:
        """Find the heights around 0 at which enough beads show widths that determine z."""
        used = self.fits.used
        if not used.any():
            raise ValueError(no_beads(self.fits))
        z, widths = self.z[used], self.widths[:, used]
        number = np.where(np.isfinite(widths[0]), np.rint(z / self.step), np.nan)
        # From 0 on to both sides, planes that enough of the beads show.
        ends = []
        for side in (-1, 1):
            end = 0
            while (number == end + side).any(1).sum() >= max(_SHOWN * used.sum(), 1):
                end += side
            ends.append(end)
        bins = np.arange(float(ends[0]), ends[1] + 1)
        difference = [np.median((widths[0] - widths[1])[number == one]) for one in bins]
        if len(bins) >= LEAST_PLANES and np.isfinite(difference).all():
            level = Curve("polynomial", (0.0,))
            smooth, _ = smooth_curve(bins * self.step, np.array(difference), np.ones(len(bins)))
            self.low, self.high = unique_range(
                smooth, level, bins[0] * self.step, bins[-1] * self.step, _LEAST_SLOPE
            )
            if self.high - self.low >= (LEAST_PLANES - 1) * self.step:
                return
        raise ValueError(_NO_RANGE)

    def fitted(
        self, used: NDArray[np.bool_], kind: str, smoothing: Sequence[float | None] = (None, None)
    ) -> Curves:
        """Return the curves of one kind through the points of beads, in the range and beside it."""
        beside = _BESIDE * self.step
        z = self.z
        near = (z >= self.low - beside) & (z <= self.high + beside) & used[:, None]
        near &= np.isfinite(self.widths[0])
        found = [
            fitted_curve(kind, z[near], widths[near], weights[near], own)
            for widths, weights, own in zip(self.widths, self.weights, smoothing, strict=True)
        ]
        (x, smooth_x), (y, smooth_y) = found
        return Curves(x, y, (smooth_x, smooth_y))

    def _chosen(self) -> Curves:
        """Return the kind of curves that predicts better the widths of planes that are left out."""
        used, kept, scores = self.fits.used, self.widths, {}
        smooth = self.fitted(used, "spline")
        fold = np.arange(kept.shape[-1]) % _FOLDS
        for kind in ("huang", "spline"):
            scores[kind] = 0.0
            for out in range(_FOLDS):
                self.widths = np.where(fold == out, np.nan, kept)
                curves = self.fitted(used, kind, smooth.smoothing)
                self.widths = kept
                left = self.inside & (fold == out) & used[:, None]
                apart = curves.residuals(self.z[left], kept[:, left])
                scores[kind] += float((self.weights[:, left] * apart**2).sum())
        better = scores["spline"] < _GAIN * scores["huang"]
        return smooth if better else self.fitted(used, "huang")

    def _align(self) -> None:
        """Move each bead along z to where its widths are nearest to the curves."""
        for bead in self.fits.numbers:
            self.zero[bead] += self.offset(bead, self.curves)

    def offset(self, bead: int, curves: Curves) -> float:
        """Return how far a bead's zero is from where its widths are nearest to curves, in nm."""
        there = self.inside[bead]
        z, widths, weights = self.z[bead, there], self.widths[:, bead, there], self.weights
        moved = 0.0
        for _ in range(3 if there.sum() >= LEAST_PLANES else 0):
            slope = curves.slopes(z - moved)
            apart = curves.residuals(z - moved, widths)
            own = weights[:, bead, there] * slope
            moved -= float((own * apart).sum() / (own * slope).sum())
        return moved

    def _reject(self) -> bool:
        """Leave out beads that differ from the others; return whether there were any."""
        before = self.fits.used
        inside = self.inside
        apart = self.curves.residuals(self.z, self.widths)
        squares = np.where(inside, (apart**2).mean(0), np.nan)
        planes = round((self.high - self.low) / self.step) + 1
        for bead in self.fits.numbers:
            count = int(inside[bead].sum())
            if count < _COVERED * planes:
                self.fits.reject(
                    bead, f"few planes: it shows widths in {count} of the {planes} of the range"
                )
            self.residual[bead] = np.sqrt(np.nanmean(squares[bead])) if count else np.nan
        _reject_unlike(
            self.fits, self.residual, 0.0,
            "unlike: its widths differ from those of the others by {:.2f} px, usually {:.2f} px",
        )  # fmt: skip
        *_, drifts = wobble_of(self)
        _reject_unlike(
            self.fits, drifts, _DRIFT,
            "drifting: it moves against the others by {:.2f} px, usually {:.2f} px",
        )  # fmt: skip
        return not np.array_equal(before, self.fits.used)


def _reject_unlike(fits: BeadFits, values: Array, least: float, reason: str) -> None:
    """Leave out beads for which a number is far above what it is for the others."""
    used = fits.numbers
    if len(used) < FEW:
        return
    usual = float(np.median(values[used]))
    scatter = SIGMA_PER_MAD * float(np.median(np.abs(values[used] - usual)))
    limit = max(usual + _DEVIATIONS * scatter, _TIMES * usual, least)
    for bead in used:
        if values[bead] > limit:
            fits.reject(bead, reason.format(values[bead], usual))


def wobble_of(
    alignment: Alignment, places: Array | None = None
) -> tuple[tuple[Curve, Curve], Array, Array]:
    """Return the common shift of y and x with z, the beads' places, and how far each is from both.

    All are in px; the shift is 0 at z = 0, unless the places (2, n) are known.
    """
    fits = alignment.fits
    z, inside = alignment.z, alignment.inside & fits.used[:, None]
    curves, found, squares = [], [], np.zeros(z.shape)
    for i, axis in enumerate(IN_PLANE):
        place, error = alignment.columns[axis], alignment.columns[axis + STDERR]
        weights = 1 / (error**2 + _ALIKE**2)
        near = inside & np.isfinite(weights)
        if places is None:
            own = np.full(len(place), np.nan)
            at_zero = np.abs(np.where(near, z, np.inf)).argmin(1)
            own[fits.used] = place[fits.used, at_zero[fits.used]]
        else:
            own = places[i]
        for _ in range(_ROUNDS if places is None else 1):
            shift = place - own[:, None]
            curve, _ = smooth_curve(z[near], shift[near], weights[near])
            apart = np.where(near, shift - curve(z), 0)
            sums = np.where(near, weights, 0).sum(1)
            if places is None:
                more = (np.where(near, weights, 0) * apart).sum(1)
                own = own + more / np.where(sums, sums, np.nan)
        level = float(curve(0.0)) if places is None else 0.0
        curves.append(curve._replace(numbers=tuple(one - level for one in curve.numbers)))
        found.append(own + level)
        squares += apart**2
    counts = inside.sum(1)
    apart = np.sqrt(squares.sum(1) / np.where(counts, counts, np.nan))
    return (curves[0], curves[1]), np.stack(found), apart


def no_beads(fits: BeadFits) -> str:
    """Return what to say where no bead is left."""
    if not fits.reasons:
        return (
            "no beads were found on the maximum projection of the stack: name their places, "
            "beads=…, or allow more false spots (settings=Settings(false_spots=…))"
        )
    return (
        f"none of the {len(fits.reasons)} beads can be used: {fits.why()}. Record 10 to 50 beads "
        "that lie apart, are well inside the image, and do not saturate the camera in any plane"
    )


def crossing(z: Array, x: Array, y: Array) -> float:
    """Return where two widths are equal, of several such heights where they are least; else NaN.

    Examples
    --------
    >>> z = np.linspace(-100, 100, 21)
    >>> round(crossing(z, 2 - z / 100, 2.1 + z / 100), 6)
    -5.0
    """
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    z, x, y = z[known], x[known], y[known]
    difference = x - y
    change = np.flatnonzero(np.sign(difference[1:]) != np.sign(difference[:-1]))
    if not len(change):
        return float("nan")
    at = change[np.argmin((x * y)[change])]
    part = difference[at] / (difference[at] - difference[at + 1])
    return float(z[at] + part * (z[at + 1] - z[at]))


def fitted_curve(
    kind: str, z: Array, values: Array, weights: Array, smoothing: float | None = None
) -> tuple[Curve, float | None]:
    """Return a curve of one kind through points, and the smoothing of a spline."""
    if kind == "spline":
        return smooth_curve(z, values, weights, smoothing)
    from scipy.optimize import least_squares  # here, as SciPy takes its time to import

    order = np.argsort(values)
    least = float(np.quantile(values, 0.05))
    center = float(np.median(z[order[: max(len(z) // 20, 3)]]))
    rise = np.sqrt(np.maximum((values / least) ** 2 - 1, 0))
    depth = (
        float(np.clip(np.median(np.abs(z - center)[rise > 0.5] / rise[rise > 0.5]), 50, 5000))
        if (rise > 0.5).any()
        else float(np.ptp(z))
    )
    root = np.sqrt(weights)

    def residuals(numbers: Array) -> Array:
        return root * (Curve("huang", tuple(numbers))(z) - values)

    begin = (least, center, depth, 0.0, 0.0)
    found = least_squares(
        residuals, begin, x_scale=(least, depth, depth, 1.0, 1.0), loss="soft_l1",
        bounds=([0, -np.inf, depth / 10, -np.inf, -np.inf], np.inf),
    )  # fmt: skip
    return Curve("huang", tuple(float(one) for one in found.x)), None


def smooth_curve(
    z: Array, values: Array, weights: Array, smoothing: float | None = None
) -> tuple[Curve, float]:
    """Return a smoothing spline through points, and its smoothing: by default the best predictor's.

    It has few knots and a penalty on the curvature (Eilers and Marx 1996), whose strength
    generalised cross-validation finds.
    """
    from scipy.interpolate import BSpline  # here, as SciPy takes its time to import
    from scipy.linalg import eigh

    low, high = float(z.min()), float(z.max())
    places = len(np.unique(np.rint(_DISTINCT * (z - low) / (high - low))))
    pieces = int(np.clip(places // 3, 3, _PIECES))
    step = (high - low) / pieces
    knots = low + step * np.arange(-3, pieces + 4)
    inside = np.clip(z, low, high)
    basis = BSpline.design_matrix(inside, knots, 3, extrapolate=True).toarray()
    weights = weights / weights.mean()
    normal = basis.T @ (weights[:, None] * basis)
    bends = np.diff(np.eye(pieces + 3), 2, axis=0)
    ridge = _RIDGE * np.trace(normal) * np.eye(len(normal))
    penalties, vectors = eigh(bends.T @ bends, normal + ridge)
    penalties = np.maximum(penalties, 0)
    along = vectors.T @ (basis.T @ (weights * values))

    def score(strength: float) -> float:
        kept = 1 / (1 + strength * penalties)
        misfit = weights @ values**2 - along**2 @ (2 * kept - kept**2)
        return float(misfit / (len(z) - kept.sum()) ** 2)

    if smoothing is None:
        smoothing = float(min(_STRENGTHS, key=score))
    nodes = np.linspace(low, high, _NODES)
    smooth = BSpline(knots, vectors @ (along / (1 + smoothing * penalties)), 3)
    return Curve("spline", tuple(smooth(nodes).tolist()), tuple(nodes.tolist())), smoothing
