"""Planes of volumes that hold no image of their own: empty ones, copies of others, and noise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: How many times the variance of planes beside it one has whose noise is not that of its light.
_NOISIER = 30.0
#: The share of planes that are the mirror images of others where padding is, at most.
_MIRRORED = 0.4
#: The share of neighbouring pixels that differ where there is noise, at least.
_NOISY = 0.1
#: How many pixels, or blocks, of a plane are looked at, about.
_ENOUGH = 4096
#: The most bytes of whole numbers whose sums of a few fit into 32 bits.
_SHORT = 2

Array = NDArray[np.float64]


class NoImage(NamedTuple):
    """Which planes hold no image of their own in each of a few volumes, of shape (planes,)."""

    left_out: NDArray[np.bool_]
    is_copy: NDArray[np.bool_]
    is_noise: NDArray[np.bool_]


def step_for(count: int) -> int:
    """Return every how many pixels, or blocks, along each axis are enough of all."""
    return max(int((count / _ENOUGH) ** 0.5), 1)


def type_of_sums(dtype: np.dtype[Any]) -> type[np.generic]:
    """Return a type that holds sums of a few pixels, whole numbers where these are short ones."""
    return np.int32 if dtype.kind in "iu" and dtype.itemsize <= _SHORT else np.float64


def planes_without_image(volumes: Iterable[NDArray[Any]]) -> NoImage:
    """Return which planes are empty, have one value, are copies of others or noise in each volume.

    Examples
    --------
    >>> volume = np.random.default_rng(1).normal(size=(4, 20, 20))
    >>> volume[2] = 0
    >>> planes_without_image([volume]).left_out.tolist()
    [False, False, True, False]
    """
    left_out = is_copy = is_noise = np.ones(1, np.bool_)
    for volume in volumes:
        is_copy, is_noise = is_copy & copied_planes(volume), is_noise & noisy_planes(volume)
        left_out = left_out & (is_copy | is_noise | empty_planes(volume))
        if not left_out.any():
            break
    return NoImage(left_out, is_copy, is_noise)


def empty_planes(volume: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which planes of a volume hold nothing, or one value."""
    step = step_for(volume[0].size)
    found = np.array([_is_empty(plane[::step, ::step]) for plane in volume])
    found[found] = [_is_empty(plane) for plane in volume[found]]
    return found


def _is_empty(plane: NDArray[Any]) -> bool:
    return not np.fmax.reduce(plane, axis=None) > np.fmin.reduce(plane, axis=None)


def noisy_planes(volume: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which planes of a volume have far more noise than those beside them.

    It is that of detail as fine as pixels. Light that is brighter has more: by as much as it is.

    Examples
    --------
    >>> volume = np.random.default_rng(1).normal(100, 5, (6, 40, 40))
    >>> volume[2] *= 10  # light and its noise, partly that of photons
    >>> volume[4] += np.random.default_rng(2).normal(0, 100, (40, 40))
    >>> np.flatnonzero(noisy_planes(volume)).tolist()
    [4]
    """
    depth, _, width = volume.shape
    found = np.zeros(depth, np.bool_)
    if width < 3 or depth < 3:
        return found
    rows = volume[:, :: step_for(volume[0].size) ** 2].astype(type_of_sums(volume.dtype))
    finite = np.isfinite(rows)
    if finite.all():
        variance = np.square(_medians(np.abs(np.diff(rows, 2, axis=2))))
        level = np.abs(_medians(rows))
    else:
        variance, level = np.full(depth, np.nan), np.ones(depth)
        for number, (plane, known) in enumerate(zip(rows, finite, strict=True)):
            own = plane[:, known.all(axis=0)]
            if own.shape[1] > 2:
                variance[number] = np.square(np.median(np.abs(np.diff(own, 2, axis=1))))
                level[number] = abs(np.median(own))
    for number in range(depth):
        sides = [
            [k for k in (number + step, number + 2 * step) if 0 <= k < depth and variance[k] > 0]
            for step in (-1, 1)
        ]
        beside = [
            min(max(level[number] / max(level[k], 1e-30), 1.0) * variance[k] for k in side)
            for side in sides
            if side
        ]
        found[number] = bool(beside) and bool(variance[number] > _NOISIER * max(beside))
    return found


def _medians(planes: NDArray[Any]) -> Array:
    """Return the median of each plane."""
    rows = planes.reshape(len(planes), -1)
    size, lowest = rows.shape[1], rows.min()
    if rows.dtype.kind != "i" or rows.max() - lowest > size:
        return np.asarray(np.median(rows, axis=1))
    # Few numbers differ, so that to count them takes a third of the time.
    middle = [(size - 1) // 2, size // 2]
    ends = (np.cumsum(np.bincount(row)) for row in rows - lowest)
    found: Array = np.array([np.searchsorted(end, middle, "right").mean() for end in ends])
    return found + int(lowest)


def copied_planes(volume: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which planes of a volume are copies of others, but for those that are empty.

    Of copies at an end of a stack, as padding makes them, the innermost plane is the image; of
    others the first.

    Examples
    --------
    >>> own = np.random.default_rng(1).normal(size=(6, 20, 20))
    >>> copied_planes(own[[0, 0, 1, 2, 3, 4, 4]]).tolist()
    [True, False, False, False, False, False, True]
    """
    step = step_for(volume[0].size)
    name = _names(volume[:, ::step, ::step])
    if len(set(name.tolist())) == len(name):
        return np.zeros(len(volume), np.bool_)
    name = _names(volume)
    # Without noise, planes that are as far from a spot look alike.
    if np.mean(np.diff(volume[:, ::step], axis=-1) != 0) < _NOISY:
        return np.zeros(len(volume), np.bool_)
    there = np.flatnonzero(~empty_planes(volume))
    first, last = 0, len(there)
    while first < last and name[there[first]] in name[there[first + 1 : last]]:
        first += 1
    while first < last and name[there[last - 1]] in name[there[first : last - 1]]:
        last -= 1
    kept = there[first:last]
    kept = kept[np.unique(name[kept], return_index=True)[1]]
    is_copy = np.zeros(len(volume), np.bool_)
    is_copy[there] = True
    is_copy[kept] = False
    # Of an image that is even about a plane, and has no noise, each plane has another one.
    beside = np.append(name[1:] == name[:-1], False)
    is_mirrored = is_copy & ~beside & ~np.append(False, beside[:-1])
    found: NDArray[np.bool_] = is_copy & (is_mirrored.sum() <= _MIRRORED * len(there))
    return found


def _names(volume: NDArray[Any]) -> NDArray[np.int64]:
    """Return a number for each plane, the same of those that are alike."""
    kinds: dict[bytes, int] = {}
    return np.array([kinds.setdefault(plane.tobytes(), len(kinds)) for plane in volume])
