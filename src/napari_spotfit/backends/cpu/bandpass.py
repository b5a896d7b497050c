"""The detection's band-pass: a Gaussian as wide as a spot, less a wider one.

Frames become float32 here, less their level, and lie in flat arrays whose rows begin
every ``stride`` pixels, so that whole vectors may be read and written past a row's end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .lanes import (
    WIDTH,
    absolute,
    count,
    difference,
    load_difference,
    multiply_add,
    select,
    spread,
    store_elements,
)
from .sources import fingerprint

Flat = NDArray[np.float32]

#: Width of the wider Gaussian over that of the narrower. It makes nearly a Laplacian of
#: Gaussian: as sensitive as with a wider one, and better at telling neighbours apart.
RATIO = 1.6
#: Where the kernels end, in units of their σ.
TRUNCATE = 3.0

#: Pixels that are filtered at once: two vectors.
STEP = 2 * WIDTH
#: A pixel this far from the frame's level is as bad as an infinite one: sums overflow.
_TOO_FAR = np.float32(1e30)
#: How many pixels, evenly spread, a frame's level is the median of.
_LEVEL_SAMPLES = 63
#: With less than this share of the narrow kernel on good pixels, there is no result.
_LEAST_WEIGHT = np.float32(0.5)
_ZERO = np.float32(0)
_NAN = np.float32(np.nan)


class Layout(NamedTuple):
    """How frames lie in their flat arrays."""

    height: int
    width: int
    stride: int


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
    #: What white noise of 1 is in the filtered frame, as its root mean square.
    gain: float
    #: The same at each pixel, over that: up to twice as high on the border, where
    #: mirrored pixels count twice.
    border: NDArray[np.float32]
    border_min: float


@lru_cache(maxsize=16)
def make_filter(sigma: float, shape: tuple[int, int]) -> Filter:
    """Return the band-pass for spots of width ``sigma`` in frames of a shape."""
    narrow, wide = half_kernel(sigma), half_kernel(RATIO * sigma)
    radius = len(wide) - 1
    stride = -(-shape[1] // STEP) * STEP
    gain = _noise_gain(narrow, wide, shape)
    mean_gain = float(np.sqrt(np.mean(gain**2)))
    border = (gain / mean_gain if mean_gain > 0 else np.ones(shape)).astype(np.float32)
    return Filter(
        Layout(*shape, stride),
        narrow.astype(np.float32),
        wide.astype(np.float32),
        mirrored(shape[0], radius) * stride,
        mirrored(shape[1], radius),
        mean_gain,
        border,
        float(border.min()),
    )


def half_kernel(sigma: float) -> NDArray[np.float64]:
    """Return a Gaussian kernel of sum 1 from its centre outwards."""
    distance = np.arange(int(TRUNCATE * sigma + 0.5) + 1) / sigma
    half: NDArray[np.float64] = np.exp(-0.5 * distance**2)
    half /= 2 * half.sum() - half[0]
    return half


def mirrored(size: int, radius: int) -> NDArray[np.int64]:
    """Return which pixels stand at ``-radius … size - 1 + radius`` along an axis.

    The image is mirrored at the centres of its border pixels: it continues a spot on
    the border by the spot's own shape, and a flat border by itself.
    """
    period = max(2 * (size - 1), 1)
    position = np.arange(-radius, size + radius) % period
    return np.minimum(position, period - position) if size > 1 else position


def _noise_gain(
    narrow: NDArray[np.float64], wide: NDArray[np.float64], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the root of the summed squares of the weights with which pixels enter."""
    (nn_y, nw_y, ww_y), (nn_x, nw_x, ww_x) = (_overlaps(narrow, wide, size) for size in shape)
    variance = np.outer(nn_y, nn_x) - 2 * np.outer(nw_y, nw_x) + np.outer(ww_y, ww_x)
    return np.sqrt(np.maximum(variance, 0))


def _overlaps(
    narrow: NDArray[np.float64], wide: NDArray[np.float64], size: int
) -> list[NDArray[np.float64]]:
    """Return Σ of narrow², narrow·wide and wide² along an axis, mirrored at its ends."""
    # They are the same everywhere but near the ends, so that a short axis tells all.
    short = min(size, 4 * len(wide))
    n, w = _folded(narrow, short), _folded(wide, short)
    head = short // 2
    return [
        np.concatenate([sums[:head], np.full(size - short, sums[head]), sums[head:]])
        for sums in ((a * b).sum(axis=1) for a, b in ((n, n), (n, w), (w, w)))
    ]


def _folded(half: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the weight of each pixel (columns) in each smoothed one (rows)."""
    kernel = np.concatenate([half[:0:-1], half])
    source = mirrored(size, len(half) - 1)
    weights = np.zeros((size, size))
    for pixel in range(size):
        np.add.at(weights[pixel], source[pixel : pixel + len(kernel)], kernel)
    return weights


@njit(nogil=True, error_model="numpy")
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


@njit(forceinline=True)
def _level(pixels: NDArray[Any]) -> Any:
    """Return the median of some pixels, a pixel itself: constant frames become zero."""
    sample = np.zeros(_LEVEL_SAMPLES, pixels.dtype)
    found = 0
    for i in range(_LEVEL_SAMPLES):
        value = pixels[(2 * i + 1) * pixels.size // (2 * _LEVEL_SAMPLES)]
        if abs(np.float64(value)) < _TOO_FAR:
            place = found
            while place > 0 and sample[place - 1] > value:
                sample[place] = sample[place - 1]
                place -= 1
            sample[place] = value
            found += 1
    return sample[found // 2]


@njit(nogil=True, error_model="numpy")
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


@njit(nogil=True, error_model="numpy")
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


@njit(forceinline=True)
def _margin(band: Filter) -> int:
    """Return how many pixels a smoothed row begins after its array."""
    return -(-band.wide.size // WIDTH) * WIDTH


@njit(forceinline=True)
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


@njit(forceinline=True)
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


@njit(forceinline=True)
def _read(flat: Flat, place: int) -> Any:
    return load_difference(flat, place, _ZERO)


def _cached(sources: int) -> tuple[Any, Any, Any]:
    """Return the functions for use elsewhere, which Numba keeps on disk.

    The sources' fingerprint becomes part of the cache's key by being used.
    """

    @njit(nogil=True, cache=True)
    def load(*arguments: Any) -> None:
        if sources:
            _load(*arguments)

    @njit(nogil=True, cache=True)
    def band_pass(*arguments: Any) -> None:
        if sources:
            _band_pass(*arguments)

    @njit(nogil=True, cache=True)
    def band_pass_good(*arguments: Any) -> None:
        if sources:
            _band_pass_good(*arguments)

    return load, band_pass, band_pass_good


load, band_pass, band_pass_good = _cached(int(fingerprint("bandpass", "lanes"), 16))
