"""What decides which spots are found: the band-pass, and the constants of both twins.

The band-pass is a Gaussian as wide as a spot, less a wider one. The frame's level is
subtracted before, and the filtered frame's noise is estimated from samples of it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Width of the wider Gaussian over that of the narrower. It makes nearly a Laplacian of
#: Gaussian: as sensitive as with a wider one, and better at telling neighbours apart.
RATIO = 1.6
#: Where the kernels end, in units of their σ.
TRUNCATE = 3.0
#: A pixel this far from the frame's level is as bad as an infinite one: sums overflow.
TOO_FAR = 1e30
#: How many pixels, evenly spread, a frame's level is the median of.
LEVEL_SAMPLES = 63
#: With less than this share of the narrow kernel on good pixels, there is no result.
LEAST_WEIGHT = 0.5

#: Values beyond so many standard deviations are left out of the noise.
CLIP = 1.5
#: The variance of a normal distribution within ±CLIP, over that of all of it.
KEPT_VARIANCE = 1 - 2 * CLIP * math.exp(-(CLIP**2) / 2) / (
    math.sqrt(2 * math.pi) * math.erf(CLIP / math.sqrt(2))
)
#: The noise is at most so many times that of independent pixels. What is less above it
#: may as well be the texture of a cell as crowded spots.
TEXTURE = 3.0
#: Pixels are independent if detail that is twice as coarse along one axis is stronger by
#: less than this factor. In a blurred or interpolated image it is much stronger.
WHITENESS = 1.5
#: About how many pixels to look at for the noise, but at least one row in so many.
SAMPLES, ROW_STEP = 8192, 8
#: The estimate has settled when it shrinks by less than to this fraction.
SETTLED = 0.999
MAX_ITERATIONS = 100
#: Near its end, an iteration goes a third of the way: its change is taken to this power.
#: Far from it, a little farther than the change itself, which may be 0: the squares can be
#: too small for single precision.
HASTE, FAR_HASTE, LEAST_CHANGE = 2.0, 0.8, 1e-9

#: A maximum lower than this fraction of the pixel itself is a rounding error.
LEAST_CONTRAST = 1e-5


class Layout(NamedTuple):
    """How frames lie in flat arrays: rows begin every ``stride`` pixels."""

    height: int
    width: int
    stride: int


class Band(NamedTuple):
    """The band-pass for spots of one width in frames of one shape."""

    #: The kernels' weights from the centre outwards; they are symmetric.
    narrow: NDArray[np.float32]
    wide: NDArray[np.float32]
    #: What white noise of 1 is in the filtered frame, as its root mean square.
    gain: float
    #: The same at each pixel, over that: up to twice as high on the border, where
    #: mirrored pixels count twice.
    border: NDArray[np.float32]
    border_min: float
    #: The noise is estimated from one row in so many.
    row_step: int


@lru_cache(maxsize=16)
def make_band(sigma: float, shape: tuple[int, int]) -> Band:
    """Return the band-pass for spots of width ``sigma`` in frames of a shape."""
    narrow, wide = half_kernel(sigma), half_kernel(RATIO * sigma)
    gain = _noise_gain(narrow, wide, shape)
    mean_gain = float(np.sqrt(np.mean(gain**2)))
    border = (gain / mean_gain if mean_gain > 0 else np.ones(shape)).astype(np.float32)
    return Band(
        narrow.astype(np.float32),
        wide.astype(np.float32),
        mean_gain,
        border,
        float(border.min()),
        min(max(shape[0] * shape[1] // SAMPLES, 1), ROW_STEP),
    )


def kernel_radius(sigma: float) -> int:
    """Return how far a Gaussian kernel reaches, in pixels."""
    return int(TRUNCATE * sigma + 0.5)


def half_kernel(sigma: float) -> NDArray[np.float64]:
    """Return a Gaussian kernel of sum 1 from its centre outwards."""
    distance = np.arange(kernel_radius(sigma) + 1) / sigma
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
