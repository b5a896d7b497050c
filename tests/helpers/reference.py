"""Reference fits in double precision by SciPy, from the formulas of models and estimators."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import uniform_filter
from scipy.optimize import least_squares

from napari_spotfit.models.profiles import GAUSSIAN, Profile

#: Lower bound of the light, as maximum likelihood needs some everywhere.
DARKEST = 1e-6


class Kind(NamedTuple):
    """A model and an estimator, with per-pixel maps."""

    profile: Profile = GAUSSIAN
    pixel: str = "sampled"
    estimator: str = "lse"
    #: Weights for wlse, 0 for bad pixels; variances in photo-electrons² for mle, NaN for bad ones.
    plane: Any = None


class Best(NamedTuple):
    """The best parameters: those of the shape as the model names them, amplitude, background."""

    values: np.ndarray
    #: χ², weighted or not, or the Poisson deviance.
    chi_square: float
    success: bool


def names(kind: Kind) -> list[str]:
    return [*(parameter.name for parameter in kind.profile.shape), "amplitude", "background"]


def image(kind: Kind, values, shape) -> np.ndarray:
    """Return h for parameters in the order of :func:`names`."""
    given = dict(zip(names(kind), values, strict=True))
    return kind.profile.evaluate(np.indices(shape, float), given, kind.pixel)


def derivatives(kind: Kind, values, shape) -> np.ndarray:
    """Return ∂h/∂p by central differences, one column per parameter."""
    values = np.asarray(values, float)
    columns = []
    for i in range(len(values)):
        step = np.zeros(len(values))
        step[i] = 1e-5 * max(abs(values[i]), 1)
        ahead, behind = image(kind, values + step, shape), image(kind, values - step, shape)
        columns.append(((ahead - behind) / (2 * step[i])).ravel())
    return np.stack(columns, 1)


def used(kind: Kind, shape) -> np.ndarray:
    """Mask of the pixels used."""
    if kind.plane is None:
        return np.ones(shape, bool)
    return np.isfinite(kind.plane) if kind.estimator == "mle" else np.asarray(kind.plane) > 0


def residuals(kind: Kind, values, spot) -> np.ndarray:
    """Return the residuals; for mle the signed roots of the deviance."""
    good = used(kind, spot.shape)
    h, g = image(kind, values, spot.shape)[good], spot[good]
    if kind.estimator != "mle":
        weights = 1.0 if kind.plane is None else np.asarray(kind.plane)[good]
        return np.sqrt(weights) * (h - g)
    v = 0.0 if kind.plane is None else np.asarray(kind.plane)[good]
    h, e = np.maximum(h + v, DARKEST), np.maximum(g + v, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = (h - e) / e
        terms = np.where(e > 0, e * (excess - np.log1p(excess)), h)
    return np.sign(h - e) * np.sqrt(2 * np.maximum(terms, 0))


def best(kind: Kind, spot, start, fixed=(), low=None, high=None) -> Best:
    """Fit one spot: counts for least squares, photo-electrons for maximum likelihood.

    Parameters
    ----------
    kind : Kind
        What to fit, and how.
    spot : array
        The pixels.
    start : array
        Where to begin, in the order of :func:`names`.
    fixed : names that keep their start values.
    low, high : dict, optional
        Bounds by name.
    """
    spot, start = np.asarray(spot, float), np.asarray(start, float)
    free = np.array([name not in fixed for name in names(kind)])
    lowest, highest = np.full(len(start), -np.inf), np.full(len(start), np.inf)
    if kind.estimator == "mle":
        lowest[-2:] = 0, DARKEST
    for bounds, ends in ((low, lowest), (high, highest)):
        for name, value in (bounds or {}).items():
            ends[names(kind).index(name)] = value
    values = np.clip(start, lowest + 1e-9, highest - 1e-9)

    def whole(part):
        values[free] = part
        return values

    result = least_squares(
        lambda part: residuals(kind, whole(part), spot), values[free], jac="3-point",
        bounds=(lowest[free], highest[free]), x_scale="jac", xtol=1e-11, ftol=1e-13, gtol=1e-11,
        max_nfev=300,
    )  # fmt: skip
    return Best(whole(result.x).copy(), 2 * result.cost, bool(result.success))


def standard_error(
    kind: Kind, values, spot, gain=None, fixed=(), variance=0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return standard errors and covariances in the order of :func:`names`; 0 of what is fixed.

    Least squares: the sandwich with shot noise and the read-out variance in counts², or from
    the residuals where the gain is unknown. Maximum likelihood: the inverse Fisher
    information, of photo-electrons.
    """
    spot, free = np.asarray(spot, float), [name not in fixed for name in names(kind)]
    good = used(kind, spot.shape).ravel()
    j = derivatives(kind, values, spot.shape)[good][:, free]
    h = image(kind, values, spot.shape).ravel()[good]
    plane = np.ones(len(h)) if kind.plane is None else np.asarray(kind.plane, float).ravel()[good]
    if kind.estimator == "mle":
        v = 0.0 if kind.plane is None else plane
        inside = np.linalg.inv((j.T / np.maximum(h + v, DARKEST)) @ j)
    else:
        inverse = np.linalg.inv((j.T * plane) @ j)
        if gain is None:
            squares = plane @ (spot.ravel()[good] - h) ** 2
            inside = squares / (len(h) - sum(free)) * inverse
        else:
            noise = gain * np.maximum(h, 0)
            noise += np.broadcast_to(variance, spot.shape).ravel()[good]
            inside = inverse @ ((j.T * (plane**2 * noise)) @ j) @ inverse
    covariance = np.zeros((len(free), len(free)))
    covariance[np.ix_(free, free)] = inside
    return np.sqrt(np.diag(covariance)), covariance


