"""The least-squares sums of a separable profile f(x, y) = u(x)·v(y).

Sums without the data are products of sums along the axes; only the sums with the
data, and χ², visit the pixels.
"""

from __future__ import annotations

from typing import Any

from . import profiles
from .amplitudes import bounded_amplitudes, free_amplitudes, normal_equations
from .compiled import inner
from .kinds import Kind
from .lanes import Vector, load, multiply_add, spread
from .tile import Tile, point_with
from .unroll import unrolled


def evaluate(
    kind: Kind, tile: Tile, profile: Tile, state: int, rows: int, columns: int,
    shape: tuple[Vector, ...], bounded: bool, bounds: tuple[Vector, ...],
) -> tuple[Any, ...]:  # fmt: skip
    """Evaluate a trial shape; see :func:`~.evaluate.evaluate`."""
    width_x, width_y = profiles.widths_of(kind, shape)
    along_x = profiles.along_axis(kind, profile, 0, columns, shape[0], width_x)
    along_y = profiles.along_axis(kind, profile, 3 * columns, rows, shape[1], width_y)
    data = data_sums(kind, tile, profile, rows, columns)
    n = spread(rows * columns)
    f, ff = along_x[0] * along_y[0], along_x[3] * along_y[3]
    if bounded:
        amplitudes = bounded_amplitudes(n, f, ff, data[0], bounds)
    else:
        amplitudes = free_amplitudes(n, f, ff, data[0])
    amplitude, background = amplitudes[:2]
    chi = chi_square(tile, profile, rows, columns, amplitude, background)
    slopes, moments, products = derivative_sums(kind, along_x, along_y)
    normal, gradient = normal_equations(f, slopes, moments, products, data[1:], amplitudes)
    return point_with(shape, amplitude, background, chi), normal, gradient, spread(0)


@unrolled
def derivative_sums(
    kind: Kind, along_x: tuple[Vector, ...], along_y: tuple[Vector, ...]
) -> tuple[tuple[Vector, ...], tuple[Vector, ...], tuple[Vector, ...]]:
    """Return Σ∂f/∂p, Σf·∂f/∂p and Σ∂f/∂p·∂f/∂q (upper triangle) from sums along the axes.

    One width for both axes is the sum of the two that an elliptical spot has.
    """
    u, u1, u2, uu, uu1, uu2, u11, u12, u22 = along_x
    v, v1, v2, vv, vv1, vv2, v11, v12, v22 = along_y
    if kind.shapes == 3:
        return (
            (u1 * v, u * v1, u2 * v + u * v2),
            (uu1 * vv, uu * vv1, uu2 * vv + uu * vv2),
            (
                u11 * vv, uu1 * vv1, u12 * vv + uu1 * vv2,
                uu * v11, uu2 * vv1 + uu * v12,
                u22 * vv + 2 * uu2 * vv2 + uu * v22,
            ),
        )  # fmt: skip
    return (
        (u1 * v, u * v1, u2 * v, u * v2),
        (uu1 * vv, uu * vv1, uu2 * vv, uu * vv2),
        (
            u11 * vv, uu1 * vv1, u12 * vv, uu1 * vv2,
            uu * v11, uu2 * vv1, uu * v12,
            u22 * vv, uu2 * vv2,
            uu * v22,
        ),
    )  # fmt: skip


@inner(forceinline=True)
def data_sums(kind: Kind, tile: Tile, profile: Tile, rows: int, columns: int) -> tuple[Vector, ...]:
    """Return Σ of f·g, and of g times f's derivative by each shape parameter.

    Several rows at a time: their independent sums keep the multipliers busy, and each
    profile value that is read serves them all.
    """
    sums = _no_sums(kind)
    v = 3 * columns
    row = 0
    for _ in range(rows // 4):
        sums = _add_four_rows(kind, tile, profile, row, columns, v, sums)
        row, v = row + 4 * columns, v + 12
    if rows & 2:
        sums = _add_two_rows(kind, tile, profile, row, columns, v, sums)
        row, v = row + 2 * columns, v + 6
    if rows & 1:
        sums = _add_one_row(kind, tile, profile, row, columns, v, sums)
    return sums


@inner(forceinline=True)
def _add_four_rows(
    kind: Kind, tile: Tile, profile: Tile, row: int, columns: int, v: int,
    sums: tuple[Vector, ...],
) -> tuple[Vector, ...]:  # fmt: skip
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
    sums = _weigh_row(kind, profile, v, a0, b0, c0, sums)
    sums = _weigh_row(kind, profile, v + 3, a1, b1, c1, sums)
    sums = _weigh_row(kind, profile, v + 6, a2, b2, c2, sums)
    return _weigh_row(kind, profile, v + 9, a3, b3, c3, sums)


@inner(forceinline=True)
def _add_two_rows(
    kind: Kind, tile: Tile, profile: Tile, row: int, columns: int, v: int,
    sums: tuple[Vector, ...],
) -> tuple[Vector, ...]:  # fmt: skip
    a0 = b0 = c0 = a1 = b1 = c1 = spread(0)
    for i in range(columns):
        u, du, ds = load(profile, 3 * i), load(profile, 3 * i + 1), load(profile, 3 * i + 2)
        g = load(tile, row + i)
        a0, b0, c0 = multiply_add(u, g, a0), multiply_add(du, g, b0), multiply_add(ds, g, c0)
        g = load(tile, row + columns + i)
        a1, b1, c1 = multiply_add(u, g, a1), multiply_add(du, g, b1), multiply_add(ds, g, c1)
    sums = _weigh_row(kind, profile, v, a0, b0, c0, sums)
    return _weigh_row(kind, profile, v + 3, a1, b1, c1, sums)


@inner(forceinline=True)
def _add_one_row(
    kind: Kind, tile: Tile, profile: Tile, row: int, columns: int, v: int,
    sums: tuple[Vector, ...],
) -> tuple[Vector, ...]:  # fmt: skip
    a = b = c = spread(0)
    for i in range(columns):
        u, du, ds = load(profile, 3 * i), load(profile, 3 * i + 1), load(profile, 3 * i + 2)
        g = load(tile, row + i)
        a, b, c = multiply_add(u, g, a), multiply_add(du, g, b), multiply_add(ds, g, c)
    return _weigh_row(kind, profile, v, a, b, c, sums)


@unrolled
def _no_sums(kind: Kind) -> tuple[Vector, ...]:
    return (0.0,) * (kind.shapes + 1)


@unrolled
def _weigh_row(
    kind: Kind, profile: Tile, row: int, a: Vector, b: Vector, c: Vector, sums: tuple[Vector, ...]
) -> tuple[Vector, ...]:
    """Add an image row's Σug, Σu'g, Σu°g, weighted with the profile along y."""
    v, dv, ds = (load(profile, row + i) for i in range(3))
    first = (multiply_add(v, a, sums[0]), multiply_add(v, b, sums[1]), multiply_add(dv, a, sums[2]))
    if kind.shapes == 3:
        return (*first, multiply_add(ds, a, multiply_add(v, c, sums[3])))
    return (*first, multiply_add(v, c, sums[3]), multiply_add(ds, a, sums[4]))


@inner(forceinline=True)
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
