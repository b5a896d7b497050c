"""Start values, made for sixteen ROIs at once (Fit2DGaussian's rule).

The centre is the maximum of a 3×3 moving average. σ follows from the number M of
pixels above the spot's exp(-½) level, which a Gaussian exceeds within one σ of its
centre: σ = √(M/π).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ...stopping import DAMPING_DECREASE, INITIAL_DAMPING, StopCondition
from .lanes import (
    Vector,
    clamp,
    load,
    maximum,
    minimum,
    multiply_add,
    select,
    spread,
    square_root,
    store,
)
from .tile import (
    CHI_SQUARE,
    DAMPING,
    DECREASE,
    GRADIENT,
    ITERATIONS,
    LEVEL,
    NORMAL,
    RUNNING,
    SCALE,
    SIGMA,
    STOP,
    Tile,
    X,
    Y,
)

_INVALID = int(StopCondition.INVALID)
_WITHIN_SIGMA = math.exp(-0.5)


@njit(forceinline=True)
def prepare(tile: Tile, rows: int, columns: int, sigma_min: float, sigma_max: float) -> None:
    """Normalise the pixels of a loaded tile and put its fits before their first step.

    A start value that is in the tile already (not NaN) is kept. ROIs with NaN or
    infinite pixels and constant ROIs end here as INVALID.
    """
    state = rows * columns
    count, energy = _normalise(tile, state)
    x, y = _brightest(tile, rows, columns)
    sigma = square_root(count * spread(1 / math.pi))

    own_x, own_y = load(tile, state + X), load(tile, state + Y)
    own_sigma = load(tile, state + SIGMA)
    x = select(own_x == own_x, own_x, x)
    y = select(own_y == own_y, own_y, y)
    sigma = select(own_sigma == own_sigma, own_sigma, sigma)
    half = spread(0.5)
    store(tile, state + X, clamp(x, -half, spread(columns) - half))
    store(tile, state + Y, clamp(y, -half, spread(rows) - half))
    store(tile, state + SIGMA, clamp(sigma, spread(sigma_min), spread(sigma_max)))

    # A unit normal matrix and no gradient: the first step stays at the start values.
    zero, one = spread(0), spread(1)
    for i in range(6):
        store(tile, state + NORMAL + i, zero)
    for i in (0, 3, 5):
        store(tile, state + NORMAL + i, one)
    for i in range(3):
        store(tile, state + GRADIENT + i, zero)
    store(tile, state + CHI_SQUARE, spread(np.inf))
    store(tile, state + DAMPING, spread(INITIAL_DAMPING / DAMPING_DECREASE))
    store(tile, state + DECREASE, spread(np.inf))
    usable = (energy > zero) & (energy < spread(np.inf))
    # The first trial, which is the start itself, does not count.
    store(tile, state + ITERATIONS, select(usable, -one, zero))
    store(tile, state + STOP, select(usable, spread(RUNNING), spread(_INVALID)))


@njit(forceinline=True)
def _normalise(tile: Tile, pixels: int) -> tuple[Vector, Vector]:
    """Shift and scale the pixels; return how many are bright, and their sum of squares."""
    total = spread(0)
    low, high = spread(np.inf), spread(-np.inf)
    for i in range(pixels):
        g = load(tile, i)
        total = total + g
        low = minimum(g, low)
        high = maximum(g, high)
    mean = total * spread(1 / pixels)
    scale = spread(1) / (high - low)
    bright = (low - mean) * scale + spread(_WITHIN_SIGMA)
    count, energy = spread(0), spread(0)
    one, zero = spread(1), spread(0)
    for i in range(pixels):
        g = (load(tile, i) - mean) * scale
        store(tile, i, g)
        count = count + select(g > bright, one, zero)
        energy = multiply_add(g, g, energy)
    store(tile, pixels + SCALE, scale)
    store(tile, pixels + LEVEL, load(tile, pixels + LEVEL) + mean)
    return count, energy


@njit(forceinline=True)
def _brightest(tile: Tile, rows: int, columns: int) -> tuple[Vector, Vector]:
    """Return where the 3×3 moving average is highest."""
    best, best_x, best_y = spread(-np.inf), spread(0), spread(0)
    one = spread(1)
    y = one
    for top in range(0, (rows - 2) * columns, columns):
        x = one
        left = _column_sum(tile, top, columns)
        middle = _column_sum(tile, top + 1, columns)
        for i in range(top + 2, top + columns):
            right = _column_sum(tile, i, columns)
            total = left + middle + right
            higher = total > best
            best = select(higher, total, best)
            best_x = select(higher, x, best_x)
            best_y = select(higher, y, best_y)
            left, middle = middle, right
            x = x + one
        y = y + one
    return best_x, best_y


@njit(forceinline=True)
def _column_sum(tile: Tile, i: int, columns: int) -> Vector:
    return load(tile, i) + load(tile, i + columns) + load(tile, i + 2 * columns)
