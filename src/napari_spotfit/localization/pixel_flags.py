"""What the pixels in the middle of a fitted spot say against it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.saturation import LEAST_COUNT, PLATEAU
from ..images.frames import is_on_device, like, to_host
from ..results.flags import Flag

#: Of the 3×3 pixels in a spot's middle, how many must have the largest value of their type: without
#: one pixel, the others tell height, light and width, and better than to a standard error.
_FULL = 2
_ROWS, _COLUMNS = (axis.ravel() for axis in np.mgrid[-1:2, -1:2])


def pixel_flags(
    pixels: Any,
    bad: Any,
    frame: NDArray[np.int64],
    y: NDArray[np.float64],
    x: NDArray[np.float64],
) -> NDArray[np.uint32]:
    """Return BAD_PIXELS and SATURATED of fits.

    Parameters
    ----------
    pixels : array, shape (n, Y, X)
        Frames as the camera took them.
    bad : array of bool, shape (1, Y, X) or (n, Y, X), or None
        Which of their pixels are bad.
    frame : ndarray of int, rising
        Frame of each fit.
    y, x : ndarray
        Its centre; NaN if it has none.
    """
    flags = np.zeros(len(frame), np.uint32)
    known = np.flatnonzero(np.isfinite(y) & np.isfinite(x))
    if not len(known):
        return flags
    frame = frame[known]
    row = np.clip(np.rint(y[known]).astype(np.int64), 0, pixels.shape[1] - 1)
    column = np.clip(np.rint(x[known]).astype(np.int64), 0, pixels.shape[2] - 1)
    if bad is not None:
        hit = _around(bad, frame if len(bad) > 1 else 0 * frame, row, column).any(axis=1)
        flags[known[hit]] |= np.uint32(Flag.BAD_PIXELS)
    hit = _saturated(pixels, frame, row, column)
    flags[known[hit]] |= np.uint32(Flag.SATURATED)
    return flags


def _saturated(
    pixels: Any, frame: NDArray[np.int64], row: NDArray[np.int64], column: NDArray[np.int64]
) -> NDArray[np.bool_]:
    centre = _at(pixels, frame, row, column)
    found = np.zeros(len(centre), bool)
    if centre.dtype.kind in "iu":
        full = np.flatnonzero(centre == np.iinfo(centre.dtype).max)
        around = _around(pixels, frame[full], row[full], column[full])
        found[full] = (around == centre[full, np.newaxis]).sum(axis=1) >= _FULL
    # A plateau is the highest there is in its frame: of few spots all pixels are looked at.
    first = np.flatnonzero(np.diff(frame, prepend=-1))
    highest = np.maximum.reduceat(centre, first)
    high = np.repeat(highest, np.diff(first, append=len(frame)))
    likely = np.flatnonzero((centre == high) & ((centre >= LEAST_COUNT) | (centre % 1 != 0)))
    around = _around(pixels, frame[likely], row[likely], column[likely])
    level = centre[likely, np.newaxis]
    plateau = ((around == level).sum(axis=1) >= PLATEAU) & ~(around > level).any(axis=1)
    found[likely[plateau]] = True
    return found


def _around(
    values: Any, frame: NDArray[np.int64], row: NDArray[np.int64], column: NDArray[np.int64]
) -> NDArray[Any]:
    """Return the 3×3 values around places, shape (n, 9); those at the border repeat."""
    rows = np.clip(row[:, np.newaxis] + _ROWS, 0, values.shape[1] - 1)
    columns = np.clip(column[:, np.newaxis] + _COLUMNS, 0, values.shape[2] - 1)
    return _at(values, frame[:, np.newaxis], rows, columns)


def _at(values: Any, *index: NDArray[np.int64]) -> NDArray[Any]:
    """Return values at some places in the host's memory, wherever they lie."""
    if is_on_device(values):
        from ..engine.fallback import cuda_errors

        try:
            there: NDArray[Any] = to_host(values[tuple(like(one, values) for one in index)])
        except cuda_errors():  # the GPU has no memory left, and the CPU made the fits
            values = to_host(values)
        else:
            return there
    here: NDArray[Any] = values[index]
    return here
