"""Standard errors of the parameters and the photons.

With d the model's derivatives, A = Σ w d dᵀ: the covariance is A⁻¹ for maximum likelihood,
where w = 1/h makes A the Fisher information. For least squares it is
A⁻¹ (Σ w² var d dᵀ) A⁻¹ with the shot noise var = gain · model where the camera's gain is
known, else s² A⁻¹ with s² = χ² over the degrees of freedom. On the fast path all sums are
products of sums along the axes, so no pixel is visited.

What is held, or ended at one of its bounds, does not follow the data: A is that of the
other parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...models.stopping import SINGULAR
from . import likelihood, pixelwise, profiles
from .compiled import inner
from .finish import put
from .kinds import Kind, by_kind, for_errors, is_likelihood, is_plain
from .lanes import (
    Mask,
    Vector,
    absolute,
    load,
    maximum,
    multiply_add,
    select,
    spread,
    square_root,
    store,
)
from .search import amplitude_bounds
from .tile import BACKGROUND_FLOOR, COUNT, LEVEL, SCALE, Tile, point_of, weight_of
from .unroll import unrolled

#: Rows of the work space: tables of 1-D sums, plain and weighted with u, along x and
#: y, and matrices of as many rows as there are parameters, up to ten.
_PLAIN_X, _PLAIN_Y, _WEIGHTED_X, _WEIGHTED_Y = 0, 16, 32, 48
_INVERSE, _NOISE, _PRODUCT, _MOVED = 64, 164, 264, 274
WORK_ROWS = 284


@inner()
def standard_errors(
    kind: Kind, tile: Tile, profile: Tile, work: Tile, state: int, rows: int, columns: int,
    light: Vector, slopes: tuple[Vector, ...], results: Tile, first: int, limits: Any,
    offset: float, gain: float, gain_known: bool, per_freedom: float, photons: float, fitted: int,
) -> None:  # fmt: skip
    """Write the columns of standard errors to the rows of the results from ``first`` on.

    Those of what is held are 0, those of what is at a bound NaN; all are NaN where the
    matrix is singular.
    """
    point = point_of(kind, tile, state)
    shot_noise = gain_known and not is_likelihood(kind)
    _write_sums(
        for_errors(kind), tile, profile, work, state, rows, columns, point, offset, gain, shot_noise
    )
    out = _left_out(for_errors(kind), tile, state, work, point, limits)
    _write_scales(kind, work, out)
    _invert(kind, work)
    residual = _residual(kind, tile, state, point, per_freedom, fitted)
    for p in range(unknowns(kind)):
        store(work, _PRODUCT + p, _covariance(kind, work, p, p, residual, shot_noise))
    _write_parameters(kind, tile, state, work, results, first, point, limits, out)
    # photons = light · α, and of the light the logarithm's derivatives are known.
    if is_plain(kind):
        total = spread(0)
        for p, q, times in _photon_terms(kind):
            total = total + spread(times) * _covariance(kind, work, p, q, residual, shot_noise)
    else:
        _write_slopes(kind, work, slopes)
        total = _variance_along(kind, work, residual, shot_noise)
    _write_photons(kind, tile, state, results, first, total, light, photons)


@inner(forceinline=True)
def _variance_along(kind: Kind, work: Tile, residual: Vector, shot_noise: bool) -> Vector:
    """Return the variance of a combination of the parameters, given by its slopes."""
    n = unknowns(kind)
    for p in range(n):
        value = spread(0)
        for q in range(n):
            value = multiply_add(load(work, _INVERSE + n * p + q), load(work, _PRODUCT + q), value)
        store(work, _MOVED + p, value)
    total = spread(0)
    if not shot_noise:
        for p in range(n):
            total = multiply_add(load(work, _MOVED + p), load(work, _PRODUCT + p), total)
        return total * residual
    for p in range(n):
        row = spread(0)
        for q in range(n):
            row = multiply_add(load(work, _NOISE + n * p + q), load(work, _MOVED + q), row)
        total = multiply_add(load(work, _MOVED + p), row, total)
    return total


@unrolled
def _photon_terms(kind: Kind) -> tuple[tuple[int, int, int], ...]:
    """Return the covariances that the photons' variance is made of, and how many times."""
    if kind.shapes == 3:
        return (2, 2, 4), (2, 3, 4), (3, 3, 1)
    return (2, 2, 1), (3, 3, 1), (4, 4, 1), (2, 3, 2), (2, 4, 2), (3, 4, 2)


