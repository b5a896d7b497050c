"""What detection should find, in double precision with SciPy: the method of docs/trust.md, plainly.

Nothing of it is used by the package; the kernels are compared with it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import ndimage
from scipy.optimize import brentq
from scipy.spatial import cKDTree

#: Widths of the three Gaussians over the PSF's.
NARROW, WIDE = 0.625, 1.6
#: Taps that pass what is coarse, and what is as fine as pixels alternate.
COARSE = np.exp(-(np.arange(-6.0, 7.0) ** 2) / 8)
COARSE /= math.sqrt(np.sum(COARSE**2))
FINE = COARSE * (-1.0) ** np.arange(-6, 7)
BLOCK = 16
#: Median over mean of the mean square of a block's fine detail.
MEDIAN_OF_BLOCK = 0.934
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))
RING = np.ones((3, 3), bool)
RING[1, 1] = False
CROSS = RING & (np.indices((3, 3)).sum(0) % 2 == 1)


class Noise(NamedTuple):
    """The variance of a pixel: kappa² · max(slope · mean + intercept, least)."""

    slope: float
    intercept: float
    least: float
    kappa: float = 1.0

    def variance(self, mean):
        return np.maximum(self.slope * mean + self.intercept, self.least)


class Found(NamedTuple):
    """Detections: y and x in rows, score, and height in the wide band."""

    places: np.ndarray
    score: np.ndarray
    height: np.ndarray


def gaussian(image, sigma):
    return ndimage.gaussian_filter(image, sigma, truncate=3.0, mode="mirror")


def along(image, by_y, by_x):
    rows = ndimage.correlate1d(image, by_y, 0, mode="mirror")
    return ndimage.correlate1d(rows, by_x, 1, mode="mirror")


# ---- Noise ----


def blocks(image, sigma):
    """Return mean, fine detail along both axes, along x and y, cube and lowest of all blocks."""
    ring = ndimage.correlate(image, RING / 8, mode="mirror")
    scatter = ndimage.uniform_filter((image - ring) ** 2 * 8 / 9, BLOCK + 12, mode="mirror")
    image = np.where(lone_pixels(image, sigma, 12, scatter), ring, image)
    squares = [along(image, y, x) ** 2 for y, x in ((FINE, FINE), (COARSE, FINE), (FINE, COARSE))]
    cubes = (image - ndimage.correlate(image, RING / 8, mode="mirror")) ** 3 / (1 - 8 / 8**3)
    margin = 6 if min(image.shape) >= BLOCK + 12 else 0
    tops, lefts = (range(margin, size - margin - BLOCK + 1, BLOCK) for size in image.shape)
    parts = [
        [np.mean(plane[y : y + BLOCK, x : x + BLOCK]) for plane in (image, *squares, cubes)]
        + [np.min(image[y : y + BLOCK, x : x + BLOCK])]
        for y in tops
        for x in lefts
    ]
    return np.array(parts).reshape(-1, 6)


def photon_transfer(mean, variance):
    """Return slope and intercept of variance over mean, least variance, and the slope's error."""
    order = np.argsort(mean, kind="stable")
    bins = np.array_split(order, int(np.clip(len(order) // 12, 1, 32)))
    x = np.array([np.median(mean[part]) for part in bins])
    v = [np.mean(np.clip(variance[part], 0, 4 * np.median(variance[part]))) for part in bins]
    v = np.maximum(v, 1e-12)
    slope, intercept, model = 0.0, float(np.median(v)), np.full(len(v), np.median(v))
    spread = 0.0
    for _ in range(5 if len(bins) >= 4 else 0):
        weight = model**-2.0
        mean_x, mean_v = np.average(x, weights=weight), np.average(v, weights=weight)
        spread = np.sum(weight * (x - mean_x) ** 2)
        slope = max(np.sum(weight * (x - mean_x) * (v - mean_v)) / max(spread, 1e-300), 0.0)
        intercept = mean_v - slope * mean_x
        model = np.maximum(slope * x + intercept, v.min() / 4)
    error = math.sqrt(0.2) * math.sqrt(len(bins) / len(mean)) / math.sqrt(max(spread, 1e-300))
    return slope, intercept, v.min(), error


def noise_of(frames, sigma, variance=None):
    """Return the noise of frames, from all of their pixels."""
    table = np.concatenate([blocks(np.asarray(frame, float), sigma) for frame in frames])
    if variance is not None:
        known = np.tile(blocks(variance, sigma)[:, 0], len(frames))
        quiet = known <= 1.5 * np.quantile(known, 0.3)
        table = np.column_stack([table[:, 0], table[:, 1:4] - known[:, None], table[:, 4:]])[quiet]
    table = table[table[:, 1] > 0]
    if not len(table):
        return Noise(0.0, 0.0, 0.0)
    integers = np.asarray(frames[0]).dtype.kind in "iu"
    rounding = 1 / 20 if integers else 0.0
    fine = table[:, 1] / MEDIAN_OF_BLOCK
    slope, intercept, smallest, error = photon_transfer(table[:, 0], table[:, 1])
    both, by_x, by_y = (max(np.median(table[:, i]), rounding) for i in (1, 2, 3))
    spectrum = math.sqrt(by_x * by_y) / both
    if slope <= 4 * error and spectrum < 2:
        # Little light and shade: counts are as skewed as their variance over their mean.
        middle = np.median(fine)
        level = np.median(table[:, 0])
        line = slope
        slope = max(np.median(table[:, 4]), 0) / middle
        slope = min(slope, middle / (level - np.median(table[:, 5])))
        slope = line if slope > line + 2 * error else slope
        intercept = middle - slope * level
    noise = Noise(slope, intercept, max(smallest / 2, rounding))
    scatter = clipped_deviation(
        np.concatenate(
            [(gaussian(f, sigma) - w) / (kernels(sigma)[0].gain * np.sqrt(noise.variance(w)))
             for f, w in ((f, gaussian(f, WIDE * sigma)) for f in np.asarray(frames, float))]
        ).ravel()
    )  # fmt: skip
    return noise._replace(kappa=max(1.0, min(spectrum, scatter)))


def clipped_deviation(values):
    """Return the deviation of the middle of values: again and again, tails are left out."""
    values = np.abs(values[values != 0])
    deviation = values.max(initial=0.0)
    for _ in range(200):
        inside = values[values < 1.5 * deviation]
        if not len(inside):
            break
        change = math.sqrt(np.mean(inside**2) / 0.5515244157615512) / deviation
        if change > 0.999:
            break
        deviation *= change
    return deviation


# ---- The bands ----


class Kernel(NamedTuple):
    """A band's numbers: what it makes of white noise, of counts, and of a spot."""

    widths: tuple[float, float]
    gain: float
    skewness: float
    roughness: float
    response: float
    #: Of second differences in each direction: steps, a spot's over its response, noise's gain.
    curvature: tuple[tuple[int, int, float, float], ...]


@lru_cache
def kernels(sigma):
    """Return the wide band and the narrow one."""
    return tuple(
        _kernel(sigma, *(width * sigma for width in pair)) for pair in ((1, WIDE), (NARROW, 1))
    )


def _kernel(sigma, inner, outer):
    middle = int(4 * WIDE * sigma + 3)
    point = np.zeros((2 * middle + 1,) * 2)
    point[middle, middle] = 1
    kernel = gaussian(point, inner) - gaussian(point, outer)
    profile = np.exp(-(np.arange(-middle, middle + 1.0) ** 2) / (2 * sigma**2))
    spot = np.outer(profile, profile)
    power, response = np.sum(kernel**2), np.sum(kernel * spot)
    with_level = np.sum(kernel * gaussian(point, WIDE * sigma)) / math.sqrt(power)
    curvature = []
    for dy, dx in DIRECTIONS:
        step = round(sigma) if 0 in (dy, dx) else round(round(sigma) / math.sqrt(2))
        y, x = max(step, 1) * dy, max(step, 1) * dx
        second = kernel - (np.roll(kernel, (y, x), (0, 1)) + np.roll(kernel, (-y, -x), (0, 1))) / 2
        curvature.append((y, x, np.sum(second * spot) / response, math.sqrt(np.sum(second**2))))
    return Kernel(
        (inner, outer), math.sqrt(power), np.sum(kernel**3) / power**1.5 - 3 * with_level,
        np.sum((kernel - np.roll(kernel, 1, 1)) ** 2) / power, response, tuple(curvature),
    )  # fmt: skip


#: What is found in white noise over what a continuous field would have, at a score of 4, and by how
#: much its logarithm falls with each unit of the score; by simulation of 25 million pixels each.
MEASURED_AT = np.log([0.5, 0.6, 0.8, 1.0, 1.3, 1.7, 2.3, 3.5, 6.0, 10.0])
SHARE = (0.073, 0.089, 0.152, 0.206, 0.268, 0.352, 0.462, 0.637, 0.735, 0.997)
FALL = (0.80, 0.88, 0.75, 0.66, 0.63, 0.53, 0.44, 0.22, 0.17, 0.0)


def expected_false(threshold, sigma):
    """Return how many maxima of white noise exceed a threshold, per 10⁶ pixels."""
    roughness = sum(kernel.roughness for kernel in kernels(sigma))
    field = roughness / (2 * math.pi) ** 1.5 * threshold * math.exp(-(threshold**2) / 2)
    share, fall = (np.interp(math.log(sigma), MEASURED_AT, values) for values in (SHARE, FALL))
    return 1e6 * field * share * math.exp(-fall * (min(threshold, 5) - 4))


def least_score(false_spots, sigma):
    """Return the threshold for so many false spots in 10⁶ pixels."""
    return brentq(lambda score: expected_false(score, sigma) - false_spots, 1.5, 40)


# ---- Detection ----


def lone_pixels(image, sigma, deviations, variance):
    """Return which pixels no spot of this width can make."""
    around = ndimage.maximum_filter(image, footprint=RING, mode="mirror")
    distance = max(2, round(2 * sigma))
    far = np.zeros((2 * distance + 1,) * 2)
    far[::distance, ::distance] = 1 / 8
    far[distance, distance] = 0
    background = ndimage.correlate(image, far, mode="mirror")
    least = min(1 - math.exp(-1 / (2 * sigma**2)) / 2, 0.9)
    step = np.maximum(image - around, 0)
    return (step > deviations * np.sqrt(np.maximum(variance, 0))) & (
        step > least * (image - background)
    )


def without_lone_pixels(image, sigma, noise):
    """Replace pixels that no spot of this width can make by the mean of those around."""
    ring = ndimage.correlate(image, RING / 8, mode="mirror")
    beside = ndimage.correlate(image, CROSS / 4, mode="mirror")
    variance = noise.kappa**2 * noise.variance(beside)
    return np.where(lone_pixels(image, sigma, 6, variance), ring, image)


def detect(image, sigma, noise, threshold, variance=None):
    """Return the spots whose score is above a threshold."""
    image = without_lone_pixels(np.asarray(image, float), sigma, noise)
    narrow, own, wide = (gaussian(image, width * sigma) for width in (NARROW, 1, WIDE))
    bands = own - wide, narrow - own
    level = noise.kappa**2 * noise.variance(wide)
    found = []
    for band, kernel in zip(bands, kernels(sigma), strict=True):
        total = level if variance is None else level + _filtered_variance(variance, kernel)
        places, score = _maxima(band, wide, total, sigma, noise.slope, kernel, threshold)
        found.append((places, score))
    places, score = _union(*found, 1.5 * sigma)
    order = np.lexsort(places.T[::-1])
    places, score = places[order], score[order]
    return Found(places, score, bands[0][places[:, 0], places[:, 1]])


def _filtered_variance(variance, kernel):
    a, b = kernel.widths
    terms = ((a, a, 1), (a, b, -2), (b, b, 1))
    total = 0
    for one, other, factor in terms:
        reach = int(3 * max(one, other) + 0.5)
        at = np.arange(-reach, reach + 1)
        weights = np.prod(
            [np.exp(-(at**2) / (2 * s * s)) * (abs(at) <= int(3 * s + 0.5)) for s in (one, other)],
            0,
        )
        for s in (one, other):
            own = np.exp(-(at**2) / (2 * s * s)) * (abs(at) <= int(3 * s + 0.5))
            weights = weights / own.sum()
        total = total + factor * along(variance, weights, weights)
    return total / kernel.gain**2


def _maxima(band, wide, variance, sigma, slope, kernel, threshold):
    highest = ndimage.maximum_filter(band, footprint=RING, mode="constant", cval=-np.inf)
    places = np.argwhere(band > highest)
    y, x = places.T
    deviation = np.sqrt(variance[y, x])
    ratio = band[y, x] / (kernel.gain * deviation)
    score = normal_score(ratio, np.maximum(kernel.skewness * slope / deviation, 1e-3))
    keep = (score > threshold) & (band[y, x] > 0)
    places, score, deviation = places[keep], score[keep], deviation[keep]
    shaped = _has_spots_shape(places, band, wide, deviation, sigma, kernel, threshold)
    return places[shaped], score[shaped]


def normal_score(ratio, skewness):
    """Return the deviate of a normal distribution as rare as that of a skewed one."""
    cube = np.cbrt(np.maximum(1 + skewness * ratio / 2, 0))
    return 6 / skewness * (cube - 1) + skewness / 6


def _has_spots_shape(places, band, wide, deviation, sigma, kernel, threshold):
    reach = 2 * max(round(sigma), 1)
    height = band[tuple(places.T)]
    curvature, significance = np.full(len(places), np.inf), np.full(len(places), np.inf)
    padded = np.pad(band, reach, mode="reflect")
    y, x = places.T + reach
    for dy, dx, expected, gain in kernel.curvature:
        second = height - (padded[y + dy, x + dx] + padded[y - dy, x - dx]) / 2
        curvature = np.minimum(curvature, second / (expected * height))
        significance = np.minimum(significance, second / (gain * deviation))
    step = max(round(sigma), 1)
    padded = np.pad(wide, reach, mode="reflect")
    rise = np.hypot(
        padded[y, x + step] - padded[y, x - step], padded[y + step, x] - padded[y - step, x]
    )
    steepness = rise / (2 * step) * sigma / height
    return (curvature > np.minimum(0.4 * (np.minimum(steepness, 0.5) + steepness), 0.75)) & (
        significance > threshold * np.clip(2 * steepness - 1, 0, 1)
    )


#: A narrow maximum tells a place better than the wide one from this score on.
CLEAR = 8.0


#: Scores in the narrow band over those in the wide one, below which a spot is wider than the PSF.
BLURRED, FAINT = 0.4, 0.3


def _union(wide, narrow, reach):
    if not len(wide[0]) or not len(narrow[0]):
        return wide if len(wide[0]) else narrow
    distance, nearest = cKDTree(wide[0]).query(narrow[0])
    near = distance < reach
    share = narrow[1] / wide[1][nearest]
    faint = near & (share < FAINT)
    count = np.bincount(nearest[near & ~faint], minlength=len(wide[0]))
    weak = near & (count[nearest] == 1) & ((narrow[1] < CLEAR) | (share < BLURRED))
    keep = count == 0
    keep[nearest[weak & ~faint]] = True
    return tuple(
        np.concatenate([ours[keep], theirs[~weak & ~faint]])
        for ours, theirs in zip(wide, narrow, strict=True)
    )
