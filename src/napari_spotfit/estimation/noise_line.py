"""Fit the line of variance over brightness that most blocks of an image follow.

Hot pixels, cosmic rays, dead columns and the edges of what is sharp make some blocks differ from
it, and most of all the brightest ones: they are left out by how far they are from the line of the
others, and count in its error where they agree with one another only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Bytes of numbers that are counted rather than sorted, which takes a tenth of the time.
_COUNTED_BYTES = 2
#: The standard deviation of a normal distribution over its median absolute deviation.
SIGMA_PER_MAD = 1.482602218505602

#: Fewer blocks have no line.
LEAST_BLOCKS = 8
#: Sets of blocks of similar brightness: the least number of blocks in a set, and of sets the most.
_LEAST_TOGETHER, _MOST_SETS = 12, 32
#: The line is begun through this quantile of a set's blocks, which is this part of their mean.
_LOW, _LOW_OVER_MEAN = 0.3, 0.76
#: Half the number of independent numbers in a block's fine detail: that of white noise, and the
#: least, as the light of a block with a spot lies in few of its pixels.
_USUAL_SHAPE, _LEAST_SHAPE = 6.0, 2.5
#: Blocks count in full within the first number of standard deviations of the line, and not at all
#: beyond the second.
_NEAR, _FAR = 3.0, 5.0
#: There is no line where more than this share of the blocks is farther than this from it.
_BEYOND, _MOST_BEYOND = 4.0, 0.12
_ROUNDS = 8
#: Fine detail reaches beyond its block: this part of the light of each neighbour is in it.
_FROM_NEIGHBOURS = 0.015
#: The variance of a block's mean brightness over that of a pixel.
OF_MEAN = 0.88 / 256
#: What is left of the spread of brightness without that, at least, or there is no light and shade.
LEAST_LEFT = 0.2
#: The fewest places, rows and columns of blocks for a line.
_LEAST_PLACES = 3.0
#: How far off a line is besides, as light and its noise do not lie in quite the same blocks.
_ALWAYS_OFF = 0.05


def quantiles(values: NDArray[Any], *shares: float) -> tuple[Numbers, ...]:
    """Return the numbers that a share of others lies below, of each row.

    Parameters
    ----------
    values : ndarray, shape (…, n)
        Finite numbers, one at least.
    *shares : float
        From 0 to 1.

    Examples
    --------
    >>> [float(one) for one in quantiles(np.array([3.0, 1.0, 2.0, 5.0]), 0.5, 1.0)]
    [2.5, 5.0]
    """
    last = values.shape[-1] - 1
    places = [share * last for share in shares]
    below = [min(int(place), max(last - 1, 0)) for place in places]
    wanted = [*below, *(min(low + 1, last) for low in below)]
    if values.ndim == 1 and _is_counted(values):
        found = _by_count(values, wanted)
    else:
        ordered = values.copy()
        ordered.partition(wanted, -1)
        found = ordered.T[wanted]
    return tuple(
        low + (high - low) * (place - first)
        for low, high, place, first in zip(
            found[: len(below)], found[len(below) :], places, below, strict=True
        )
    )


def _is_counted(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "iu" and values.dtype.itemsize <= _COUNTED_BYTES


def _by_count(values: NDArray[Any], places: list[int]) -> Numbers:
    """Return what is at some places of whole numbers in order, where few differ."""
    lowest = int(values.min())
    ends = np.cumsum(np.bincount(values.astype(np.int64) - lowest))
    return np.searchsorted(ends, places, "right").astype(float) + lowest


def median(values: NDArray[Any]) -> float:
    """Return the median of finite numbers, one at least.

    Examples
    --------
    >>> median(np.array([3.0, 1.0, 2.0]))
    2.0
    """
    if _is_counted(values):
        return float(quantiles(values, 0.5)[0])
    ordered, last = values.copy(), len(values) - 1
    middle, above = last // 2, (last + 1) // 2
    ordered.partition((middle, min(middle + 1, last)))  # of one, NumPy takes longer to find it
    return float(ordered[middle] + (ordered[above] - ordered[middle]) * 0.5)


#: As :func:`numpy.sum`, in less time for few numbers.
_sum = np.add.reduce


class Line(NamedTuple):
    """A line of variance over brightness."""

    slope: float
    #: A brightness in its middle, and the variance there.
    level: float
    variance: float
    #: The standard error of the slope; infinite where there is too little light and shade.
    error: float
    #: How steep it looks with what noise alone does, which is as steep as the noise is skewed; and
    #: the standard error of that.
    apparent: float
    apparent_error: float


class _Blocks(NamedTuple):
    """What is usable of the blocks, from dark to bright."""

    brightness: Numbers
    variance: Numbers
    row: NDArray[np.int64]
    column: NDArray[np.int64]


class _Fit(NamedTuple):
    line: Line
    #: The variance that the line has for each block, how much each counts, and the weighted spread
    #: of brightness: with its own noise, and without.
    expected: Numbers
    counts: Numbers
    spread: float
    own_spread: float
    #: Half the number of independent numbers in a block's fine detail.
    shape: float


def line_through(blocks: NDArray[np.void], skewness: float) -> Line | None:
    """Return the line that most blocks follow; None where there are too few blocks.

    Parameters
    ----------
    blocks : ndarray, shape (frames, rows, columns)
        What was measured in the blocks of each frame.
    skewness : float
        The noise's third moment over its variance.
    """
    own = _usable(blocks)
    if len(own.variance) < LEAST_BLOCKS:
        return None
    fit = _fit(own, _first_line(own), skewness)
    if fit is None:
        return None
    error, apparent_error = _errors(own, fit, blocks.shape[1:])
    return fit.line._replace(error=error, apparent_error=apparent_error)


def is_usable(blocks: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which blocks have noise and no bad pixels; outside of a mask there is no noise."""
    numbers = blocks.view(np.float64).reshape(*blocks.shape, -1)
    with np.errstate(invalid="ignore"):
        total = numbers @ np.ones(numbers.shape[-1])  # faster than to look at each
    usable: NDArray[np.bool_] = np.isfinite(total) & (blocks["both"] > 0)
    return usable


