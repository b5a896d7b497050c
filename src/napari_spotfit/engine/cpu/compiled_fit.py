"""Fits on the CPU: ROIs into tiles, tiles through the minimiser, results out."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...models.stopping import LIKELIHOOD_DELTA, StopCondition
from ...results.columns import errors_of, numbers_per_fit, values_of
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from .. import threads
from ..limits import Limits, make_limits
from . import errors as standard
from . import finish, large
from .compiled import entry, inner
from .kinds import Kind, is_likelihood, is_weighted, kind_of, least_squares, value_count
from .lane_memory import store_elements
from .lanes import WIDTH, load
from .likelihood import begin_likelihood
from .minimize import minimize
from .sources import fingerprint
from .start import prepare
from .subnormals import count_as, count_as_zero
from .tile import (
    ITERATIONS,
    POINT,
    STOP,
    Tile,
    X,
    Y,
    aligned,
    blocks,
    load_good_rois,
    load_rois,
    move_lane,
    new_stage,
    new_tile,
    prefetch_rois,
    state_rows,
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
    #: To which fits the lanes of the three tiles belong.
    indices: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class _Rules(NamedTuple):
    """The settings that decide how results are written, as numbers."""

    errors: bool
    offset: float
    gain: float
    gain_known: bool
    background_low: float
    background_high: float
    #: Fitted parameters, one over the degrees of freedom where all pixels count, and the
    #: photons of a profile whose widths and amplitude are 1.
    fitted: int
    per_freedom: float
    photons: float


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
    *,
    planes: Planes | None = None,
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
    start : ndarray of float32, shape (n, K), optional
        Start values of the shape parameters in the order of the profile, y and x from
        the ROI's first pixel; NaN asks for the built-in value.
    planes : Planes, optional
        Weights for least squares, read-out variances for maximum likelihood.

    Returns
    -------
    dict of ndarray
        The columns of SpotFits, with y and x from the ROI's first pixel.
    """
    if max(roi_shape) > ROI_MAX:
        return large.fit_rois(frames, corners, roi_shape, settings, start, planes)
    n = len(frames) if corners is None else len(corners)
    corners = np.empty((0, 3), np.int64) if corners is None else corners
    kind, width = kind_of(settings, planes), numbers_per_fit(settings)
    output = _Output(
        np.empty(2 * n), np.empty(width * n, np.float32),
        np.empty(n, np.uint16), np.empty(n, np.uint8),
    )  # fmt: skip
    limits = _in_radians(make_limits(settings, roi_shape), kind)
    rules = _rules(settings, kind, limits, roi_shape)
    start = _starts(start, kind)
    plane = np.empty((1, 0, 0), np.float32) if planes is None else planes.values
    pixels = roi_shape[0] * roi_shape[1]
    run = _fit_tiles if kind.program is None else _own_fit_tiles(kind)

    def fit_piece(first: int, last: int) -> None:
        work = _Work(
            new_stage(pixels),
            new_tile(kind, pixels), new_tile(kind, pixels), new_tile(kind, pixels),
            aligned(3 * sum(roi_shape) + pixels), aligned(width), aligned(standard.WORK_ROWS),
            (np.empty(WIDTH, np.int64), np.empty(WIDTH, np.int64), np.empty(WIDTH, np.int64)),
        )  # fmt: skip
        run(
            kind, _read_only(frames), frames.shape, _read_only(plane), len(plane) == 1, corners,
            start, first, last, roi_shape, limits, _least_squares_limits(limits, kind), rules,
            _STRAGGLERS, work, output,
        )  # fmt: skip

    share = n // (4 * (settings.threads or threads.available()))
    piece = min(max(share, _SMALL_PIECE), _LARGE_PIECE)
    threads.in_pieces(fit_piece, n, piece, settings.threads)
    return _columns(settings, output, n)


