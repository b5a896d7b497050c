"""A tile: sixteen ROIs side by side, pixels first, then the state of their fits.

A tile is a flat float32 array of rows of sixteen numbers, one per lane. Its first
rows are the pixels, block by block: their data, and where the kind of fit has them, their
weights and variances. The rows after them, named here, hold what the fit knows. So a
fit moves from one tile to another by copying its column.

Pixels are kept as (g - level) · scale: level is near the ROI's mean and scale is one
over its range. Single precision then serves any offset and any unit of the data. For
maximum likelihood they are photo-electrons: level is the camera's offset and scale one
over its gain.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...models.stopping import DAMPING_DECREASE, INITIAL_DAMPING
from .compiled import inner
from .kinds import Kind
from .lane_memory import difference, load_difference, prefetch, store_elements, transpose
from .lanes import WIDTH, Vector, select, spread
from .unroll import unrolled

Tile: TypeAlias = NDArray[np.float32]

#: Rows after the pixels: the course of the fit (the damping, by how much χ² fell last, the
#: iterations; for maximum likelihood, what the next step is expected to lower χ² by, and by
#: what it is multiplied), why it stopped, the pixels' units, how many pixels count, by how much
#: their weights were multiplied, the background that likelihood needs at least, the sum of
#: squares that a step's change of the model is compared to, ...
DAMPING, DECREASE, ITERATIONS, EXPECTED, STRETCH = range(5)
STOP, SCALE, LEVEL, COUNT, WEIGHT, BACKGROUND_FLOOR, NORM = range(5, 12)
COURSE = DAMPING
#: ... and the point reached: its shape parameters x, y, widths, then amplitude,
#: background and χ² in the tile's units. The normal matrix (its upper triangle, by rows)
#: and the right-hand side come last.
POINT = X = 12
Y = 13

#: STOP of a fit that is under way.
RUNNING = -1.0


def normal_row(kind: Kind) -> int:
    """Return the normal matrix' first row."""
    return POINT + kind.shapes + 3


def gradient_row(kind: Kind) -> int:
    """Return the right-hand side's first row."""
    return normal_row(kind) + kind.searched * (kind.searched + 1) // 2


@unrolled
def state_rows(kind: Kind) -> int:
    """Return how many rows the state has."""
    return gradient_row(kind) + kind.searched


@unrolled
def blocks(kind: Kind) -> int:
    """Return how many numbers a pixel has."""
    return kind.blocks


@unrolled
def point_of(kind: Kind, tile: Any, state: Any) -> tuple[Vector, ...]:
    """Return the point reached."""
    return tuple(tile[state + POINT + i] for i in range(kind.shapes + 3))


@unrolled
def point_with(
    values: tuple[Vector, ...], amplitude: Vector, background: Vector, chi: Vector
) -> tuple[Vector, ...]:
    """Return a point: shape, amplitude, background, χ²."""
    return (*values, amplitude, background, chi)


@unrolled
def weight_of(kind: Kind, tile: Any, pixels: Any, i: Any) -> Vector:
    """Return the weight of a pixel in least squares."""
    if not kind.weighted:
        return 1.0
    plane = tile[i + pixels]
    return select(plane >= 0, 1.0, 0.0) if kind.poisson else plane


@unrolled
def count_of(kind: Kind, tile: Any, state: Any, pixels: Any) -> Vector:
    """Return how many pixels count, which is also the sum of their weights."""
    return tile[state + COUNT] if kind.weighted else spread(pixels)


def put_before_first_step(kind: Kind, tile: Any, state: Any) -> None:
    """Begin a search at the point reached; for unrolled functions.

    A unit normal matrix and no gradient: the first step stays there.
    """
    n, row = kind.searched, normal_row(kind)
    for i in range(n):
        for j in range(i, n):
            tile[state + row] = 1.0 if i == j else 0.0
            row += 1
        tile[state + gradient_row(kind) + i] = 0.0
    tile[state + DAMPING] = INITIAL_DAMPING / DAMPING_DECREASE
    tile[state + DECREASE] = np.inf
    tile[state + EXPECTED], tile[state + STRETCH] = 0.0, 1.0
    tile[state + NORM] = 0.0


def new_tile(kind: Kind, pixels: int) -> Tile:
    """Return an empty tile."""
    return aligned(pixels * (kind.blocks - 1) + max(pixels + state_rows(kind), _padded(pixels)))


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


