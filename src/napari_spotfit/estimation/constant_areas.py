"""Find areas of constant value, and copied borders, which are no pixels of a camera."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The least side of squares of one number that are no noise, and how many of them chance may make
#: in an image: of sparse counts, which are mostly 0, the side is larger by far.
_LEAST_SIDE, _BY_CHANCE = 8, 1e-3
#: How often areas are looked for again without the known ones, whose pixels are no sparse counts.
_ROUNDS = 4


def without_constant_areas(frames: NDArray[Any]) -> NDArray[Any]:
    """Return frames with NaN in constant areas and copied borders, in floating point if any.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels of any real type.
    """
    areas, copied = constant_areas(frames), copied_borders(frames)
    if copied is not None:
        areas = copied if areas is None else areas | copied
    areas = _with_borders(areas, frames)
    if areas is None or areas.all():
        return frames
    changed = frames.astype(np.promote_types(frames.dtype, np.float32))
    changed[areas] = np.nan
    return changed


def constant_areas(frames: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return which pixels lie in squares of one value, too large for chance; None if none.

    Were pixels independent, and a part p of them differed from most, a square of n×n would be
    constant with a probability of (1 - p)^(n²). The side goes by the pixels outside of the areas.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels of any type.

    Examples
    --------
    >>> frames = np.random.default_rng(1).poisson(100.0, (1, 60, 60))
    >>> constant_areas(frames) is None
    True
    >>> frames[:, 10:30, 20:50] = 0
    >>> areas = constant_areas(frames)
    >>> int(areas.sum()), bool(areas[:, 10:30, 20:50].all())
    (600, True)
    """
    if not _may_have_areas(frames):
        return None
    changes = _changes(frames)
    known, before = np.zeros(frames.shape, bool), 0
    for _ in range(_ROUNDS):
        others = np.count_nonzero(~known)
        if not others:
            break
        # A pixel unlike the others changes at itself, at the one right of it, and below.
        share = np.count_nonzero(changes & ~known) / others / 3
        known = _in_squares(changes, _side(share, frames.size))
        count = int(np.count_nonzero(known))
        if count == before:
            break
        before = count
    return known if known.any() else None


def copied_borders(frames: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return which pixels continue the image's edge, as a shift fills it up; None if none.

    Examples
    --------
    >>> frames = np.random.default_rng(1).poisson(100.0, (1, 60, 60))
    >>> copied_borders(frames) is None
    True
    >>> int(copied_borders(np.pad(frames, [(0, 0), (0, 0), (0, 20)], mode="edge")).sum())
    1200
    """
    copied = None
    for axis, order in itertools.product((1, 2), (1, -1)):
        lines, count = frames.swapaxes(0, axis)[::order], 0
        while count + 1 < len(lines) and np.array_equal(lines[count], lines[count + 1]):
            count += 1
        # What has one value is no copy of an edge.
        if _LEAST_SIDE <= count < len(lines) - 1 and (lines[0] != lines[0].flat[0]).any():
            copied = np.zeros(frames.shape, bool) if copied is None else copied
            copied.swapaxes(0, axis)[::order][:count] = True
    return copied


def inside_borders(frames: NDArray[Any]) -> tuple[slice, slice]:
    """Return which rows and columns lie inside of those at the borders that have one value.

    Examples
    --------
    >>> inside_borders(np.pad([[[1, 2, 3], [3, 4, 5]]], [(0, 0), (2, 0), (3, 1)]))
    (slice(2, 4, None), slice(3, 6, None))
    """
    found = [slice(0, side) for side in frames.shape[1:]]
    for axis in (0, 1, 0):  # a column differs in the rows of a border
        lines = frames[:, found[0], found[1]].swapaxes(0, axis + 1)
        first, last = (
            next((i for i, line in enumerate(own) if (line != line.flat[0]).any()), len(lines))
            for own in (lines, lines[::-1])
        )
        if first < len(lines):
            begin = found[axis].start
            found[axis] = slice(begin + first, begin + len(lines) - last)
    return found[0], found[1]


def _with_borders(
    areas: NDArray[np.bool_] | None, frames: NDArray[Any]
) -> NDArray[np.bool_] | None:
    """Return areas and, where they are no rows of sparse counts, borders that have one value."""
    inside = inside_borders(frames)
    if frames[:, inside[0], inside[1]].shape == frames.shape:
        return areas
    border = np.ones(frames.shape, bool)
    border[:, inside[0], inside[1]] = False
    if np.isin(frames[:, inside[0], inside[1]], frames[border][:1]).any():
        return areas
    return border if areas is None else areas | border


def _may_have_areas(frames: NDArray[Any]) -> bool:
    """Whether some rows have as many equal pixels in succession as a square has."""
    rows = frames[:, :: _LEAST_SIDE // 2]
    equal = rows[:, :, 1:] == rows[:, :, :-1]
    length = _LEAST_SIDE - 1
    places = equal.shape[2] - length + 1
    if places < 1 or np.count_nonzero(equal) < length:
        return False
    runs = equal[:, :, :places].copy()
    for shift in range(1, length):
        runs &= equal[:, :, shift : shift + places]
    return bool(runs.any())


def _changes(frames: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which pixels differ from the one before in their row or in their column."""
    changes = np.zeros(frames.shape, bool)
    changes[:, :, 1:] = frames[:, :, 1:] != frames[:, :, :-1]
    changes[:, 1:] |= frames[:, 1:] != frames[:, :-1]
    return changes


def _side(share: float, pixels: int) -> int:
    """Return the least side of squares that chance does not make."""
    if share <= 0:
        return _LEAST_SIDE
    least = math.log(pixels / _BY_CHANCE) / -math.log1p(-min(share, 0.9))
    return max(_LEAST_SIDE, math.ceil(math.sqrt(least)))


def _in_squares(changes: NDArray[np.bool_], side: int) -> NDArray[np.bool_]:
    """Return which pixels lie in a square that has no changes, but in its first row and column."""
    from scipy import ndimage  # takes longer to import than a few fits

    inner = (1, *2 * [side - 1 | 1])  # odd, so that the one filter ends where the other begins
    empty = ndimage.minimum_filter(~changes, inner, mode="constant", cval=False)
    known = ndimage.maximum_filter(empty, inner, mode="constant", cval=False)
    known[:, :-1] |= known[:, 1:]
    known[:, :, :-1] |= known[:, :, 1:]
    found: NDArray[np.bool_] = known
    return found
