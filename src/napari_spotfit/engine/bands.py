"""Define the two bands of detection, and their response to noise and to a spot.

Each is a Gaussian less a wider one: the wide band, of the PSF's width and 1.6 of it, finds dim
spots; the narrow one, of 0.625 of the width and the width, separates crowded ones. What is made
of the filtered frames is in kernels/detection.h.

In volumes each plane has its own, as few planes are far from the ends: a volume is mirrored at its
first and last planes, so that a filtered voxel is a sum over the planes there are, with weights of
its own. Rows and columns are taken as far from their borders.
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
#: Pixels to look at for the scatter, about; and the most rows from one that is looked at to the
#: next.
SAMPLES, ROW_STEP = 8192, 8

#: With which they come together to the variance of a difference.
_SIGNS = np.array([1.0, -2.0, 1.0])
Array = NDArray[np.float64]

#: A direction counts in which a spot's second difference is no less than this fraction of that
#: along x, and stands out of the noise by no less than that: of few planes all show the same light.
_LEAST_CURVED, _LEAST_SHOWN = 0.7, 0.3


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

    #: As :class:`Band` has it along y and x.
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
    #: Rows from one in which the scatter is looked at to the next.
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
        _band_of_frames(
            sigma, kernels[inner], kernels[inner + 1], kernels[-1], shape, step, diagonal
        )
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


def _band_of_frames(
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


class _Axis:
    """The kernels along an axis away from its borders, and a spot there."""

    def __init__(self, halves: list[Array], sigma: float) -> None:
        reach = len(halves[-1]) - 1
        lines = [np.pad(whole_kernel(half), reach - len(half) + 1) for half in halves]
        self._lines = np.array(lines)
        self._places, self._sigma = np.arange(-reach, reach + 1), sigma

    def power(self, *widths: int) -> float:
        """Return the sum of products of kernels."""
        return float(np.prod(self._lines[list(widths)], axis=0).sum())

    def covariance(self, one: int, other: int, distance: int) -> float:
        """Return that of two kernels, so far apart."""
        line = self._lines
        if abs(distance) >= line.shape[1]:
            return 0.0
        return float(np.correlate(line[one], line[other], "full")[line.shape[1] - 1 + distance])

    def spot(self, width: int, distance: int) -> float:
        """Return a spot of height 1 after a kernel, so far from its middle."""
        profile = np.exp(-0.5 * ((self._places + distance) / self._sigma) ** 2)
        return float(self._lines[width] @ profile)


@lru_cache(maxsize=16)
def make_volume_bands(sigma: float, sigma_z: float, shape: tuple[int, int, int]) -> Bands:
    """Return the bands for spots of two widths in volumes of a shape."""
    depth, *plane_shape = shape
    plane_bands = make_bands(sigma, (plane_shape[0], plane_shape[1]))
    along_z = [half_kernel(width * sigma_z) for width in WIDTHS]
    reach = _directions(min(max(round(sigma_z), 1), depth - 1), plane_bands.step)
    # Planes are alike between the ends: a short stack shows those of a long one.
    short = min(depth, 4 * len(along_z[-1]) + 2 * reach[0][0])
    weights = [folded(half, short) for half in along_z]
    own = np.arange(depth)
    own = np.where(own < short // 2, own, np.maximum(own - (depth - short), short // 2))
    plane = _Axis([half_kernel(width * sigma) for width in WIDTHS], sigma)
    wide, narrow = (
        _band(inner, inner + 1, weights, plane, sigma_z, reach, own) for inner in (1, 0)
    )
    middle = depth // 2
    bands = tuple(
        flat._replace(gain=float(one.gain[middle]), response=float(one.response[middle]))
        for flat, one in zip(plane_bands.bands, (wide, narrow), strict=True)
    )
    lowest = min(
        lowest_noise((one.gain_z, flat.gain_y, flat.gain_x)) / flat.gain
        for flat, one in zip(bands, (wide, narrow), strict=True)
    )
    kernels = tuple(half.astype(np.float32) for half in along_z)
    volume = VolumeBands(sigma_z, depth, kernels, (wide, narrow), reach)
    return plane_bands._replace(bands=(bands[0], bands[1]), lowest_border=lowest, volume=volume)


def _directions(along_z: int, along: int) -> tuple[tuple[int, int, int], ...]:
    def part(step: int, axes: int) -> int:
        return step and max(round(step / math.sqrt(axes)), 1)

    z, x = part(along_z, 2), part(along, 2)
    w, u = part(along_z, 3), part(along, 3)
    return (
        (along_z, 0, 0), (0, along, 0), (0, 0, along),
        (0, x, x), (0, x, -x), (z, x, 0), (z, -x, 0), (z, 0, x), (z, 0, -x),
        (w, u, u), (w, u, -u), (w, -u, u), (w, -u, -u),
    )  # fmt: skip


def _band(
    inner: int,
    outer: int,
    weights: list[Array],
    plane: _Axis,
    sigma_z: float,
    reach: tuple[tuple[int, int, int], ...],
    own: NDArray[np.int64],
) -> VolumeBand:
    """Return a band; ``own`` are the planes of the short stack that all planes are like."""
    i, o, widest = weights[inner], weights[outer], weights[-1]
    gain_z = np.array([(a * b).sum(axis=1) for a, b in ((i, i), (i, o), (o, o))])
    pairs = ((inner, inner), (inner, outer), (outer, outer))
    squares = np.array([plane.power(*pair) ** 2 for pair in pairs])
    variance = np.array([1, -2, 1]) * squares @ gain_z
    cubes = (
        (i**3).sum(axis=1) * plane.power(inner, inner, inner) ** 2
        - 3 * (i * i * o).sum(axis=1) * plane.power(inner, inner, outer) ** 2
        + 3 * (i * o * o).sum(axis=1) * plane.power(inner, outer, outer) ** 2
        - (o**3).sum(axis=1) * plane.power(outer, outer, outer) ** 2
    )
    with_mean = (i * widest).sum(axis=1) * plane.power(inner, 2) ** 2
    with_mean -= (o * widest).sum(axis=1) * plane.power(outer, 2) ** 2
    filtered = _Filtered(inner, outer, weights, plane, sigma_z)
    response = filtered.spot((0, 0, 0))
    shape = np.array([filtered.second_difference(one) for one in reach])
    curvature, roughness = shape[:, 0] / response, np.sqrt(shape[:, 1] / variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = curvature / roughness
    shows = (shown >= _LEAST_SHOWN * shown[2]) & (curvature >= _LEAST_CURVED * curvature[2])
    return VolumeBand(
        np.ascontiguousarray(gain_z[:, own]),
        np.sqrt(variance)[own],
        response[own],
        (cubes / variance - 3 * with_mean)[own].astype(np.float32),
        np.ascontiguousarray(np.where(shows, curvature, 0).T[own], np.float32),
        float(1 / shown[2][own[len(own) // 2]]),
        filtered.correlations()[:, own],
    )


class _Filtered:
    """A band of white noise of 1, and of a spot of height 1 on each plane."""

    def __init__(
        self, inner: int, outer: int, weights: list[Array], plane: _Axis, sigma_z: float
    ) -> None:
        self._parts = ((inner, 1.0), (outer, -1.0))
        self._weights, self._plane = weights, plane
        depth = len(weights[0])
        planes = np.arange(depth)
        self._spots = np.exp(-0.5 * ((planes[:, np.newaxis] - planes) / sigma_z) ** 2)
        self._planes, self._period = planes, max(2 * (depth - 1), 1)

    def _at(self, distance: int) -> NDArray[np.int64]:
        """Return the planes so far away, mirrored."""
        away = (self._planes + distance) % self._period
        return np.minimum(away, self._period - away) if len(self._planes) > 1 else self._planes

    def spot(self, away: tuple[int, int, int]) -> Array:
        """Return what is so far away from a spot, for one on each plane."""
        w, v, u = away
        total = np.zeros(len(self._planes))
        for width, sign in self._parts:
            along_z = np.einsum("zp,zp->z", self._weights[width][self._at(w)], self._spots)
            total += sign * along_z * self._plane.spot(width, v) * self._plane.spot(width, u)
        return total

    def _covariance(self, one: tuple[int, int, int], other: tuple[int, int, int]) -> Array:
        total = np.zeros(len(self._planes))
        for a, first in self._parts:
            for b, second in self._parts:
                along_z = np.einsum(
                    "zp,zp->z", self._weights[a][self._at(one[0])],
                    self._weights[b][self._at(other[0])],
                )  # fmt: skip
                in_plane = [self._plane.covariance(a, b, int(one[i] - other[i])) for i in (1, 2)]
                total += first * second * along_z * in_plane[0] * in_plane[1]
        return total

    def second_difference(self, away: tuple[int, int, int]) -> tuple[Array, Array]:
        """Return that of a spot, and its variance of white noise."""
        here, back = (0, 0, 0), (-away[0], -away[1], -away[2])
        spot = self.spot(here) - (self.spot(away) + self.spot(back)) / 2
        variance = (
            self._covariance(here, here)
            + (self._covariance(away, away) + self._covariance(back, back)) / 4
            - self._covariance(here, away) - self._covariance(here, back)
            + self._covariance(away, back) / 2
        )  # fmt: skip
        return spot, np.maximum(variance, 1e-12)

    def correlations(self) -> Array:
        """Return those of noise with that of planes beside it, and of these two."""
        here, before, after = (0, 0, 0), (-1, 0, 0), (1, 0, 0)
        deviation = [np.sqrt(self._covariance(one, one)) for one in (here, before, after)]
        pairs = ((here, before, 0, 1), (here, after, 0, 2), (before, after, 1, 2))
        return np.array(
            [self._covariance(a, b) / (deviation[i] * deviation[j]) for a, b, i, j in pairs]
        )


def along_z_noise(sigma: float, sigma_z: float, correlations: Array) -> float:
    """Return the noise of the wide band over that of independent planes.

    ``correlations`` are those of a plane's noise with itself, the next plane and so on; they are 0
    beyond.
    """
    plane = _Axis([half_kernel(width * sigma) for width in WIDTHS], sigma)
    deep = _Axis([half_kernel(width * sigma_z) for width in WIDTHS], sigma_z)
    powers = []
    for away in range(len(correlations)):
        pairs = ((1, 1, 1.0), (1, 2, -2.0), (2, 2, 1.0))
        powers.append(
            sum(sign * deep.covariance(a, b, away) * plane.power(a, b) ** 2 for a, b, sign in pairs)
        )
    both = np.array(powers) * correlations
    return math.sqrt(max(float(2 * both.sum() - both[0]) / powers[0], 0.0))


@lru_cache(maxsize=64)
def highest_along_z(sigma: float, sigma_z: float, depth: int) -> tuple[float, ...]:
    """Return the share of a plane's maxima that are higher than in the planes beside it.

    That is a normal distribution of three numbers, for noise of each of the ``SCORES``, the mean of
    all planes and both bands.
    """
    volume = make_volume_bands(sigma, sigma_z, (depth, 1, 1)).volume
    if volume is None or depth == 1:
        return (1.0,) * len(SCORES)
    return tuple(sum(_highest(band, score) for band in volume.bands) / 2 for score in SCORES)


def _highest(band: VolumeBand, score: float) -> float:
    planes, last = np.arange(len(band.gain)), len(band.gain) - 1
    gains = band.gain[abs(planes - 1)], band.gain[last - abs(last - 1 - planes)]
    before, after, both = np.clip(band.beside, -1 + _CLIP, 1 - _CLIP)
    apart = np.sqrt((1 - before**2) * (1 - after**2))
    mutual = np.clip((both - before * after) / apart, -1 + _CLIP, 1 - _CLIP)[:, np.newaxis]
    ends = [
        score * (band.gain / gain - beside) / np.sqrt(1 - beside**2)
        for gain, beside in zip(gains, (before, after), strict=True)
    ]
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = (np.clip(ends[0], -_FAR, _FAR) + _FAR)[:, np.newaxis] / 2
    y = half * (nodes + 1) - _FAR
    limit = (ends[1][:, np.newaxis] - mutual * y) / np.sqrt(1 - mutual**2)
    below = 0.5 * (1 + _ERF(limit / math.sqrt(2)).astype(float))
    density = np.exp(-0.5 * y * y) / math.sqrt(2 * math.pi)
    return float((half * weights * density * below).sum(axis=1).mean())


#: Scores at which the share is computed: between them, it is a line.
SCORES = (2.0, 3.0, 4.0, 5.0, 6.0)
#: Points of the integral; how many deviations away it ends; how near correlations come to 1.
_NODES, _FAR, _CLIP = 48, 6.0, 1e-6
_ERF = np.frompyfunc(math.erf, 1, 1)
