"""Tell denoised images, whose neighbouring pixels depend on each other, from raw ones with spots.

Pixels of a camera have noise of their own: two neighbours differ by as much as pixels that are
farther apart, and how much they differ says nothing of others. Denoisers, medians and compression
change both. So does light; but spots are bright, and where band-passed maxima are as high as minima
are deep, there are none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .second_witness import BandAreas

Numbers = NDArray[np.float64]

#: The width of the band by which images are judged, whatever spots are looked for, in pixels; bands
#: whose widths differ by less than the factor show the same. There is light in all areas where
#: those of a wider band differ by more than the last does below.
_WIDTH, _NEAR, _ALL_LIT = 1.3, 1.35, 1.0
#: The share of areas that count, whose highest maximum is most like their deepest minimum; and how
#: many count at least.
_MOST_ALIKE, _LEAST_ALIKE = 1 / 3, 4
#: Of maxima, and depths of minima, these quantiles are compared. Where there are spots in most
#: areas, the low one of minima is higher, by up to the first; in a bright crowd the high one is
#: lower than that of maxima by more than the second, less the third for each of that difference.
#: Where the difference is less than the last, there are edges of something dark.
_LOW, _HIGH, _SPOTS, _CROWD, _LESS, _DARK, _EDGES = 0.1, 0.9, 0.4, 1.5, 1.5, -0.08, 2.5
#: The share of areas in which a measure is less than what is taken for all: there is least light.
_SHARE = 0.25
#: How much more often than not a pixel is nearer to its neighbour than to the third pixel from it,
#: and the correlation of how much neighbours differ with how much those two pixels on do; and by
#: how much more for each of the difference above. Raw images have no more than half of this (cells
#: and nuclei of benchmarks/trust.py, σ 0.6 to 2, and sharp spots).
_NEARER, _WITH_SPOTS = 0.07, 0.8
_TOGETHER, _TOGETHER_WITH_SPOTS = 0.025, 1.5
#: Filters that treat all pixels alike leave normal noise: the mean square of how much pixels differ
#: from their neighbours over the square of its mean is π/2 then, and up to 1.62 beside cells; and
#: rounding to steps of 1 adds up to this much to the mean square.
_NOT_NORMAL, _ROUNDED = 1.65, 0.2


def looks_denoised(parts: list[Numbers], step: float = 0.0, areas: BandAreas | None = None) -> bool:
    """Whether pixels depend on their neighbours as no camera and no linear filter makes them.

    Parameters
    ----------
    parts : list of ndarray
        Parts of frames; NaN where pixels are bad.
    step : float, default 0
        The step between values; 0 if there is none.
    areas : BandAreas, optional
        Those of the parts in the band of the spots that are looked for, if they are known.

    Examples
    --------
    >>> from scipy import ndimage
    >>> white = np.random.default_rng(1).normal(50.0, 4.0, (128, 128))
    >>> images = white, ndimage.gaussian_filter(white, 1.0), ndimage.median_filter(white, 3)
    >>> [looks_denoised([image]) for image in images]
    [False, False, True]
    """
    wider = 1.0 if areas is None else areas.sigma / _WIDTH
    if areas is not None and wider >= _NEAR and _contrast(areas, _alike(areas))[0] > _ALL_LIT:
        return False
    if areas is None or not 1 / _NEAR < wider < _NEAR:
        areas = BandAreas(parts, _WIDTH)
    return _is_denoised(areas, _alike(areas), step)


def _alike(areas: BandAreas) -> NDArray[np.int64]:
    """Return the areas with least light, whose highest maximum is like their deepest minimum."""
    with np.errstate(divide="ignore", invalid="ignore"):
        unlike = abs(np.log(areas.ratio.max((1, 2)) / -areas.ratio.min((1, 2))))
    usable = np.flatnonzero(np.isfinite(unlike) & np.isfinite(areas.pixels).all(axis=(1, 2)))
    ordered = usable[np.argsort(unlike[usable], kind="stable")]
    return ordered[: max(math.ceil(_MOST_ALIKE * len(ordered)), _LEAST_ALIKE)]


def _is_denoised(areas: BandAreas, own: NDArray[np.int64], step: float) -> bool:
    """Whether pixels of some areas depend on each other more than light makes them."""
    if not len(own):
        return False
    pixels = areas.pixels[own]
    detail = abs(np.diff(np.diff(pixels, axis=1), axis=2))
    square = np.square(detail).mean(axis=(1, 2)) - _ROUNDED * step**2
    if not float(np.median(square - _NOT_NORMAL * detail.mean(axis=(1, 2)) ** 2)) > 0:
        return False
    apart, over = _contrast(areas, own)
    if apart > _SPOTS or _CROWD - _LESS * max(apart, 0.0) < over < (
        _EDGES if apart < _DARK else math.inf
    ):
        return False
    by_spots = max(apart, 0.0)
    if float(np.quantile(_nearer(pixels), _SHARE)) > _NEARER + _WITH_SPOTS * by_spots:
        return True
    middle = np.median(detail, axis=(1, 2), keepdims=True)
    together = float(np.quantile(_together(detail - middle), _SHARE))
    return together > _TOGETHER + _TOGETHER_WITH_SPOTS * by_spots


def _contrast(areas: BandAreas, own: NDArray[np.int64]) -> tuple[float, float]:
    """Return how much deeper low minima are than low maxima are high; high maxima over minima.

    Without either, that is infinite.
    """
    heights = areas.ratio[own][areas.highest[own]]
    depths = -areas.ratio[own][areas.lowest[own]]
    if not (len(heights) and len(depths)):
        return math.inf, math.inf
    apart = float(np.quantile(depths, _LOW) - np.quantile(heights, _LOW))
    return apart, float(np.quantile(heights, _HIGH) / np.quantile(depths, _HIGH))


def _nearer(pixels: Numbers) -> Numbers:
    """Return how much more often than not pixels are nearer to the next one than to the third."""

    def along(rows: Numbers) -> Any:
        far = abs(rows[:, :, 3:] - rows[:, :, :-3]) - abs(rows[:, :, 1:-2] - rows[:, :, :-3])
        return np.sign(far).mean(axis=(1, 2))

    both: Numbers = (along(pixels) + along(pixels.swapaxes(1, 2))) / 2
    return both


def _together(differences: Numbers) -> Numbers:
    """Return the correlation of the signs of numbers that are two pixels apart, for each area."""
    signs = np.sign(differences)
    signs -= signs.mean(axis=(1, 2), keepdims=True)
    pairs = (
        signs[:, 2:] * signs[:, :-2], signs[:, :, 2:] * signs[:, :, :-2],
        signs[:, 2:, 2:] * signs[:, :-2, :-2], signs[:, 2:, :-2] * signs[:, :-2, 2:],
    )  # fmt: skip
    total = np.mean([pair.mean(axis=(1, 2)) for pair in pairs], axis=0)
    square = np.square(signs).mean(axis=(1, 2))
    found: Numbers = total / np.maximum(square, np.finfo(float).tiny)
    return found
