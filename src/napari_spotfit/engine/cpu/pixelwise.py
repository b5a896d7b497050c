"""Least squares by sums over the pixels: weights, masks, and models that are no products.

With d = (f_1, …, f_K, f, 1), the profile's derivatives, itself and 1, a pass over the pixels
adds up S = Σ w d dᵀ (its upper triangle, by rows) and T = Σ q d. Least squares has w the
weight and q = w g. From S and T follows all that the fast path has from its sums along the
axes: the amplitudes, and Kaufman's Jacobian as the Schur complement of S on (f, 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...models.expressions.program import TINY
from ...models.stopping import SINGULAR
from . import lane_functions, profiles, rotated
from .amplitudes import bounded_amplitudes, free_amplitudes, normal_equations
from .compiled import inner
from .kinds import Kind, by_kind
from .lanes import Vector, absolute, load, multiply_add, select, spread, store
from .tile import Tile, count_of, point_with, weight_of
from .unroll import unrolled


def _sign(x: Vector) -> Vector:
    return select(x < 0, -1.0, 1.0)


def _nonzero(x: Vector) -> Vector:
    return select(x == 0, TINY, x)


def _error_function(x: Vector) -> Vector:
    return lane_functions.error_function(x, lane_functions.exp(-(x * x)))


#: The functions that expressions have, and their derivatives.
_FUNCTIONS = {
    "exp": lane_functions.exp, "log": lane_functions.log, "sqrt": lane_functions.sqrt,
    "abs": absolute, "sin": lane_functions.sin, "cos": lane_functions.cos,
    "tan": lane_functions.tan, "tanh": lane_functions.tanh, "erf": _error_function,
    "sign": _sign, "nonzero": _nonzero,
}  # fmt: skip


def _along_axes(
    kind: Kind, profile: Tile, rows: int, columns: int, shape: tuple[Vector, ...]
) -> None:
    width_x, width_y = profiles.widths_of(kind, shape)
    profiles.along_axis(kind, profile, 0, columns, shape[0], width_x)
    profiles.along_axis(kind, profile, 3 * columns, rows, shape[1], width_y)


def _nowhere(kind: Kind, profile: Tile, rows: int, columns: int, shape: tuple[Vector, ...]) -> None:
    pass


@by_kind
def write_profile(kind: Kind) -> Callable[..., Any]:
    """Choose what writes down a profile along both axes, if it is a product."""
    return _along_axes if kind.separable else _nowhere


@unrolled
def known_of(kind: Kind, shape: tuple[Vector, ...]) -> tuple[Vector, ...]:
    """Return what a profile that is no product has in common for all pixels."""
    return rotated.constants(kind, shape) if kind.model == "gaussian_rotated" else shape


@unrolled
def in_row(kind: Kind, profile: Tile, row: int, columns: int) -> tuple[Vector, ...]:
    """Return what the pixels of a row have in common."""
    if kind.separable:
        return tuple(profile[(columns + row) * 3 + i] for i in range(3))
    return (spread(row),)


@unrolled
def at_pixel(
    kind: Kind, profile: Tile, column: int, row: tuple[Vector, ...], known: tuple[Vector, ...]
) -> tuple[Vector, tuple[Vector, ...]]:
    """Return f and its derivatives by x, y, widths…, in units of the search's steps."""
    if kind.model == "gaussian_rotated":
        return rotated.at_pixel(spread(column), row[0], known)
    if kind.program is not None:
        f, *slopes = kind.program.run(_FUNCTIONS, spread(column), row[0], known)
        return f, tuple(slopes)
    v, dv, dsv = row
    u, du, dsu = (profile[column * 3 + i] for i in range(3))
    widths = (dsu * v + u * dsv,) if kind.shapes == 3 else (dsu * v, u * dsv)
    return u * v, (du * v, u * dv, *widths)