@by_kind
def _write_sums(kind: Kind) -> Callable[..., Any]:
    """Choose what writes A, and Σ w² var d dᵀ where it is wanted."""
    return _from_axes if kind.plain else _from_pixels


def _weighted(
    kind: Kind, tile: Tile, profile: Tile, rows: int, columns: int, values: tuple[Vector, ...]
) -> Any:
    return pixelwise.least_squares_sums(kind, tile, profile, rows, columns, values)


@by_kind
def _sums(kind: Kind) -> Callable[..., Any]:
    """Choose what adds up A over the pixels."""
    return likelihood.fisher_sums if kind.likelihood else _weighted


@unrolled
def unknowns(kind: Kind) -> int:
    """Return how many parameters there are, amplitude and background included."""
    return kind.shapes + 2


@unrolled
def _write_parameters(
    kind: Kind, tile: Tile, state: Any, work: Tile, results: Tile, first: Any,
    point: tuple[Vector, ...], limits: Any, out: tuple[Mask, ...],
) -> None:  # fmt: skip
    """Write the errors of the parameters from variances in the search's units.

    Derivatives are in units of steps and without α.
    """
    unit = 1 / tile[state + SCALE]
    for p in range(kind.shapes + 2):
        error = square_root(work[_PRODUCT + p])
        if p >= kind.shapes:
            error = error * unit
        else:
            width = point[kind.shapes - 1] if p == 1 else point[max(p, 2)]
            error = error * absolute((width if kind.separable else 1) / point[kind.shapes])
            if kind.model == "gaussian_rotated" and p == 4:
                error = error * (180 / math.pi)
        error = select(out[p], np.nan, error)
        if p < kind.shapes:
            error = select(limits.held[p], 0.0, error)
        put(tile, state, results, first + p, error)


@unrolled
def _write_slopes(kind: Kind, work: Tile, slopes: tuple[Vector, ...]) -> None:
    for p, value in enumerate((*slopes, 1.0, 0.0)):
        work[_PRODUCT + p] = value


@unrolled
def _write_photons(
    kind: Kind, tile: Tile, state: Any, results: Tile, first: Any, variance: Vector,
    light: Vector, photons: Vector,
) -> None:  # fmt: skip
    error = square_root(variance) * absolute(light) * (1 / tile[state + SCALE]) * photons
    put(tile, state, results, first + (kind.shapes + 2), error)


@unrolled
def _residual(
    kind: Kind, tile: Tile, state: Any, point: tuple[Vector, ...], per_freedom: Vector, fitted: Any
) -> Vector:
    """Return what the inverse matrix is multiplied with where the shot noise is unknown."""
    if kind.likelihood:
        return 1.0
    if kind.weighted:
        return point[-1] / (tile[state + COUNT] - spread(fitted))
    return point[-1] * per_freedom


@unrolled
def _left_out(
    kind: Kind, tile: Tile, state: Any, work: Tile, point: tuple[Vector, ...], limits: Any
) -> tuple[Mask, ...]:
    """Return where the data do not move a parameter, which A is to be without.

    It is held, or at a bound, or the angle of a round spot.
    """
    n = kind.shapes + 2
    bounds = amplitude_bounds(limits, tile[state + SCALE], tile[state + LEVEL])
    low = (*limits.low, bounds[0], tile[state + BACKGROUND_FLOOR] if kind.likelihood else bounds[2])
    high = (*limits.high, bounds[1], bounds[3])
    out = [(point[p] <= low[p]) | (point[p] >= high[p]) for p in range(n)]
    for p in range(kind.shapes):
        out[p] = out[p] | limits.held[p]
    if kind.model == "gaussian_rotated":
        own, ff = (work[_INVERSE + (n + 1) * p] for p in (4, kind.shapes))
        out[4] = out[4] | pixelwise.is_undetermined(kind, 4, own, ff)
    return tuple(out)


@unrolled
def _write_scales(kind: Kind, work: Tile, out: tuple[Mask, ...]) -> None:
    """Write what scales the matrix to a unit diagonal: nothing for what is left out."""
    n = kind.shapes + 2
    for p in range(n):
        scale = 1 / square_root(work[_INVERSE + (n + 1) * p])
        work[_PRODUCT + p] = select(out[p], 0.0, scale)