# The round Gaussian by least squares, from the paper's formulas.


def model(parameters, shape):
    """h = α exp(-((x - x̄)² + (y - ȳ)²)/2σ²) + β for (y, x, σ, α, β)."""
    y, x, sigma, amplitude, background = parameters
    rows, columns = np.indices(shape)
    return amplitude * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * sigma**2)) + background


def jacobian(parameters, shape):
    """Derivatives of the model, one column per parameter."""
    y, x, sigma, amplitude, _ = parameters
    rows, columns = np.indices(shape)
    dy, dx = rows - y, columns - x
    f = np.exp(-(dx**2 + dy**2) / (2 * sigma**2))
    h = amplitude * f
    columns_of_j = (
        h * dy / sigma**2,
        h * dx / sigma**2,
        h * (dx**2 + dy**2) / sigma**3,
        f,
        np.ones(shape),
    )
    return np.stack([column.ravel() for column in columns_of_j], axis=1)


def start_values(spot):
    """Fit2DGaussian's rule."""
    spot = np.asarray(spot, float)
    smooth = uniform_filter(spot, 3)[1:-1, 1:-1]
    y, x = np.unravel_index(np.argmax(smooth), smooth.shape)
    background = spot.min()
    amplitude = spot.max() - background
    above = np.sum(spot > amplitude * np.exp(-0.5) + background)
    return np.array([y + 1, x + 1, np.sqrt(above / np.pi), amplitude, background])


def fit(spot, start=None, bounds=(-np.inf, np.inf)):
    """Fit one spot; return SciPy's result with parameters (y, x, σ, α, β)."""
    spot = np.asarray(spot, float)
    start = start_values(spot) if start is None else start
    low, high = np.broadcast_to(bounds[0], 5), np.broadcast_to(bounds[1], 5)
    start = np.clip(start, low + 1e-6, high - 1e-6)
    return least_squares(
        lambda p: (model(p, spot.shape) - spot).ravel(),
        start,
        lambda p: jacobian(p, spot.shape),
        bounds=(low, high),
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-14,
        gtol=1e-12,
        max_nfev=200,
    )


def standard_errors(parameters, spot, gain=None):
    """Standard errors of (y, x, σ, α, β): sandwich with shot noise, or from the residuals."""
    spot = np.asarray(spot, float)
    j = jacobian(parameters, spot.shape)
    h = model(parameters, spot.shape).ravel()
    inverse = np.linalg.inv(j.T @ j)
    if gain is None:
        variance = np.sum((spot.ravel() - h) ** 2) / (spot.size - 5)
        covariance = variance * inverse
    else:
        covariance = inverse @ (j.T * (gain * np.maximum(h, 0))) @ j @ inverse
    return np.sqrt(np.diag(covariance)), covariance
