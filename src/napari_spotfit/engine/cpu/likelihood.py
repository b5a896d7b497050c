"""Maximum likelihood of Poisson counts (Laurence & Chromy 2010), by Fisher scoring.

In photo-electrons, the data are e and the model is h = amplitude·f + background; a pixel's
read-out variance is added to both (Huang et al. 2013). What is minimised is the deviance,
over the shape and both amplitudes together. With w = 1/h and q = e/h - 1, S = Σ w d dᵀ is
the Fisher information, which is never indefinite, and T = Σ q d the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...models.stopping import FIRST_AMPLITUDE, FIRST_BACKGROUND, LEAST_BACKGROUND, StopCondition
from . import pixelwise
from .compiled import inner
from .kinds import Kind
from .lane_functions import log_ratio
from .lanes import Vector, clamp, load, maximum, minimum, multiply_add, select, spread, store
from .tile import (
    BACKGROUND_FLOOR,
    ITERATIONS,
    LEVEL,
    POINT,
    RUNNING,
    SCALE,
    STOP,
    Tile,
    count_of,
    point_of,
    put_before_first_step,
)
from .unroll import unrolled

_INVALID = int(StopCondition.INVALID)
#: The variance, and the data, of a pixel that does not count: the model fits it, whatever
#: it is, and its weight is nothing.
_NO_PIXEL = 1e30


def evaluate(
    kind: Kind, tile: Tile, profile: Tile, state: int, rows: int, columns: int,
    values: tuple[Vector, ...], bounded: bool, bounds: tuple[Vector, ...],
) -> tuple[Any, ...]:  # fmt: skip
    """Evaluate a trial point; see :func:`~.evaluate.evaluate`."""
    sums, chi = likelihood_sums(kind, tile, profile, rows, columns, values)
    normal, gradient, norm = _equations(kind, sums, values)
    return _point(values, chi), normal, gradient, norm


@unrolled
def _point(values: tuple[Vector, ...], chi: Vector) -> tuple[Vector, ...]:
    return (*values, chi)


@inner(forceinline=True)
def likelihood_sums(
    kind: Kind, tile: Tile, profile: Tile, rows: int, columns: int, values: tuple[Vector, ...]
) -> tuple[Any, Vector]:
    """Return S and T, and the deviance: infinite where the model is not above 0 everywhere."""
    shape, amplitude, background = _parts(values)
    pixelwise.write_profile(kind, profile, rows, columns, shape)
    known = pixelwise.known_of(kind, shape)
    sums = pixelwise.no_sums(kind)
    total, lowest = spread(0), spread(np.inf)
    for row in range(rows):
        part = pixelwise.in_row(kind, profile, row, columns)
        row_total = spread(0)
        for column in range(columns):
            i = row * columns + column
            f, slopes = pixelwise.at_pixel(kind, profile, column, part, known)
            e = load(tile, i)
            h = _model(kind, tile, rows * columns, i, amplitude, f, background)
            w = spread(1) / h
            q = (e - h) * w
            sums = pixelwise.add(kind, sums, slopes, f, _curvature(kind, w, q), q)
            # Half the deviance of a pixel, h - e + e ln(e/h).
            row_total = row_total + multiply_add(e, log_ratio(q + spread(1), q), h - e)
            lowest = minimum(h, lowest)
        total = total + row_total
    return sums, select(lowest > spread(0), total + total, spread(np.inf))


def fisher_sums(
    kind: Kind, tile: Tile, profile: Tile, rows: int, columns: int, values: tuple[Vector, ...]
) -> Any:
    """Return S and T."""
    return likelihood_sums(kind, tile, profile, rows, columns, values)[0]


@unrolled
def _parts(values: tuple[Vector, ...]) -> tuple[tuple[Vector, ...], Vector, Vector]:
    return values[:-2], values[-2], values[-1]


@unrolled
def _curvature(kind: Kind, w: Vector, q: Vector) -> Vector:
    """Return a pixel's weight in the matrix.

    Fisher's is 1/h. The search, whose steps need the true curvature of the deviance, e/h²,
    takes the mean of both, which is also always above 0.
    """
    return w if kind.for_errors else w * multiply_add(q, 0.5, 1.0)


@unrolled
def _model(
    kind: Kind, tile: Tile, pixels: int, i: int, amplitude: Vector, f: Vector, background: Vector
) -> Vector:
    h = multiply_add(amplitude, f, background)
    return h + tile[i + pixels] if kind.weighted else h


@unrolled
def _equations(
    kind: Kind, sums: Any, values: tuple[Vector, ...]
) -> tuple[tuple[Vector, ...], tuple[Vector, ...], Vector]:
    """Return the Fisher information, the gradient, and Σ w (amplitude·f)².

    The model's derivatives by the shape are those of the profile, times the amplitude.
    """
    n, amplitude = kind.searched, values[-2]
    square = amplitude * amplitude
    matrix, pushes = pixelwise.square(sums[0], n), list(sums[1])
    ff = matrix[-2][-2]
    normal = []
    for i in range(n):
        for j in range(i, n):
            value = matrix[i][j]
            if i < kind.shapes:
                value = value * (square if j < kind.shapes else amplitude)
            if i == j and i < kind.shapes:
                void = pixelwise.is_undetermined(kind, i, matrix[i][i], ff)
                value = select(void, 0, value)
                pushes[i] = select(void, 0, pushes[i] * amplitude)
            normal.append(value)
    return tuple(normal), tuple(pushes), square * ff


@inner()
def begin_likelihood(
    kind: Kind, tile: Tile, state: int, rows: int, columns: int, limits: Any,
    offset: float, gain: float,
) -> None:  # fmt: skip
    """Turn the pixels into photo-electrons, and begin where least squares ended."""
    pixels = rows * columns
    unit = spread(1 / gain) / load(tile, state + SCALE)
    level = (load(tile, state + LEVEL) - spread(offset)) * spread(1 / gain)
    total = spread(0)
    for i in range(pixels):
        e, light = _electrons(kind, tile, pixels, i, unit, level)
        store(tile, i, e)
        total = total + light
    _begin(kind, tile, state, pixels, total, limits, unit, level, offset, gain)


@unrolled
def _electrons(
    kind: Kind, tile: Tile, pixels: int, i: int, unit: Vector, level: Vector
) -> tuple[Vector, Vector]:
    """Return a pixel's data, with its variance, and its own light."""
    e = multiply_add(tile[i], unit, level)
    if not kind.weighted:
        e = maximum(e, 0.0)
        return e, e
    variance = tile[i + pixels]
    good = variance >= 0
    tile[i + pixels] = select(good, variance, _NO_PIXEL)
    return select(good, maximum(e + variance, 0.0), _NO_PIXEL), select(good, maximum(e, 0.0), 0.0)


