"""From the state of a tile's fits to results in counts and pixels.

Amplitude, background and χ² get their units back; photons are the integral of the fitted
profile.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...models.stopping import StopCondition
from . import pixelwise, rotated
from .compiled import inner
from .kinds import Kind
from .lanes import Vector, clamp, spread
from .profiles import widths_of
from .tile import COUNT, LEVEL, POINT, SCALE, STOP, WEIGHT, Tile, point_of
from .unroll import unrolled

_INVALID = int(StopCondition.INVALID)


def integral_of(kind: Kind) -> float:
    """Return the integral of a profile whose widths are 1."""
    if kind.model == "custom":
        return 1.0
    return math.pi**2 if kind.model == "lorentzian" else 2 * math.pi


@unrolled
def has_formula(kind: Kind) -> bool:
    """Whether the profile's integral has a formula."""
    return kind.program is None


@unrolled
def _by_formula(kind: Kind, shape: tuple[Vector, ...]) -> tuple[Vector, tuple[Vector, ...]]:
    """Return the product of the widths, and its logarithm's derivatives in steps' units."""
    if kind.program is not None:
        return 0.0, (0.0,) * kind.shapes
    if kind.separable:
        wide, high = widths_of(kind, shape)
        return wide * high, (0.0, 0.0, *((2.0,) if kind.shapes == 3 else (1.0, 1.0)))
    return shape[2] * shape[3], (0.0, 0.0, 1 / shape[2], 1 / shape[3], 0.0)


@unrolled
def _add_light(
    total: Vector, slopes: tuple[Vector, ...], f: Vector, own: tuple[Vector, ...]
) -> tuple[Vector, tuple[Vector, ...]]:
    return total + f, tuple(a + b for a, b in zip(slopes, own, strict=True))


@unrolled
def _over(slopes: tuple[Vector, ...], total: Vector) -> tuple[Vector, ...]:
    return tuple(slope / total for slope in slopes)


@inner()
def light_of(
    kind: Kind, profile: Tile, rows: int, columns: int, shape: tuple[Vector, ...]
) -> tuple[Vector, tuple[Vector, ...]]:
    """Return a profile's light, over :func:`integral_of`, and its logarithm's derivatives.

    Where its integral has no formula, it is that of the ROI's pixels.
    """
    light, slopes = _by_formula(kind, shape)
    if not has_formula(kind):
        known = pixelwise.known_of(kind, shape)
        for row in range(rows):
            part = pixelwise.in_row(kind, profile, row, columns)
            for column in range(columns):
                f, own = pixelwise.at_pixel(kind, profile, column, part, known)
                light, slopes = _add_light(light, slopes, f, own)
        slopes = _over(slopes, light)
    return light, slopes


@unrolled
def make_canonical(kind: Kind, tile: Tile, state: Any) -> tuple[Vector, ...]:
    """Give the shapes the one name that results have for them; return them."""
    shape = rotated.canonical(kind, point_of(kind, tile, state)[: kind.shapes])
    for i, value in enumerate(shape):
        tile[state + POINT + i] = value
    return shape


@unrolled
def in_counts(
    kind: Kind, tile: Tile, state: Any, results: Tile, light: Vector, limits: Any,
    low: Vector, high: Vector, offset: Vector, per_freedom: Vector, photons: Vector, fitted: Any,
) -> None:  # fmt: skip
    """Write the columns of values; NaN for invalid fits.

    ``low`` and ``high`` are the background's bounds above the offset, ``per_freedom`` is one
    over the degrees of freedom where all pixels count, ``photons`` those of a profile whose
    widths and amplitude are 1.
    """
    unit = 1 / tile[state + SCALE]
    *shape, amplitude, background, chi = point_of(kind, tile, state)
    amplitude = amplitude * unit
    level = tile[state + LEVEL]
    if kind.likelihood:
        background = background * unit + (level - offset)
    else:
        background = background * unit + level - offset
        chi = chi * unit * unit
    if kind.weighted:
        chi = chi if kind.likelihood else chi / tile[state + WEIGHT]
        per_freedom = 1 / (tile[state + COUNT] - spread(fitted))
    # Rounding in the change of units must not carry an amplitude over its bounds.
    amplitude = clamp(amplitude, limits.amplitude_min, limits.amplitude_max)
    background = clamp(background, low, high)
    if kind.model == "gaussian_rotated":
        shape[4] = shape[4] * (180 / math.pi)
    values = (*shape[2:], amplitude, background, light * amplitude * photons)
    for i, value in enumerate((*values, chi, chi * per_freedom)):
        put(tile, state, results, i, value)
    valid = tile[state + STOP] < _INVALID
    for i in range(2):
        tile[state + POINT + i] = valid.select(shape[i], np.nan)


@unrolled
def put(tile: Tile, state: Any, results: Tile, row: Any, value: Vector) -> None:
    """Write a result, NaN for invalid fits."""
    valid = tile[state + STOP] < _INVALID
    results[row] = valid.select(value, np.nan)
