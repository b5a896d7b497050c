"""A tile: sixteen ROIs side by side, pixels first, then the state of their fits.

A tile is a flat float32 array of rows of sixteen numbers, one per lane. Its first
rows are the pixels; the rows after them, named here, hold what the fit knows. So a
fit moves from one tile to another by copying its column.

Pixels are kept as (g - level) · scale: level is near the ROI's mean and scale is one
over its range. Single precision then serves any offset and any unit of the data.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .lanes import WIDTH, difference, load_difference, prefetch, store_elements, transpose

Tile: TypeAlias = NDArray[np.float32]

#: Rows after the pixels: the point reached (POINT: shape, amplitudes and χ² in the
#: tile's units), the course of the fit (COURSE: the damping, by how much χ² fell last,
#: the iterations), why it stopped, the units themselves, ...
X, Y, SIGMA, AMPLITUDE, BACKGROUND, CHI_SQUARE = range(6)
DAMPING, DECREASE, ITERATIONS, STOP, SCALE, LEVEL = range(6, 12)
POINT, COURSE = X, DAMPING
#: ... the normal matrix (its upper triangle, by rows) and the right-hand side.
NORMAL, GRADIENT = 12, 18
STATE_ROWS = 21

#: STOP of a fit that is under way.
RUNNING = -1.0


def new_tile(pixels: int) -> Tile:
    """Return an empty tile."""
    return aligned(max(pixels + STATE_ROWS, _padded(pixels)))


def new_stage(pixels: int) -> Tile:
    """Return room for sixteen ROIs one after the other, each padded to whole rows."""
    return aligned(_padded(pixels) + 1)


def _padded(pixels: int) -> int:
    return -(-pixels // WIDTH) * WIDTH


def aligned(rows: int) -> Tile:
    """Return an uninitialised array of rows of lanes that starts at a cache line."""
    line = 64
    size = rows * WIDTH * 4
    buffer = np.empty(size + line, np.uint8)
    start = -buffer.ctypes.data % line
    return buffer[start : start + size].view(np.float32)


@njit(forceinline=True)
def load_rois(
    tile: Tile, stage: Tile, frames: NDArray[Any], shape: tuple[int, int, int],
    corners: NDArray[np.int64], first: int, last: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """Copy the ROIs first…last-1, sixteen at the most, into a tile.

    Each ROI's first pixel is taken off and kept as its level. Lanes without a ROI,
    and those whose frame is negative (outside the image), become NaN.
    """
    pixels = rows * columns
    stride = (pixels + WIDTH - 1) // WIDTH * WIDTH
    for lane in range(WIDTH):
        begin = lane * stride
        top = _first_pixel(shape, corners, first + lane, last)
        if top < 0:
            stage[begin : begin + pixels] = np.nan
            continue
        reference = frames[top]
        if columns == shape[2]:
            _copy_run(stage, begin, frames, top, pixels, reference)
        else:
            for _ in range(rows):
                _copy_run(stage, begin, frames, top, columns, reference)
                begin += columns
                top += shape[2]
    for block in range(0, stride, WIDTH):
        transpose(stage, stride, block, tile, block)
    for lane in range(WIDTH):
        top = _first_pixel(shape, corners, first + lane, last)
        level = np.float32(0) if top < 0 else np.float32(frames[top])
        tile[(pixels + LEVEL) * WIDTH + lane] = level


@njit(forceinline=True)
def prefetch_rois(
    frames: NDArray[Any], shape: tuple[int, int, int],
    corners: NDArray[np.int64], first: int, last: int, rows: int, columns: int,
) -> None:  # fmt: skip
    """Have the ROIs of the next tile fetched from memory while this one is fitted."""
    for i in range(first, first + WIDTH):
        top = _first_pixel(shape, corners, i, last)
        if top >= 0 and columns == shape[2]:
            for pixel in range(0, rows * columns, WIDTH):
                prefetch(frames, top + pixel)
        elif top >= 0:
            for _ in range(rows):
                prefetch(frames, top)
                prefetch(frames, top + columns - 1)
                top += shape[2]


@njit(forceinline=True)
def _first_pixel(shape: tuple[int, int, int], corners: NDArray[np.int64], i: int, last: int) -> int:
    """Return where a ROI begins, -1 if there is none; without corners a frame is a ROI."""
    if i >= last:
        return -1
    if len(corners) == 0:
        return i * shape[1] * shape[2]
    if corners[i, 0] < 0:
        return -1
    return (corners[i, 0] * shape[1] + corners[i, 1]) * shape[2] + corners[i, 2]


@njit(forceinline=True)
def _copy_run(
    stage: Tile, begin: int, frames: NDArray[Any], top: int, length: int, reference: Any
) -> None:
    """Copy neighbouring pixels, sixteen at a time where the array goes on for so long.

    What is copied too much is overwritten by the next run, or lies in the padding.
    """
    done = 0
    while done < length:
        if top + done + WIDTH <= frames.size:
            store_elements(stage, begin + done, load_difference(frames, top + done, reference))
        else:
            for i in range(done, length):
                stage[begin + i] = difference(frames[top + i], reference)
        done += WIDTH


@njit(forceinline=True)
def move_lane(source: Tile, i: int, target: Tile, j: int, rows: int) -> None:
    """Copy lane i of a tile to lane j of another."""
    for row in range(rows):
        target[row * WIDTH + j] = source[row * WIDTH + i]
