"""What the pixels in the middle of a fitted spot say against it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.own_pixels import Lost
from ..images.frames import is_on_device, like, to_host
from ..results.flags import Flag

#: Of the 3×3 pixels in a spot's middle, how many must be saturated: without one pixel, the others
#: tell height, light and width, and better than to a standard error. And which is the centre's.
_FULL, _CENTRE = 2, 4
_ROWS, _COLUMNS = (axis.ravel() for axis in np.mgrid[-1:2, -1:2])


def pixel_flags(
    bad: Any,
    saturated: Lost | None,
    lone: Lost | None,
    corners: NDArray[np.int64],
    y: NDArray[np.float64],
    x: NDArray[np.float64],
) -> NDArray[np.uint32]:
    """Return BAD_PIXELS and SATURATED of fits.

    Parameters
    ----------
    bad : array of bool, shape (1, Y, X) or (n, Y, X), or None
        Which pixels of frames are bad.
    saturated, lone : Lost or None
        Pixels of the ROIs that no fit has counted.
    corners : ndarray of int64, shape (n, 3)
        Frame, first row and first column of each ROI.
    y, x : ndarray
        The centre of each fit; NaN if it has none.
    """
    flags = np.zeros(len(corners), np.uint32)
    if saturated is not None:
        rows, full = _middle(saturated, corners, y, x)
        flags[rows[full[:, _CENTRE] & (full.sum(axis=1) >= _FULL)]] |= np.uint32(Flag.SATURATED)
    if lone is not None:
        rows, there = _middle(lone, corners, y, x)
        flags[rows[there.any(axis=1)]] |= np.uint32(Flag.BAD_PIXELS)
    if bad is None:
        return flags
    known = np.flatnonzero(np.isfinite(y) & np.isfinite(x))
    frame = corners[known, 0]
    row = np.clip(np.rint(y[known]).astype(np.int64), 0, bad.shape[1] - 1)
    column = np.clip(np.rint(x[known]).astype(np.int64), 0, bad.shape[2] - 1)
    hit = _around(bad, frame if len(bad) > 1 else 0 * frame, row, column).any(axis=1)
    flags[known[hit]] |= np.uint32(Flag.BAD_PIXELS)
    return flags


def _middle(
    lost: Lost, corners: NDArray[np.int64], y: NDArray[np.float64], x: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the fits whose ROIs have lost pixels, and which of the 3×3 in the middle these are."""
    rows = lost.rois
    centres = np.column_stack([y[rows], x[rows]])
    known = np.isfinite(centres).all(axis=1)
    rows, centres = rows[known], np.rint(centres[known]).astype(np.int64)
    own = Lost(rows, lost.pixels[known])
    size = np.array(lost.pixels.shape[1:])
    return rows, own.around(np.clip(centres - corners[rows, 1:], 0, size - 1))


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
        from ..engine.errors import cuda_errors

        try:
            there: NDArray[Any] = to_host(values[tuple(like(one, values) for one in index)])
        except cuda_errors():  # the GPU has no memory left, and the CPU made the fits
            values = to_host(values)
        else:
            return there
    here: NDArray[Any] = values[index]
    return here
