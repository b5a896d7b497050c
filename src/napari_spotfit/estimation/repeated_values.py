"""Tell images whose pixels repeat their neighbours' values, as filters of rank leave them.

Medians, maxima, removed outliers and turns without interpolation take the value of a pixel for that
of others beside it. Pixels of a camera have noise of their own: as many of them as chance has it
are equal, and those that differ by one or two steps between values show how many that are. Where
light is smooth, neighbours are more alike than pixels farther away, but not the more often equal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Sides of the parts of a frame that are looked at first, and then.
_GLANCE, _SIDE = 96, 256
#: Neighbours, and pixels that are compared with these.
_BESIDE, _APART = 1, 3
#: The share of neighbours that are equal beyond chance, and how many deviations of chance it is: of
#: raw images it is 3.7 at most, and 13 where pixels beyond two deviations were replaced.
_SHARE, _BEYOND_CHANCE = 0.01, 8.0
#: In the first part, that many show that it may be so.
_AT_A_GLANCE = 2.0
#: Where pixels that differ by a step are fewer than this part of those that are equal, steps are
#: not all alike, as of counts that were multiplied and rounded, and show nothing.
_LEAST_BY_ONE = 0.25
#: Of numbers without steps, fewer are equal by chance than this part.
_RARE = 0.1


def repeats_neighbours(frame: NDArray[Any], step: float) -> bool:
    """Whether neighbouring pixels are equal more often than independent noise has it.

    Parameters
    ----------
    frame : ndarray, shape (Y, X)
        Pixels; NaN where they are bad.
    step : float
        The step between values; 0 if there is none.

    Examples
    --------
    >>> from scipy import ndimage
    >>> counts = np.random.default_rng(1).poisson(50.0, (128, 128)).astype(float)
    >>> middle = ndimage.median_filter(counts, 3)
    >>> calm = np.where(abs(counts - middle) > 10, middle, counts)
    >>> [repeats_neighbours(one, 1.0) for one in (counts, calm)]
    [False, True]
    """
    # A small part shows of most images that it does not.
    return all(
        _repeats(_middle(frame, side), step, sure)
        for side, sure in ((_GLANCE, _AT_A_GLANCE), (_SIDE, _BEYOND_CHANCE))
    )


def _middle(frame: NDArray[Any], side: int) -> NDArray[np.float32]:
    y, x = (max(size - side, 0) // 2 for size in frame.shape)
    return frame[y : y + side, x : x + side].astype(np.float32)


def _repeats(part: NDArray[np.float32], step: float, sure: float) -> bool:
    """Whether neighbours are equal more often, by this many deviations of chance."""
    known = np.isfinite(part)
    if not known.any():
        return False
    # What is cut off, or saturated, is equal for another reason.
    part[(part == part[known].min()) | (part == part[known].max())] = np.nan
    equal, *others, pairs = _counts(part, _BESIDE, step)
    least = _SHARE * pairs * min(sure / _BEYOND_CHANCE, 1.0)
    if not equal > least:
        return False
    if step == 0:  # hardly any numbers are equal by chance, unless all have few values
        far = _counts(part, _APART, step)[0]
        chance = far if far < _RARE * equal else math.inf
    else:
        chance = _by_chance(part, others, step)
    beyond = equal - chance
    return bool(beyond > max(least, sure * math.sqrt(equal + chance)))


def _by_chance(part: NDArray[np.float32], beside: list[float], step: float) -> float:
    """Return how many neighbours are equal by chance; infinite where that is unknown.

    Of a normal distribution, those that differ by one and by two steps show it; of others, pixels
    that lie apart show how much more or fewer there are.
    """
    far_equal, far_one, far_two, _ = _counts(part, _APART, step)
    one, two = beside
    if min(two, far_two) == 0 or not far_one > _LEAST_BY_ONE * far_equal:
        return math.inf
    of_normal = far_one * math.cbrt(far_one / far_two)
    return max(one * math.cbrt(one / two), one) * max(far_equal / of_normal, 1.0)


def _counts(part: NDArray[np.float32], apart: int, step: float) -> tuple[float, ...]:
    """Return how many pairs are equal, one and two steps apart (half of them), and all there are.

    Parameters
    ----------
    part : ndarray, shape (Y, X)
        Pixels; NaN where they do not count.
    apart : int
        How far pixels of a pair lie from each other, along x or y.
    step : float
        The step between values; 0 if there is none.
    """
    differences = np.concatenate([
        abs(part[:, apart:] - part[:, :-apart]).ravel(), abs(part[apart:] - part[:-apart]).ravel()
    ])  # fmt: skip
    pairs = np.count_nonzero(np.isfinite(differences))
    if step == 0:
        return float(np.count_nonzero(differences == 0)), 0.0, 0.0, float(pairs)
    below = [np.count_nonzero(differences < (k + 0.5) * step) for k in range(3)]
    return float(below[0]), (below[1] - below[0]) / 2, (below[2] - below[1]) / 2, float(pairs)
