"""Areas of one number: what an image is padded with, or what was cut off. They have no noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Squares of one number with such a side at least are no noise, and of how many pixels' images none
#: is by chance: that of sparse counts, of which most are 0, is larger by far.
_LEAST_SIDE, _BY_CHANCE = 8, 1e-3
#: Areas are looked for again without those that are known, whose pixels are no sparse counts.
_ROUNDS = 4


def without_constant_areas(frames: NDArray[Any]) -> NDArray[Any]:
    """Return frames with their constant areas as bad pixels, as floating-point numbers if any.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels of any real type.
    """
    areas = constant_areas(frames)
    if areas is None or areas.all():
        return frames
    changed = frames.astype(np.promote_types(frames.dtype, np.float32))
    changed[areas] = np.nan
    return changed


def constant_areas(frames: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return which pixels lie in squares of one number that chance does not make; None if none.

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


def _may_have_areas(frames: NDArray[Any]) -> bool:
    """Whether some rows have as many equal pixels, one beside the other, as a square has."""
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
    """Return the side of squares of which chance makes none."""
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
