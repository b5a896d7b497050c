"""From the state of a tile's fits to results in counts and pixels, with their errors.

Standard errors (least squares): with J the Jacobian in (x̄, ȳ, σ, α, β) and A = JᵀJ,
the covariance is A⁻¹ (Jᵀ diag(var) J) A⁻¹ with the shot noise var = gain · model where
the camera's gain is known, else s² A⁻¹ with s² = χ²/(N - 5). All sums are products of
sums along the axes, so no pixel is visited.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from ...models import GAUSSIAN
from ...stopping import SINGULAR, StopCondition
from . import profiles
from .lanes import Vector, clamp, load, maximum, multiply_add, select, spread, square_root, store
from .tile import (
    AMPLITUDE,
    BACKGROUND,
    CHI_SQUARE,
    LEVEL,
    SCALE,
    SIGMA,
    STOP,
    Tile,
    X,
    Y,
)

_INVALID = int(StopCondition.INVALID)
_PARAMETERS = GAUSSIAN.parameter_count

#: The parameters' derivatives as products of 1, u, u', u° (0 to 3) along x and y:
#: (parameter, factor along x, factor along y); σ's has two terms.
_TERMS = ((0, 2, 1), (1, 1, 2), (2, 3, 1), (2, 1, 3), (3, 1, 1), (4, 0, 0))

#: Rows of the work space: tables of 1-D sums, plain and weighted with u, along x and
#: y, and 5×5 matrices.
_PLAIN_X, _PLAIN_Y, _WEIGHTED_X, _WEIGHTED_Y = 0, 16, 32, 48
_INVERSE, _NOISE, _PRODUCT = 64, 89, 114
WORK_ROWS = 119


@njit(forceinline=True)
def in_counts(
    tile: Tile, pixels: int, results: Tile, limits: Any, offset: float, gain: float
) -> None:
    """Write the columns of VALUES; NaN for invalid fits."""
    scale = load(tile, pixels + SCALE)
    unit = spread(1) / scale
    sigma = load(tile, pixels + SIGMA)
    amplitude = load(tile, pixels + AMPLITUDE) * unit
    background = load(tile, pixels + BACKGROUND) * unit + load(tile, pixels + LEVEL)
    # Rounding in the change of units must not carry an amplitude over its bounds.
    amplitude = clamp(amplitude, spread(limits.amplitude_min), spread(limits.amplitude_max))
    low, high = limits.background_min - offset, limits.background_max - offset
    background = clamp(background - spread(offset), spread(low), spread(high))
    chi = load(tile, pixels + CHI_SQUARE) * unit * unit
    photons = sigma * sigma * amplitude * spread(2 * math.pi / gain)
    _put(tile, pixels, results, 0, sigma)
    _put(tile, pixels, results, 1, amplitude)
    _put(tile, pixels, results, 2, background)
    _put(tile, pixels, results, 3, photons)
    _put(tile, pixels, results, 4, chi)
    _put(tile, pixels, results, 5, chi * spread(1 / (pixels - _PARAMETERS)))
    x, y = load(tile, pixels + X), load(tile, pixels + Y)
    valid = load(tile, pixels + STOP) < spread(_INVALID)
    store(tile, pixels + X, select(valid, x, spread(np.nan)))
    store(tile, pixels + Y, select(valid, y, spread(np.nan)))


@njit(forceinline=True)
def _put(tile: Tile, pixels: int, results: Tile, row: int, value: Vector) -> None:
    valid = load(tile, pixels + STOP) < spread(_INVALID)
    store(results, row, select(valid, value, spread(np.nan)))


@njit
def standard_errors(
    tile: Tile, profile: Tile, work: Tile, rows: int, columns: int,
    results: Tile, first: int, offset: float, gain: float, gain_known: bool,
) -> None:  # fmt: skip
    """Write the columns of ERRORS to the rows of the results from ``first`` on.

    NaN where the normal matrix is singular.
    """
    pixels = rows * columns
    sigma = load(tile, pixels + SIGMA)
    amplitude = load(tile, pixels + AMPLITUDE)
    scale = load(tile, pixels + SCALE)
    x, y = load(tile, pixels + X), load(tile, pixels + Y)
    plain = profiles.along_axis(profile, 0, columns, x, sigma)
    _tables(profile, 0, columns, plain, work, _PLAIN_X, _WEIGHTED_X, gain_known)
    plain = profiles.along_axis(profile, 3 * columns, rows, y, sigma)
    _tables(profile, 3 * columns, rows, plain, work, _PLAIN_Y, _WEIGHTED_Y, gain_known)
    _products(work, _PLAIN_X, _PLAIN_Y, _INVERSE)
    if gain_known:
        _products(work, _WEIGHTED_X, _WEIGHTED_Y, _NOISE)
        above = (load(tile, pixels + LEVEL) - spread(offset)) * scale
        flat = maximum(load(tile, pixels + BACKGROUND) + above, spread(0))
        peak = maximum(amplitude, spread(0))
        shot = scale * spread(gain)
        for i in range(25):
            noise = peak * load(work, _NOISE + i) + flat * load(work, _INVERSE + i)
            store(work, _NOISE + i, noise * shot)
    _invert(work, _INVERSE)
    residual = load(tile, pixels + CHI_SQUARE) * spread(1 / (pixels - _PARAMETERS))
    # Derivatives are times σ and without α: variances of the shape are in α²/σ².
    to_pixels = sigma / amplitude
    to_pixels = maximum(to_pixels, -to_pixels)
    unit = spread(1) / scale
    for p in range(5):
        variance = _covariance(work, p, p, residual, gain_known)
        error = square_root(variance) * (to_pixels if p < 3 else unit)
        _put(tile, pixels, results, first + p, error)
    # photons ∝ σ²α, so d photons ∝ 2 (α σ dσ) + σ² dα.
    total = spread(4) * _covariance(work, 2, 2, residual, gain_known)
    total = total + spread(4) * _covariance(work, 2, 3, residual, gain_known)
    total = total + _covariance(work, 3, 3, residual, gain_known)
    error = square_root(total) * sigma * sigma * unit * spread(2 * math.pi / gain)
    _put(tile, pixels, results, first + 5, error)


@njit(forceinline=True)
def _tables(
    profile: Tile, first: int, size: int, s: tuple[Vector, ...],
    work: Tile, plain: int, weighted: int, gain_known: bool,
) -> None:  # fmt: skip
    """Write Σ a·b, and Σ u·a·b, of all pairs of 1, u, u', u° along an axis."""
    pairs = (spread(size), s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8])
    _symmetric(work, plain, pairs)
    if gain_known:
        t = _weighted_sums(profile, first, size)
        _symmetric(work, weighted, (s[0], s[3], s[4], s[5], t[0], t[1], t[2], t[3], t[4], t[5]))


