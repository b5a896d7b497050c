"""Start values, made for sixteen ROIs at once (Fit2DGaussian's rule).

The centre is the maximum of a 3×3 moving average. σ follows from the number M of
pixels above the spot's exp(-½) level, which a Gaussian exceeds within one σ of its
centre: σ = √(M/π). What other models have besides starts in proportion to it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...models.stopping import StopCondition
from . import rotated
from .compiled import inner
from .kinds import Kind
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
    COUNT,
    ITERATIONS,
    LEVEL,
    POINT,
    RUNNING,
    SCALE,
    STOP,
    WEIGHT,
    Tile,
    put_before_first_step,
    weight_of,
)
from .unroll import unrolled

_INVALID = int(StopCondition.INVALID)
_WITHIN_SIGMA = math.exp(-0.5)


@inner(forceinline=True)
def prepare(
    kind: Kind, tile: Tile, state: int, rows: int, columns: int, limits: Any, fitted: int
) -> None:
    """Normalise the pixels of a loaded tile and put its fits before their first step.

    A start value that is in the tile already (not NaN) is kept. ROIs with NaN or
    infinite pixels, constant ones and those with no more pixels than parameters are
    ``fitted`` end here as INVALID.
    """
    low, bright, energy = _normalise(kind, tile, state, rows * columns)
    x, y = _brightest(tile, rows, columns)
    sigma = square_root(bright * spread(1 / math.pi))
    start = _start(kind, tile, state, x, y, sigma)
    if rotated.is_rotated(kind):
        light = rotated.moments(kind, tile, rows, columns, low, start[0], start[1], sigma)
    else:
        light = spread(0), spread(0), spread(0)
    start = rotated.turned(kind, start, sigma, limits.held, light)
    _begin(kind, tile, state, start, limits, energy, rows * columns, fitted)


@unrolled
def _start(
    kind: Kind, tile: Any, state: Any, x: Vector, y: Vector, sigma: Vector
) -> tuple[Vector, ...]:
    """Return start values: the caller's, or ours; of a turned Gaussian's axes, none yet."""
    ours = [x, y, *(constant + factor * sigma for constant, factor in kind.starts)]
    given = [tile[state + POINT + i] for i in range(kind.shapes)]
    known = 2 if kind.model == "gaussian_rotated" else kind.shapes
    chosen = [select(own == own, own, our) for own, our in zip(given, ours, strict=True)]
    return (*chosen[:known], *given[known:])


@unrolled
def _begin(
    kind: Kind, tile: Any, state: Any, start: tuple[Vector, ...], limits: Any, energy: Vector,
    pixels: Any, fitted: Any,
) -> None:  # fmt: skip
    for i, value in enumerate(start):
        tile[state + POINT + i] = clamp(value, limits.low[i], limits.high[i])
    for i in range(2):
        tile[state + POINT + kind.shapes + i] = 0.0
    tile[state + POINT + kind.shapes + 2] = np.inf
    put_before_first_step(kind, tile, state)
    usable = (energy > 0) & (energy < np.inf)
    if kind.weighted:
        usable = usable & (tile[state + COUNT] > spread(fitted))
    # The first trial, which is the start itself, does not count.
    tile[state + ITERATIONS] = select(usable, -1.0, 0.0)
    tile[state + STOP] = select(usable, RUNNING, float(_INVALID))


@inner(forceinline=True)
def _normalise(kind: Kind, tile: Tile, state: int, pixels: int) -> tuple[Vector, Vector, Vector]:
    """Shift and scale the pixels, so that their (weighted) sum is 0, and their weights.

    Returns
    -------
    The lowest pixel, how many are bright, and their sum of squares.
    """
    total, weights, number = spread(0), spread(0), spread(0)
    low, high = spread(np.inf), spread(-np.inf)
    for i in range(pixels):
        g, w = _good_pixel(kind, tile, pixels, i)
        total = _add_weighted(kind, w, g, total)
        weights, number = weights + w, number + _one_if_good(w)
        low, high = _extremes(kind, g, w, low, high)
    n = _totals(kind, tile, state, pixels, weights, number)
    mean = _mean(kind, total, pixels, weights)
    scale = spread(1) / (high - low)
    base = (low - mean) * scale
    level = base + spread(_WITHIN_SIGMA)
    bright, energy = spread(0), spread(0)
    for i in range(pixels):
        g, w = (load(tile, i) - mean) * scale, _scaled_weight(kind, tile, pixels, i, n)
        g = _where_counted(kind, w, g)
        store(tile, i, g)
        bright = bright + select(_counts(kind, w, g > level), spread(1), spread(0))
        energy = multiply_add(g, g, energy)
    store(tile, state + SCALE, scale)
    store(tile, state + LEVEL, load(tile, state + LEVEL) + mean)
    return base, bright, energy


@unrolled
def _good_pixel(kind: Kind, tile: Any, pixels: Any, i: Any) -> tuple[Vector, Vector]:
    """Return a pixel and its weight; those of bad pixels become 0."""
    g = tile[i]
    if not kind.weighted:
        return g, spread(1.0)
    plane = tile[i + pixels]
    if not kind.poisson:
        plane = select((plane > 0) & (plane < np.inf), plane, 0.0)
        tile[i + pixels] = plane
    w = weight_of(kind, tile, pixels, i)
    g = select(w > 0, g, 0.0)
    tile[i] = g
    return g, w


@unrolled
def _add_weighted(kind: Kind, w: Vector, g: Vector, total: Vector) -> Vector:
    return multiply_add(w, g, total) if kind.weighted else total + g


@unrolled
def _one_if_good(w: Any) -> Vector:
    return select(w > 0, 1.0, 0.0)


@unrolled
def _extremes(kind: Kind, g: Vector, w: Any, low: Vector, high: Vector) -> tuple[Vector, Vector]:
    lower, higher = minimum(g, low), maximum(g, high)
    if not kind.weighted:
        return lower, higher
    return select(w > 0, lower, low), select(w > 0, higher, high)


@unrolled
def _totals(
    kind: Kind, tile: Any, state: Any, pixels: Any, weights: Vector, number: Vector
) -> Vector:
    """Keep how many pixels count, and return by what their weights are 1 on average."""
    if not kind.weighted:
        return spread(1.0)
    factor = number / weights
    tile[state + COUNT], tile[state + WEIGHT] = number, factor
    return factor


@unrolled
def _mean(kind: Kind, total: Vector, pixels: Any, weights: Vector) -> Vector:
    return total / weights if kind.weighted else total * (1 / spread(pixels))


@unrolled
def _scaled_weight(kind: Kind, tile: Any, pixels: Any, i: Any, factor: Vector) -> Vector:
    w = weight_of(kind, tile, pixels, i)
    if kind.weighted and not kind.poisson:
        w = w * factor
        tile[i + pixels] = w
    return w


@unrolled
def _where_counted(kind: Kind, w: Any, g: Vector) -> Vector:
    return select(w > 0, g, 0.0) if kind.weighted else g


@unrolled
def _counts(kind: Kind, w: Any, bright: Any) -> Any:
    return bright & (w > 0) if kind.weighted else bright


@inner(forceinline=True)
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


@inner(forceinline=True)
def _column_sum(tile: Tile, i: int, columns: int) -> Vector:
    return load(tile, i) + load(tile, i + columns) + load(tile, i + 2 * columns)