def _columns(settings: Settings, output: _Output, n: int) -> dict[str, NDArray[Any]]:
    """Return the results by their names."""
    y, x = output.positions.reshape(2, n)
    values = output.values.reshape(numbers_per_fit(settings), n)
    names, errors = values_of(settings.profile), errors_of(settings.profile)
    columns: dict[str, NDArray[Any]] = {"y": y, "x": x}
    columns |= dict(zip(names, values, strict=False))
    columns |= {"iterations": output.iterations, "stop_condition": output.stop}
    columns |= dict(zip(errors, values[len(names) :], strict=False))
    return columns


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array flat and read-only: Numba would compile for either kind."""
    flat = array.reshape(-1).view()
    flat.flags.writeable = False
    return flat


def _in_radians(limits: Limits, kind: Kind) -> Limits:
    """Return the limits as compiled code takes them."""
    if kind.model != "gaussian_rotated":
        return limits
    low, high = ((*ends[:4], math.radians(ends[4])) for ends in (limits.low, limits.high))
    return limits._replace(low=low, high=high)


def _starts(start: NDArray[np.float32] | None, kind: Kind) -> NDArray[np.float32]:
    """Return start values as compiled code takes them."""
    if start is None:
        return np.empty((0, kind.shapes), np.float32)
    if kind.model == "gaussian_rotated":
        start = start * np.array([1, 1, 1, 1, math.pi / 180], np.float32)
    return start


def _least_squares_limits(limits: Limits, kind: Kind) -> Limits:
    """Return where least squares stops that maximum likelihood begins with."""
    if not kind.poisson:
        return limits
    return limits._replace(
        max_error=0.0,
        min_delta=max(limits.min_delta, LIKELIHOOD_DELTA),
    )  # fmt: skip


def _rules(settings: Settings, kind: Kind, limits: Limits, roi_shape: tuple[int, int]) -> _Rules:
    fitted = kind.shapes + 2 - sum(limits.held)
    gain = settings.gain or 1.0
    return _Rules(
        errors=settings.errors,
        offset=settings.offset,
        gain=gain,
        gain_known=settings.gain is not None,
        background_low=limits.background_min - settings.offset,
        background_high=limits.background_max - settings.offset,
        fitted=fitted,
        per_freedom=1 / max(roi_shape[0] * roi_shape[1] - fitted, 1),
        photons=finish.integral_of(kind) / gain,
    )


@inner(forceinline=True)
def _load_start(
    kind: Kind, tile: Tile, state: int, start: NDArray[np.float32], first: int, n: int
) -> None:
    """Put the caller's start values into a tile, NaN where there are none."""
    for column in range(start.shape[1]):
        # The caller gives y, x, widths.
        row = state + (Y if column == 0 else X if column == 1 else POINT + column)
        for lane in range(WIDTH):
            given = len(start) > 0 and lane < n
            value = start[first + lane, column] if given else np.float32(np.nan)
            tile[row * WIDTH + lane] = value


