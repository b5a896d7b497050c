"""Correct standard errors for the filter that an image went through.

Its noise is the stronger the coarser it is, as if white noise had gone through a Gaussian filter:
two bands of detection show how wide that is. The fit takes noise for white, and as strong as it is
in the wide band of its spots, which is about right for the places of dim ones; but widths go by
finer noise, backgrounds by coarser, and the noise of a spot's own light is narrower than the spot.
So each error has a factor, from what either noise does to a usual spot.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import is_on_device
from ..models.columns import IN_PLANE
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings, has_shot_noise
from .bands import WIDTHS, half_kernel, whole_kernel
from .cpu import layouts
from .cpu.layouts import ErrorColumns
from .cpu.library import load
from .kernel_arguments import address

Array = NDArray[np.float64]

#: Of spots of unknown width, this is taken.
_USUAL_SIGMA = 1.3
#: Bands of spots of this σ, or narrower ones, show a filter's width; by how much noise may be
#: stronger in the PSF's band, after such a filter, than it is there.
_FINE, _AGREES = 1.0, 1.5
#: The widest filter that is recognised, in pixels, and how often the range is halved in the search.
_WIDEST, _HALVINGS = 3.0, 20
#: Least width of a spot before the filter, in units of its σ in the image.
_NARROWEST = 0.4
#: The step of numerical derivatives, as a fraction of σ or of the parameter.
_STEP = 1e-3
#: A direction that counts for less in the matrix of all parameters is not known.
_SINGULAR = 1e-9
#: The σ of the weights of detail in kernels/noise.h, and how far the widest filter reaches until
#: its end has no fine detail, in pixels.
_DETAIL, _FAR = 2.0, 20


def with_filter(
    noise: NoiseModel, sigma: float, scatter_in_band: Callable[[float], float]
) -> NoiseModel:
    """Return a noise model with the filter that its image went through, if it did.

    Parameters
    ----------
    noise : NoiseModel
        What is known.
    sigma : float
        The PSF's σ in pixels.
    scatter_in_band : callable
        Returns how strong noise is in the wide band of spots of a width, over white noise of the
        model's line.
    """
    if not noise.is_filtered:
        return noise
    # The finer detail is, the less of it is structure.
    fine = min(sigma, _FINE)
    blur, before = filter_of(scatter_in_band(fine), scatter_in_band(WIDTHS[0] * fine), fine)
    in_band = _filtered_by(blur, sigma)
    if not 0 < before * in_band <= _AGREES * noise.correlation:
        return noise  # it was no filter that treats all pixels alike
    return replace(noise, blur=blur, unfiltered=min(before, noise.correlation / in_band))


def filter_of(wide: float, narrow: float, sigma: float) -> tuple[float, float]:
    """Return the Gaussian filter that noise seems to have gone through.

    Parameters
    ----------
    wide, narrow : float
        The noise's deviation in the two bands of spots of a width, over that of white noise.
    sigma : float
        That width in pixels.

    Returns
    -------
    blur, unfiltered : float
        The filter's σ in pixels, and the deviation of white noise before it.

    Examples
    --------
    >>> filter_of(2.0, 2.0, 1.3)
    (0.0, 2.0)
    """
    low, high = 0.0, _WIDEST
    for _ in range(_HALVINGS):
        blur = (low + high) / 2
        ratio = _filtered_by(blur, sigma) / _filtered_by(blur, WIDTHS[0] * sigma)
        low, high = (blur, high) if ratio * narrow < wide else (low, blur)
    return low, wide / _filtered_by(low, sigma)


def light_of(along: float, sigma: float) -> tuple[float, float]:
    """Return the width that light seems to have, and how much of it is fine along both axes.

    Parameters
    ----------
    along : float
        The variance of detail that is fine along one axis over that in the band of spots of a
        width, each over that of white noise.
    sigma : float
        That width in pixels.

    Returns
    -------
    width, both : float
        The σ in pixels, and the variance of detail that is fine along both axes, over that in the
        band.

    Examples
    --------
    >>> width, both = light_of(0.003, 1.0)
    >>> round(width, 1), both < 1e-5
    (1.0, True)
    """
    low, high = 0.0, _WIDEST
    for _ in range(_HALVINGS):
        width = (low + high) / 2
        low, high = (width, high) if _fine_by(width, sigma)[0] > along else (low, width)
    return low, _fine_by(low, sigma)[1]


def _fine_by(blur: float, sigma: float) -> tuple[float, float]:
    """Return what filtered noise has along one axis, and along both, over what it has in the band.

    In variance; white noise has 1.
    """
    distance = np.arange(-_FAR, _FAR + 1) / max(blur, _NARROWEST)
    kernel = np.exp(-0.5 * np.square(distance))
    coarse = whole_kernel(half_kernel(_DETAIL))
    fine = coarse * (-1.0) ** np.arange(len(coarse))
    power = np.square(coarse).sum() * kernel.sum() ** 2
    own = [float(np.square(np.convolve(way, kernel)).sum() / power) for way in (coarse, fine)]
    in_band = _filtered_by(blur, sigma) ** 2
    return own[0] * own[1] / in_band, own[1] ** 2 / in_band


def error_columns(columns: dict[str, Any], names: tuple[str, ...]) -> ErrorColumns:
    """Return where some columns of errors are, of NumPy or CuPy, and what they depend on."""
    errors = tuple(address(columns[name]) for name in names)
    return ErrorColumns(errors, address(columns["amplitude"]), address(columns["background"]))


class FilteredNoise(NamedTuple):
    """Effect of the noise of a filtered image on standard errors."""

    #: Those columns of them that it changes.
    columns: tuple[str, ...]
    noise: layouts.FilteredNoise


def correct_errors(columns: dict[str, Any], settings: Settings, roi_shape: tuple[int, ...]) -> None:
    """Correct the standard errors of fits, on host or device, for a filtered image's noise."""
    filtered = filtered_noise(settings, roi_shape)
    if filtered is None:
        return
    where = error_columns(columns, filtered.columns)
    count = len(columns["amplitude"])
    if is_on_device(columns["amplitude"]):
        from .cuda.roi_kernels import correct_errors as correct_on_device

        correct_on_device(filtered.noise, where, count)
        return
    library = load()
    library.functions.spotfit_correct_errors(
        library.index, ctypes.byref(filtered.noise), ctypes.byref(where), count
    )


