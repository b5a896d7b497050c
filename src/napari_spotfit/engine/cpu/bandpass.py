"""The detection's band-pass: a Gaussian as wide as a spot, less a wider one.

Frames become float32 here, less their level, and lie in flat arrays whose rows begin
every ``stride`` pixels, so that whole vectors may be read and written past a row's end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..detection.band import LEAST_WEIGHT, LEVEL_SAMPLES, TOO_FAR, Layout, make_band, mirrored
from .compiled import entry, inner
from .lane_memory import difference, load_difference, store_elements
from .lanes import WIDTH, absolute, count, multiply_add, select, spread
from .sources import fingerprint

Flat = NDArray[np.float32]

#: Pixels that are filtered at once: two vectors.
STEP = 2 * WIDTH
_TOO_FAR, _LEAST_WEIGHT = np.float32(TOO_FAR), np.float32(LEAST_WEIGHT)
_ZERO = np.float32(0)
_NAN = np.float32(np.nan)


class Filter(NamedTuple):
    """What the compiled code knows about the filter and the frames."""

    layout: Layout
    #: The kernels' weights from the centre outwards; they are symmetric.
    narrow: NDArray[np.float32]
    wide: NDArray[np.float32]
    #: Where the rows ``-radius … Y - 1 + radius`` begin in the flat frame, and which
    #: columns stand at ``-radius … X - 1 + radius``, mirrored at the borders.
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]


@lru_cache(maxsize=16)
def make_filter(sigma: float, shape: tuple[int, int]) -> Filter:
    """Return the filter for spots of width ``sigma`` in frames of a shape."""
    band = make_band(sigma, shape)
    radius = len(band.wide) - 1
    stride = -(-shape[1] // STEP) * STEP
    return Filter(
        Layout(*shape, stride),
        band.narrow,
        band.wide,
        mirrored(shape[0], radius) * stride,
        mirrored(shape[1], radius),
    )


@inner(error_model="numpy")
def _load(frames: NDArray[Any], layout: Layout, images: Flat, bad: NDArray[np.int64]) -> None:
    """Copy frames, less their level, with bad pixels as NaN; count those."""
    whole = layout.width - layout.width % WIDTH
    for i in range(images.shape[0]):
        pixels, image = frames[i], images[i]
        level = _level(pixels)
        bad[i] = 0
        for y in range(layout.height):
            source, target = y * layout.width, y * layout.stride
            for x in range(0, whole, WIDTH):
                values = load_difference(pixels, source + x, level)
                good = absolute(values) < spread(_TOO_FAR)
                bad[i] += WIDTH - count(good)
                store_elements(image, target + x, select(good, values, spread(_NAN)))
            for x in range(whole, layout.width):
                value = difference(pixels[source + x], level)
                is_good = abs(value) < _TOO_FAR
                bad[i] += 1 - is_good
                image[target + x] = value if is_good else _NAN


@inner(forceinline=True)
def _level(pixels: NDArray[Any]) -> Any:
    """Return the median of some pixels, a pixel itself: constant frames become zero."""
    sample = np.zeros(LEVEL_SAMPLES, pixels.dtype)
    found = 0
    for i in range(LEVEL_SAMPLES):
        value = pixels[(2 * i + 1) * pixels.size // (2 * LEVEL_SAMPLES)]
        if abs(np.float64(value)) < _TOO_FAR:
            place = found
            while place > 0 and sample[place - 1] > value:
                sample[place] = sample[place - 1]
                place -= 1
            sample[place] = value
            found += 1
    return sample[found // 2]


@inner(error_model="numpy")
def _band_pass(images: Flat, band: Filter, filtered: Flat) -> None:
    """Filter images that have no bad pixels."""
    margin = _margin(band)
    row_n = np.zeros(band.layout.stride + 2 * margin, np.float32)
    row_w = np.zeros(band.layout.stride + 2 * margin, np.float32)
    for i in range(images.shape[0]):
        image, result = images[i], filtered[i]
        for y in range(band.layout.height):
            _smooth_along_y(image, y, band, row_n, row_w)
            for x in range(0, band.layout.stride, STEP):
                n1, n2 = _smooth_along_x(row_n, margin + x, band.narrow)
                w1, w2 = _smooth_along_x(row_w, margin + x, band.wide)
                store_elements(result, y * band.layout.stride + x, n1 - w1)
                store_elements(result, y * band.layout.stride + x + WIDTH, n2 - w2)


@inner(error_model="numpy")
def _band_pass_good(image: Flat, band: Filter, result: Flat) -> None:
    """Filter an image by weighted means of its good pixels; set the bad ones to 0.

    Where too few pixels are good, the result is 0.
    """
    margin = _margin(band)
    row_n, row_w, weight_n, weight_w = np.zeros((4, band.layout.stride + 2 * margin), np.float32)
    weights = np.zeros(image.size, np.float32)
    for i in range(image.size):
        good = image[i] == image[i]
        weights[i] = 1 if good else 0
        image[i] = image[i] if good else 0
    for y in range(band.layout.height):
        _smooth_along_y(image, y, band, row_n, row_w)
        _smooth_along_y(weights, y, band, weight_n, weight_w)
        for x in range(0, band.layout.stride, STEP):
            n = _smooth_along_x(row_n, margin + x, band.narrow)
            w = _smooth_along_x(row_w, margin + x, band.wide)
            good_n = _smooth_along_x(weight_n, margin + x, band.narrow)
            good_w = _smooth_along_x(weight_w, margin + x, band.wide)
            for k in range(2):
                enough = good_n[k] > spread(_LEAST_WEIGHT)
                contrast = select(enough, n[k] / good_n[k] - w[k] / good_w[k], spread(_ZERO))
                store_elements(result, y * band.layout.stride + x + k * WIDTH, contrast)


@inner(forceinline=True)
def _margin(band: Filter) -> int:
    """Return how many pixels a smoothed row begins after its array."""
    return -(-band.wide.size // WIDTH) * WIDTH


@inner(forceinline=True)
def _smooth_along_y(image: Flat, y: int, band: Filter, row_n: Flat, row_w: Flat) -> None:
    """Smooth a row with the rows around it, by both kernels, and mirror its ends."""
    narrow, wide, rows, columns = band.narrow, band.wide, band.rows, band.columns
    radius, margin, width = wide.size - 1, _margin(band), band.layout.width
    row = y + radius
    # Two vectors at a time: they share what is read for both.
    for x in range(0, width, STEP):
        here = rows[row] + x
        first, second = _read(image, here), _read(image, here + WIDTH)
        k, q = spread(narrow[0]), spread(wide[0])
        n1, n2, w1, w2 = first * k, second * k, first * q, second * q
        for t in range(1, wide.size):
            up, down, q = rows[row - t] + x, rows[row + t] + x, spread(wide[t])
            first = _read(image, up) + _read(image, down)
            second = _read(image, up + WIDTH) + _read(image, down + WIDTH)
            w1, w2 = multiply_add(first, q, w1), multiply_add(second, q, w2)
            if t < narrow.size:
                k = spread(narrow[t])
                n1, n2 = multiply_add(first, k, n1), multiply_add(second, k, n2)
        store_elements(row_n, margin + x, n1)
        store_elements(row_n, margin + x + WIDTH, n2)
        store_elements(row_w, margin + x, w1)
        store_elements(row_w, margin + x + WIDTH, w2)
    for i in range(radius):
        left, right = margin - radius + i, margin + width + i
        row_n[left] = row_n[margin + columns[i]]
        row_w[left] = row_w[margin + columns[i]]
        row_n[right] = row_n[margin + columns[radius + width + i]]
        row_w[right] = row_w[margin + columns[radius + width + i]]


@inner(forceinline=True)
def _smooth_along_x(row: Flat, x: int, half: Flat) -> Any:
    """Smooth two vectors' worth of a row."""
    k = spread(half[0])
    first, second = _read(row, x) * k, _read(row, x + WIDTH) * k
    for t in range(1, half.size):
        k = spread(half[t])
        first = multiply_add(_read(row, x - t) + _read(row, x + t), k, first)
        neighbours = _read(row, x + WIDTH - t) + _read(row, x + WIDTH + t)
        second = multiply_add(neighbours, k, second)
    return first, second


@inner(forceinline=True)
def _read(flat: Flat, place: int) -> Any:
    return load_difference(flat, place, _ZERO)


def _cached(sources: int) -> tuple[Any, Any, Any]:
    """Return the functions for use elsewhere, which Numba keeps on disk.

    The sources' fingerprint becomes part of the cache's key by being used.
    """

    @entry(cache=True)
    def load(*arguments: Any) -> None:
        if sources:
            _load(*arguments)

    @entry(cache=True)
    def band_pass(*arguments: Any) -> None:
        if sources:
            _band_pass(*arguments)

    @entry(cache=True)
    def band_pass_good(*arguments: Any) -> None:
        if sources:
            _band_pass_good(*arguments)

    return load, band_pass, band_pass_good


load, band_pass, band_pass_good = _cached(int(fingerprint("bandpass"), 16))
