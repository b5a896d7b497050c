"""The least-squares sums of a separable profile f(x, y) = u(x)·v(y).

Sums without the data are products of sums along the axes; only the sums with the
data, and χ², visit the pixels. Amplitude and background are implicit (variable
projection, Golub & Pereyra 1973), with Kaufman's (1975) Jacobian: the derivative of
the profile less its projection on what the implicit parameters can take up.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from . import profiles
from .lanes import Mask, Vector, clamp, load, multiply_add, select, spread
from .tile import Tile


@njit(forceinline=True)
def evaluate(
    tile: Tile,
    profile: Tile,
    rows: int,
    columns: int,
    shape: tuple[Vector, ...],
    bounded: bool,
    bounds: tuple[Vector, ...],
) -> tuple[tuple[Vector, ...], tuple[Vector, ...], tuple[Vector, ...]]:
    """Return all there is to know about a trial point (x, y, σ).

    Returns
    -------
    point : x, y, σ, amplitude, background, χ²
    normal : JᵀJ/α², its upper triangle by rows
    gradient : Jᵀr/α²
    """
    x, y, sigma = shape
    along_x = profiles.along_axis(profile, 0, columns, x, sigma)
    along_y = profiles.along_axis(profile, 3 * columns, rows, y, sigma)
    fg, fg_x, fg_y, fg_sigma = data_sums(tile, profile, rows, columns)
    f, ff = along_x[0] * along_y[0], along_x[3] * along_y[3]
    if bounded:
        amplitudes = bounded_amplitudes(rows * columns, f, ff, fg, bounds)
    else:
        amplitudes = free_amplitudes(rows * columns, f, ff, fg)
    amplitude, background = amplitudes[:2]
    chi = chi_square(tile, profile, rows, columns, amplitude, background)
    normal, gradient = normal_equations(along_x, along_y, fg_x, fg_y, fg_sigma, amplitudes)
    return (x, y, sigma, amplitude, background, chi), normal, gradient


@njit(forceinline=True)
def data_sums(tile: Tile, profile: Tile, rows: int, columns: int) -> tuple[Vector, ...]:
    """Return Σ of f·g, f_x·g, f_y·g, f_σ·g over the pixels.

    Several rows at a time: their independent sums keep the multipliers busy, and each
    profile value that is read serves them all.
    """
    sums = (spread(0), spread(0), spread(0), spread(0))
    v = 3 * columns
    row = 0
    for _ in range(rows // 4):
        sums = _add_four_rows(tile, profile, row, columns, v, sums)
        row, v = row + 4 * columns, v + 12
    if rows & 2:
        sums = _add_two_rows(tile, profile, row, columns, v, sums)
        row, v = row + 2 * columns, v + 6
    if rows & 1:
        sums = _add_one_row(tile, profile, row, columns, v, sums)
    return sums


@njit(forceinline=True)
def _add_four_rows(
    tile: Tile, profile: Tile, row: int, columns: int, v: int, sums: tuple[Vector, ...]
) -> tuple[Vector, ...]:
    a0 = b0 = c0 = a1 = b1 = c1 = a2 = b2 = c2 = a3 = b3 = c3 = spread(0)
    for i in range(columns):
        u, du, ds = load(profile, 3 * i), load(profile, 3 * i + 1), load(profile, 3 * i + 2)
        g = load(tile, row + i)
        a0, b0, c0 = multiply_add(u, g, a0), multiply_add(du, g, b0), multiply_add(ds, g, c0)
        g = load(tile, row + columns + i)
        a1, b1, c1 = multiply_add(u, g, a1), multiply_add(du, g, b1), multiply_add(ds, g, c1)
        g = load(tile, row + 2 * columns + i)
        a2, b2, c2 = multiply_add(u, g, a2), multiply_add(du, g, b2), multiply_add(ds, g, c2)
        g = load(tile, row + 3 * columns + i)
        a3, b3, c3 = multiply_add(u, g, a3), multiply_add(du, g, b3), multiply_add(ds, g, c3)
    sums = _weigh_row(profile, v, a0, b0, c0, sums)
    sums = _weigh_row(profile, v + 3, a1, b1, c1, sums)
    sums = _weigh_row(profile, v + 6, a2, b2, c2, sums)
    return _weigh_row(profile, v + 9, a3, b3, c3, sums)


@njit(forceinline=True)
def _add_two_rows(
    tile: Tile, profile: Tile, row: int, columns: int, v: int, sums: tuple[Vector, ...]
) -> tuple[Vector, ...]:
    a0 = b0 = c0 = a1 = b1 = c1 = spread(0)
    for i in range(columns):
        u, du, ds = load(profile, 3 * i), load(profile, 3 * i + 1), load(profile, 3 * i + 2)
        g = load(tile, row + i)
        a0, b0, c0 = multiply_add(u, g, a0), multiply_add(du, g, b0), multiply_add(ds, g, c0)
        g = load(tile, row + columns + i)
        a1, b1, c1 = multiply_add(u, g, a1), multiply_add(du, g, b1), multiply_add(ds, g, c1)
    sums = _weigh_row(profile, v, a0, b0, c0, sums)
    return _weigh_row(profile, v + 3, a1, b1, c1, sums)


@njit(forceinline=True)
def _add_one_row(
    tile: Tile, profile: Tile, row: int, columns: int, v: int, sums: tuple[Vector, ...]
) -> tuple[Vector, ...]:
    a = b = c = spread(0)
    for i in range(columns):
        u, du, ds = load(profile, 3 * i), load(profile, 3 * i + 1), load(profile, 3 * i + 2)
        g = load(tile, row + i)
        a, b, c = multiply_add(u, g, a), multiply_add(du, g, b), multiply_add(ds, g, c)
    return _weigh_row(profile, v, a, b, c, sums)


@njit(forceinline=True)
def _weigh_row(
    profile: Tile, row: int, a: Vector, b: Vector, c: Vector, sums: tuple[Vector, ...]
) -> tuple[Vector, ...]:
    """Add an image row's Σug, Σu'g, Σu°g, weighted with the profile along y."""
    v, dv, ds = load(profile, row), load(profile, row + 1), load(profile, row + 2)
    fg, fg_x, fg_y, fg_sigma = sums
    return (
        multiply_add(v, a, fg),
        multiply_add(v, b, fg_x),
        multiply_add(dv, a, fg_y),
        multiply_add(ds, a, multiply_add(v, c, fg_sigma)),
    )


@njit(forceinline=True)
def chi_square(
    tile: Tile, profile: Tile, rows: int, columns: int, amplitude: Vector, background: Vector
) -> Vector:
    """Return Σ(g - background - amplitude·f)², summed from the residuals themselves.

    Row by row, then over the rows: the rounding error of χ² stays below the smallest
    change that stops a fit.
    """
    total = spread(0)
    row, v = 0, 3 * columns
    for _ in range(rows // 2):
        first, second = spread(0), spread(0)
        av0 = amplitude * load(profile, v)
        av1 = amplitude * load(profile, v + 3)
        for i in range(columns):
            u = load(profile, 3 * i)
            r0 = load(tile, row + i) - multiply_add(av0, u, background)
            r1 = load(tile, row + columns + i) - multiply_add(av1, u, background)
            first, second = multiply_add(r0, r0, first), multiply_add(r1, r1, second)
        total = total + (first + second)
        row, v = row + 2 * columns, v + 6
    if rows & 1:
        last = spread(0)
        av0 = amplitude * load(profile, v)
        for i in range(columns):
            r0 = load(tile, row + i) - multiply_add(av0, load(profile, 3 * i), background)
            last = multiply_add(r0, r0, last)
        total = total + last
    return total


@njit(forceinline=True)
def free_amplitudes(
    n: float, f: Vector, ff: Vector, fg: Vector
) -> tuple[Vector, Vector, Vector, Vector]:
    """Return amplitude, background and the weights of their projections; Σg is 0."""
    w_background = spread(np.float32(1) / np.float32(n))
    w_amplitude = spread(1) / (ff - f * f * w_background)
    amplitude = fg * w_amplitude
    return amplitude, -amplitude * f * w_background, w_amplitude, w_background


@njit(forceinline=True)
def bounded_amplitudes(
    n: float, f: Vector, ff: Vector, fg: Vector, bounds: tuple[Vector, ...]
) -> tuple[Vector, Vector, Vector, Vector]:
    """Return the same within bounds: the exact minimum of the 2-D quadratic in a box.

    A free minimum outside the box moves to an edge: the background's or the
    amplitude's, whichever is lower. What lies at its bound projects nothing.
    """
    a_min, a_max, b_min, b_max = bounds
    amplitude, background, _, w_background = free_amplitudes(n, f, ff, fg)
    b1 = clamp(background, b_min, b_max)
    a1 = clamp((fg - b1 * f) / ff, a_min, a_max)
    a2 = clamp(amplitude, a_min, a_max)
    b2 = clamp(-a2 * f * w_background, b_min, b_max)
    first = _misfit(n, f, ff, fg, a1, b1) < _misfit(n, f, ff, fg, a2, b2)
    inside = _within(amplitude, a_min, a_max) & _within(background, b_min, b_max)
    amplitude = select(inside, amplitude, select(first, a1, a2))
    background = select(inside, background, select(first, b1, b2))
    zero = spread(0)
    w_background = select((background > b_min) & (background < b_max), w_background, zero)
    w_amplitude = spread(1) / (ff - f * f * w_background)
    w_amplitude = select((amplitude > a_min) & (amplitude < a_max), w_amplitude, zero)
    return amplitude, background, w_amplitude, w_background


@njit(forceinline=True)
def _misfit(n: float, f: Vector, ff: Vector, fg: Vector, a: Vector, b: Vector) -> Vector:
    """Return χ² less the data's own sum of squares; good enough to compare two edges."""
    return a * a * ff + b * (a * f * spread(2) + b * spread(np.float32(n))) - a * fg * spread(2)


