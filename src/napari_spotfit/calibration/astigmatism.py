"""Calibrate z from the widths of beads that an astigmatic lens makes elliptical."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..caller import warn_caller
from ..engine.depth import located
from ..estimation.noise_line import SIGMA_PER_MAD
from ..images.camera import Camera
from ..models.astigmatism import (
    AstigmatismCalibration,
    Bead,
    Curve,
    Level,
    Quality,
    unique_range,
)
from ..models.calibration import Calibration
from ..models.columns import IN_PLANE, STDERR
from ..settings.settings import Settings
from .beads import LEAST_PLANES, BeadFits, checked_heights, checked_stack, fit_beads
from .curves import Curves, crossing, fitted_curve, smooth_curve

Array = NDArray[np.float64]

#: Widths beyond this part of the ROI's side are not determined by it; beads differ by so much of
#: a width, or by so many pixels in place; the least slope of the difference of both widths, of the
#: steepest; the part of the beads that must show a height; and planes beside the range.
_WIDEST, _ALIKE, _LEAST_SLOPE, _SHOWN, _BESIDE = 0.33, 0.01, 0.1, 0.5, 2
#: Rounds of alignment and rejection; the part of a range that a bead must show; how far it may
#: differ from the others, in deviations and in times the usual.
_ROUNDS, _COVERED, _DEVIATIONS, _TIMES = 4, 0.7, 6.0, 2.0
#: The least drift of a bead against the others, and the least common one that is warned of, in px.
_DRIFT, _COMMON_DRIFT = 0.15, 1.0
#: Folds, and the part of Huang's misfit below which a spline is taken.
_FOLDS, _GAIN = 5, 0.96
#: Spots are fitted up to so much background per pixel over their light; and the steps to there.
_DIMMEST, _DIMMER = 0.05, 4.0
#: Errors that are what they should be; and how many times they may be larger, and are known from.
_ALIKE_ERRORS, _LARGEST_RATIO, _LEAST_RATIOS = Curve("polynomial", (1.0,)), 5.0, 30
#: How often widths may go up and down, in ranges, where they are known to such a part; how far
#: planes may seem from their heights, in steps and standard errors; beads that show how beads
#: differ.
_TURNS, _SURE, _STEPS, _ERRORS, _FEW = 2.5, 0.2, 2.0, 6.0, 3
_WIDTHS = ("sigma_x", "sigma_y")
#: Background per pixel over light from which on beads are too dim for spots of usual light.
_DIM = 0.006
_NO_RANGE = (
    f"the widths of the beads do not tell z: over fewer than {LEAST_PLANES} planes around where "
    "they are round does the difference of both rise, or fall. Check that the lens is in place, "
    "that the stack goes through the focus in steps of 10 to 50 nm, and that the ROI is large "
    "enough (roi_size)"
)


def calibrate_astigmatism(
    stack: Any,
    dz: ArrayLike,
    *,
    beads: ArrayLike | None = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
) -> AstigmatismCalibration:
    """Measure the widths of beads against z, by which ``model=`` of fits then finds z.

    Beads are found on the maximum projection of the stack, and each is fitted in all planes, in
    one ROI, by maximum likelihood; with one angle for all if the lens is turned against the
    camera. Their heights are aligned, and one curve for each width is fitted: that of Huang et
    al. (2008) or, where it predicts widths better that were left out, a smoothing spline. Beads
    that differ from the others are left out; ``calibration.beads`` says of each why.

    z rises with the planes, and is 0 where spots are round. The range of the calibration is where
    the widths tell z.

    Parameters
    ----------
    stack : array, shape (planes, Y, X), or path
        Beads, sparse and not saturated, recorded in steps of 10 to 50 nm from below to above the
        focus.
    dz : float or array, shape (planes,)
        Distance of the planes in nm, or the height of each.
    beads : array, shape (n, 2), optional
        y and x of the beads to use, in pixels; by default those that are found.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
    settings : Settings, optional
        The camera's numbers, what finds beads, and the ROI's size, which fits with the calibration
        then have; by default about 8 σ. ``voxel_size`` says how large a pixel is.

    Returns
    -------
    AstigmatismCalibration
        What ``model=…`` takes, with the quality of z and every bead.

    Raises
    ------
    TypeError, ValueError
        If stack or heights are not of the kind above, or if no bead can be used; the message
        says why, and what to do.

    Warns
    -----
    UserWarning
        If fewer than three beads are used, if all move together, or if planes seem to be at other
        heights than said.

    References
    ----------
    B. Huang, W. Wang, M. Bates and X. Zhuang, Three-dimensional super-resolution imaging by
    stochastic optical reconstruction microscopy, Science 319, 810 (2008).

    Examples
    --------
    >>> from napari_spotfit import Settings, calibrate_astigmatism, simulate_beads
    >>> lens = {"astigmatism": 0.1}
    >>> z = range(-500, 501, 25)
    >>> stack, truth = simulate_beads(z, (128, 128), count=9, seed=0, zernike=lens)
    >>> calibration = calibrate_astigmatism(stack, 25, settings=Settings(gain=1, offset=100))
    >>> sum(bead.used for bead in calibration.beads)
    9
    """
    given = settings or Settings()
    if not isinstance(given, Settings):
        raise TypeError(f"settings must be Settings(…); got {type(given).__name__}")
    if isinstance(given.model, Calibration):
        given = given.changed(model="gaussian", estimator="lse", roi_size=None, sigma=None)
    planes = checked_stack(stack)
    fits = fit_beads(planes, checked_heights(dz, len(planes)), given, camera, beads)
    if not fits.used.any():
        raise ValueError(no_beads(fits))
    _check_order(fits)
    found = _Alignment(fits)
    found.run()
    calibration = _calibration(found, given)
    _warn(found, calibration)
    return calibration


class _Alignment:
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
        self.widths = np.stack([columns[name] for name in _WIDTHS])
        errors = np.stack([columns[name + STDERR] for name in _WIDTHS])
        wrong = ~(np.isfinite(errors) & (self.widths < _WIDEST * min(fits.settings.roi_shape)))
        self.widths[:, wrong.any(0)] = np.nan
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
        """Find the heights around 0 at which enough beads show widths that tell z."""
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
    if len(used) < _FEW:
        return
    usual = float(np.median(values[used]))
    scatter = SIGMA_PER_MAD * float(np.median(np.abs(values[used] - usual)))
    limit = max(usual + _DEVIATIONS * scatter, _TIMES * usual, least)
    for bead in used:
        if values[bead] > limit:
            fits.reject(bead, reason.format(values[bead], usual))


def wobble_of(
    alignment: _Alignment, places: Array | None = None
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


def _calibration(found: _Alignment, given: Settings) -> AstigmatismCalibration:
    """Return the calibration, with the quality of z."""
    fits = found.fits
    # Beads have less background for their light in some planes than in others: as much in all.
    level = fits.level(found.inside & fits.used[:, None])
    fits.columns = fits.dimmed(level)
    found.take(fits.columns)
    found.curves = found.fitted(fits.used, found.curves.x.kind)
    (wobble_y, wobble_x), places, _ = wobble_of(found)
    photons = np.nan_to_num(fits.columns["photons"]).max(1)
    beads = tuple(
        Bead(float(y), float(x), float(zero), float(light), float(apart), not why, why or "used")
        for (y, x), zero, light, apart, why in zip(
            fits.places, found.zero, photons, found.residual, fits.reasons, strict=True
        )
    )
    voxel, curves = given.voxel_size, found.curves
    dimmer = [_dimmer(found, one, places) for one in _levels(level)]
    low, high = unique_range(curves.x, curves.y, found.low, found.high)
    for one in dimmer:
        low, high = unique_range(one.x, one.y, low, high)
    found.take(fits.columns)
    calibration = AstigmatismCalibration(
        curves.x, curves.y, low, high, level=level, dimmer=tuple(dimmer),
        angle=fits.angle, wobble_x=wobble_x, wobble_y=wobble_y,
        pixel_size=None if voxel is None else voxel[-1], roi_size=fits.settings.roi_shape,
        pixel=fits.settings.pixel, beads=beads, points=_mean_points(found),
    )  # fmt: skip
    return _with_errors(found, calibration)


def _levels(level: float) -> list[float]:
    """Return the levels of spots dimmer than beads of a level."""
    count = max(math.ceil(math.log(_DIMMEST / level, _DIMMER)), 0)
    return [level * (_DIMMEST / level) ** (one / count) for one in range(1, count + 1)]


def _dimmer(found: _Alignment, level: float, places: Array) -> Level:
    """Return the curves of the same beads at a higher level."""
    found.take(found.fits.dimmed(level))
    curves = found.fitted(found.fits.used, found.curves.x.kind, found.curves.smoothing)
    (wobble_y, wobble_x), *_ = wobble_of(found, places)
    return Level(level, curves.x, curves.y, wobble_x, wobble_y, _ALIKE_ERRORS)


def _mean_points(found: _Alignment) -> tuple[tuple[float, ...], ...]:
    """Return z, both mean widths, and the number of beads, by steps of the stack."""
    rows = []
    inside, z = found.inside & found.fits.used[:, None], found.z
    number = np.rint(z / found.step)
    for one in np.unique(number[inside]):
        there = inside & (number == one)
        means = [z[there].mean(), *(widths[there].mean() for widths in found.widths)]
        rows.append(tuple(float(mean) for mean in (*means, there.sum())))
    return tuple(rows)


def _with_errors(found: _Alignment, calibration: AstigmatismCalibration) -> AstigmatismCalibration:
    """Return the calibration with the errors that z has, of the beads and of dimmer spots."""
    z, errors, stderr = _errors_of_beads(found, calibration)
    rng, dimmer = np.random.default_rng(0), []
    for one in calibration.dimmer:
        columns = found.fits.dimmed(one.level, rng)
        located, own = _located(found, calibration, columns, np.arange(len(z)))
        dimmer.append(one._replace(excess=_excess(z, located - z, own)))
    return replace(
        calibration,
        excess=_excess(z, errors, stderr),
        dimmer=tuple(dimmer),
        quality=_quality(found, errors, stderr),
    )


def _located(
    found: _Alignment, calibration: AstigmatismCalibration, columns: Mapping[str, Array], beads: Any
) -> tuple[Array, Array]:
    """Return z of beads in all planes, and its standard error; NaN beside the range."""
    settings = found.fits.settings
    own = {name: values[beads] for name, values in columns.items()}
    z, error, _ = located(own, calibration, settings, settings.roi_shape)
    return np.where(found.inside[beads], z, np.nan), error


def _excess(z: Array, errors: Array, stderr: Array) -> Curve:
    """Return how many times errors of z are their standard errors, against z."""
    ratio = errors / stderr
    known = np.isfinite(ratio)
    if known.sum() < _LEAST_RATIOS:
        return _ALIKE_ERRORS
    square = np.minimum(ratio[known] ** 2, _LARGEST_RATIO**2)
    curve, _ = smooth_curve(z[known], square, np.ones(len(square)))
    roots = np.sqrt(np.clip(curve.numbers, 1.0, _LARGEST_RATIO**2))
    return curve._replace(numbers=tuple(roots.tolist()))


def _errors_of_beads(
    found: _Alignment, calibration: AstigmatismCalibration
) -> tuple[Array, Array, Array]:
    """Return z of beads, its errors by the curves of the others, and their standard errors."""
    fits, used = found.fits, found.fits.used
    errors, stderr = np.full(found.z.shape, np.nan), np.full(found.z.shape, np.nan)
    smoothing = found.curves.smoothing
    for bead in fits.numbers:
        others = used.copy()
        others[bead] = used.sum() == 1
        curves = found.fitted(others, calibration.x.kind, smoothing)
        ends = unique_range(curves.x, curves.y, found.low, found.high)
        own = replace(calibration, x=curves.x, y=curves.y, low=ends[0], high=ends[1], dimmer=())
        z, error = _located(found, own, fits.columns, bead)
        apart = z - found.z[bead]
        there = found.inside[bead] & np.isfinite(error)
        errors[bead, there] = (apart - np.median(apart[there]))[there]
        stderr[bead, there] = error[there]
    return found.z, errors, stderr


def _quality(found: _Alignment, errors: Array, stderr: Array) -> Quality:
    """Return the errors of z by steps of the stack."""
    number = np.rint(found.z / found.step)
    there = np.isfinite(errors)
    bins = np.unique(number[there])
    rows = [(errors[there & (number == one)], stderr[there & (number == one)]) for one in bins]
    return Quality(
        tuple(float(one) for one in bins * found.step),
        tuple(float(own.mean()) for own, _ in rows),
        tuple(float(own.std(ddof=1)) if len(own) > 1 else 0.0 for own, _ in rows),
        tuple(float(np.sqrt((error**2).mean())) for _, error in rows),
    )


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


def _check_order(fits: BeadFits) -> None:
    """Check that widths do not jump from plane to plane."""
    turns = []
    for bead in fits.numbers:
        widths = [fits.columns[name][bead] for name in _WIDTHS]
        noise = [fits.columns[name + STDERR][bead] / fits.columns[name][bead] for name in _WIDTHS]
        ratio, error = np.log(widths[0] / widths[1]), np.hypot(*noise)
        known = np.isfinite(ratio) & (error < _SURE)
        if known.sum() >= LEAST_PLANES:
            ratio, error = ratio[known], error[known]
            jumps = np.abs(np.diff(ratio)) - 2 * np.hypot(error[1:], error[:-1])
            turns.append(np.maximum(jumps, 0).sum() / np.ptp(ratio))
    if turns and np.median(turns) > _TURNS:
        raise ValueError(
            "the widths of the beads jump from plane to plane: the planes are not in the order of "
            "their heights, or are several stacks. Order them: stack[numpy.argsort(z)]"
        )


def _warn(found: _Alignment, calibration: AstigmatismCalibration) -> None:
    """Warn of what the calibration may suffer from."""
    fits = found.fits
    count, quality = int(fits.used.sum()), calibration.quality
    if count < _FEW:
        why = f" ({fits.why()})" if fits.why() else ""
        warn_caller(
            f"the calibration is of {count} bead{'s' * (count > 1)} only{why}: how beads differ is "
            "not known. Record 10 to 50 that lie apart"
        )
    if calibration.level > _DIM:
        warn_caller(
            "the beads are dim on their background: how wide brighter spots are is not known, and "
            "their z may be off by some 10 nm. Record beads with ten times the light of spots"
        )
    ends = np.array([calibration.low, calibration.high])
    for axis, curve in zip(IN_PLANE, (calibration.wobble_y, calibration.wobble_x), strict=True):
        assert curve is not None
        drift = float(np.ptp(curve(ends)))
        if drift > _COMMON_DRIFT:
            warn_caller(
                f"all beads move together along {axis} by {drift:.1f} px from end to end. It is "
                "taken for a tilt of the light, and removed from the fits; if the stage drifted, "
                "record the stack again"
            )
    assert quality is not None
    error = np.array(quality.scatter) / np.sqrt(count) + 1e-9
    bias = np.array(quality.bias)
    wrong = np.abs(bias) > np.maximum(_ERRORS * error, _STEPS * found.step)
    if count >= _FEW and wrong.any():
        worst = int(np.argmax(np.abs(bias) * wrong))
        warn_caller(
            f"{int(wrong.sum())} planes seem to be at other heights than said, the worst at "
            f"{quality.z[worst]:.0f} nm by {bias[worst]:.0f} nm: check their order, and give the "
            "height of each (dz)"
        )
