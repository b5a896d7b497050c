"""Read from pixel values alone: the step between them, repeats, patterns, a lowest value.

Rounding, enlarging without interpolation, mosaics of colours and a cut at a level leave traces that
need no model of the noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .constant_areas import inside_borders

#: Values from here on say nothing, as NaN: the sum of their squares has no number in single
#: precision.
SENSELESS = 1e15

Numbers = NDArray[np.float64]

#: Pixels from which the step between values is found.
_LOOKED_AT = 4096
#: How far multiples of a step may be off: this share of it, or this many times the precision of the
#: values, if that is more.
_OFF_STEP, _PRECISION = 0.02, 4.0
#: Differences of fewer steps than this show a step the better, the more of them there are.
_SMALL = 10.0
#: No number type has room for a step between values beyond this; they are no counts.
_EXACT = 2.0**53
#: Where a cut was made, at least this share of the pixels has the lowest value, more than this many
#: times as many as have the next one; and that one has no more than this many times as many as the
#: Side of the part in which it is looked for copies of lines.
_GLANCE = 128
#: one above. Sparse counts do not pile up in this way.
_PILED_UP, _TIMES_THE_NEXT, _ALIKE = 0.1, 3.0, 4.0
#: Of what is symmetric around the cut, half of the pixels have the lowest value, or nearly so.
_HALF = 0.45
#: Fewer of those that are one step higher touch no other, where a filter has smoothed them.
_MOST_ALONE = 0.15
#: Of sparse counts more pixels than this have it. What was cut off has neighbours that differ by
#: more than this many steps.
_MOST_PILED_UP = 0.85
_CLEARLY = 1.5
#: Above a threshold there are fewer pixels than this share, half of them in this lower part of
#: their range; its begin is farther above the rest than this part of the range, and than this many
#: times the distance to the next value.
_MOSTLY, _NEAR, _FAR, _GAPS = 0.5, 0.5, 0.1, 3.0
#: Height of spots in steps of the pixel values, where noise is less than one.
_MANY_STEPS = 8
#: Factors by which images are enlarged; the share of equal neighbours inside and between copies;
#: and of places that show the second.
_TIMES, _INSIDE, _BETWEEN, _SOME = range(2, 9), 0.98, 0.9, 0.25
#: How many lines are looked at first, and the least share of equal neighbours in them.
_LINES, _LEAST_EQUAL = 16, 0.35
#: Periods of mosaics, and how strong the pattern is, over the noise of a pixel and over chance.
_PERIODS, _OVER_NOISE, _OVER_CHANCE = (2, 3, 4, 6), 0.6, 8.0
#: The longest period of spots on a lattice of six columns has this many times the power of others.
_SMOOTH = 4.0
#: How often they repeat along each axis at least.
_LEAST_REPEATS = 5


def value_step(frames: NDArray[Any]) -> float:
    """Return the step that all values are multiples of, whatever their type; 0 if there is none.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels of any real type.

    Examples
    --------
    >>> counts = np.random.default_rng(1).poisson(100.0, (1, 60, 60))
    >>> [value_step(pixels) for pixels in (counts, counts.astype(float), 16 * counts, counts / 8)]
    [1.0, 1.0, 16.0, 0.125]
    >>> value_step(np.random.default_rng(1).normal(size=(1, 60, 60)))
    0.0
    """
    flat = frames.reshape(-1)
    some = flat[:: max(flat.size // _LOOKED_AT, 1) | 1]
    whole = frames.dtype.kind in "iu"
    if not whole:
        some = some[np.isfinite(some)].astype(float)
        some = some[abs(some) < _EXACT]
    levels = np.unique(some)
    if len(levels) < 2:
        return 1.0 if whole else 0.0
    steps = np.diff(levels)
    if whole:
        return float(np.gcd.reduce(steps.astype(np.int64)))
    if (levels == np.rint(levels)).all():
        return float(np.gcd.reduce(steps.astype(np.int64)))
    step = float(steps.min())
    rounding = float(np.finfo(frames.dtype).eps) * float(abs(levels).max())
    if rounding >= _OFF_STEP * step:
        return 0.0
    # Of the least of all, rounding is the largest part; wide gaps have many steps.
    near = steps < _SMALL * step
    step = float(steps[near].sum() / np.rint(steps[near] / step).sum())
    off = steps / step
    is_step = abs(off - np.rint(off)).max() < max(_OFF_STEP, _PRECISION * rounding / step)
    return step if is_step else 0.0


def is_cut_off(frame: NDArray[Any], step: float, *, is_smooth: bool = False) -> bool:
    """Whether a large share of the pixels has the lowest value, as what is cut off at a level has.

    Parameters
    ----------
    frame : ndarray, shape (Y, X)
        Pixels; NaN where they are bad.
    step : float
        The step between values.
    is_smooth : bool, default False
        Whether there is hardly any fine detail, as after a filter: few counts would have it.

    Examples
    --------
    A mask cuts off nothing: between its value and others there is a gap.

    >>> values = np.random.default_rng(1).normal(size=(60, 60))
    >>> is_cut_off(values, 0.0), is_cut_off(np.maximum(values, 0), 0.0)
    (False, True)
    >>> is_cut_off(np.where(values > 0, values + 20, 0), 0.0)
    False
    """
    finite = frame[np.isfinite(frame)]
    if not finite.size:
        return False
    lowest = finite.min()
    piled_up = float(np.mean(finite == lowest))
    if piled_up < _PILED_UP or _is_mask(finite, float(lowest)):
        return False
    if not step > 0:
        return True
    # Scaled values are multiples of their step but for rounding.
    one, two = (float(np.mean(abs(finite - lowest - n * step) < step / 2)) for n in (1, 2))
    if is_smooth and piled_up < _MOST_PILED_UP:
        return piled_up > _HALF
    if is_smooth:  # what is left of noise is hardly ever two steps high, spots are
        return one > _ALIKE * two and _lie_together(frame, float(lowest), step)
    # Of few counts, and of values that are hardly more than rounded, most are equal anyway.
    if piled_up > _MOST_PILED_UP:
        return False
    above = (frame[:, 1:] > lowest) & (frame[:, :-1] > lowest)
    if not above.any() or np.median(abs(frame[:, 1:] - frame[:, :-1])[above]) < _CLEARLY * step:
        return False
    return piled_up > _TIMES_THE_NEXT * one and one < _ALIKE * max(two, 1 / finite.size)


def is_thresholded(frames: NDArray[Any]) -> bool:
    """Whether most pixels have the lowest value, others begin far above it, and most near there.

    Noise of what lies in a mask is around its own middle; few photons begin one step above it.

    Examples
    --------
    >>> counts = np.random.default_rng(1).poisson(100.0, (60, 60))
    >>> counts[20:30, 20:30] += np.arange(100).reshape(10, 10)
    >>> is_thresholded(np.where(counts > 130, counts, 0))
    True
    >>> is_thresholded(np.where(np.arange(60) > 40, counts, 0))
    False
    """
    known = frames[np.isfinite(frames)]
    lowest = known.min() if known.size else math.nan
    others = known[known > lowest]
    if not 0 < others.size < _MOSTLY * known.size:
        return False
    low, middle, high = np.quantile(others, (0, 0.5, 0.9)).tolist()
    is_far = low - lowest > max(_FAR * (high - low), _GAPS * _next_gap(others, low))
    return bool(is_far and middle - low < _NEAR * (high - low))


def _next_gap(values: NDArray[Any], low: float) -> float:
    """Return by how much the second lowest value is above the lowest: of photons, by another."""
    above = values[values > low]
    return float(above.min()) - low if above.size else 0.0


def usual_is_lowest(frame: NDArray[Any]) -> bool:
    """Whether half of the pixels or more have the lowest value, as of few photons, or all are bad.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> usual_is_lowest(rng.poisson(0.1, (60, 60))), usual_is_lowest(rng.poisson(9.0, (60, 60)))
    (True, False)
    """
    known = frame if frame.dtype.kind in "iu" else frame[np.isfinite(frame)]
    return bool(not known.size or 2 * np.count_nonzero(known == known.min()) > known.size)


def is_rounded_away(frame: NDArray[Any], step: float) -> bool:
    """Whether noise is less than a step: most pixels have one value, others lie together.

    Parameters
    ----------
    frame : ndarray, shape (Y, X)
        Pixels; NaN where they are bad.
    step : float
        The step between values.

    Examples
    --------
    >>> from scipy import ndimage
    >>> noise = np.random.default_rng(1).normal(100.0, 1.0, (60, 60))
    >>> noise[30, 30] = 400.0
    >>> is_rounded_away(np.rint(ndimage.gaussian_filter(noise, 1)), 1.0)
    True
    >>> is_rounded_away(np.random.default_rng(1).poisson(0.1, (60, 60)), 1.0)
    False
    """
    known = frame[np.isfinite(frame)]
    if not (step > 0 and known.size):
        return False
    middle = float(np.median(known))
    if known.max() - middle < _MANY_STEPS * step:
        return False
    return bool(np.mean(known == middle) > _MOSTLY) and _lie_together(frame, middle, step)


def _lie_together(frame: NDArray[Any], usual: float, step: float) -> bool:
    """Whether pixels one step from the usual value touch others that differ from it.

    Single photons, and independent noise that is rounded, do not; what a filter has left does.
    """
    from scipy import ndimage  # takes longer to import than a few fits

    away = abs(frame - usual)
    around = ndimage.uniform_filter((away > 0).astype(np.float32), 3, mode="constant")
    by_one = abs(away - step) < step / 2
    alone = int(np.count_nonzero(by_one & (around * 9 < 1.5)))
    return alone < _MOST_ALONE * int(np.count_nonzero(by_one))


def _is_mask(values: NDArray[Any], lowest: float) -> bool:
    """Whether the lowest value is no data, as around a cell: half of the others are nearer to them.

    Of values that were cut off there are some just above the cut.
    """
    above = values[values > lowest] - lowest
    if not above.size:
        return False
    next_one, middle = float(above.min()), float(np.median(above))
    return next_one > middle - next_one > 0


def times_enlarged(frame: NDArray[Any]) -> int:
    """Return by how many times a frame was enlarged without interpolation; 1 if it was not.

    Examples
    --------
    >>> counts = np.random.default_rng(1).poisson(100.0, (60, 60))
    >>> times_enlarged(counts), times_enlarged(np.kron(counts, np.ones((3, 3))))
    (1, 3)
    """
    along = [_repeated(frame), _repeated(frame.T)]
    return min(along)


def has_copied_lines(frame: NDArray[Any]) -> bool:
    """Whether rows or columns are copies of those beside them, as of one field of two.

    Examples
    --------
    >>> counts = np.random.default_rng(1).poisson(100.0, (60, 60))
    >>> has_copied_lines(counts), has_copied_lines(np.repeat(counts[::2], 2, axis=0))
    (False, True)
    """
    y, x = (max(size - _GLANCE, 0) // 2 for size in frame.shape)
    middle = frame[y : y + _GLANCE, x : x + _GLANCE]
    return max(_repeated(middle), _repeated(middle.T)) > 1


def _repeated(frame: NDArray[Any]) -> int:
    """Return how many pixels of a row in succession are copies of one."""
    # Most images show at a glance that they have no copies, which make up half of them at least.
    few = frame[:: max(len(frame) // _LINES, 1)]
    if np.count_nonzero(few[:, 1:] == few[:, :-1]) < _LEAST_EQUAL * few.size:
        return 1
    equal = (frame[:, 1:] == frame[:, :-1]).mean(axis=0)
    for times in _TIMES:
        columns = len(equal) // times * times
        if columns < 2 * times:  # what is there once repeats nothing
            break
        each = equal[:columns].reshape(-1, times)
        by_place = each.mean(axis=0)
        between, inside = np.argsort(by_place)[:2]
        # One edge in what has one value makes no copies.
        differ = np.quantile(each[:, between], _SOME) < _INSIDE
        if by_place[between] < _BETWEEN and by_place[inside] > _INSIDE and differ:
            return times
    return 1


def mosaic_period(frame: NDArray[Any]) -> tuple[int, int] | None:
    """Return after how many rows and columns a pattern of sensitivities repeats; None without one.

    Parameters
    ----------
    frame : ndarray, shape (Y, X)
        Pixels; NaN where they are bad.

    Examples
    --------
    >>> counts = np.random.default_rng(1).poisson(np.tile([[90.0, 30.0], [60.0, 90.0]], (40, 40)))
    >>> mosaic_period(counts)
    (2, 2)
    >>> light = 90 + 6 * np.arange(80)  # that falls off to one side is no pattern
    >>> mosaic_period(np.random.default_rng(1).poisson(light, (80, 80))) is None
    True
    """
    periods = _period(frame.T), _period(frame)
    return None if periods == (1, 1) else periods


def _period(frame: NDArray[Any]) -> int:
    """Return after how many columns the pattern in rows of one kind repeats; 1 without a pattern.

    The same pattern may begin elsewhere in the rows of another kind.
    """
    for period in _PERIODS:
        columns = frame.shape[1] // period * period
        if columns < _LEAST_REPEATS * period or frame.shape[0] < _LEAST_REPEATS * period:
            continue
        rows = frame[: frame.shape[0] // period * period, :columns]
        # How pixels of one kind differ, with what light and shade and coarse noise do.
        differences = abs(rows[:, period:] - rows[:, :-period])
        known = differences[np.isfinite(differences)]
        if not known.size:
            continue
        apart = np.median(known)
        for first in range(period):
            means = _column_means(rows[first::period]).reshape(-1, period)
            means = means[np.isfinite(means).all(axis=1)]
            if len(means) < _LEAST_REPEATS:
                continue
            level = means.mean(axis=1, keepdims=True)
            rise = np.gradient(level, axis=0) / period  # of light that falls off to one side
            pattern = means - level - rise * (np.arange(period) - (period - 1) / 2)
            usual = pattern.mean(axis=0)
            chance = pattern.std(axis=0).max() / math.sqrt(len(means))
            is_pattern = np.ptp(usual) > max(_OVER_NOISE * apart, _OVER_CHANCE * chance)
            if is_pattern and not _is_light_of_lattice(usual):
                return period
    return 1


def _is_light_of_lattice(pattern: Numbers) -> bool:
    """Whether a pattern of six columns has little but its longest period, as spots on a lattice.

    No mosaic of six columns is as smooth: it has a colour twice.
    """
    if len(pattern) != _PERIODS[-1]:
        return False
    power = abs(np.fft.rfft(pattern)) ** 2
    return bool(power[1] > _SMOOTH * power[2:].sum())


def _column_means(rows: NDArray[Any]) -> Numbers:
    """Return the mean of the good pixels of each column; NaN without one."""
    good = np.isfinite(rows)
    count = np.count_nonzero(good, axis=0)
    total = np.where(good, rows, 0.0).sum(axis=0)
    means: Numbers = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return means


#: The side of JPEG's blocks; by which part, and by how many deviations of chance, pixels on both
#: sides of their edges differ more than others; and at how many times the usual one a difference is
#: cut off. Of raw images the part is below 0.05 (384² px of benchmarks/trust.py).
_JPEG, _EDGES, _EDGES_OVER_CHANCE, _OUTLYING = 8, 0.1, 6.0, 4.0
#: And how many times as much as at any other of the eight places they differ more there; and which
#: part of the usual difference is none.
_OVER_SECOND, _FLAT = 2.0, 1e-6


def has_jpeg_blocks(frame: NDArray[Any]) -> bool:
    """Whether neighbouring pixels differ most at every eighth place, as JPEG leaves them.

    Examples
    --------
    >>> smooth = np.kron(np.random.default_rng(1).normal(50, 3, (16, 16)), np.ones((8, 8)))
    >>> noise = np.random.default_rng(2).normal(0, 1, (128, 128))
    >>> has_jpeg_blocks(smooth + noise), has_jpeg_blocks(noise)
    (True, False)
    """
    inner = frame[inside_borders(frame[np.newaxis])]  # theirs are no edges of blocks
    return all(_has_edges(one) for one in (inner, inner.T))


def _has_edges(frame: NDArray[Any]) -> bool:
    """Whether neighbours in a row differ most at every eighth place."""
    steps = abs(np.diff(frame[np.isfinite(frame).all(axis=1)].astype(float)))
    columns = steps.shape[1] // _JPEG * _JPEG
    if min(columns, len(steps)) < _LEAST_REPEATS * _JPEG or not steps.any():
        return False
    usual = max(float(np.median(steps)), float(np.mean(steps)))
    by_place = np.minimum(steps[:, :columns], _OUTLYING * usual).mean(axis=0)
    ordered = np.sort(by_place.reshape(-1, _JPEG).mean(axis=0))
    # What is 8 pixels apart for another reason, as spots on a grid, differs at several places.
    second, first = ordered[-2:] / max(float(np.median(ordered)), _FLAT * usual) - 1
    chance = 1 / math.sqrt(steps.size / _JPEG)
    return bool(first > max(_EDGES, _EDGES_OVER_CHANCE * chance, _OVER_SECOND * second))


#: By how much most pixels differ, at least and at most, so that the squares of their noise and
#: those of spots a thousand times as bright are numbers of single precision; the share of pixels
#: that differ by less; and how many are looked at.
_SCALES, _DIFFER, _COMPARED = (1e-16, 1e14), 99, 1 << 16
#: The least number of steps between representable numbers that pixels must differ by.
_STEPS_OF_NOISE = 8.0
#: TOO_FAR of kernels/pixels.h.
_TOO_FAR = 1e30


def check_scale(frames: NDArray[Any]) -> None:
    """Check that sums of squares of the frames' noise and light are in single precision's range.

    And that values are no whole numbers so large that their noise is lost when they become floats.

    Raises
    ------
    ValueError
        If they are not: spots would not be found, or have wrong errors. It says what to do.

    Examples
    --------
    >>> check_scale(np.random.default_rng(1).normal(0, 1e-20, (1, 9, 9)))
    Traceback (most recent call last):
    ...
    ValueError: the image's values differ by about 2e-20, ... multiply it by 1e+22, ...
    """
    if frames.dtype.kind != "f":
        return
    known = frames.ravel()[:: max(frames.size // _COMPARED, 1) | 1]
    known = known[np.isfinite(known)].astype(float)
    # Others are as bad as infinite ones, unless all are.
    near = known[abs(known) < _TOO_FAR]
    known = near if near.size else known
    if not known.size:
        return
    apart = abs(known - np.median(known))
    usual = float(np.percentile(apart, _DIFFER)) or float(apart.max())
    middle = float(np.median(known))
    steps = float(np.spacing(frames.dtype.type(abs(middle))))
    if frames.dtype == np.float64 and usual and steps > max(usual / _STEPS_OF_NOISE, 1.0):
        raise ValueError(
            f"the image's values of about {middle:.3g} are calculated in steps of {steps:.3g}, and "
            f"they differ by {usual:.2g}: subtract a constant first, as in image - image.min()"
        )
    if usual == 0 or _SCALES[0] <= usual <= _SCALES[1]:
        return
    amount = "little" if usual < 1 else "much"
    factor = f"{10.0 ** (2 - math.floor(math.log10(usual))):g}"
    raise ValueError(
        f"the image's values differ by about {usual:.1g}, too {amount} for single precision, which "
        f"has no squares of these: multiply it by {factor}, and divide amplitudes, backgrounds and "
        "photons by that"
    )
