"""Tell images from which a background was taken away, and what was below 0 then was cut off.

Half of the pixels have the lowest value then, wherever there are no spots, however strong the noise
is there. A camera cuts off at one level what is darker: where there is more light, and so more
noise, fewer of its pixels have the lowest value. Areas count whose other pixels are like the upper
half of a normal distribution, and of no more light where they have no neighbour of the lowest value
than elsewhere: in these, a camera has but the noise of its read-out, which is the same everywhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Side of the areas in pixels, and that of the part of a frame that is looked at; and which of its
#: rows and columns are looked at first.
_SIDE, _PART, _ONE_IN = 16, 512, 5
#: The share of pixels of the lowest value: of the part, and of areas that count.
_OF_PART, _OF_AREA = (0.1, 0.96), (0.4, 0.68)
#: Of the other pixels of such areas, what one in four is above over what half of them are: of half
#: a normal distribution it is 1.71, of amplified photons 2 and more, where light differs 1.3.
_HALF_NORMAL = (1.45, 2.0)
#: Those beside pixels of the lowest value have at least this share of the usual height, and most.
_BESIDE = (0.8, 1.2)
#: The least number of areas, between which quantiles of their noise it is usual, and how many of
#: them, at least and as a share, have how many times as much, or less. Chance is 1.1 times in one.
_FEWEST, _USUAL, _FAR, _SHARE, _TIMES = 16, (0.4, 0.6), 6, 0.02, 1.7
#: Means of areas differ by more than that, too, as spots widen them.
_OF_MEANS = 1.4
_GOLDEN = (math.sqrt(5) - 1) / 2


def is_cut_alike(frame: NDArray[Any], step: float) -> bool:
    """Whether as many pixels have the lowest value where noise is strong as where it is weak.

    Parameters
    ----------
    frame : ndarray, shape (Y, X)
        Pixels; NaN where they are bad.
    step : float
        The step between values; 0 if there is none.

    Examples
    --------
    >>> noise = np.random.default_rng(1).normal(size=(256, 256))
    >>> stronger = noise * np.where(np.arange(256) < 128, 1, 3)
    >>> [is_cut_alike(np.maximum(one, 0), 0.0) for one in (noise, stronger)]
    [False, True]
    """
    y, x = (max(size - _PART, 0) // 2 for size in frame.shape)
    part = frame[y : y + _PART, x : x + _PART]
    # Of most images, few pixels show that hardly any has the lowest value.
    for some in (part[::_ONE_IN, ::_ONE_IN], part):
        lowest = np.fmin.reduce(some, axis=None) if some.size else math.nan
        is_lowest = some == lowest
        if not _OF_PART[0] < np.count_nonzero(is_lowest) / max(some.size, 1) < _OF_PART[1]:
            return False
    return _differ(_strengths(part - lowest, is_lowest, step), _TIMES)


def _differ(strengths: Numbers, times: float) -> bool:
    """Whether some areas have much more than the usual noise, or much less, beyond chance."""
    if len(strengths) < _FEWEST:
        return False
    low, high = np.quantile(strengths, _USUAL)
    stronger = np.count_nonzero(strengths > times * low)
    weaker = np.count_nonzero(times * strengths < high)
    return bool(max(stronger, weaker) >= max(_FAR, _SHARE * len(strengths)))


def _strengths(above: NDArray[Any], is_lowest: NDArray[np.bool_], step: float) -> Numbers:
    """Return the usual height over the lowest value, in areas with nothing but noise.

    Where their means show that they are alike, that is none.
    """
    lowest, heights = _areas(is_lowest), _areas(above)
    share = lowest.mean(axis=1)
    is_half = (share > _OF_AREA[0]) & (share < _OF_AREA[1])
    means = heights.mean(axis=1)[is_half] / (1 - share[is_half])
    if not _differ(means[np.isfinite(means)], _OF_MEANS):
        return np.empty(0)
    # Between steps numbers are spread evenly, so that quantiles are no multiples of a step.
    spread = np.arange(heights.size).reshape(heights.shape) * _GOLDEN % 1 - 0.5
    others = np.where(lowest, np.inf, heights + step * spread)[is_half]
    beside = np.where(_areas(_has_beside(is_lowest))[is_half], others, np.inf)
    half, quarter = _quantiles(others, 0.5, 0.75)
    (near,) = _quantiles(beside, 0.5)
    like_noise = (quarter > _HALF_NORMAL[0] * half) & (quarter < _HALF_NORMAL[1] * half)
    apart = (near > _BESIDE[0] * half) & (near < _BESIDE[1] * half)
    strengths: Numbers = half[like_noise & apart]
    return strengths


def _areas(values: NDArray[Any]) -> NDArray[Any]:
    """Return the pixels of each area, without what is left at two edges."""
    rows, columns = (size // _SIDE for size in values.shape)
    whole = values[: rows * _SIDE, : columns * _SIDE].reshape(rows, _SIDE, columns, _SIDE)
    areas: NDArray[Any] = whole.swapaxes(1, 2).reshape(rows * columns, _SIDE * _SIDE)
    return areas


def _has_beside(is_lowest: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which pixels have one of the lowest value beside them, or above or below."""
    found = np.zeros(is_lowest.shape, bool)
    for one, other in ((found, is_lowest), (found.T, is_lowest.T)):
        one[1:] |= other[:-1]
        one[:-1] |= other[1:]
    return found


def _quantiles(values: Numbers, *shares: float) -> list[Numbers]:
    """Return quantiles of the finite numbers of each row; infinite without any."""
    ordered = np.sort(values, axis=1)
    count, row = np.count_nonzero(np.isfinite(values), axis=1), np.arange(len(values))
    return [ordered[row, (share * count).astype(np.intp)] for share in shares]
