"""The detection's noise: the standard deviation of a filtered frame without its spots.

It comes from the middle of the filtered values: again and again, those beyond one and a
half standard deviations are left out, so that the heavy tails which spots make do not
count. Pixels that are exactly 0 do not count either; they belong to areas without noise,
such as the outside of a mask.

Where spots lie closer than about ten times their σ, no part of the filtered frame is
free of them. What light microscopes cannot show, detail as fine as the pixels, tells the
noise then: it bounds the first estimate if it looks like the noise of independent pixels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..detection.band import (
    CLIP,
    FAR_HASTE,
    HASTE,
    KEPT_VARIANCE,
    LEAST_CHANGE,
    MAX_ITERATIONS,
    SETTLED,
    TEXTURE,
    WHITENESS,
    Layout,
)
from .bandpass import Flat
from .compiled import entry, inner
from .lane_memory import load_difference, store_elements
from .lanes import WIDTH, absolute, count, maximum, multiply_add, select, spread
from .sources import fingerprint

_CLIP, _ZERO, _SIXTH = np.float32(CLIP), np.float32(0), np.float32(1 / 6)


@inner(error_model="numpy")
def _estimate_noise(
    images: Flat,
    filtered: Flat,
    layout: Layout,
    step: int,
    gain: float,
    noise: NDArray[np.float64],
) -> None:
    """Estimate the noise of filtered images from every ``step``-th row.

    That of white noise of 1 is ``gain``.
    """
    sample = np.empty((layout.height // step + 1) * layout.width + WIDTH, np.float32)
    for i in range(images.shape[0]):
        size = _sample_rows(filtered[i], layout, step, sample)
        noise[i] = _clipped_deviation(sample, size)
        bound, coarser = 0.0, 0.0
        for by_y, by_x in ((1, 1), (1, 2), (2, 1)):
            size = _sample_detail(images[i], layout, step, by_y, by_x, sample)
            white = TEXTURE * gain * _clipped_deviation(sample, size)
            coarser = max(coarser, white)
            if by_y == by_x:
                bound = white
                if bound >= noise[i]:
                    break
        if bound < noise[i] and coarser < WHITENESS * bound:
            noise[i] = bound


@inner(error_model="numpy")
def _sample_rows(flat: Flat, layout: Layout, step: int, sample: Flat) -> int:
    """Copy evenly spaced rows; return how many numbers these are."""
    size = 0
    for y in range(step // 2, layout.height, step):
        row = flat[y * layout.stride : y * layout.stride + layout.width]
        for x in range(layout.width):
            sample[size + x] = row[x]
        size += layout.width
    return size


@inner(error_model="numpy")
def _sample_detail(
    flat: Flat, layout: Layout, step: int, by_y: int, by_x: int, sample: Flat
) -> int:
    """Take second differences along both axes, over ``by`` pixels, in evenly spaced rows.

    They are scaled to the pixels' own noise. Return how many they are.
    """
    size = 0
    down = by_y * layout.stride
    for y in range(by_y + step // 2, layout.height - by_y, step):
        for x in range(by_x, layout.width - by_x, WIDTH):
            place = y * layout.stride + x
            middle = _second_difference(flat, place, down)
            before = _second_difference(flat, place - by_x, down)
            after = _second_difference(flat, place + by_x, down)
            detail = (before - middle - middle + after) * spread(_SIXTH)
            # What goes past the row's end is overwritten by the next row.
            store_elements(sample, size + x - by_x, detail)
        size += max(layout.width - 2 * by_x, 0)
    return size


@inner(forceinline=True)
def _second_difference(flat: Flat, place: int, step: int) -> Any:
    here = _read(flat, place)
    return _read(flat, place - step) - here - here + _read(flat, place + step)


@inner(error_model="numpy")
def _clipped_deviation(sample: Flat, size: int) -> float:
    """Return the standard deviation about 0 of the middle of a sample."""
    # Zeros do not count, so that they can fill up the last vector.
    for i in range(size, size + WIDTH):
        sample[i] = 0
    partial = np.empty(WIDTH, np.float32)
    highest = spread(_ZERO)
    for i in range(0, size, WIDTH):
        highest = maximum(absolute(_read(sample, i)), highest)
    store_elements(partial, 0, highest)
    deviation = _ZERO
    for value in partial:
        deviation = max(deviation, value)
    for _ in range(MAX_ITERATIONS):
        if deviation == 0:
            break
        change = _clipped_change(sample, size, deviation, partial)
        if change > SETTLED:
            break
        deviation *= np.float32(max(change**HASTE, FAR_HASTE * change, LEAST_CHANGE))
    return float(deviation)


@inner(forceinline=True)
def _clipped_change(sample: Flat, size: int, deviation: np.float32, partial: Flat) -> float:
    """Return the deviation of what is within the clip over the present one."""
    inside, squares = 0, spread(_ZERO)
    inverse = spread(1 / deviation)
    for i in range(0, size, WIDTH):
        scaled = absolute(_read(sample, i)) * inverse
        kept = (scaled < spread(_CLIP)) & (scaled > spread(_ZERO))
        scaled = select(kept, scaled, spread(_ZERO))
        squares = multiply_add(scaled, scaled, squares)
        inside += count(kept)
    store_elements(partial, 0, squares)
    total = _ZERO
    for value in partial:
        total += value
    return math.sqrt(total / (inside * KEPT_VARIANCE)) if inside > 0 else 1.0


@inner(forceinline=True)
def _read(flat: Flat, place: int) -> Any:
    return load_difference(flat, place, _ZERO)


def _cached(sources: int) -> Any:
    """Return the function for use elsewhere, which Numba keeps on disk.

    The sources' fingerprint becomes part of the cache's key by being used.
    """

    @entry(cache=True)
    def estimate_noise(*arguments: Any) -> None:
        if sources:
            _estimate_noise(*arguments)

    return estimate_noise


estimate_noise = _cached(int(fingerprint("noise"), 16))