@unrolled
def no_sums(kind: Kind) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    """Return S and T before the first pixel."""
    n = kind.shapes + 2
    return (0.0,) * (n * (n + 1) // 2), (0.0,) * n


@unrolled
def add(
    kind: Kind,
    sums: tuple[tuple[Vector, ...], tuple[Vector, ...]],
    slopes: tuple[Vector, ...],
    f: Vector,
    w: Vector,
    q: Vector,
) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    """Add a pixel to S and T."""
    products, data = sums
    d = (*slopes, f)
    weighted = [w * value for value in d]
    result, k = [], 0
    for i, own in enumerate(weighted):
        for other in d[i:]:
            result.append(multiply_add(own, other, products[k]))
            k += 1
        result.append(products[k] + own)
        k += 1
    result.append(products[k] + w)
    pushes = [multiply_add(q, value, total) for value, total in zip(d, data[:-1], strict=True)]
    return tuple(result), (*pushes, data[-1] + q)


def evaluate(
    kind: Kind, tile: Tile, profile: Tile, state: int, rows: int, columns: int,
    values: tuple[Vector, ...], bounded: bool, bounds: tuple[Vector, ...],
) -> tuple[Any, ...]:  # fmt: skip
    """Evaluate a trial shape; see :func:`~.evaluate.evaluate`."""
    sums = least_squares_sums(kind, tile, profile, rows, columns, values)
    n = count_of(kind, tile, state, rows * columns)
    f, ff, fg = light_sums(kind, sums)
    if bounded:
        amplitudes = bounded_amplitudes(n, f, ff, fg, bounds)
    else:
        amplitudes = free_amplitudes(n, f, ff, fg)
    amplitude, background = amplitudes[:2]
    chi = _chi_square(kind, tile, profile, rows, columns, amplitude, background)
    normal, gradient = _equations(kind, sums, amplitudes)
    return point_with(values, amplitude, background, chi), normal, gradient, ff


@unrolled
def light_sums(kind: Kind, sums: Any) -> tuple[Vector, Vector, Vector]:
    """Return Σ of w f, w f² and w f g."""
    return sums[0][-2], sums[0][-3], sums[1][-2]


@inner(forceinline=True)
def least_squares_sums(
    kind: Kind, tile: Tile, profile: Tile, rows: int, columns: int,
    shape: tuple[Vector, ...],
) -> Any:  # fmt: skip
    """Return S and T of least squares, and leave f of each pixel behind the profile's rows."""
    write_profile(kind, profile, rows, columns, shape)
    known = known_of(kind, shape)
    values = 3 * (rows + columns)
    sums = no_sums(kind)
    for row in range(rows):
        part = in_row(kind, profile, row, columns)
        for column in range(columns):
            i = row * columns + column
            f, slopes = at_pixel(kind, profile, column, part, known)
            w = weight_of(kind, tile, rows * columns, i)
            sums = add(kind, sums, slopes, f, w, w * load(tile, i))
            store(profile, values + i, f)
    return sums


@inner(forceinline=True)
def _chi_square(
    kind: Kind, tile: Tile, profile: Tile, rows: int, columns: int,
    amplitude: Vector, background: Vector,
) -> Vector:  # fmt: skip
    """Return Σ w (g - background - amplitude·f)², by rows, then over the rows."""
    total = spread(0)
    values = 3 * (rows + columns)
    for row in range(rows):
        part = spread(0)
        for i in range(row * columns, (row + 1) * columns):
            residual = load(tile, i) - multiply_add(
                amplitude, load(profile, values + i), background
            )
            w = weight_of(kind, tile, rows * columns, i)
            part = multiply_add(w * residual, residual, part)
        total = total + part
    return total


def is_undetermined(kind: Kind, i: int, own: Vector, ff: Vector) -> Any:
    """Return where the data say nothing of a parameter: of the angle of a round spot."""
    is_angle = kind.model == "gaussian_rotated" and i == 4 and not rotated.sheared(kind)
    return ~(own > SINGULAR * ff) if is_angle else ~(own > 0)


@unrolled
def _equations(
    kind: Kind, sums: Any, amplitudes: tuple[Vector, ...]
) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    """Return JᵀJ/α² and Jᵀr/α².

    What has no curvature of its own, or none beyond what the amplitudes take up, has none
    at all, so that the search leaves it where it is.
    """
    matrix = square(sums[0], kind.shapes + 2)
    k = range(kind.shapes)
    f, ff = kind.shapes + 1, matrix[kind.shapes][kind.shapes]
    normal, gradient = normal_equations(
        matrix[-2][-1],
        tuple(matrix[j][f] for j in k),
        tuple(matrix[j][f - 1] for j in k),
        tuple(matrix[i][j] for i in k for j in k if j >= i),
        sums[1][: kind.shapes],
        amplitudes,
    )
    dark = amplitudes[0] == 0
    entries, pushes = list(normal), []
    place = 0
    for i in k:
        own = matrix[i][i]
        void = is_undetermined(kind, i, own, ff) | ~(entries[place] > SINGULAR * own)
        entries[place] = select(void, 0, entries[place])
        pushes.append(select(void | dark, 0, gradient[i]))
        place += kind.shapes - i
    return tuple(entries), tuple(pushes)


def square(triangle: tuple[Vector, ...], n: int) -> list[list[Vector]]:
    """Return a symmetric matrix from its upper triangle by rows."""
    matrix: list[list[Any]] = [[None] * n for _ in range(n)]
    items = iter(triangle)
    for i in range(n):
        for j in range(i, n):
            matrix[i][j] = matrix[j][i] = next(items)
    return matrix
