"""The Levenberg-Marquardt loop over a tile: sixteen fits in lockstep."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ...stopping import DAMPING_DECREASE, DAMPING_INCREASE, MAX_DAMPING, ROUNDING
from ...stopping import StopCondition as Stop
from . import profiles, separable
from .lanes import Mask, Vector, absolute, clamp, count, load, select, spread, square_root, store
from .tile import (
    AMPLITUDE,
    BACKGROUND,
    CHI_SQUARE,
    DAMPING,
    DECREASE,
    GRADIENT,
    ITERATIONS,
    LEVEL,
    NORMAL,
    SCALE,
    SIGMA,
    STOP,
    Tile,
    X,
    Y,
)

_MAX_ITERATIONS, _MAX_ERROR = int(Stop.MAX_ITERATIONS), int(Stop.MAX_ERROR)
_MIN_DELTA, _MIN_STEP = int(Stop.MIN_DELTA), int(Stop.MIN_STEP)
_NO_DECREASE, _INVALID = int(Stop.NO_DECREASE), int(Stop.INVALID)


class Limits(NamedTuple):
    """The settings that decide where a fit stops and what it may reach, as numbers."""

    max_iterations: float
    max_error: float
    min_delta: float
    min_step: float
    sigma_min: float
    sigma_max: float
    amplitude_min: float
    amplitude_max: float
    background_min: float
    background_max: float
    bounded_amplitudes: bool


@njit(nogil=True)
def minimize(tile: Tile, profile: Tile, rows: int, columns: int, limits: Any, leave: int) -> None:
    """Iterate the running fits of a tile until at most ``leave`` of them still run.

    An iteration is one step tried. Every trial point is evaluated in full, normal
    equations included: most trials are accepted, so this saves the second pass.
    """
    state = rows * columns
    n = rows * columns
    half, zero, one = spread(0.5), spread(0), spread(1)
    x_max, y_max = spread(columns) - half, spread(rows) - half
    sigma_min, sigma_max = spread(limits.sigma_min), spread(limits.sigma_max)
    scale = load(tile, state + SCALE)
    level = load(tile, state + LEVEL)
    a_min, a_max = spread(limits.amplitude_min) * scale, spread(limits.amplitude_max) * scale
    b_min = (spread(limits.background_min) - level) * scale
    b_max = (spread(limits.background_max) - level) * scale
    max_error = spread(limits.max_error) * scale * scale

    x, y, sigma = load(tile, state + X), load(tile, state + Y), load(tile, state + SIGMA)
    amplitude, background = load(tile, state + AMPLITUDE), load(tile, state + BACKGROUND)
    chi = load(tile, state + CHI_SQUARE)
    damping, decrease = load(tile, state + DAMPING), load(tile, state + DECREASE)
    iterations = load(tile, state + ITERATIONS)
    stop = load(tile, state + STOP)
    a_xx, a_xy, a_xs = (
        load(tile, state + NORMAL),
        load(tile, state + NORMAL + 1),
        load(tile, state + NORMAL + 2),
    )
    a_yy, a_ys, a_ss = (
        load(tile, state + NORMAL + 3),
        load(tile, state + NORMAL + 4),
        load(tile, state + NORMAL + 5),
    )
    b_x, b_y, b_s = (
        load(tile, state + GRADIENT),
        load(tile, state + GRADIENT + 1),
        load(tile, state + GRADIENT + 2),
    )

    running = stop < zero
    while count(running) > leave:
        d_x, d_y, d_s = _damped_step(a_xx, a_xy, a_xs, a_yy, a_ys, a_ss, b_x, b_y, b_s, damping)
        new_x = clamp(x + d_x * sigma, -half, x_max)
        new_y = clamp(y + d_y * sigma, -half, y_max)
        new_sigma = clamp(sigma + d_s * sigma, sigma_min, sigma_max)

        profiles.gaussian(profile, 0, columns, new_x, new_sigma)
        profiles.gaussian(profile, 3 * columns, rows, new_y, new_sigma)
        along_x = profiles.sums(profile, 0, columns)
        along_y = profiles.sums(profile, 3 * columns, rows)
        fg, fg_x, fg_y, fg_s = separable.data_sums(tile, profile, rows, columns)
        f, ff = along_x[0] * along_y[0], along_x[3] * along_y[3]
        if limits.bounded_amplitudes:
            new_a, new_b, w_a, w_b = separable.bounded_amplitudes(
                n, f, ff, fg, a_min, a_max, b_min, b_max
            )
        else:
            new_a, new_b, w_a, w_b = separable.free_amplitudes(n, f, ff, fg)
        new_chi = separable.chi_square(tile, profile, rows, columns, new_a, new_b)

        step = spread(limits.min_step)
        small = (
            (absolute(new_x - x) < step * absolute(x))
            & (absolute(new_y - y) < step * absolute(y))
            & (absolute(new_sigma - sigma) < step * sigma)
        )
        stepped = iterations >= zero
        change = absolute(new_chi - chi)
        better = new_chi < chi
        tiny = _settled(change, better, decrease, chi, new_a, n, limits.min_delta)
        accepted = running & better
        worse = running & ~better
        iterations = select(running, iterations + one, iterations)
        damping = select(
            accepted,
            damping * spread(DAMPING_DECREASE),
            select(worse, damping * spread(DAMPING_INCREASE), damping),
        )
        # In rising order of precedence, so that the most telling condition is kept.
        reason = select(
            running & (iterations >= spread(limits.max_iterations)),
            spread(_MAX_ITERATIONS),
            stop,
        )
        stuck = worse & stepped & (small | (damping > spread(MAX_DAMPING)))
        reason = select(stuck, spread(_NO_DECREASE), reason)
        reason = select(accepted & stepped & small, spread(_MIN_STEP), reason)
        reason = select(running & stepped & tiny, spread(_MIN_DELTA), reason)

        x, y = select(accepted, new_x, x), select(accepted, new_y, y)
        sigma = select(accepted, new_sigma, sigma)
        amplitude = select(accepted, new_a, amplitude)
        background = select(accepted, new_b, background)
        chi = select(accepted, new_chi, chi)
        decrease = select(accepted, change, decrease)
        reason = select(running & (chi < max_error), spread(_MAX_ERROR), reason)

        n_xx, n_xy, n_xs, n_yy, n_ys, n_ss, g_x, g_y, g_s = separable.normal_equations(
            along_x, along_y, fg_x, fg_y, fg_s, new_a, new_b, w_a, w_b
        )
        # A parameter at its bound that is pushed outwards is held for this step.
        held_x = _held(new_x, g_x, -half, x_max)
        held_y = _held(new_y, g_y, -half, y_max)
        held_s = _held(new_sigma, g_s, sigma_min, sigma_max)
        n_xy = select(held_x | held_y, zero, n_xy)
        n_xs = select(held_x | held_s, zero, n_xs)
        n_ys = select(held_y | held_s, zero, n_ys)
        a_xx, a_xy = select(accepted, n_xx, a_xx), select(accepted, n_xy, a_xy)
        a_xs, a_yy = select(accepted, n_xs, a_xs), select(accepted, n_yy, a_yy)
        a_ys, a_ss = select(accepted, n_ys, a_ys), select(accepted, n_ss, a_ss)
        b_x = select(accepted, select(held_x, zero, g_x), b_x)
        b_y = select(accepted, select(held_y, zero, g_y), b_y)
        b_s = select(accepted, select(held_s, zero, g_s), b_s)
        stop = reason
        running = stop < zero

    # A fit whose every trial was NaN or infinite has no parameters.
    lost = (stop >= zero) & ~(chi < spread(np.inf))
    store(tile, state + STOP, select(lost, spread(_INVALID), stop))
    store(tile, state + X, x)
    store(tile, state + Y, y)
    store(tile, state + SIGMA, sigma)
    store(tile, state + AMPLITUDE, amplitude)
    store(tile, state + BACKGROUND, background)
    store(tile, state + CHI_SQUARE, chi)
    store(tile, state + DAMPING, damping)
    store(tile, state + DECREASE, decrease)
    store(tile, state + ITERATIONS, iterations)
    store(tile, state + NORMAL, a_xx)
    store(tile, state + NORMAL + 1, a_xy)
    store(tile, state + NORMAL + 2, a_xs)
    store(tile, state + NORMAL + 3, a_yy)
    store(tile, state + NORMAL + 4, a_ys)
    store(tile, state + NORMAL + 5, a_ss)
    store(tile, state + GRADIENT, b_x)
    store(tile, state + GRADIENT + 1, b_y)
    store(tile, state + GRADIENT + 2, b_s)


@njit(forceinline=True)
def _settled(
    change: Vector, better: Mask, last: Vector, chi: Vector, amplitude: Vector,
    n: int, min_delta: float,
) -> Mask:  # fmt: skip
    """Return where χ² has changed by less than ``min_delta`` of it, for good.

    Steps that shrink slowly add up: from a decrease and the one before it follows what
    is still to come (a geometric series), and that must be small as well.
    """
    enough = spread(min_delta) * chi
    slow = better & (change * last > enough * (last - change))
    rounding = spread(ROUNDING) * (spread(1) + absolute(amplitude))
    rounding = spread(2) * rounding * (square_root(chi) + spread(8 * n) * rounding)
    return ((change <= enough) & ~slow) | (change <= rounding)


@njit(forceinline=True)
def _held(value: Vector, push: Vector, low: Vector, high: Vector) -> Mask:
    zero = spread(0)
    return ((value <= low) & (push < zero)) | ((value >= high) & (push > zero))


@njit(forceinline=True)
def _damped_step(
    a_xx: Vector, a_xy: Vector, a_xs: Vector, a_yy: Vector, a_ys: Vector, a_ss: Vector,
    b_x: Vector, b_y: Vector, b_s: Vector, damping: Vector,
) -> tuple[Vector, Vector, Vector]:  # fmt: skip
    """Solve (A + λ diag A) δ = b by its LDLᵀ factors."""
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
