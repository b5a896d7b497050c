"""The detection's noise: the standard deviation of a filtered frame without its spots.

It comes from the middle of the filtered values: again and again, those beyond a bit more
than one standard deviation are left out, so that the heavy tails which spots make do not
count. Pixels that are exactly 0 do not count either; they belong to areas without noise,
such as the inside of a mask.

Where spots lie closer than about ten times their σ, no part of the filtered frame is
free of them. What light microscopes cannot show, detail as fine as the pixels, tells the
noise then: it bounds the first estimate if it looks like the noise of independent pixels.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .lanes import (
    WIDTH,
    absolute,
    count,
    load_difference,
    maximum,
    multiply_add,
    select,
    spread,
    store_elements,
)

#: Values beyond so many standard deviations are left out.
CLIP = 1.25
#: The variance of a normal distribution within ±CLIP, over that of all of it.
_KEPT_VARIANCE = 1 - 2 * CLIP * math.exp(-(CLIP**2) / 2) / (
    math.sqrt(2 * math.pi) * math.erf(CLIP / math.sqrt(2))
)
#: The noise is at most so many times the noise of independent pixels. Below that,
#: what stands out of the noise may as well be the texture of a cell.
TEXTURE = 3.0
#: Pixels are independent if their noise changes by less than this factor when it is
#: seen along one axis at half the finest spatial frequency. Blurred or interpolated
#: images have less noise at the finest.
WHITENESS = 1.5
#: About how many pixels to look at, and of how many rows to look at one at least.
_SAMPLES, _ROW_STEP = 8192, 8
#: The estimate has settled when it shrinks by less than this factor.
_SETTLED = 1e-3
_MAX_ITERATIONS = 100
_HASTE = 3.0

_CLIP, _ZERO, _SIXTH = np.float32(CLIP), np.float32(0), np.float32(1 / 6)


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def estimate_noise(images, filtered, shape, stride, gain, noise):  # type: ignore[no-untyped-def]
    """Estimate the noise of filtered images; ``gain`` is that of white noise of 1."""
    height, width = shape
    step = min(max(height * width // _SAMPLES, 1), _ROW_STEP)
    sample = np.empty((height // step + 1) * width + WIDTH, np.float32)
    for i in range(images.shape[0]):
        image = images[i]
        size = _sample_rows(filtered[i], height, width, stride, step, sample)
        noise[i] = _clipped_deviation(sample, size)
        size = _fine_detail(image, height, width, stride, step, 1, 1, sample)
        fine = _clipped_deviation(sample, size)
        if TEXTURE * gain * fine < noise[i]:
            size = _fine_detail(image, height, width, stride, step, 1, 2, sample)
            along_x = _clipped_deviation(sample, size)
            size = _fine_detail(image, height, width, stride, step, 2, 1, sample)
            along_y = _clipped_deviation(sample, size)
            if max(along_x, along_y) < WHITENESS * fine:
                noise[i] = TEXTURE * gain * fine


@njit(nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _sample_rows(flat, height, width, stride, step, sample):  # type: ignore[no-untyped-def]
    """Copy evenly spaced rows; return how many numbers these are."""
    size = 0
    for y in range(step // 2, height, step):
        row = flat[y * stride : y * stride + width]
        for x in range(width):
            sample[size + x] = row[x]
        size += width
    return size


@njit(forceinline=True)  # type: ignore[untyped-decorator]
def _read(flat, place):  # type: ignore[no-untyped-def]
    return load_difference(flat, place, _ZERO)


@njit(forceinline=True)  # type: ignore[untyped-decorator]
def _difference(flat, place, step):  # type: ignore[no-untyped-def]
    """Return the second difference at sixteen places, ``step`` apart."""
    before, after = _read(flat, place - step), _read(flat, place + step)
    here = _read(flat, place)
    return before - here - here + after


@njit(nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _fine_detail(flat, height, width, stride, step, by_y, by_x, sample):  # type: ignore[no-untyped-def]
    """Take second differences along both axes of evenly spaced rows; return how many.

    They are taken between pixels ``by`` apart and scaled to the pixels' own noise.
    """
    size = 0
    for y in range(by_y + step // 2, height - by_y, step):
        for x in range(by_x, width - by_x, WIDTH):
            place = y * stride + x
            middle = _difference(flat, place, by_y * stride)
            sides = _difference(flat, place - by_x, by_y * stride) + _difference(
                flat, place + by_x, by_y * stride
            )
            detail = (sides - middle - middle) * spread(_SIXTH)
            # What is written past the row's end is overwritten by the next row.
            store_elements(sample, size + x - by_x, detail)
        size += max(width - 2 * by_x, 0)
    return size


@njit(nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _clipped_deviation(sample, size):  # type: ignore[no-untyped-def]
    """Return the standard deviation about 0 of the middle of a sample."""
    # Zeros do not count: they fill the last vector up.
    sample[size : size + WIDTH] = 0
    partial = np.empty(WIDTH, np.float32)
    highest = spread(_ZERO)
    for i in range(0, size, WIDTH):
        highest = maximum(absolute(_read(sample, i)), highest)
    store_elements(partial, 0, highest)
    deviation = partial.max()
    for _ in range(_MAX_ITERATIONS):
        if deviation == 0:
            break
        inside, squares = 0, spread(_ZERO)
        inverse = spread(1 / deviation)
        for i in range(0, size, WIDTH):
            scaled = absolute(_read(sample, i)) * inverse
            kept = (scaled < spread(_CLIP)) & (scaled > spread(_ZERO))
            scaled = select(kept, scaled, spread(_ZERO))
            squares = multiply_add(scaled, scaled, squares)
            inside += count(kept)
        store_elements(partial, 0, squares)
        change = math.sqrt(partial.sum() / (inside * _KEPT_VARIANCE)) if inside > 0 else 1.0
        if abs(change - 1) < _SETTLED:
            break
        # Near a normal distribution's deviation, the change is a fifth of what is left.
        deviation *= np.float32(max(change**_HASTE, 0.8 * change))
    return deviation
