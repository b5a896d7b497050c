"""Define the two bands of detection, and their response to noise and to a spot.

Each is a Gaussian less a wider one: the wide band, of the PSF's width and 1.6 of it, finds dim
spots; the narrow one, of 0.625 of the width and the width, separates crowded ones. What is made
of the filtered frames is in kernels/detection.h.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Widths of the three Gaussians over the PSF's.
WIDTHS = (0.625, 1.0, 1.6)
#: Where the kernels end, in units of their σ.
TRUNCATE = 3.0
#: About how many pixels to look at for the scatter, but at least one row in so many.
SAMPLES, ROW_STEP = 8192, 8

#: With which they come together to the variance of a difference.
_SIGNS = np.array([1.0, -2.0, 1.0])


class Band(NamedTuple):
    """One band, for spots of one width in frames of one shape."""

    #: Σ of the inner kernel², of inner·outer and of outer² at each row and at each column: the
    #: variance that white noise of 1 has in the band is a product of these. It is higher on the
    #: border, where mirrored pixels count twice.
    gain_y: NDArray[np.float64]
    gain_x: NDArray[np.float64]
    #: What white noise of 1 is in the band, away from the border; a spot of height 1.
    gain: float
    response: float
    #: The skewness of filtered counts, times their deviation over what one electron gives.
    skewness: float
    #: The mean square difference of neighbouring pixels of filtered white noise, over its variance.
    unlikeness: float
    #: Of second differences along x, y and both diagonals: a spot's over its height in the band,
    #: and the noise's over that of the band.
    curvature: tuple[float, ...]
    roughness: tuple[float, ...]
    #: The weight of a place's own pixel; and the part of a spot's response that is left if that
    #: pixel is as its eight neighbours are.
    own_weight: float
    beside: float

    def lowest_border(self) -> float:
        """Return the least noise of a pixel over that away from the border."""
        return lowest_noise((self.gain_y, self.gain_x)) / self.gain


class VolumeBand(NamedTuple):
    """One band along z; each array has numbers for each plane."""

    #: As :class:`~.band.Band` has it along y and x.
    gain_z: NDArray[np.float64]
    #: What white noise of 1 is in the band.
    gain: NDArray[np.float64]
    response: NDArray[np.float64]
    #: The skewness of filtered counts times the noise.
    skewness: NDArray[np.float32]
    #: Of second differences in all directions, 0 where none shows.
    curvature: NDArray[np.float32]
    #: The noise of a curvature along x, over a spot's, for one as high as the band's noise.
    curvature_noise: float
    #: How noise correlates with that of the plane before, of the plane after, and these two.
    beside: NDArray[np.float64]


class VolumeBands(NamedTuple):
    """Both bands along z, for spots of one width in stacks of one depth."""

    sigma_z: float
    depth: int
    kernels: tuple[NDArray[np.float32], ...]
    bands: tuple[VolumeBand, VolumeBand]
    #: How far second differences reach along z, y and x, for each direction.
    reach: tuple[tuple[int, int, int], ...]


class Bands(NamedTuple):
    """Both bands: the wide one and the narrow one."""

    shape: tuple[int, int]
    #: Weights of the three kernels from the centre outwards; they are symmetric.
    kernels: tuple[NDArray[np.float32], ...]
    bands: tuple[Band, Band]
    #: How far second differences reach, along an axis and along a diagonal.
    step: int
    diagonal: int
    lowest_border: float
    #: The scatter is looked at in one row of so many.
    row_step: int
    #: Of volumes; gain and response of the bands are those in the middle of the stack then.
    volume: VolumeBands | None = None


@lru_cache(maxsize=16)
def make_bands(sigma: float, shape: tuple[int, int]) -> Bands:
    """Return the bands for spots of width ``sigma`` in frames of a shape."""
    kernels = [half_kernel(width * sigma) for width in WIDTHS]
    step = max(round(sigma), 1)
    diagonal = max(round(step / math.sqrt(2)), 1)
    bands = tuple(
        _band(sigma, kernels[inner], kernels[inner + 1], kernels[-1], shape, step, diagonal)
        for inner in (1, 0)
    )
    return Bands(
        shape,
        tuple(kernel.astype(np.float32) for kernel in kernels),
        (bands[0], bands[1]),
        step,
        diagonal,
        min(band.lowest_border() for band in bands),
        min(max(shape[0] * shape[1] // SAMPLES, 1), ROW_STEP),
    )


def lowest_noise(gains: tuple[NDArray[np.float64], ...]) -> float:
    """Return the least noise of white noise of 1, from its sums along each axis."""
    # Away from the borders it is the same everywhere, so that a few places are enough.
    lowest = _SIGNS[:, np.newaxis]
    for sums in gains:
        few = _unlike_the_last(sums)
        lowest = (lowest[:, :, np.newaxis] * few[:, np.newaxis]).reshape(len(_SIGNS), -1)
    return math.sqrt(max(float(lowest.sum(axis=0).min()), 0.0))


def kernel_radius(sigma: float) -> int:
    """Return how far a Gaussian kernel reaches, in pixels."""
    return int(TRUNCATE * sigma + 0.5)


def half_kernel(sigma: float) -> NDArray[np.float64]:
    """Return a Gaussian kernel of sum 1 from its centre outwards."""
    distance = np.arange(kernel_radius(sigma) + 1) / sigma
    half: NDArray[np.float64] = np.exp(-0.5 * distance**2)
    half /= 2 * half.sum() - half[0]
    return half


def whole_kernel(half: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a kernel from one end to the other, of its half from the centre outwards."""
    return np.concatenate([half[:0:-1], half])


