"""The band-pass that detection filters frames by: a Gaussian as wide as a spot, less a wider one.

What is made of the filtered frames is in kernels/detection.h.
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
#: About how many pixels to look at for the noise, but at least one row in so many.
SAMPLES, ROW_STEP = 8192, 8

#: With which they come together to the variance of a difference.
_SIGNS = np.array([1.0, -2.0, 1.0])


class Band(NamedTuple):
    """The band-pass for spots of one width in frames of one shape."""

    #: The kernels' weights from the centre outwards; they are symmetric.
    narrow: NDArray[np.float32]
    wide: NDArray[np.float32]
    #: Σ of narrow², narrow·wide and wide² at each row and at each column: the variance that
    #: white noise of 1 has in the filtered frame is a product of these. It is higher on the
    #: border, where mirrored pixels count twice.
    gain_y: NDArray[np.float64]
    gain_x: NDArray[np.float64]
    #: What white noise of 1 is in the filtered frame, as its root mean square.
    gain: float
    #: The lowest that the noise of a pixel is, over that.
    lowest_border: float
    #: The noise is estimated from one row in so many.
    row_step: int

    @property
    def shape(self) -> tuple[int, int]:
        """The frames' rows and columns."""
        return self.gain_y.shape[1], self.gain_x.shape[1]


@lru_cache(maxsize=16)
def make_band(sigma: float, shape: tuple[int, int]) -> Band:
    """Return the band-pass for spots of width ``sigma`` in frames of a shape."""
    narrow, wide = half_kernel(sigma), half_kernel(RATIO * sigma)
    gain_y, gain_x = (_overlaps(narrow, wide, size) for size in shape)
    gain = math.sqrt(max(_SIGNS @ (gain_y.mean(axis=1) * gain_x.mean(axis=1)), 0.0))
    # Away from the border it is the same everywhere, so that a few rows and columns tell all.
    few_y, few_x = (np.unique(sums, axis=1) for sums in (gain_y, gain_x))
    lowest = np.einsum("i,iy,ix->yx", _SIGNS, few_y, few_x).min()
    return Band(
        narrow.astype(np.float32),
        wide.astype(np.float32),
        gain_y,
        gain_x,
        gain,
        float(np.float32(math.sqrt(max(lowest, 0.0)) / gain)) if gain > 0 else 1.0,
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


def _overlaps(
    narrow: NDArray[np.float64], wide: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    """Return Σ of narrow², narrow·wide and wide² along an axis, mirrored at its ends."""
    # They are the same everywhere but near the ends, so that a short axis tells all.
    short = min(size, 4 * len(wide))
    n, w = _folded(narrow, short), _folded(wide, short)
    head = short // 2
    sums = np.array([(a * b).sum(axis=1) for a, b in ((n, n), (n, w), (w, w))])
    middle = np.repeat(sums[:, head : head + 1], size - short, axis=1)
    return np.concatenate([sums[:, :head], middle, sums[:, head:]], axis=1)


def _folded(half: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the weight of each pixel (columns) in each smoothed one (rows)."""
    kernel = np.concatenate([half[:0:-1], half])
    source = mirrored(size, len(half) - 1)
    weights = np.zeros((size, size))
    for pixel in range(size):
        np.add.at(weights[pixel], source[pixel : pixel + len(kernel)], kernel)
    return weights