@njit(forceinline=True)
def _symmetric(work: Tile, table: int, pairs: tuple[Vector, ...]) -> None:
    """Write a symmetric 4×4 table from its upper triangle."""
    i = 0
    for a in range(4):
        for b in range(a, 4):
            store(work, table + 4 * a + b, pairs[i])
            store(work, table + 4 * b + a, pairs[i])
            i += 1


@njit(forceinline=True)
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


@njit(forceinline=True)
def _products(work: Tile, along_x: int, along_y: int, matrix: int) -> None:
    """Write the 5×5 matrix of the parameters' derivatives from the tables of both axes."""
    for i in range(25):
        store(work, matrix + i, spread(0))
    for p, px, py in _TERMS:
        for q, qx, qy in _TERMS:
            term = load(work, along_x + 4 * px + qx) * load(work, along_y + 4 * py + qy)
            store(work, matrix + 5 * p + q, load(work, matrix + 5 * p + q) + term)


@njit(forceinline=True)
def _invert(work: Tile, matrix: int) -> None:
    """Invert a symmetric positive definite 5×5 matrix in place; NaN where it is singular.

    It is scaled to a unit diagonal first (its parameters differ in size), then
    Gauss-Jordan elimination needs no pivoting.
    """
    one = spread(1)
    for p in range(5):
        store(work, _PRODUCT + p, one / square_root(load(work, matrix + 6 * p)))
    _scale(work, matrix)
    for k in range(5):
        pivot = load(work, matrix + 6 * k)
        pivot = select(pivot > spread(SINGULAR), one / pivot, spread(np.nan))
        store(work, matrix + 6 * k, one)
        for j in range(5):
            store(work, matrix + 5 * k + j, load(work, matrix + 5 * k + j) * pivot)
        for i in range(5):
            if i != k:
                factor = -load(work, matrix + 5 * i + k)
                store(work, matrix + 5 * i + k, spread(0))
                for j in range(5):
                    value = load(work, matrix + 5 * i + j)
                    value = multiply_add(factor, load(work, matrix + 5 * k + j), value)
                    store(work, matrix + 5 * i + j, value)
    _scale(work, matrix)


@njit(forceinline=True)
def _scale(work: Tile, matrix: int) -> None:
    for p in range(5):
        for q in range(5):
            scale = load(work, _PRODUCT + p) * load(work, _PRODUCT + q)
            store(work, matrix + 5 * p + q, load(work, matrix + 5 * p + q) * scale)


@njit(forceinline=True)
def _covariance(work: Tile, p: int, q: int, residual: Vector, gain_known: bool) -> Vector:
    """Return one element of the covariance matrix."""
    if not gain_known:
        return load(work, _INVERSE + 5 * p + q) * residual
    total = spread(0)
    for i in range(5):
        row = spread(0)
        for j in range(5):
            row = multiply_add(
                load(work, _NOISE + 5 * i + j), load(work, _INVERSE + 5 * j + q), row
            )
        total = multiply_add(load(work, _INVERSE + 5 * p + i), row, total)
    return total
