"""Closed formulas for the localisation precision."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .models.estimators import ESTIMATORS, EstimatorName
from .settings.fields import Pixel
from .settings.noise_model import excess_of


def localization_precision(
    photons: ArrayLike,
    sigma: ArrayLike,
    background: ArrayLike = 0.0,
    *,
    estimator: EstimatorName = "lse",
    pixel: Pixel = "sampled",
    emccd: bool = False,
) -> NDArray[np.float64]:
    """Return the standard error of a centre along one axis, by closed formulas.

    The formulas assume round Gaussian spots and a ROI with all of their light. The standard errors
    of a fit (``x_stderr``) account for the ROI and the fitted spot, and hold for any model.

    With the photons N, the background b² in photons per pixel, and σₐ, the width of the
    spot in the camera's pixels, the variance of least squares is, by Mortensen et al.
    (their eq. 6), ::

        σₐ²/N · (16/9 + 8π σₐ² b²/N)

    and that of maximum likelihood, by Rieger and Stallinga, ::

        σₐ²/N · (1 + 4τ + √(2τ/(1 + 4τ)))    τ = 2π σₐ² b²/N

    An EMCCD's excess noise doubles both.

    Parameters
    ----------
    photons : array_like
        Photons of the spot.
    sigma : array_like
        Standard deviation of the spot in pixels, as the fit gives it.
    background : array_like, default 0
        Background photons per pixel; add the camera's read-out variance in photo-electrons².
    estimator : {"lse", "mle"}
        Least squares or maximum likelihood.
    pixel : {"sampled", "integrated"}
        The model of the fit: σₐ = σ if sampled; σₐ² = σ² + 1/12 if integrated over pixels.
    emccd : bool, default False
        Whether the camera multiplies electrons before the read-out.

    Returns
    -------
    ndarray of float64
        Standard error in pixels.

    Raises
    ------
    ValueError
        If photons or σ are not positive, a background is negative, or a name is unknown.

    References
    ----------
    K. I. Mortensen et al., Optimized localization analysis for single-molecule tracking and
    super-resolution microscopy, Nature Methods 7, 377 (2010).

    B. Rieger and S. Stallinga, The lateral and axial localization uncertainty in
    super-resolution light microscopy, ChemPhysChem 15, 664 (2014).

    Examples
    --------
    >>> from napari_spotfit import localization_precision
    >>> [round(float(error), 4) for error in localization_precision([400, 4000], 1.3, 2)]
    [0.0917, 0.0276]
    >>> round(float(localization_precision(400, 1.3, 2, estimator="mle")), 4)
    0.0798
    """
    n, width, b = (np.asarray(value, float) for value in (photons, sigma, background))
    for name, values, right in (
        ("photons", n, n > 0), ("sigma", width, width > 0), ("background", b, b >= 0),
    ):  # fmt: skip
        if not np.all(right | np.isnan(values)):
            lowest = "0 or more" if name == "background" else "above 0"
            raise ValueError(f"{name} must be {lowest}; got {values[~right].flat[0]:g}")
    known = [repr(name) for name, one in ESTIMATORS.items() if not one.needs_weights]
    if repr(estimator) not in known:
        raise ValueError(f"estimator must be {' or '.join(known)}; got {estimator!r}")
    if pixel not in ("sampled", "integrated"):
        raise ValueError(f"pixel must be 'sampled' or 'integrated'; got {pixel!r}")
    square = width**2 + (1 / 12 if pixel == "integrated" else 0)
    tau = 2 * math.pi * square * b / n
    if not ESTIMATORS[estimator].is_likelihood:
        factor = 16 / 9 + 4 * tau
    else:
        factor = 1 + 4 * tau + np.sqrt(2 * tau / (1 + 4 * tau))
    precision: NDArray[np.float64] = np.sqrt(square / n * factor * excess_of(emccd))
    return precision
