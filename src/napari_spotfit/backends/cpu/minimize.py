"""The Levenberg-Marquardt loop over a tile: sixteen fits in lockstep."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ...stopping import (
    DAMPING_DECREASE,
    DAMPING_INCREASE,
    MAX_DAMPING,
    ROUNDING,
    ROUNDING_FLOOR,
    SKIPPED_DAMPING,
    SKIPPED_STEP,
)
from ...stopping import StopCondition as Stop
from .lanes import (
    Mask,
    Vector,
    absolute,
    clamp,
    count,
    load,
    load_six,
    load_three,
    multiply_add,
    select,
    select_six,
    select_three,
    spread,
    square_root,
    store,
    store_six,
    store_three,
)
from .separable import evaluate
from .tile import COURSE, GRADIENT, LEVEL, NORMAL, POINT, SCALE, STOP, Tile

_MAX_ITERATIONS, _MAX_ERROR = int(Stop.MAX_ITERATIONS), int(Stop.MAX_ERROR)
_MIN_DELTA, _MIN_STEP = int(Stop.MIN_DELTA), int(Stop.MIN_STEP)
_NO_DECREASE, _INVALID = int(Stop.NO_DECREASE), int(Stop.INVALID)


@njit(nogil=True)
def minimize(tile: Tile, profile: Tile, rows: int, columns: int, limits: Any, leave: int) -> None:
    """Iterate the running fits of a tile until at most ``leave`` of them still run.

    An iteration is one step tried. Every trial point is evaluated in full, normal
    equations included: most trials are accepted, so this saves the second pass.
    """
    state = rows * columns
    scale, level = load(tile, state + SCALE), load(tile, state + LEVEL)
    bounds = _amplitude_bounds(limits, scale, level)
    max_error = spread(limits.max_error) * scale * scale
    half = spread(0.5)
    low = -half, -half, spread(limits.sigma_min)
    high = spread(columns) - half, spread(rows) - half, spread(limits.sigma_max)

    point, course = load_six(tile, state + POINT), load_three(tile, state + COURSE)
    normal, gradient = load_six(tile, state + NORMAL), load_three(tile, state + GRADIENT)
    stop = load(tile, state + STOP)
    step = _damped_step(normal, gradient, course[0])
    while count(stop < spread(0)) > leave:
        shape = (
            clamp(point[0] + step[0] * point[2], low[0], high[0]),
            clamp(point[1] + step[1] * point[2], low[1], high[1]),
            clamp(point[2] + step[2] * point[2], low[2], high[2]),
        )
        trial, new_normal, new_gradient = evaluate(
            tile, profile, rows, columns, shape, limits.bounded_amplitudes, bounds
        )
        new_normal, new_gradient = _hold(shape, low, high, new_normal, new_gradient)
        accepted, course, stop = _judge(point, trial, course, stop, state, limits, max_error)
        point = select_six(accepted, trial, point)
        normal = select_six(accepted, new_normal, normal)
        gradient = select_three(accepted, new_gradient, gradient)
        step = _damped_step(normal, gradient, course[0])
        done = accepted & _is_over(point, normal, gradient, step, course, state, limits)
        stop = select(done & ~(stop == spread(_MAX_ERROR)), spread(_MIN_DELTA), stop)

    # A fit whose every trial was NaN or infinite has no parameters.
    lost = (stop >= spread(0)) & ~(point[5] < spread(np.inf))
    store(tile, state + STOP, select(lost, spread(_INVALID), stop))
    store_six(tile, state + POINT, point)
    store_three(tile, state + COURSE, course)
    store_six(tile, state + NORMAL, normal)
    store_three(tile, state + GRADIENT, gradient)


@njit(forceinline=True)
def _amplitude_bounds(limits: Any, scale: Vector, level: Vector) -> tuple[Vector, ...]:
    """Return the bounds of amplitude and background in each lane's own units."""
    return (
        spread(limits.amplitude_min) * scale,
        spread(limits.amplitude_max) * scale,
        (spread(limits.background_min) - level) * scale,
        (spread(limits.background_max) - level) * scale,
    )


@njit(forceinline=True)
def _judge(
    point: tuple[Vector, ...],
    trial: tuple[Vector, ...],
    course: tuple[Vector, ...],
    stop: Vector,
    n: int,
    limits: Any,
    max_error: Vector,
) -> tuple[Mask, tuple[Vector, ...], Vector]:
    """Decide which trials are accepted, which fits stop, and how the others go on."""
    damping, decrease, iterations = course
    running = stop < spread(0)
    better = trial[5] < point[5]
    accepted, worse = running & better, running & ~better
    # The first trial is the start itself, which is no step.
    stepped = running & (iterations >= spread(0))
    small = stepped & _is_small(point, trial, limits.min_step)
    change = absolute(trial[5] - point[5])
    tiny = stepped & _settled(change, better, decrease, point[5], trial[3], n, limits.min_delta)

    raised = damping * spread(DAMPING_INCREASE)
    lowered = damping * spread(DAMPING_DECREASE)
    damping = select(accepted, lowered, select(worse, raised, damping))
    decrease = select(accepted, change, decrease)
    iterations = select(running, iterations + spread(1), iterations)

    # In rising order of precedence, so that the most telling condition is kept.
    used_up = running & (iterations >= spread(limits.max_iterations))
    stop = select(used_up, spread(_MAX_ITERATIONS), stop)
    stuck = worse & (small | (damping > spread(MAX_DAMPING)))
    stop = select(stuck, spread(_NO_DECREASE), stop)
    stop = select(better & small, spread(_MIN_STEP), stop)
    stop = select(tiny, spread(_MIN_DELTA), stop)
    chi = select(better, trial[5], point[5])
    stop = select(running & (chi < max_error), spread(_MAX_ERROR), stop)
    return accepted, (damping, decrease, iterations), stop