@unrolled
def _begin(
    kind: Kind, tile: Tile, state: int, pixels: int, total: Vector, limits: Any,
    unit: Vector, level: Vector, offset: Vector, gain: Vector,
) -> None:  # fmt: skip
    """Put the search before its first step, at the amplitudes of least squares."""
    mean = total / count_of(kind, tile, state, pixels)
    point = point_of(kind, tile, state)
    low = (limits.background_min - offset) / gain
    floor = select(low == 0, LEAST_BACKGROUND * mean, low)
    amplitude = maximum(point[-3] * unit, FIRST_AMPLITUDE * mean)
    amplitude = clamp(amplitude, limits.amplitude_min / gain, limits.amplitude_max / gain)
    background = maximum(multiply_add(point[-2], unit, level), FIRST_BACKGROUND * mean)
    background = clamp(background, floor, (limits.background_max - offset) / gain)
    row = state + POINT + kind.shapes
    for i, value in enumerate((amplitude, background, np.inf)):
        tile[row + i] = value
    tile[state + SCALE], tile[state + LEVEL] = 1 / gain, offset
    tile[state + BACKGROUND_FLOOR] = floor
    put_before_first_step(kind, tile, state)
    usable = (tile[state + STOP] < _INVALID) & (total > 0)
    tile[state + ITERATIONS] = select(usable, -1.0, 0.0)
    tile[state + STOP] = select(usable, RUNNING, float(_INVALID))