def mirrored(size: int, radius: int) -> NDArray[np.int64]:
    """Return which pixels stand at ``-radius … size - 1 + radius`` along an axis.

    The image is mirrored at the centres of its border pixels: it continues a spot on
    the border by the spot's own shape, and a flat border by itself.
    """
    period = max(2 * (size - 1), 1)
    position = np.arange(-radius, size + radius) % period
    return np.minimum(position, period - position) if size > 1 else position


def _band(
    sigma: float,
    inner: NDArray[np.float64],
    outer: NDArray[np.float64],
    widest: NDArray[np.float64],
    shape: tuple[int, int],
    step: int,
    diagonal: int,
) -> Band:
    """Return the band of two kernels."""
    reach = len(widest) - 1 + step
    square = [_square(half, reach) for half in (inner, outer, widest)]
    kernel = square[0] - square[1]
    profile = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    spot = np.outer(profile, profile)
    power, response = float(np.sum(kernel**2)), float(np.sum(kernel * spot))
    curvature, roughness = [], []
    for v, u in ((0, step), (step, 0), (diagonal, diagonal), (diagonal, -diagonal)):
        beside = np.roll(kernel, (v, u), (0, 1)) + np.roll(kernel, (-v, -u), (0, 1))
        second = kernel - beside / 2
        curvature.append(float(np.sum(second * spot)) / response)
        roughness.append(math.sqrt(float(np.sum(second**2)) / power))
    with_mean = float(np.sum(kernel * square[2])) / math.sqrt(power)
    gain_y, gain_x = (_overlaps(inner, outer, size) for size in shape)
    own_weight = float(kernel[reach, reach])
    neighbours = (float(np.sum(spot[reach - 1 : reach + 2, reach - 1 : reach + 2])) - 1) / 8
    left = 1 - own_weight * (1 - neighbours) / response
    return Band(
        gain_y, gain_x, math.sqrt(power), response,
        float(np.sum(kernel**3)) / power**1.5 - 3 * with_mean,
        float(np.sum((kernel - np.roll(kernel, 1, 1)) ** 2)) / power,
        tuple(curvature), tuple(roughness), own_weight, left,
    )  # fmt: skip


def _square(half: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    """Return the kernel along both axes, with zeros around it."""
    line = np.zeros(2 * reach + 1)
    line[reach - len(half) + 1 : reach + len(half)] = whole_kernel(half)
    return np.outer(line, line)


def _overlaps(
    inner: NDArray[np.float64], outer: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    """Return Σ of inner², inner·outer and outer² along an axis, mirrored at its ends."""
    # They are the same everywhere but near the ends, so that a short axis is enough.
    short = min(size, 4 * len(outer))
    i, o = folded(inner, short), folded(outer, short)
    head = short // 2
    sums = np.array([(a * b).sum(axis=1) for a, b in ((i, i), (i, o), (o, o))])
    middle = np.repeat(sums[:, head : head + 1], size - short, axis=1)
    return np.concatenate([sums[:, :head], middle, sums[:, head:]], axis=1)


def _unlike_the_last(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return columns without those that are as the one before: sorting many takes long."""
    changes = (np.diff(sums, axis=1) != 0).any(axis=0)
    return sums[:, np.append(True, changes)]


def folded(half: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the weight of each pixel (columns) in each smoothed one (rows)."""
    kernel = whole_kernel(half)
    source = mirrored(size, len(half) - 1)
    weights = np.zeros((size, size))
    for pixel in range(size):
        np.add.at(weights[pixel], source[pixel : pixel + len(kernel)], kernel)
    return weights