@inner(forceinline=True)
def load_rois(
    tile: Tile, stage: Tile, frames: NDArray[Any], shape: tuple[int, int, int],
    corners: NDArray[np.int64], first: int, last: int, rows: int, columns: int, state: int,
) -> None:  # fmt: skip
    """Copy the ROIs first…last-1, sixteen at the most, into a tile.

    Each ROI's first pixel is taken off and kept as its level. Lanes without a ROI,
    and those whose frame is negative (outside the image), become NaN.
    """
    pixels = rows * columns
    stride = (pixels + WIDTH - 1) // WIDTH * WIDTH
    for lane in range(WIDTH):
        top = _first_pixel(shape, corners, first + lane, last)
        reference = frames[max(top, 0)]
        _copy_roi(stage, lane * stride, frames, shape, top, rows, columns, reference)
    for block in range(0, stride, WIDTH):
        transpose(stage, stride, block, tile, block)
    for lane in range(WIDTH):
        top = _first_pixel(shape, corners, first + lane, last)
        level = np.float32(0) if top < 0 else np.float32(frames[top])
        tile[(state + LEVEL) * WIDTH + lane] = level


@inner(forceinline=True)
def load_good_rois(
    tile: Tile, stage: Tile, frames: NDArray[Any], shape: tuple[int, int, int],
    planes: NDArray[np.float32], shared: bool, positive: bool,
    corners: NDArray[np.int64], first: int, last: int, rows: int, columns: int, state: int,
) -> None:  # fmt: skip
    """Do the same, with the pixels' weights or variances in the tile's last block.

    The first good pixel is taken off: one with a weight (``positive``) or a variance.
    """
    pixels = rows * columns
    stride = (pixels + WIDTH - 1) // WIDTH * WIDTH
    last_block = state - pixels
    for lane in range(WIDTH):
        top = _first_pixel(shape, corners, first + lane, last)
        place = _first_pixel(shape, corners, first + lane, last, shared)
        good = _first_good(planes, place, shape[2], rows, columns, positive)
        reference = frames[max(top, 0) + good]
        _copy_roi(stage, lane * stride, frames, shape, top, rows, columns, reference)
    for block in range(0, stride, WIDTH):
        transpose(stage, stride, block, tile, block)
    for lane in range(WIDTH):
        place = _first_pixel(shape, corners, first + lane, last, shared)
        _copy_roi(stage, lane * stride, planes, shape, place, rows, columns, np.float32(0))
    for block in range(0, stride, WIDTH):
        transpose(stage, stride, block, tile, last_block + block)
    for lane in range(WIDTH):
        top = _first_pixel(shape, corners, first + lane, last)
        place = _first_pixel(shape, corners, first + lane, last, shared)
        good = _first_good(planes, place, shape[2], rows, columns, positive)
        level = np.float32(0) if top < 0 else np.float32(frames[top + good])
        tile[(state + LEVEL) * WIDTH + lane] = level


@inner()
def _first_good(
    planes: NDArray[np.float32], place: int, width: int, rows: int, columns: int, positive: bool
) -> int:
    """Return how far behind a ROI's first pixel its first good one comes."""
    if place < 0:
        return 0
    for row in range(rows):
        for column in range(columns):
            value = planes[place + row * width + column]
            if value > 0 or (value == value and not positive):
                return row * width + column
    return 0


@inner(forceinline=True)
def _copy_roi(
    stage: Tile, begin: int, frames: NDArray[Any], shape: tuple[int, int, int], top: int,
    rows: int, columns: int, reference: Any,
) -> None:  # fmt: skip
    """Copy a ROI less a reference to the stage; NaN where there is none."""
    pixels = rows * columns
    if top < 0:
        stage[begin : begin + pixels] = np.nan
    elif columns == shape[2]:
        _copy_run(stage, begin, frames, top, pixels, reference)
    else:
        for _ in range(rows):
            _copy_run(stage, begin, frames, top, columns, reference)
            begin += columns
            top += shape[2]


@inner(forceinline=True)
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


@inner(forceinline=True)
def _first_pixel(
    shape: tuple[int, int, int], corners: NDArray[np.int64], i: int, last: int, shared: bool = False
) -> int:
    """Return where a ROI begins, -1 if there is none; without corners a frame is a ROI.

    ``shared``: where it begins in the one frame that stands for all.
    """
    if i >= last:
        return -1
    if len(corners) == 0:
        return 0 if shared else i * shape[1] * shape[2]
    if corners[i, 0] < 0:
        return -1
    frame = 0 if shared else corners[i, 0]
    return (frame * shape[1] + corners[i, 1]) * shape[2] + corners[i, 2]


@inner(forceinline=True)
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


@inner(forceinline=True)
def move_lane(source: Tile, i: int, target: Tile, j: int, rows: int) -> None:
    """Copy lane i of a tile to lane j of another."""
    for row in range(rows):
        target[row * WIDTH + j] = source[row * WIDTH + i]
