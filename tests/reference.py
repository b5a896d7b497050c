"""The fit in double precision, by SciPy, from the paper's formulas."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import uniform_filter
from scipy.optimize import least_squares


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
