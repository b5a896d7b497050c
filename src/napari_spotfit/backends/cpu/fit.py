"""Fits on the CPU: ROIs into tiles, tiles through the minimiser, results out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...settings import Settings
from ...stopping import StopCondition
from .. import threads
from ..contract import ERRORS, VALUES, Limits, make_limits, width_of
from . import finish
from .lanes import WIDTH, load, store_elements
from .minimize import minimize
from .sources import fingerprint
from .start import prepare
from .tile import (
    ITERATIONS,
    SIGMA,
    STATE_ROWS,
    STOP,
    Tile,
    X,
    Y,
    aligned,
    load_rois,
    move_lane,
    new_stage,
    new_tile,
    prefetch_rois,
)

_INVALID = int(StopCondition.INVALID)

#: Fits per piece of work for a thread, at most and at least: small enough to share the
#: work evenly, large enough for Python's part to be small.
_LARGE_PIECE, _SMALL_PIECE = 32768, 1024

#: A tile with no more than this many fits under way hands them to a pool, so that
#: stragglers of several tiles run side by side. Must be below WIDTH / 2.
_STRAGGLERS = 2


class _Work(NamedTuple):
    """One thread's room: tiles in use, results and tables."""

    stage: Tile
    tile: Tile
    pool: Tile
    spare: Tile
    profile: Tile
    results: Tile
    tables: Tile


class _Output(NamedTuple):
    """Where the results go, flat: columns of all fits one after the other."""

    positions: NDArray[np.float64]
    values: NDArray[np.float32]
    iterations: NDArray[np.uint16]
    stop: NDArray[np.uint8]


def fit_rois(
    frames: NDArray[Any],
    corners: NDArray[np.int64] | None,
    roi_shape: tuple[int, int],
    settings: Settings,
    start: NDArray[np.float32] | None = None,
) -> dict[str, NDArray[Any]]:
    """Fit ROIs where they lie in the frames.

    Parameters
    ----------
    frames : ndarray, shape (n_frames, Y, X)
        C-contiguous uint8, uint16, int16, float32 or float64 in native byte order.
    corners : ndarray of int64, shape (n, 3), or None
        Frame, first row and first column of each ROI; a negative frame stands for a
        ROI outside the image, whose fit is INVALID. None: every frame is a ROI.
    roi_shape : tuple of int
        Rows and columns of the ROIs.
    settings : Settings
        How to fit.
    start : ndarray of float32, shape (n, 3), optional
        Start values y, x (from the ROI's first pixel) and σ; NaN asks for the
        built-in value.

    Returns
    -------
    dict of ndarray
        The columns of SpotFits, with y and x from the ROI's first pixel.
    """
    n = len(frames) if corners is None else len(corners)
    corners = np.empty((0, 3), np.int64) if corners is None else corners
    width = width_of(settings.errors)
    output = _Output(
        np.empty(2 * n), np.empty(width * n, np.float32),
        np.empty(n, np.uint16), np.empty(n, np.uint8),
    )  # fmt: skip
    limits = make_limits(settings, roi_shape)
    flat, shape = frames.reshape(-1).view(), frames.shape
    flat.flags.writeable = False  # Numba would compile for either kind
    start = np.empty((0, 3), np.float32) if start is None else start
    pixels = roi_shape[0] * roi_shape[1]

    def fit_piece(first: int, last: int) -> None:
        work = _Work(
            new_stage(pixels), new_tile(pixels), new_tile(pixels), new_tile(pixels),
            aligned(3 * sum(roi_shape)), aligned(width), aligned(finish.WORK_ROWS),
        )  # fmt: skip
        _fit_tiles(
            flat, shape, corners, start, first, last, roi_shape, limits, _STRAGGLERS,
            settings.errors, settings.offset, settings.gain or 1.0, settings.gain is not None,
            work, output,
        )  # fmt: skip

    share = n // (4 * (settings.threads or threads.available()))
    piece = min(max(share, _SMALL_PIECE), _LARGE_PIECE)
    threads.in_pieces(fit_piece, n, piece, settings.threads)
    y, x = output.positions.reshape(2, n)
    values = output.values.reshape(width, n)
    columns: dict[str, NDArray[Any]] = {"y": y, "x": x}
    columns |= dict(zip(VALUES, values, strict=False))
    columns |= {"iterations": output.iterations, "stop_condition": output.stop}
    columns |= dict(zip(ERRORS, values[len(VALUES) :], strict=False))
    return columns


