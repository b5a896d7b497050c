"""Tell denoised images, whose neighbouring pixels depend on each other, from raw ones with spots.

Pixels of a camera have noise of their own. Over the noise of its brightness, detail of 3×3 pixels
is as often large as that of normal noise then, and how large it is says nothing of detail farther
away. Denoisers, medians and compression leave noise in some places and take it from others, which
changes both. So does light that is as fine, of sharp spots in a crowd; but band-passed maxima are
higher than minima are deep there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..settings.noise_model import NoiseModel
from .band_noise import BandAreas
from .photon_transfer import FineDetail

Numbers = NDArray[np.float64]

#: Side of the areas that detail is measured in, four along 128 pixels less their edges; and the σ
#: of the filter that shows the brightness.
_SIDE, _AROUND = 31, 2.0
#: Of the detail's size, this quantile over the median is 2.44 in normal noise, up to 2.5 in cells
#: and nuclei of benchmarks/trust.py; and the chance of a single area.
_HIGH, _NORMAL, _CHANCE = 0.9, 2.54, 0.25
#: Detail is large or small as that of pixels at these distances, where kernels do not overlap: the
#: correlation is less than 0.01 in raw images with cells; and the chance of a single area.
_APART, _TOGETHER, _CHANCE_TOGETHER = (3, 4), 0.012, 0.07
#: Where spots of 10⁶ photons are in half of the areas, the others show what their noise is like.
_WITHOUT_SPOTS, _LEAST_HIGH = 0.25, 2.48
#: More areas leave no less to chance; fewer show nothing.
_MANY, _FEWEST = 64, 9
#: Fewer photons than one in a few pixels are no normal noise: its skewness is more than the first,
#: with less than the second of detail along one axis over that along both; beside sharp spots it is
#: more than the third.
_SKEWED, _WHITE, _SHARP = 2.0, 1.3, 10.0
#: From this ratio on there is no fine detail but of rounding, and of light: less is no denoiser's.
_SMOOTH, _BESIDE_LIGHT = 100.0, 3.0
#: Less noise than this, in steps between values, is mostly that of rounding.
_IN_STEPS = 0.8
_TINY, _GOLDEN = float(np.finfo(float).tiny), (math.sqrt(5) - 1) / 2
#: In crowds low minima are deeper than low maxima are high by more than the first; or high maxima
#: are higher than high minima are deep by more than the second, less the third for each of that
#: difference, if this is more than the fourth. Of spots in cells, edges make maxima less than the
#: last times as high.
_APART_IN_CROWDS, _HIGHER, _LESS, _DARK, _EDGES = 0.4, 1.5, 1.5, -0.08, 0.3


def looks_denoised(
    parts: list[Numbers],
    noise: NoiseModel,
    detail: FineDetail | None = None,
    areas: BandAreas | None = None,
) -> bool:
    """Whether pixels depend on their neighbours as no camera and no linear filter makes them.

    Parameters
    ----------
    parts : list of ndarray
        Parts of frames; NaN where pixels are bad.
    noise : NoiseModel
        Their noise, by brightness.
    detail : FineDetail, optional
        What their fine detail looks like, which shows whether photons are few.
    areas : BandAreas, optional
        Those of the parts in the band of spots, which show whether these are a crowd.

    Examples
    --------
    >>> from scipy import ndimage
    >>> white = np.random.default_rng(1).normal(50.0, 4.0, (128, 128))
    >>> images = white, ndimage.gaussian_filter(white, 1.0), ndimage.median_filter(white, 3)
    >>> [looks_denoised([image], NoiseModel(0.0, 16.0, 16.0)) for image in images]
    [False, False, True]
    """
    if detail is not None and _shows_nothing(detail, noise, parts):
        return False
    step, lowest = (0.0, 0.0) if detail is None else (detail.step, detail.lowest)
    shapes = np.concatenate([_shapes(part, noise, step, lowest) for part in parts], axis=1)
    shapes = shapes[:, np.isfinite(shapes).all(axis=0)]
    if shapes.shape[1] < _FEWEST:
        return False
    high, together = np.median(shapes, axis=1)
    chance = 1 / math.sqrt(min(shapes.shape[1], _MANY))
    is_together = together > _TOGETHER + _CHANCE_TOGETHER * chance and high > _LEAST_HIGH
    is_odd = is_together or high > _NORMAL + _CHANCE * chance
    along = min(detail.along) if detail is not None else _WHITE
    if along < _WHITE:
        is_odd = is_odd and np.quantile(shapes[0], _WITHOUT_SPOTS) > _LEAST_HIGH
    elif along > _SMOOTH:
        is_odd = high > _BESIDE_LIGHT
    return bool(is_odd) and not (areas is not None and _is_crowd(areas))


def _shows_nothing(detail: FineDetail, noise: NoiseModel, parts: list[Numbers]) -> bool:
    """Whether photons or steps are few, spots sharp, or there is no fine detail."""
    along = min(detail.along)
    if along >= _WHITE:
        return detail.skewness > _SHARP or (along > _SMOOTH and detail.step == 0)
    known = np.concatenate([part[np.isfinite(part)] for part in parts])
    usual = float(noise.variance(np.median(known))) if known.size else 0.0
    return detail.skewness > _SKEWED or usual < (_IN_STEPS * detail.step) ** 2


def _shapes(part: Numbers, noise: NoiseModel, step: float, lowest: float) -> Numbers:
    """Return by area how large large detail is, and how detail goes with that a few pixels away."""
    from scipy import ndimage  # takes longer to import than a few fits

    fine = part[2:] + part[:-2] - 2 * part[1:-1]
    fine = fine[:, 2:] + fine[:, :-2] - 2 * fine[:, 1:-1]
    # Between steps numbers are spread evenly, so that quantiles are no multiples of a step.
    fine += step * (np.arange(fine.size) * _GOLDEN % 1 - 0.5).reshape(fine.shape)
    level = ndimage.gaussian_filter(part, _AROUND)[1:-1, 1:-1]
    middle = float(np.nanmedian(part)) if np.isfinite(part).any() else 0.0
    usual = float(noise.variance(middle))
    # No light is below the lowest pixel, so that noise grows with it no faster.
    slope = min(noise.slope, usual / max(middle - lowest, math.sqrt(usual), _TINY))
    variance = np.maximum(usual + slope * (level - middle), noise.least)
    with np.errstate(invalid="ignore", divide="ignore"):
        size = abs(fine) / np.sqrt(variance)
        areas = _areas(size)
        half, high = np.quantile(areas, (0.5, _HIGH), axis=(1, 2))
        ratio = high / half
    signs = np.sign(areas - half[:, np.newaxis, np.newaxis])
    pairs: list[Any] = []
    for away in _APART:
        pairs += [signs[:, away:] * signs[:, :-away], signs[:, :, away:] * signs[:, :, :-away]]
    together = np.mean([pair.mean(axis=(1, 2)) for pair in pairs], axis=0)
    return np.stack([ratio, together])


def _areas(values: Numbers) -> Numbers:
    """Return the areas of values, without what is left at two edges."""
    side = min(_SIDE, *values.shape)
    rows, columns = (size // side for size in values.shape)
    whole = values[: rows * side, : columns * side].reshape(rows, side, columns, side)
    areas: Numbers = whole.swapaxes(1, 2).reshape(-1, side, side)
    return areas


def _is_crowd(areas: BandAreas) -> bool:
    """Whether maxima are higher than minima, and minima deep between them."""
    apart, over = areas.contrast()
    if apart > _APART_IN_CROWDS:
        return over > _EDGES
    return apart > _DARK and over > _HIGHER - _LESS * max(apart, 0.0)