def of_sets(statistic: Callable[[Numbers], Numbers], values: Numbers) -> Numbers:
    """Return a statistic of successive numbers, set by set.

    ``statistic`` takes rows of numbers, and returns a number for each.
    """
    sets = min(max(len(values) // _LEAST_TOGETHER, 1), _MOST_SETS)
    size, larger = divmod(len(values), sets)
    end = larger * (size + 1)
    rows = (values[:end].reshape(-1, size + 1), values[end:].reshape(-1, size))
    return np.concatenate([statistic(own) for own in rows if len(own)])


def medians(rows: Numbers) -> Numbers:
    """Return the median of each row."""
    return quantiles(rows, 0.5)[0]


def _usable(blocks: NDArray[np.void]) -> _Blocks:
    usable = is_usable(blocks)
    _, row, column = np.nonzero(usable)
    brightness = _with_neighbours(np.where(usable, blocks["mean"], np.nan))[usable]
    order = np.argsort(brightness, kind="stable")
    return _Blocks(brightness[order], blocks["both"][usable][order], row[order], column[order])


def _with_neighbours(mean: Numbers) -> Numbers:
    """Return the brightness that fine detail is measured in, that of unknown neighbours guessed."""
    known = mean[np.isfinite(mean)]
    if not len(known):
        return mean
    padded = np.pad(mean, [(0, 0), (1, 1), (1, 1)], constant_values=np.nan)
    padded = np.where(np.isfinite(padded), padded, median(known))
    beside = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
    return mean + _FROM_NEIGHBOURS * (beside - 4 * mean)


def _first_line(own: _Blocks) -> Line:
    """Return a line that the brighter half of each set has no part in."""
    level = of_sets(medians, own.brightness)
    low = of_sets(lambda rows: quantiles(rows, _LOW)[0], own.variance) / _LOW_OVER_MEAN
    line, _, _ = _weighted(level, low, np.maximum(low, median(low) / 4) ** -2.0)
    return line


def _weighted(
    brightness: Numbers, variance: Numbers, weight: Numbers, skewness: float | None = None
) -> tuple[Line, float, float]:
    """Return a line that does not fall, and the spread of brightness, with its noise and without.

    With the noise's skewness, what noise alone does to the slope is left out: it makes the
    brightness of blocks differ, too, and if it is skewed, brighter ones noisier.
    """
    total = float(_sum(weight))
    level = float(_sum(weight * brightness)) / total
    middle = float(_sum(weight * variance)) / total
    away = brightness - level
    spread = own_spread = float(_sum(weight * away * away))
    rise = float(_sum(weight * away * (variance - middle)))
    apparent = max(rise / spread, 0.0) if spread > 0 else 0.0
    if skewness is not None:
        noise = OF_MEAN * float(_sum(weight * variance))
        own_spread = spread - noise if spread - noise > LEAST_LEFT * spread else 0.0
        rise -= min(skewness, apparent) * noise
    slope = max(rise / own_spread, 0.0) if own_spread > 0 else 0.0
    return Line(slope, level, middle, math.inf, apparent, math.inf), spread, own_spread


def _expected(own: _Blocks, line: Line, least: float) -> Numbers:
    return np.maximum(line.slope * (own.brightness - line.level) + line.variance, least)


def _deviates(ratio: Numbers, shape: float) -> Numbers:
    """Return how many standard deviations a sum of squares is from its mean, by Fisher."""
    return math.sqrt(4 * shape) * (np.sqrt(ratio) - math.sqrt(1 - 1 / (4 * shape)))


def _fit(own: _Blocks, line: Line, skewness: float) -> _Fit | None:
    least = float(quantiles(own.variance, 0.05)[0]) / 2
    shape, expected = _USUAL_SHAPE, _expected(own, line, least)
    for _ in range(_ROUNDS):
        far = abs(_deviates(own.variance / expected, shape))
        far = np.minimum(np.maximum((far - _NEAR) / (_FAR - _NEAR), 0.0), 1.0)
        counts = np.square(1 - far * far)
        total = float(_sum(counts))
        if total < LEAST_BLOCKS / 2:
            return None
        weight = counts / (expected * expected)
        line, spread, own_spread = _weighted(own.brightness, own.variance, weight, skewness)
        expected = _expected(own, line, least)
        scatter = float(_sum(counts * np.square(own.variance / expected - 1))) / total
        shape = min(max(1 / max(scatter, 1e-9), _LEAST_SHAPE), _USUAL_SHAPE)
    return _Fit(line, expected, counts, spread, own_spread, shape)


def _errors(own: _Blocks, fit: _Fit, shape: tuple[int, ...]) -> tuple[float, float]:
    """Return the standard errors of the slope, and of how steep it looks.

    That of the slope is as large as blocks scatter around the line, those at one place of all
    frames taken together, those of one row, or of one column: what is wrong with a pixel is so in
    each frame.
    """
    if not fit.spread > 0:
        return math.inf, math.inf
    rows, columns = shape
    weight = fit.counts / (fit.expected * fit.expected)
    away = own.brightness - fit.line.level
    lever = weight * away * away
    usual = math.sqrt(float(_sum(lever * fit.counts)) / fit.shape)
    beyond = abs(_deviates(own.variance / fit.expected, fit.shape)) > _BEYOND
    if not fit.own_spread > 0 or np.mean(beyond) > _MOST_BEYOND:
        return math.inf, usual / fit.spread
    largest, pull = usual, weight * away * (own.variance - fit.expected)
    for place, count in (
        (own.row * columns + own.column, rows * columns), (own.row, rows), (own.column, columns),
    ):  # fmt: skip
        share = np.bincount(place, lever, count) / fit.spread
        places = 1 / float(_sum(share * share))
        if places < _LEAST_PLACES:
            return math.inf, usual / fit.spread
        alone = np.bincount(place, pull, count) / np.maximum(1 - share, 0.2)
        scatter = math.sqrt(float(_sum(alone * alone)))
        largest = max(largest, scatter * math.sqrt(places / (places - 2)))
    error = math.hypot(largest / fit.own_spread, _ALWAYS_OFF * fit.line.slope)
    return error, usual / fit.spread