@inner(forceinline=True)
def _write_all(tile: Tile, state: int, results: Tile, first: int, output: _Output) -> None:
    """Write sixteen neighbouring fits; those under way are written again when they end."""
    n = output.stop.size
    store_elements(output.positions, first, load(tile, state + Y))
    store_elements(output.positions, n + first, load(tile, state + X))
    store_elements(output.iterations, first, load(tile, state + ITERATIONS))
    store_elements(output.stop, first, load(tile, state + STOP))
    for column in range(results.size // WIDTH):
        store_elements(output.values, column * n + first, load(results, column))


@inner(forceinline=True)
def _write_each(
    tile: Tile, state: int, results: Tile, indices: NDArray[np.int64], lanes: int, output: _Output
) -> None:
    """Write the fits that have ended, wherever they belong."""
    n = output.stop.size
    for lane in range(lanes):
        stop = tile[(state + STOP) * WIDTH + lane]
        if stop < 0:
            continue
        i = indices[lane]
        output.stop[i] = np.uint8(stop)
        output.iterations[i] = np.uint16(tile[(state + ITERATIONS) * WIDTH + lane])
        output.positions[i] = tile[(state + Y) * WIDTH + lane]
        output.positions[n + i] = tile[(state + X) * WIDTH + lane]
        for column in range(results.size // WIDTH):
            output.values[column * n + i] = results[column * WIDTH + lane]


@inner(forceinline=True)
def _finish(
    kind: Kind, tile: Tile, state: int, rows: int, columns: int, limits: Limits, rules: _Rules,
    work: _Work, values: int,
) -> None:  # fmt: skip
    """Make results of a tile's fits, those under way included."""
    shape = finish.make_canonical(kind, tile, state)
    light, slopes = finish.light_of(kind, work.profile, rows, columns, shape)
    if rules.errors:
        standard.standard_errors(
            kind, tile, work.profile, work.tables, state, rows, columns, light, slopes,
            work.results, values, limits, rules.offset, rules.gain, rules.gain_known,
            rules.per_freedom, rules.photons, rules.fitted,
        )  # fmt: skip
    finish.in_counts(
        kind, tile, state, work.results, light, limits, rules.background_low,
        rules.background_high, rules.offset, rules.per_freedom, rules.photons, rules.fitted,
    )  # fmt: skip


def _compiled(sources: int, cache: bool) -> Any:
    """Return the compiled loop.

    The sources' fingerprint becomes part of the cache's key by being used. Arrays are not
    counted inside: they outlive the call, and counting took a quarter of a fit's time.
    """

    @entry(cache=cache, _nrt=False)
    def fit_tiles(
        kind: Kind, frames: NDArray[Any], shape: tuple[int, int, int],
        planes: NDArray[np.float32], shared: bool, corners: NDArray[np.int64],
        start: NDArray[np.float32], first: int, last: int, roi_shape: tuple[int, int],
        limits: Limits, first_limits: Limits, rules: _Rules, stragglers: int,
        work: _Work, output: _Output,
    ) -> None:  # fmt: skip
        """Fit the ROIs first…last-1: tile by tile, stragglers together in a pool."""
        rows, columns = roi_shape
        pixels = rows * columns
        state = pixels * blocks(kind)
        height = state + state_rows(kind)
        tile, pool, spare = work.tile, work.pool, work.spare
        loaded, pooled, kept = work.indices
        waiting = 0
        before = count_as_zero()
        while sources and (first < last or waiting > 0):
            if first >= last or waiting + stragglers > WIDTH:
                current, indices, n = pool, pooled, waiting
                for lane in range(n, WIDTH):
                    pool[(state + STOP) * WIDTH + lane] = _INVALID
                pool, spare, pooled, kept = spare, pool, kept, pooled
                waiting = 0
            else:
                current, indices, n = tile, loaded, min(WIDTH, last - first)
                if is_weighted(kind):
                    load_good_rois(
                        tile, work.stage, frames, shape, planes, shared,
                        not is_likelihood(kind), corners, first, last, rows, columns, state,
                    )  # fmt: skip
                else:
                    load_rois(
                        tile, work.stage, frames, shape, corners, first, last, rows, columns, state
                    )
                _load_start(kind, tile, state, start, first, n)
                begin = least_squares(kind)
                prepare(begin, tile, state, rows, columns, first_limits, rules.fitted)
                if is_likelihood(kind):
                    minimize(begin, tile, work.profile, state, rows, columns, first_limits, 0)
                    begin_likelihood(
                        kind, tile, state, rows, columns, limits, rules.offset, rules.gain
                    )
                for lane in range(n):
                    loaded[lane] = first + lane
                first += WIDTH
                prefetch_rois(frames, shape, corners, first, last, rows, columns)
            leave = stragglers if first < last else 0
            minimize(kind, current, work.profile, state, rows, columns, limits, leave)
            for lane in range(n):
                if current[(state + STOP) * WIDTH + lane] < 0:
                    move_lane(current, lane, pool, waiting, height)
                    pooled[waiting] = indices[lane]
                    waiting += 1
            _finish(kind, current, state, rows, columns, limits, rules, work, value_count(kind))
            if n == WIDTH and indices[n - 1] - indices[0] == WIDTH - 1:
                _write_all(current, state, work.results, indices[0], output)
            else:
                _write_each(current, state, work.results, indices, n, output)
        count_as(before)

    return fit_tiles


_SOURCES = int(
    fingerprint(
        "amplitudes", "errors", "evaluate", "finish", "fit", "kinds", "likelihood", "minimize",
        "pixelwise", "profiles", "rotated", "search", "separable", "start", "tile",
    ),
    16,
)  # fmt: skip
_fit_tiles = _compiled(_SOURCES, cache=True)


@lru_cache(maxsize=8)
def _own_fit_tiles(kind: Kind) -> Any:
    """Return the loop for a model of somebody's own, which is not kept on disk."""
    return _compiled(_SOURCES, cache=False)
