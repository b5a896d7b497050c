"""The line of variance over brightness that most blocks of an image follow.

Hot pixels, cosmic rays, dead columns and the edges of what is sharp make some blocks differ from
it, and most of all the brightest ones: they are left out by how far they are from the line of the
others, and count in its error where they agree with one another only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Fewer blocks tell no line.
LEAST_BLOCKS = 8
#: Blocks of similar brightness: no fewer than so many together, and no more than so many sets.
_LEAST_TOGETHER, _MOST_SETS = 12, 32
#: The line is begun through what so many of a set's blocks are below, over their mean.
_LOW, _LOW_OVER_MEAN = 0.3, 0.76
#: The fine detail of a block has twice so many independent numbers: that of white noise, and
#: the least, as the light of a block with a spot lies in few of its pixels.
_USUAL_SHAPE, _LEAST_SHAPE = 6.0, 2.5
#: Blocks count within so many standard deviations of the line, and not at all beyond so many.
_NEAR, _FAR = 3.0, 5.0
#: Where more of them are farther away than this, the others tell nothing either.
_BEYOND, _MOST_BEYOND = 4.0, 0.12
_ROUNDS = 8
#: Halves of a block count by themselves where they differ in brightness by so many deviations of
#: its noise, which alone makes them differ by 0.2.
_UNLIKE = 1.0
#: The variance of a block's mean brightness over that of a pixel.
_OF_MEAN = 0.81 / 256
#: What is left of the spread of brightness without that, at least, or there is no light and shade.
_LEAST_LEFT = 0.2
#: A line is told by no fewer places, rows and columns of blocks.
_LEAST_PLACES = 4.0
#: How far off a line is besides, as light and its noise do not lie in quite the same blocks.
_ALWAYS_OFF = 0.05


class Line(NamedTuple):
    """A line of variance over brightness."""

    slope: float
    #: A brightness in its middle, and the variance there.
    level: float
    variance: float
    #: The standard error of the slope; infinite where there is too little light and shade, or at
    #: too few places. And what it is if blocks scatter as noise makes them: infinite without any.
    error: float
    least_error: float
    #: How steep it looks with what noise alone does, which is as steep as the noise is skewed; and
    #: the standard error of that.
    apparent: float
    apparent_error: float


class Blocks(NamedTuple):
    """What was measured in blocks without bad pixels, and with some noise.

    There is none outside of a mask. In the order of kernels/detection_settings.h.
    """

    mean: Numbers
    both: Numbers
    along_x: Numbers
    along_y: Numbers
    cube: Numbers
    lowest: Numbers
    dark: Numbers
    bright: Numbers
    dark_both: Numbers
    #: Where in its frame each is.
    row: NDArray[np.int64]
    column: NDArray[np.int64]

    @classmethod
    def of(cls, table: NDArray[np.void], columns: int) -> Blocks:
        """Return those of a table of all blocks, shape (frames, blocks), with so many in a row."""
        numbers = table.view(np.float64).reshape(table.size, -1).T.copy()
        usable = np.isfinite(numbers).all(axis=0) & (numbers[1] > 0)
        place = np.flatnonzero(usable)
        if len(place) < table.size:
            numbers = numbers[:, place]
        row, column = np.divmod(place % max(table.shape[-1], 1), columns)
        return cls._make([*numbers, row, column])


class Parts(NamedTuple):
    """Blocks and halves of blocks, from dark to bright: their brightness and fine detail."""

    brightness: Numbers
    variance: Numbers
    #: How much of a block each is.
    part: Numbers
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


def line_through(own: Parts, shape: tuple[int, ...], skewness: float) -> Line | None:
    """Return the line that most blocks follow; None where there are too few blocks.

    Parameters
    ----------
    own : Parts
        What was measured in the blocks of all frames.
    shape : tuple of int
        How many rows and columns of blocks a frame has.
    skewness : float
        The noise's third moment over its variance.
    """
    if np.sum(own.part) < LEAST_BLOCKS:
        return None
    fit = _fit(own, _first_line(own), skewness)
    if fit is None:
        return None
    error, usual = _errors(own, fit, shape)
    return fit.line._replace(
        error=error,
        least_error=usual / fit.own_spread if fit.own_spread > 0 else math.inf,
        apparent_error=usual / fit.spread if fit.spread > 0 else math.inf,
    )


def quantile(values: Numbers, share: float) -> Numbers:
    """Return a quantile along the last axis, of few numbers faster than NumPy's own.

    Examples
    --------
    >>> float(quantile(np.array([3.0, 1.0, 2.0, 4.0]), 0.1))
    1.3
    """
    ordered = np.sort(values, axis=-1)
    place, above = divmod(share * (ordered.shape[-1] - 1), 1.0)
    low = ordered[..., int(place)]
    found: Numbers = low + above * (ordered[..., math.ceil(place + above)] - low)
    return found


def median(values: Numbers) -> float:
    """Return the median of numbers."""
    return float(quantile(values, 0.5))


def of_sets(values: Numbers, share: float) -> Numbers:
    """Return a quantile of numbers that follow each other, as many at a time as make a set."""
    return np.concatenate([quantile(own, share) for own in _sets_of(values)])


def _sets_of(values: Numbers) -> list[Numbers]:
    """Return the sets as rows, those first that have one more."""
    sets = int(np.clip(len(values) // _LEAST_TOGETHER, 1, _MOST_SETS))
    size, larger = divmod(len(values), sets)
    end = larger * (size + 1)
    rows = (values[:end].reshape(-1, size + 1), values[end:].reshape(-1, size))
    return [own for own in rows if len(own)]


def are_unlike(blocks: Blocks) -> NDArray[np.bool_]:
    """Return which blocks have halves that are not alike, as where a spot is.

    They are told by the noise of blocks as bright: by their own, those would count by halves
    that happen to have little.
    """
    order = np.argsort(blocks.mean, kind="stable")
    ordered = blocks.both[order]
    usual = np.empty(len(order))
    usual[order] = np.concatenate(
        [np.repeat(quantile(own, 0.5), own.shape[1]) for own in _sets_of(ordered)]
    )
    unlike: NDArray[np.bool_] = np.square(blocks.bright - blocks.dark) > _UNLIKE**2 * (
        np.maximum(usual, median(ordered))
    )
    return unlike


def parts_of(blocks: Blocks, unlike: NDArray[np.bool_]) -> Parts:
    """Return blocks, and of those whose halves are not alike these, from dark to bright."""
    alike, halves = np.flatnonzero(~unlike), np.flatnonzero(unlike)
    place = np.concatenate([alike, halves, halves])
    dark_both, around = blocks.dark_both[halves], (blocks.dark + blocks.bright) / 2
    brightness = np.concatenate([around[alike], blocks.dark[halves], blocks.bright[halves]])
    variance = np.concatenate([blocks.both[alike], dark_both, 2 * blocks.both[halves] - dark_both])
    part = np.ones(len(place))
    part[len(alike) :] = 0.5
    order = np.argsort(brightness, kind="stable")
    place = place[order]
    return Parts(
        brightness[order], variance[order], part[order], blocks.row[place], blocks.column[place]
    )


def _first_line(own: Parts) -> Line:
    """Return a line that the brighter half of each set has no part in."""
    level = of_sets(own.brightness, 0.5)
    low = of_sets(own.variance, _LOW) / _LOW_OVER_MEAN
    weight = np.maximum(low, median(low) / 4) ** -2.0
    line, _, _ = _weighted(level, low, np.ones(len(low)), weight)
    return line


def _weighted(
    brightness: Numbers,
    variance: Numbers,
    part: Numbers,
    weight: Numbers,
    skewness: float | None = None,
) -> tuple[Line, float, float]:
    """Return a line that does not fall, and the spread of brightness, with its noise and without.

    With the noise's skewness, what noise alone does to the slope is left out: it makes the
    brightness of blocks differ, too, and if it is skewed, brighter ones noisier.
    """
    total = float(np.sum(weight))
    level = float(np.sum(weight * brightness)) / total
    middle = float(np.sum(weight * variance)) / total
    away = brightness - level
    spread = own_spread = float(np.sum(weight * away * away))
    rise = float(np.sum(weight * away * (variance - middle)))
    apparent = max(rise / spread, 0.0) if spread > 0 else 0.0
    if skewness is not None:
        noise = _OF_MEAN * float(np.sum(weight * variance / part))
        own_spread = spread - noise if spread - noise > _LEAST_LEFT * spread else 0.0
        rise -= min(skewness, apparent) * noise
    slope = max(rise / own_spread, 0.0) if own_spread > 0 else 0.0
    return Line(slope, level, middle, math.inf, math.inf, apparent, math.inf), spread, own_spread


def _expected(own: Parts, line: Line, least: float) -> Numbers:
    return np.maximum(line.slope * (own.brightness - line.level) + line.variance, least)


def _deviates(ratio: Numbers, shape: Numbers) -> Numbers:
    """Return how many standard deviations a sum of squares is from its mean, by Fisher."""
    deviates: Numbers = np.sqrt(4 * shape) * (np.sqrt(ratio) - np.sqrt(1 - 1 / (4 * shape)))
    return deviates


def _fit(own: Parts, line: Line, skewness: float) -> _Fit | None:
    least = float(quantile(own.variance, 0.05)) / 2
    shape, expected = _USUAL_SHAPE, _expected(own, line, least)
    for _ in range(_ROUNDS):
        far = abs(_deviates(own.variance / expected, shape * own.part))
        far = np.clip((far - _NEAR) / (_FAR - _NEAR), 0.0, 1.0)
        counts = np.square(1 - far * far)
        total = float(np.sum(counts))
        if total < LEAST_BLOCKS / 2:
            return None
        weight = counts * own.part / (expected * expected)
        line, spread, own_spread = _weighted(
            own.brightness, own.variance, own.part, weight, skewness
        )
        expected = _expected(own, line, least)
        off = np.square(own.variance / expected - 1)
        scatter = float(np.sum(counts * own.part * off)) / total
        shape = min(max(1 / max(scatter, 1e-9), _LEAST_SHAPE), _USUAL_SHAPE)
    return _Fit(line, expected, counts, spread, own_spread, shape)


def _errors(own: Parts, fit: _Fit, shape: tuple[int, ...]) -> tuple[float, float]:
    """Return the standard error of the slope, and that of its rise if blocks scatter as noise does.

    That of the slope is as large as blocks scatter around the line, those at one place of all
    frames taken together, those of one row, or of one column: what is wrong with a pixel is so in
    each frame.
    """
    rows, columns = shape
    weight = fit.counts * own.part / (fit.expected * fit.expected)
    away = own.brightness - fit.line.level
    lever = weight * away * away
    usual = math.sqrt(float(np.sum(lever * fit.counts)) / fit.shape)
    beyond = abs(_deviates(own.variance / fit.expected, fit.shape * own.part)) > _BEYOND
    if not fit.own_spread > 0 or np.mean(beyond) > _MOST_BEYOND:
        return math.inf, usual
    largest, pull = usual, weight * away * (own.variance - fit.expected)
    for place, count in (
        (own.row * columns + own.column, rows * columns), (own.row, rows), (own.column, columns),
    ):  # fmt: skip
        share = np.bincount(place, lever, count) / fit.spread
        places = 1 / float(np.sum(share * share))
        if places < _LEAST_PLACES:
            return math.inf, usual
        alone = np.bincount(place, pull, count) / np.maximum(1 - share, 0.2)
        scatter = math.sqrt(float(np.sum(alone * alone)))
        largest = max(largest, scatter * math.sqrt(places / (places - 2)))
    error = math.hypot(largest / fit.own_spread, _ALWAYS_OFF * fit.line.slope)
    return error, usual