@njit(forceinline=True)
def _load_start(tile: Tile, pixels: int, start: NDArray[np.float32], first: int, n: int) -> None:
    """Put the caller's start values into a tile, NaN where there are none."""
    for lane in range(WIDTH):
        given = len(start) > 0 and lane < n
        tile[(pixels + Y) * WIDTH + lane] = start[first + lane, 0] if given else np.nan
        tile[(pixels + X) * WIDTH + lane] = start[first + lane, 1] if given else np.nan
        tile[(pixels + SIGMA) * WIDTH + lane] = start[first + lane, 2] if given else np.nan


@njit(forceinline=True)
def _write_all(tile: Tile, pixels: int, results: Tile, first: int, output: _Output) -> None:
    """Write sixteen neighbouring fits; those under way are written again when they end."""
    n = output.stop.size
    store_elements(output.positions, first, load(tile, pixels + Y))
    store_elements(output.positions, n + first, load(tile, pixels + X))
    store_elements(output.iterations, first, load(tile, pixels + ITERATIONS))
    store_elements(output.stop, first, load(tile, pixels + STOP))
    for column in range(results.size // WIDTH):
        store_elements(output.values, column * n + first, load(results, column))


@njit(forceinline=True)
def _write_each(
    tile: Tile, pixels: int, results: Tile, indices: NDArray[np.int64], lanes: int, output: _Output
) -> None:
    """Write the fits that have ended, wherever they belong."""
    n = output.stop.size
    for lane in range(lanes):
        stop = tile[(pixels + STOP) * WIDTH + lane]
        if stop < 0:
            continue
        i = indices[lane]
        output.stop[i] = np.uint8(stop)
        output.iterations[i] = np.uint16(tile[(pixels + ITERATIONS) * WIDTH + lane])
        output.positions[i] = tile[(pixels + Y) * WIDTH + lane]
        output.positions[n + i] = tile[(pixels + X) * WIDTH + lane]
        for column in range(results.size // WIDTH):
            output.values[column * n + i] = results[column * WIDTH + lane]


def _cached(sources: str) -> Any:
    """Return the compiled loop, which Numba keeps on disk while our sources stay the same.

    The sources' fingerprint becomes part of the cache's key by being used.
    """

    @njit(nogil=True, cache=True)
    def fit_tiles(
        frames: NDArray[Any], shape: tuple[int, int, int], corners: NDArray[np.int64],
        start: NDArray[np.float32], first: int, last: int, roi_shape: tuple[int, int],
        limits: Limits, stragglers: int, errors: bool, offset: float, gain: float, gain_known: bool,
        work: _Work, output: _Output,
    ) -> None:  # fmt: skip
        """Fit the ROIs first…last-1: tile by tile, stragglers together in a pool."""
        rows, columns = roi_shape
        pixels = rows * columns
        tile, pool, spare = work.tile, work.pool, work.spare
        loaded, pooled, kept = np.empty((3, WIDTH), np.int64)
        waiting = 0
        while sources and (first < last or waiting > 0):
            if first >= last or waiting + stragglers > WIDTH:
                current, indices, n = pool, pooled, waiting
                for lane in range(n, WIDTH):
                    pool[(pixels + STOP) * WIDTH + lane] = _INVALID
                pool, spare, pooled, kept = spare, pool, kept, pooled
                waiting = 0
            else:
                current, indices, n = tile, loaded, min(WIDTH, last - first)
                load_rois(tile, work.stage, frames, shape, corners, first, last, rows, columns)
                _load_start(tile, pixels, start, first, n)
                prepare(tile, rows, columns, limits.sigma_min, limits.sigma_max)
                for lane in range(n):
                    loaded[lane] = first + lane
                first += WIDTH
                prefetch_rois(frames, shape, corners, first, last, rows, columns)
            leave = stragglers if first < last else 0
            minimize(current, work.profile, rows, columns, limits, leave)
            finish.in_counts(current, pixels, work.results, limits, offset, gain)
            if errors:
                finish.standard_errors(
                    current, work.profile, work.tables, rows, columns,
                    work.results, len(VALUES), offset, gain, gain_known,
                )  # fmt: skip
            if n == WIDTH and indices[n - 1] - indices[0] == WIDTH - 1:
                _write_all(current, pixels, work.results, indices[0], output)
            else:
                _write_each(current, pixels, work.results, indices, n, output)
            for lane in range(n):
                if current[(pixels + STOP) * WIDTH + lane] < 0:
                    move_lane(current, lane, pool, waiting, pixels + STATE_ROWS)
                    pooled[waiting] = indices[lane]
                    waiting += 1

    return fit_tiles


_fit_tiles = _cached(
    fingerprint("fit", "finish", "lanes", "minimize", "profiles", "separable", "start", "tile")
)