@njit(forceinline=True)
def _within(value: Vector, low: Vector, high: Vector) -> Mask:
    return (value >= low) & (value <= high)


@njit(forceinline=True)
def normal_equations(
    along_x: tuple[Vector, ...],
    along_y: tuple[Vector, ...],
    fg_x: Vector,
    fg_y: Vector,
    fg_sigma: Vector,
    amplitudes: tuple[Vector, Vector, Vector, Vector],
) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    """Return JᵀJ/α² (xx, xy, xσ, yy, yσ, σσ) and Jᵀr/α² (x, y, σ), steps in units of σ."""
    amplitude, background, w_amplitude, w_background = amplitudes
    u, u1, u2, uu, uu1, uu2, u11, u12, u22 = along_x
    v, v1, v2, vv, vv1, vv2, v11, v12, v22 = along_y
    f = u * v
    f_x, f_y, f_s = u1 * v, u * v1, u2 * v + u * v2
    h_x, h_y, h_s = uu1 * vv, uu * vv1, uu2 * vv + uu * vv2

    c_x = h_x - f * f_x * w_background
    c_y = h_y - f * f_y * w_background
    c_s = h_s - f * f_s * w_background
    p_x, p_y, p_s = f_x * w_background, f_y * w_background, f_s * w_background
    q_x, q_y, q_s = c_x * w_amplitude, c_y * w_amplitude, c_s * w_amplitude
    a_xx = u11 * vv - f_x * p_x - c_x * q_x
    a_xy = uu1 * vv1 - f_x * p_y - c_x * q_y
    a_xs = u12 * vv + uu1 * vv2 - f_x * p_s - c_x * q_s
    a_yy = uu * v11 - f_y * p_y - c_y * q_y
    a_ys = uu2 * vv1 + uu * v12 - f_y * p_s - c_y * q_s
    a_ss = u22 * vv + spread(2) * uu2 * vv2 + uu * v22 - f_s * p_s - c_s * q_s

    # The residual is orthogonal to what the implicit parameters take up, so the
    # projection drops out of the right-hand side.
    inverse = spread(1) / amplitude
    b_x = (fg_x - background * f_x) * inverse - h_x
    b_y = (fg_y - background * f_y) * inverse - h_y
    b_s = (fg_sigma - background * f_s) * inverse - h_s
    return (a_xx, a_xy, a_xs, a_yy, a_ys, a_ss), (b_x, b_y, b_s)
