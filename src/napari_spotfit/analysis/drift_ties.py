"""Find where molecules before and after a time do not lie on each other, less their drift.

Around most times, molecules are seen again within a part of a movie as they are before and after.
Where they are not, the sample has jumped farther than was searched, or other molecules are seen.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .drift_within import REACH, Close, Sample

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Parts of a movie with equal numbers of localisations.
PARTS = 240
#: Parts before and after a time that are compared.
_WINDOWS = (8, 16, 32, 64)
#: Distance of molecules that are the same, and the ring around it that says how many are by chance.
_SAME, _RING = 3.5, 5.5
#: Largest share of the expected pairs that is none, and how many errors it is off at least.
_SHARE, _SURE = 0.35, 4.5
#: Variance of numbers of pairs over that of independent ones, beside blinks: each may count twice.
_TWICE = 2.0
#: Parts that have a blink together, and parts that do not.
_BLINK, _LATER = 1, 8
#: Least share of the pairs within two pieces of a movie that are between them, if they are tied.
_TIED = 0.1


class Pieces(NamedTuple):
    """Pieces of a movie without jumps, and which of these lie on each other."""

    starts: Integers  # first frame of each, and the one after the last
    group: Integers  # those of the same number are tied; 0 are most of the movie


class _Excess(NamedTuple):
    """Pairs of localisations in two parts beyond chance, and their variance, as sums."""

    pairs: Floats
    variance: Floats

    def between(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[float, float]:
        """Return both for all parts first ... last - 1 of one and other."""
        (a, b), (c, d) = one, other
        return tuple(float(sums[b, d] - sums[a, d] - sums[b, c] + sums[a, c]) for sums in self)  # type: ignore[return-value]


def pieces(sample: Sample, close: Close) -> Pieces:
    """Return the pieces of a movie that localisations without drift say.

    Parameters
    ----------
    sample, close
        Localisations less drift, and which are close to each other.
    """
    count = len(sample.frame)
    cuts = np.unique(sample.frame[np.arange(1, PARTS) * count // PARTS])
    cuts = cuts[cuts > sample.frame[0]]
    part = np.searchsorted(cuts, sample.frame, side="right")
    parts = len(cuts) + 1
    excess = _excess(sample, close, part, parts)
    times = _untied(excess, parts)
    ends = [0, *times, parts]
    starts = np.array([sample.frame[0], *cuts[np.array(times, int) - 1], sample.frame[-1] + 1])
    return Pieces(starts, _tied(excess, ends, np.bincount(part, minlength=parts)))


def _excess(sample: Sample, close: Close, part: Integers, parts: int) -> _Excess:
    square = np.square(close.apart[:2]).sum(axis=0)
    if len(close.apart) > 2:
        square = np.where(np.abs(close.apart[2]) < _SAME, square, np.inf)
    index = part[close.own] * parts + part[close.other]
    index = np.where(sample.frame[close.own] == sample.frame[close.other], parts**2, index)
    near, ring = (
        np.bincount(index[within], minlength=parts**2)[: parts**2].reshape(parts, parts)
        for within in (square < _SAME**2, (square > _RING**2) & (square < REACH**2))
    )
    share = _SAME**2 / (REACH**2 - _RING**2)
    # A blink is of several frames, so pairs come in bunches.
    lag = np.abs(np.subtract.outer(np.arange(parts), np.arange(parts)))
    soon, later = lag <= _BLINK, (lag > _BLINK) & (lag <= _LATER)
    usual = float(near[later].sum()) / max(int(np.count_nonzero(later)), 1)
    queries = int(np.count_nonzero(np.bincount(close.own, minlength=1)))
    more = float(near[soon].sum()) - usual * int(np.count_nonzero(soon))
    more = max(more, 0.0) / max(queries, 1)
    bunched = _TWICE * (1 + more) ** 2
    near, ring = near + near.T, ring + ring.T
    both = near - share * ring, bunched * (near + share**2 * ring)
    return _Excess(*(np.pad(one, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1) for one in both))


def _untied(excess: _Excess, parts: int) -> list[int]:
    """Return the parts with which a piece begins that does not lie on the one before."""
    found: list[int] = []
    for window in _WINDOWS:
        half = window // 2
        ends = np.array([0, *sorted(found), parts])
        lacking = np.zeros(parts)  # pairs, in their errors
        for low, high in pairwise(ends.tolist()):
            for time in range(low + half, high - half + 1):
                if low < time < high:
                    first, last = max(time - window, low), min(time + window, high)
                    lacking[time] = _lacking(excess, first, time, last, half)
        times = np.flatnonzero(lacking)
        runs = np.split(times, np.flatnonzero(np.diff(times) > 1) + 1) if len(times) else []
        found += [int(run[lacking[run].argmax()]) for run in runs]
    return sorted(found)


def _lacking(excess: _Excess, first: int, time: int, last: int, half: int) -> float:
    """Return how many pairs are lacking between parts before and after a time, in their errors.

    At least as many are expected as there are between the nearer and farther ones of each.
    """
    across, noise = excess.between((first, time), (time, last))
    before = excess.between((first, time - half), (time - half, time))
    after = excess.between((time, time + half), (time + half, last))
    expected, error = before if before[0] < after[0] else after
    if expected <= 0 or across >= _SHARE * expected:
        return 0.0
    missing = (expected - across) / math.sqrt(noise + error)
    return missing if missing > _SURE else 0.0


def _tied(excess: _Excess, ends: list[int], sizes: Integers) -> Integers:
    """Return which pieces lie on each other, as numbers of groups."""
    from scipy.sparse import csgraph

    count = len(ends) - 1
    # A jump may be a part before or after.
    own = [
        (first + (first > 0), last - (number < count - 1)) if last - first > 3 else (first, last)
        for number, (first, last) in enumerate(pairwise(ends))
    ]
    weights = np.array([sizes[first:last].sum() for first, last in own], float)
    inside = np.array([max(excess.between(one, one)[0], 0.0) for one in own]) / weights**2
    ties = np.eye(count, dtype=bool)
    for one in range(count):
        for other in range(one + 2, count):  # those beside each other are not
            pairs, variance = excess.between(own[one], own[other])
            usual = np.sqrt(inside[one] * inside[other]) * weights[one] * weights[other]
            ties[one, other] = pairs > max(_SURE * variance**0.5, _TIED * usual)
    group = csgraph.connected_components(ties, directed=False)[1]
    total = np.bincount(group, weights)
    order = np.argsort(np.argsort(-total, kind="stable"), kind="stable")
    return np.asarray(order[group], np.int64)
