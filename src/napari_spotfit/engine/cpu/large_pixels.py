"""What is done with the pixels of a large ROI, compiled: binned, copied, summed up.

Sums are made of sixteen neighbours at a time: in single precision over some dozens of
pixels per lane, then in double precision.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import pixelwise
from .compiled import entry, inner
from .kinds import Kind, is_weighted
from .lane_functions import log_ratio
from .lanes import WIDTH, Vector, load, maximum, multiply_add, select, spread
from .pointwise import at_point
from .sources import fingerprint
from .subnormals import count_as, count_as_zero
from .tile import Tile
from .unroll import unrolled

#: Profiles that are no products need no table of values along the axes.
_NO_PROFILE = np.empty(0, np.float32)
#: Rows of lanes after which sums are widened to double precision.
_WIDEN = 32


@unrolled
def _profile_at(
    kind: Kind, x: Vector, y: Vector, shape: tuple[Vector, ...]
) -> tuple[Vector, tuple[Vector, ...]]:
    """Return f and its derivatives in the order of the shape."""
    if kind.separable:
        return at_point(kind, x, y, shape)
    return pixelwise.at_pixel(kind, _NO_PROFILE, x, (y,), pixelwise.known_of(kind, shape))


@unrolled
def _add(
    kind: Kind, sums: Any, total: Vector, f: Vector, slopes: tuple[Vector, ...],
    light: tuple[Vector, ...], pixel: Vector, own: Vector, inside: Any,
) -> tuple[Any, Vector]:  # fmt: skip
    """Add sixteen pixels to the sums and to χ² or half the deviance.

    ``own`` is their weight or variance; columns that are not inside do not count.
    """
    amplitude, background, even, shot = light
    model = multiply_add(amplitude, f, background)
    if kind.likelihood:
        if kind.weighted:
            inside = inside & (own >= 0)
            pixel, model = pixel + own, model + own
        data = maximum(pixel, 0.0)
        weight = 1 / model
        push = (data - model) * weight
        # h - e + e ln(e/h), as in many small ROIs.
        misfit = multiply_add(data, log_ratio(push + 1, push), model - data)
        misfit = select(model > 0, misfit, math.inf)
    else:
        weight = _weight(kind, own)
        inside = inside & (weight > 0)
        residual = pixel - model
        push = weight * residual
        misfit = push * residual
        weight = weight * multiply_add(weight * shot, maximum(model, 0.0), even)
    weight, push = select(inside, weight, 0.0), select(inside, push, 0.0)
    return pixelwise.add(kind, sums, slopes, f, weight, push), total + select(inside, misfit, 0.0)


def _weight(kind: Kind, own: Vector) -> Any:
    """Return the weights of least squares, also before maximum likelihood."""
    if not kind.weighted:
        return own * 0 + 1
    return select(own >= 0, 1.0, 0.0) if kind.poisson else own


@unrolled
def _parts(kind: Kind, values: Tile) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    """Return the shape, and amplitude, background and the factors of the weights."""
    every = tuple(values[i] for i in range(kind.shapes + 4))
    return every[:-4], every[-4:]


@unrolled
def _store_sums(scratch: Tile, sums: Any, total: Vector) -> None:
    """Write the sums: the matrix by rows of its upper triangle, the vector, the total."""
    for i, value in enumerate((*sums[0], *sums[1], total)):
        scratch[i] = value


def _cached(sources: str) -> Any:
    """Return the compiled functions, which Numba keeps on disk while our sources stay the same.

    The sources' fingerprint becomes part of the cache's key by being used.
    """

    @entry(cache=True)
    def fill_bins(
        pixels: Any, plane: Any, likelihood: bool, shape: tuple[int, int], top: int, left: int,
        cell: int, first: int, last: int, bins: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """Fill rows of cells: how many pixels count, the lowest, the highest, the mean."""
        for row in range(first, last):
            for column in range(bins.shape[2] if sources else 0):
                count, low, high, total = 0, np.inf, -np.inf, 0.0
                begin, end = left + column * cell, min(left + (column + 1) * cell, shape[1])
                for y in range(top + row * cell, min(top + (row + 1) * cell, shape[0])):
                    for x in range(begin, end):
                        if not _counts(plane, y, x, likelihood):
                            continue
                        value = np.float64(pixels.values[pixels.first + y * pixels.pitch + x])
                        count += 1
                        total += value
                        low, high = min(low, value), max(high, value)
                bins[0, row, column] = count
                bins[1, row, column], bins[2, row, column] = low, high
                bins[3, row, column] = total / max(count, 1)

    @entry(cache=True)
    def copy(
        pixels: Any, plane: Any, likelihood: bool, shape: tuple[int, int], stride: int,
        level: float, scale: float, first: int, last: int, data: Tile, weights: Tile,
    ) -> None:  # fmt: skip
        """Copy rows of pixels as (counts - level) · scale, and of weights, to whole lanes.

        What does not count is 0 and has the weight 0, or a variance of -1.
        """
        nothing = np.float32(-1 if likelihood and sources else 0)
        weighted = len(plane.values) > 0
        for row in range(first, last):
            begin = row * stride * WIDTH
            source = pixels.first + row * pixels.pitch
            for x in range(shape[1]):
                value = np.float64(pixels.values[source + x])
                data[begin + x] = np.float32((value - level) * scale)
            data[begin + shape[1] : begin + stride * WIDTH] = 0
            if weighted:
                weights[begin + shape[1] : begin + stride * WIDTH] = nothing
                for x in range(shape[1]):
                    if _counts(plane, row, x, likelihood):
                        own = plane.values[plane.first + row * plane.pitch + x]
                        weights[begin + x] = own
                    else:
                        data[begin + x] = 0
                        weights[begin + x] = nothing

    return fill_bins, copy


@inner(forceinline=True)
def _counts(plane: Any, y: int, x: int, likelihood: bool) -> bool:
    """Whether a pixel has a weight, or a known variance."""
    if len(plane.values) == 0:
        return True
    own = plane.values[plane.first + y * plane.pitch + x]
    return own >= 0 if likelihood else own > 0


def _adding(sources: str, cache: bool) -> Any:
    """Return the compiled loop over pixels."""

    @entry(cache=cache)
    def add_rows(
        kind: Kind, data: Tile, weights: Tile, shape: tuple[int, int], stride: int,
        origin_x: float, origin_y: float, values: NDArray[np.float32],
        first: int, last: int, scratch: Tile, totals: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """Add rows of pixels to the totals, sixteen lanes of each sum.

        The rows of ``values`` are the shape, its centre counted from the origin, amplitude,
        background, and the factors of weight and noise.
        """
        point, light = _parts(kind, values)
        lanes, columns = load(_LANES, 0), spread(np.float32(shape[1]))
        sums, total, waiting = pixelwise.no_sums(kind), spread(0), 0
        before = count_as_zero()
        for row in range(first, last):
            y = spread(np.float32(row - origin_y))
            for i in range(stride if sources else 0):
                inside = lanes + spread(np.float32(i * WIDTH)) < columns
                x = lanes + spread(np.float32(i * WIDTH - origin_x))
                at = row * stride + i
                own = load(weights, at if is_weighted(kind) else 0)
                f, slopes = _profile_at(kind, x, y, point)
                sums, total = _add(kind, sums, total, f, slopes, light, load(data, at), own, inside)
                waiting += 1
            if waiting >= _WIDEN or row == last - 1:
                _store_sums(scratch, sums, total)
                for k in range(totals.size):
                    totals[k] += scratch[k]
                sums, total, waiting = pixelwise.no_sums(kind), spread(0), 0
        count_as(before)

    return add_rows


_LANES = np.arange(WIDTH, dtype=np.float32)
_SOURCES = fingerprint(
    "kinds", "large_pixels", "pixelwise", "pointwise", "profiles", "rotated", "tile"
)
fill_bins, copy = _cached(_SOURCES)
_add_rows = _adding(_SOURCES, True)


@lru_cache(maxsize=8)
def _own_add_rows(kind: Kind) -> Any:
    """Return the loop for a model of somebody's own, which is not kept on disk."""
    return _adding(_SOURCES, False)


def add_rows(kind: Kind, *rest: Any) -> None:
    """Add rows of pixels to the totals, sixteen lanes of each sum; see ``_adding``."""
    (_add_rows if kind.program is None else _own_add_rows(kind))(kind, *rest)