def filtered_noise(settings: Settings, roi_shape: tuple[int, ...]) -> FilteredNoise | None:
    """Return what a filter does to the errors of fits; None where it does nothing."""
    noise = settings.noise
    if settings.gain is not None or noise is None or not noise.blur or not settings.errors:
        return None
    if settings.estimator_kind.is_likelihood and not has_shot_noise(noise):
        return None  # they are of photo-electrons, one for each count
    return _filtered_noise(settings, roi_shape)


@lru_cache(maxsize=64)
def _filtered_noise(settings: Settings, roi_shape: tuple[int, ...]) -> FilteredNoise:
    """Return what white noise does to each column, and what it does before a filter.

    The light of a spot in the middle of a ROI was narrower there.
    """
    noise = settings.noise
    assert noise is not None
    sigma = settings.sigma or _USUAL_SIGMA
    names, slopes = _derivatives(settings, roi_shape, sigma)
    moves = _moves(slopes)
    before = max(math.sqrt(max(sigma**2 - noise.blur**2, 0.0)), _NARROWEST * sigma)
    white = _variances(settings, roi_shape, moves, slopes, sigma)
    filtered = _variances(settings, roi_shape, moves, _filtered(slopes, noise.blur), before)
    known = white[:, 0] > 0
    dark = noise.intercept + noise.slope * settings.offset
    numbers = layouts.FilteredNoise(
        noise.slope, dark, noise.least, noise.unfiltered / noise.correlation
    )
    for kind, variances in (("white", white[known]), ("filtered", filtered[known])):
        setattr(numbers, f"{kind}_dark", tuple(variances[:, 0]))
        setattr(numbers, f"{kind}_peak", tuple(variances[:, 1]))
    numbers.columns = int(known.sum())
    columns = (f"{name}_stderr" for name, one in zip(names, known, strict=True) if one)
    return FilteredNoise(tuple(columns), numbers)