def _from_pixels(
    kind: Kind, tile: Tile, profile: Tile, work: Tile, state: int, rows: int, columns: int,
    point: tuple[Vector, ...], offset: float, gain: float, shot_noise: bool,
) -> None:  # fmt: skip
    """Write the matrices by a pass over the pixels."""
    values, shape, flat, peak, shot = _light(kind, tile, state, point, offset, gain)
    sums = _sums(kind, tile, profile, rows, columns, values)
    _write_matrix(kind, work, sums, _INVERSE)
    if shot_noise:
        noise = pixelwise.no_sums(kind)
        known = pixelwise.known_of(kind, shape)
        for row in range(rows):
            part = pixelwise.in_row(kind, profile, row, columns)
            for column in range(columns):
                f, slopes = pixelwise.at_pixel(kind, profile, column, part, known)
                w = weight_of(kind, tile, rows * columns, row * columns + column)
                w = w * w * multiply_add(peak, f, flat) * shot
                noise = pixelwise.add(kind, noise, slopes, f, w, spread(0))
        _write_matrix(kind, work, noise, _NOISE)


@unrolled
def _light(
    kind: Kind, tile: Tile, state: Any, point: tuple[Vector, ...], offset: Vector, gain: Vector
) -> tuple[Any, ...]:
    """Return the parameters of likelihood, the shape, and what the shot noise follows."""
    scale = tile[state + SCALE]
    above = (tile[state + LEVEL] - offset) * scale
    flat = maximum(point[kind.shapes + 1] + above, 0)
    values = point[:-1] if kind.likelihood else point[: kind.shapes]
    return values, point[: kind.shapes], flat, maximum(point[kind.shapes], 0), scale * gain


@unrolled
def _write_matrix(kind: Kind, work: Tile, sums: Any, matrix: Any) -> None:
    n = kind.shapes + 2
    for i, row in enumerate(pixelwise.square(sums[0], n)):
        for j, value in enumerate(row):
            work[matrix + (n * i + j)] = value


def _from_axes(
    kind: Kind, tile: Tile, profile: Tile, work: Tile, state: int, rows: int, columns: int,
    point: tuple[Vector, ...], offset: float, gain: float, shot_noise: bool,
) -> None:  # fmt: skip
    """Do the same by sums along the axes."""
    _, shape, flat, peak, shot = _light(kind, tile, state, point, offset, gain)
    wide, high = profiles.widths_of(kind, shape)
    plain = profiles.along_axis(kind, profile, 0, columns, point[0], wide)
    _tables(profile, 0, columns, plain, work, _PLAIN_X, _WEIGHTED_X, shot_noise)
    plain = profiles.along_axis(kind, profile, 3 * columns, rows, point[1], high)
    _tables(profile, 3 * columns, rows, plain, work, _PLAIN_Y, _WEIGHTED_Y, shot_noise)
    _products(kind, work, _PLAIN_X, _PLAIN_Y, _INVERSE)
    if shot_noise:
        _products(kind, work, _WEIGHTED_X, _WEIGHTED_Y, _NOISE)
        for i in range(unknowns(kind) ** 2):
            noise = peak * load(work, _NOISE + i) + flat * load(work, _INVERSE + i)
            store(work, _NOISE + i, noise * shot)


@inner(forceinline=True)
def _tables(
    profile: Tile, first: int, size: int, s: tuple[Vector, ...],
    work: Tile, plain: int, weighted: int, shot_noise: bool,
) -> None:  # fmt: skip
    """Write Σ a·b, and Σ u·a·b, of all pairs of 1, u, u', u° along an axis."""
    pairs = (spread(size), s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8])
    _symmetric(work, plain, pairs)
    if shot_noise:
        t = _weighted_sums(profile, first, size)
        _symmetric(work, weighted, (s[0], s[3], s[4], s[5], t[0], t[1], t[2], t[3], t[4], t[5]))


@inner(forceinline=True)
def _symmetric(work: Tile, table: int, pairs: tuple[Vector, ...]) -> None:
    """Write a symmetric 4×4 table from its upper triangle."""
    i = 0
    for a in range(4):
        for b in range(a, 4):
            store(work, table + 4 * a + b, pairs[i])
            store(work, table + 4 * b + a, pairs[i])
            i += 1


