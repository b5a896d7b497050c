"""Fit curves of widths against z: Huang's, or a smoothing spline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..models.calibration import Curve

Array = NDArray[np.float64]

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