@njit(forceinline=True)
def _is_small(point: tuple[Vector, ...], trial: tuple[Vector, ...], min_step: float) -> Mask:
    """Return where every parameter of the shape has moved by less than its share."""
    share = spread(min_step)
    return (
        (absolute(trial[0] - point[0]) < share * absolute(point[0]))
        & (absolute(trial[1] - point[1]) < share * absolute(point[1]))
        & (absolute(trial[2] - point[2]) < share * point[2])
    )


@njit(forceinline=True)
def _settled(
    change: Vector, better: Mask, last: Vector, chi: Vector, amplitude: Vector,
    n: int, min_delta: float,
) -> Mask:  # fmt: skip
    """Return where χ² has changed by less than ``min_delta`` of it, for good.

    Steps that shrink slowly add up: from a decrease and the one before it follows what
    is still to come (a geometric series), and that must be small as well. A change below
    what rounding makes of χ² is none, and a χ² of rounding alone gets no better.
    """
    enough = spread(min_delta) * chi
    slow = better & (change * last > enough * (last - change))
    rounding = spread(ROUNDING) * (spread(1) + absolute(amplitude))
    floor = spread(ROUNDING_FLOOR * n) * rounding
    perfect = ~better & (chi <= floor * rounding)
    rounding = spread(2) * rounding * (square_root(chi) + floor)
    return ((change <= enough) & ~slow) | (change <= rounding) | perfect


@njit(forceinline=True)
def _is_over(
    point: tuple[Vector, ...], normal: tuple[Vector, ...], gradient: tuple[Vector, ...],
    step: tuple[Vector, ...], course: tuple[Vector, ...], n: int, limits: Any,
) -> Mask:  # fmt: skip
    """Return where the next step would settle the fit, were the model linear.

    That step is not worth an evaluation.
    """
    damping, decrease, _ = course
    expected = (
        step[0] * multiply_add(damping * normal[0], step[0], gradient[0])
        + step[1] * multiply_add(damping * normal[3], step[1], gradient[1])
        + step[2] * multiply_add(damping * normal[5], step[2], gradient[2])
    ) * (point[3] * point[3])
    enough = spread(limits.min_delta) * point[5]
    slow = expected * decrease > enough * (decrease - expected)
    rounding = spread(ROUNDING) * (spread(1) + absolute(point[3]))
    floor = spread(2 * ROUNDING_FLOOR * n) * rounding * rounding
    tiny = (expected <= enough) & ~slow | (expected <= floor)
    short = spread(SKIPPED_STEP)
    short = (absolute(step[0]) < short) & (absolute(step[1]) < short) & (absolute(step[2]) < short)
    return tiny & short & (damping <= spread(SKIPPED_DAMPING))


@njit(forceinline=True)
def _hold(
    shape: tuple[Vector, ...],
    low: tuple[Vector, ...],
    high: tuple[Vector, ...],
    normal: tuple[Vector, ...],
    gradient: tuple[Vector, ...],
) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    """Take parameters that are at a bound and pushed outwards out of the next step."""
    xx, xy, xs, yy, ys, ss = normal
    x = _is_held(shape[0], gradient[0], low[0], high[0])
    y = _is_held(shape[1], gradient[1], low[1], high[1])
    s = _is_held(shape[2], gradient[2], low[2], high[2])
    zero = spread(0)
    xy, xs, ys = select(x | y, zero, xy), select(x | s, zero, xs), select(y | s, zero, ys)
    push = select(x, zero, gradient[0]), select(y, zero, gradient[1]), select(s, zero, gradient[2])
    return (xx, xy, xs, yy, ys, ss), push


@njit(forceinline=True)
def _is_held(value: Vector, push: Vector, low: Vector, high: Vector) -> Mask:
    zero = spread(0)
    return ((value <= low) & (push < zero)) | ((value >= high) & (push > zero))


@njit(forceinline=True)
def _damped_step(
    normal: tuple[Vector, ...], gradient: tuple[Vector, ...], damping: Vector
) -> tuple[Vector, Vector, Vector]:
    """Solve (A + λ diag A) δ = b by its LDLᵀ factors."""
    a_xx, a_xy, a_xs, a_yy, a_ys, a_ss = normal
    b_x, b_y, b_s = gradient
    raised = spread(1) + damping
    one = spread(1)
    i_x = one / (a_xx * raised)
    l_y, l_s = a_xy * i_x, a_xs * i_x
    i_y = one / (a_yy * raised - l_y * a_xy)
    m = a_ys - l_y * a_xs
    l_ys = m * i_y
    i_s = one / (a_ss * raised - l_s * a_xs - l_ys * m)
    z_y = b_y - l_y * b_x
    d_s = (b_s - l_s * b_x - l_ys * z_y) * i_s
    d_y = z_y * i_y - l_ys * d_s
    return b_x * i_x - l_y * d_y - l_s * d_s, d_y, d_s