@inner(forceinline=True)
def _weighted_sums(profile: Tile, first: int, size: int) -> tuple[Vector, ...]:
    """Return Σ u·(uu, uu', uu°, u'u', u'u°, u°u°) along an axis."""
    s00 = s01 = s02 = s11 = s12 = s22 = spread(0)
    for i in range(first, first + 3 * size, 3):
        u, du, ds = load(profile, i), load(profile, i + 1), load(profile, i + 2)
        uu, u_du, u_ds = u * u, u * du, u * ds
        s00, s01, s02 = (
            multiply_add(uu, u, s00),
            multiply_add(uu, du, s01),
            multiply_add(uu, ds, s02),
        )
        s11, s12, s22 = (
            multiply_add(u_du, du, s11),
            multiply_add(u_du, ds, s12),
            multiply_add(u_ds, ds, s22),
        )
    return s00, s01, s02, s11, s12, s22


def _terms(kind: Kind) -> tuple[tuple[int, int, int], ...]:
    """Return the parameters' derivatives as products of 1, u, u', u° (0 to 3) along x and y.

    Each term is a parameter and its factors along x and along y; the derivative by a width
    that both axes share has two.
    """
    n = kind.shapes
    return ((0, 2, 1), (1, 1, 2), (2, 3, 1), (n - 1, 1, 3), (n, 1, 1), (n + 1, 0, 0))


@unrolled
def _products(kind: Kind, work: Tile, along_x: Any, along_y: Any, matrix: Any) -> None:
    """Write the matrix of the parameters' derivatives from the tables of both axes."""
    n = kind.shapes + 2
    for i in range(n * n):
        work[matrix + i] = 0.0
    for p, px, py in _terms(kind):
        for q, qx, qy in _terms(kind):
            term = work[along_x + (4 * px + qx)] * work[along_y + (4 * py + qy)]
            work[matrix + (n * p + q)] = work[matrix + (n * p + q)] + term


@inner(forceinline=True)
def _invert(kind: Kind, work: Tile) -> None:
    """Invert a symmetric positive definite matrix in place; NaN where it is singular.

    It is scaled to a unit diagonal first (its parameters differ in size), then
    Gauss-Jordan elimination needs no pivoting. What has a scale of 0 is left out, and its
    rows become 0.
    """
    one, zero, n, matrix = spread(1), spread(0), unknowns(kind), _INVERSE
    _scale(work, n)
    for k in range(n):
        pivot = load(work, matrix + (n + 1) * k)
        pivot = select(pivot > spread(SINGULAR), one / pivot, spread(np.nan))
        pivot = select(load(work, _PRODUCT + k) == zero, zero, pivot)
        store(work, matrix + (n + 1) * k, one)
        for j in range(n):
            store(work, matrix + n * k + j, load(work, matrix + n * k + j) * pivot)
        for i in range(n):
            if i != k:
                factor = -load(work, matrix + n * i + k)
                store(work, matrix + n * i + k, spread(0))
                for j in range(n):
                    value = load(work, matrix + n * i + j)
                    value = multiply_add(factor, load(work, matrix + n * k + j), value)
                    store(work, matrix + n * i + j, value)
    _scale(work, n)


@inner(forceinline=True)
def _scale(work: Tile, n: int) -> None:
    for p in range(n):
        for q in range(n):
            scale = load(work, _PRODUCT + p) * load(work, _PRODUCT + q)
            store(work, _INVERSE + n * p + q, load(work, _INVERSE + n * p + q) * scale)


@inner(forceinline=True)
def _covariance(
    kind: Kind, work: Tile, p: int, q: int, residual: Vector, shot_noise: bool
) -> Vector:
    """Return one element of the covariance matrix."""
    n = unknowns(kind)
    if not shot_noise:
        return load(work, _INVERSE + n * p + q) * residual
    total = spread(0)
    for i in range(n):
        row = spread(0)
        for j in range(n):
            row = multiply_add(
                load(work, _NOISE + n * i + j), load(work, _INVERSE + n * j + q), row
            )
        total = multiply_add(load(work, _INVERSE + n * p + i), row, total)
    return total
