"""The Levenberg-Marquardt loop over a tile: sixteen fits in lockstep."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...models.stopping import StopCondition
from . import search
from .compiled import inner
from .evaluate import evaluate
from .kinds import Kind
from .lanes import Vector, count, load, load_rows, select, spread, store, store_rows
from .tile import (
    BACKGROUND_FLOOR,
    COUNT,
    COURSE,
    LEVEL,
    NORM,
    POINT,
    SCALE,
    STOP,
    WEIGHT,
    Tile,
    gradient_row,
    normal_row,
    point_of,
)
from .unroll import unrolled

_MAX_ERROR, _MIN_DELTA = int(StopCondition.MAX_ERROR), int(StopCondition.MIN_DELTA)
_INVALID = int(StopCondition.INVALID)


@inner()
def minimize(
    kind: Kind, tile: Tile, profile: Tile, state: int, rows: int, columns: int, limits: Any,
    leave: int,
) -> None:  # fmt: skip
    """Iterate the running fits of a tile until at most ``leave`` of them still run.

    An iteration is one step tried. Every trial point is evaluated in full, normal
    equations included: most trials are accepted, so this saves the second pass.
    """
    scale, level = load(tile, state + SCALE), load(tile, state + LEVEL)
    bounds = search.amplitude_bounds(limits, scale, level)
    low, high = search.box(kind, limits, bounds, load(tile, state + BACKGROUND_FLOOR))
    n, max_error = _totals(kind, tile, state, rows * columns, limits, scale)

    point, course, normal, gradient, stop = _read(kind, tile, state)
    norm = load(tile, state + NORM)
    step = search.damped_step(kind, normal, gradient, course[0], point, low, high, norm)
    while count(stop < spread(0)) > leave:
        values = search.moved(kind, point, step, course, low, high)
        trial, new_normal, new_gradient, norm = evaluate(
            kind, tile, profile, state, rows, columns, values, limits.bounded_amplitudes, bounds
        )
        new_normal, new_gradient = search.hold(
            kind, limits, trial, low, high, new_normal, new_gradient
        )
        accepted, course, stop = search.judge(
            kind, point, trial, course, stop, n, limits, max_error
        )
        point = select(accepted, trial, point)
        normal = select(accepted, new_normal, normal)
        gradient = select(accepted, new_gradient, gradient)
        step = search.damped_step(kind, normal, gradient, course[0], point, low, high, norm)
        done, course = search.is_over(kind, point, normal, gradient, step, course, norm, n, limits)
        stop = _ended(accepted & done, stop)
    _write(kind, tile, state, point, course, normal, gradient, stop)
    store(tile, state + NORM, norm)


@unrolled
def _totals(
    kind: Kind, tile: Tile, state: int, pixels: int, limits: Any, scale: Vector
) -> tuple[Vector, Vector]:
    """Return how many pixels count, and the χ² that is accepted, in each lane's units."""
    if kind.likelihood:
        max_error = spread(limits.max_error)
    else:
        max_error = limits.max_error * scale * scale
        max_error = max_error * load(tile, state + WEIGHT) if kind.weighted else max_error
    return load(tile, state + COUNT) if kind.weighted else spread(pixels), max_error


@unrolled
def _read(kind: Kind, tile: Tile, state: int) -> tuple[Any, ...]:
    """Return point, course, normal matrix, right-hand side and stop conditions."""
    size = kind.searched * (kind.searched + 1) // 2
    return (
        point_of(kind, tile, state),
        load_rows(tile, state + COURSE, 5 if kind.likelihood else 3),
        load_rows(tile, state + normal_row(kind), size),
        load_rows(tile, state + gradient_row(kind), kind.searched),
        load(tile, state + STOP),
    )


@unrolled
def _ended(over: Any, stop: Vector) -> Vector:
    return select(over & ~(stop == _MAX_ERROR), _MIN_DELTA, stop)


@unrolled
def _write(
    kind: Kind, tile: Tile, state: int, point: Any, course: Any, normal: Any, gradient: Any,
    stop: Vector,
) -> None:  # fmt: skip
    # A fit whose every trial was NaN or infinite has no parameters.
    lost = (stop >= 0) & ~(point[-1] < np.inf)
    store(tile, state + STOP, select(lost, _INVALID, stop))
    store_rows(tile, state + POINT, point)
    store_rows(tile, state + COURSE, course)
    store_rows(tile, state + normal_row(kind), normal)
    store_rows(tile, state + gradient_row(kind), gradient)