def _moves(slopes: Array) -> Array:
    """Return how parameters and photons move with the products of pixels and derivatives."""
    flat = slopes.reshape(len(slopes), -1)
    inverse = np.linalg.pinv(flat @ flat.T, rcond=_SINGULAR, hermitian=True)
    # The photons' logarithm, by all but the background.
    light = np.append(flat[:-1].sum(axis=1) / flat[-2].sum(), 0.0)
    return np.vstack([inverse, light @ inverse])


def _variances(
    settings: Settings, roi_shape: tuple[int, ...], moves: Array, slopes: Array, sigma: float
) -> Array:
    """Return what pixels with a variance of 1 add, and a spot's that has 1 at its peak in the end.

    Both are white; the derivatives are those by pixels before any filter.
    """
    around = (slopes.shape[-1] - roi_shape[-1]) // 2
    spot = _spot(settings, roi_shape, _usual(settings, roi_shape, sigma), around)
    usual = _usual(settings, roi_shape, settings.sigma or _USUAL_SIGMA)
    spot *= _spot(settings, roi_shape, usual, around).sum() / spot.sum()
    axes = "".join(settings.profile.axes)
    products = f"i{axes},{axes},j{axes}->ij"
    noise = [np.einsum(products, slopes, own, slopes) for own in (spot**0, spot)]
    return np.array([np.einsum("ki,ij,kj->k", moves, one, moves) for one in noise]).T


def _usual(settings: Settings, roi_shape: tuple[int, ...], sigma: float) -> dict[str, float]:
    """Return the shape of a spot in the middle of a ROI."""
    start = {one.name: one.start[0] + one.start[1] * sigma for one in settings.profile.shape}
    if settings.sigma_z is not None and "sigma_z" in start:
        start["sigma_z"] = settings.sigma_z
    middles = ((side - 1) / 2 for side in roi_shape)
    return start | dict(zip(settings.profile.axes, middles, strict=True))


def _spot(
    settings: Settings, roi_shape: tuple[int, ...], shape: dict[str, float], around: int = 0
) -> Array:
    """Return a spot of height 1 in a ROI, and `around` pixels beside it in its planes."""
    profile = settings.profile
    beside = np.repeat([0, around], [len(roi_shape) - len(IN_PLANE), len(IN_PLANE)])
    places = np.indices(tuple(roi_shape + 2 * beside), float)
    places -= beside.reshape(-1, *len(roi_shape) * [1])
    top = shape | {"amplitude": 1.0, "background": 0.0}
    return profile.evaluate(places, top, settings.pixel if profile.integrated else "sampled")


def _derivatives(
    settings: Settings, roi_shape: tuple[int, ...], sigma: float
) -> tuple[list[str], Array]:
    """Return the columns, photons last, and the derivatives of a spot by all but these."""
    usual, names, slopes = _usual(settings, roi_shape, sigma), [], []
    for name in (one.name for one in settings.profile.shape):
        if name not in settings.fixed:
            step = _STEP * (sigma if name in settings.profile.axes else max(abs(usual[name]), 1.0))
            more, less = (
                _spot(settings, roi_shape, usual | {name: usual[name] + way})
                for way in (step, -step)
            )
            names.append(name)
            slopes.append((more - less) / (2 * step))
    slopes += [_spot(settings, roi_shape, usual), np.ones(roi_shape)]
    return [*names, "amplitude", "background", "photons"], np.array(slopes)


def _filtered(planes: Array, blur: float) -> Array:
    """Return planes after the filter, with as many pixels more around as it reaches."""
    for axis in (-2, -1):
        planes = np.apply_along_axis(np.convolve, axis, planes, _kernel(blur))
    return planes


def _kernel(sigma: float) -> Array:
    return whole_kernel(half_kernel(sigma)) if sigma > 0 else np.ones(1)


def _filtered_by(blur: float, sigma: float) -> float:
    """Return the deviation in the wide band that filtered noise has, over that of white noise."""
    inner, outer = _kernel(sigma), _kernel(WIDTHS[2] * sigma)
    both = np.array([np.pad(inner, (len(outer) - len(inner)) // 2), outer])
    signs = np.array([1.0, -1.0])
    after = np.apply_along_axis(np.convolve, 1, both, _kernel(blur))
    filtered, white = (signs @ np.square(rows @ rows.T) @ signs for rows in (after, both))
    return math.sqrt(filtered / white)
