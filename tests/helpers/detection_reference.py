"""Reference of detection in double precision with SciPy: the method of docs/trust.md.

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

#: Widths of the three Gaussians relative to the PSF's.
NARROW, WIDE = 0.625, 1.6
#: Low-pass and high-pass taps.
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


def grid_of(shape):
    """Return the corners of the rows and of the columns of blocks."""
    margin = 6 if min(shape) >= BLOCK + 12 else 0
    return [range(margin, size - margin - BLOCK + 1, BLOCK) for size in shape]


def blocks(image, sigma):
    """Return mean, fine detail along both axes, along x and y, cube and lowest of all blocks.

    And how unlike their columns are, and how much more noise the brighter ones have.
    """
    ring = ndimage.correlate(image, RING / 8, mode="mirror")
    scatter = ndimage.uniform_filter((image - ring) ** 2 * 8 / 9, BLOCK + 12, mode="mirror")
    hot = hot_pixels(image, sigma, 12, scatter) | hot_pixels(-image, sigma, 12, scatter)
    image = np.where(hot, ring, image)
    # Fine taps do not add up to 0 exactly.
    level = np.median(image)
    squares = [
        along(image - level, y, x) ** 2 for y, x in ((FINE, FINE), (COARSE, FINE), (FINE, COARSE))
    ]
    cubes = (image - ndimage.correlate(image, RING / 8, mode="mirror")) ** 3 / (1 - 8 / 8**3)
    cut = [in_blocks(plane) for plane in (image, *squares, cubes)]
    means = [own.mean((1, 2)) for own in cut]
    brighter, noisier = (cut[i].mean(1) - means[i][:, np.newaxis] for i in (0, 1))
    unlike = (brighter * brighter).sum(1), (brighter * noisier).sum(1)
    return np.column_stack([*means, cut[0].min((1, 2)), *unlike])


def in_blocks(plane):
    """Return the blocks of a plane, one after another."""
    tops, lefts = grid_of(plane.shape)
    rows, columns = (slice(own.start, own.start + BLOCK * len(own)) for own in (tops, lefts))
    parts = plane[rows, columns].reshape(len(tops), BLOCK, len(lefts), BLOCK)
    return parts.swapaxes(1, 2).reshape(-1, BLOCK, BLOCK)


def photon_transfer(table, grid, skewness):
    """Return slope, level, variance there, the slope's error, and what it looks like."""
    usable = table[:, 1] > 0
    place = np.arange(len(table)) % (grid[0] * grid[1])
    mean = np.where(usable, table[:, 0], np.median(table[usable, 0])).reshape(-1, *grid)
    beside = np.zeros_like(mean)
    padded = np.pad(mean, [(0, 0), (1, 1), (1, 1)], constant_values=np.median(table[usable, 0]))
    for y, x in ((0, 1), (2, 1), (1, 0), (1, 2)):
        beside += padded[:, y : y + grid[0], x : x + grid[1]]
    x = (0.94 * mean + 0.015 * beside).ravel()
    order = np.argsort(x[usable], kind="stable")
    x, v, place = x[usable][order], table[usable, 1][order], place[usable][order]

    # A first line through what is low in each set of like brightness.
    sets = np.array_split(np.arange(len(x)), int(np.clip(len(x) // 12, 1, 32)))
    low = np.array([np.quantile(v[part], 0.3) for part in sets]) / 0.76
    level = np.array([np.median(x[part]) for part in sets])
    weight = 1 / np.maximum(low, np.median(low) / 4) ** 2
    x0, v0 = np.average(level, weights=weight), np.average(low, weights=weight)
    spread = np.average((level - x0) ** 2, weights=weight)
    slope = max(np.average((level - x0) * (low - v0), weights=weight), 0) / spread if spread else 0

    # Then through all, the less the farther, until it stays.
    least, shape = np.quantile(v, 0.05) / 2, 6.0
    line = np.maximum(v0 + slope * (x - x0), least)
    for _ in range(8):
        z = 2 * math.sqrt(shape) * (np.sqrt(v / line) - math.sqrt(1 - 0.25 / shape))
        counts = (1 - np.clip((abs(z) - 3) / 2, 0, 1) ** 2) ** 2
        weight = counts / line**2
        x0, v0 = np.average(x, weights=weight), np.average(v, weights=weight)
        spread = np.sum(weight * (x - x0) ** 2)
        # Noise makes blocks differ in brightness, too, and bright ones noisier if it is skewed.
        noise = 0.88 / 256 * np.sum(weight * v)
        own, rise = spread - noise, np.sum(weight * (x - x0) * (v - v0))
        apparent = max(rise / spread, 0)
        rise -= min(skewness, apparent) * noise
        slope = max(rise / own, 0) if own > 0.2 * spread else 0.0
        line = np.maximum(v0 + slope * (x - x0), least)
        scatter = np.average((v / line - 1) ** 2, weights=counts)
        shape = np.clip(1 / scatter, 2.5, 6)
    z = 2 * math.sqrt(shape) * (np.sqrt(v / line) - math.sqrt(1 - 0.25 / shape))
    weight = counts / line**2
    errors = [math.sqrt(np.sum(weight * counts * (x - x0) ** 2) / shape)]
    usual = errors[0] / spread
    if own <= 0.2 * spread or np.mean(abs(z) > 4) > 0.12:
        return slope, x0, v0, math.inf, apparent, usual
    for group in (place, place // grid[1], place % grid[1]):
        parts = [group == one for one in np.unique(group)]
        share = np.array([np.sum((weight * (x - x0) ** 2)[part]) for part in parts]) / spread
        pull = np.array([np.sum((weight * (x - x0) * (v - line))[part]) for part in parts])
        places = 1 / np.sum(share**2)
        if places < 3:
            return slope, x0, v0, math.inf, apparent, usual
        pull /= np.maximum(1 - share, 0.2)
        errors.append(math.sqrt(np.sum(pull**2) * places / (places - 2)))
    return slope, x0, v0, math.hypot(max(errors) / own, 0.05 * slope), apparent, usual


def noise_of(frames, sigma, variance=None):
    """Return the noise of frames, from all of their pixels."""
    table = np.concatenate([blocks(np.asarray(frame, float), sigma) for frame in frames])
    grid = tuple(map(len, grid_of(np.shape(frames[0]))))
    if variance is not None:
        known = np.tile(blocks(variance, sigma)[:, 0], len(frames))
        loud = known > 1.5 * np.quantile(known, 0.3)
        table[:, 1:4] -= known[:, None]
        table[loud, 1] = 0
    usable = table[table[:, 1] > 0]
    if not len(usable):
        return Noise(0.0, 0.0, 0.0)
    integers = np.asarray(frames[0]).dtype.kind in "iu"
    rounding = 1 / 20 if integers else 0.0
    both, by_x, by_y, cube = (np.median(usable[:, i]) for i in (1, 2, 3, 4))
    skewness = max(cube, 0) / both
    slope, level, middle, error, apparent, scatter = photon_transfer(table, grid, skewness)
    ordered = usable[np.argsort(usable[:, 0], kind="stable"), 1]
    sets = np.array_split(ordered, int(np.clip(len(ordered) // 12, 1, 32)))
    least = max(min(map(np.median, sets)) / MEDIAN_OF_BLOCK / 2, rounding)
    both, by_x, by_y = (max(one, rounding) for one in (both, by_x, by_y))
    spectrum = math.sqrt(by_x * by_y) / both
    if slope <= 4 * error:
        # Little light and shade: counts are as skewed as their variance over their mean.
        usual = np.median(usable[:, 0])
        middle, level = max(middle + slope * (usual - level), least), usual
        most = max(middle / (level - np.median(usable[:, 5])), apparent - 2 * scatter)
        skewness = min(skewness / spectrum if spectrum > 2 else skewness, most)
        slope = slope if skewness > slope + 2 * error else skewness
        # Columns with a spot are no noisier if it is not the light that has noise.
        spread, rise = usable[usable[:, 6] > 8 * both, 6:].T
        if len(spread):
            weight, steep = np.sqrt(spread), rise / spread
            mean = np.average(steep, weights=weight)
            off = max(np.sum((weight * (steep - mean)) ** 2), len(spread) * (1.25 * both) ** 2)
            slope = min(slope, 2 * max(mean, 0) + 3 * math.sqrt(off) / weight.sum())
    noise = Noise(slope, middle - slope * level, least)
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
    #: The weight of the middle, and a spot's response without what its middle has more than around.
    middle: float
    beside: float


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
    ring = spot[middle - 1 : middle + 2, middle - 1 : middle + 2][RING].mean()
    return Kernel(
        (inner, outer), math.sqrt(power), np.sum(kernel**3) / power**1.5 - 3 * with_level,
        np.sum((kernel - np.roll(kernel, 1, 1)) ** 2) / power, response, tuple(curvature),
        kernel[middle, middle], (response - kernel[middle, middle] * (1 - ring)) / response,
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
    """Return the threshold for a number of false spots in 10⁶ pixels."""
    return brentq(lambda score: expected_false(score, sigma) - false_spots, 1.5, 40)


# ---- Detection ----


def hot_pixels(image, sigma, deviations, variance):
    """Return which pixels are too sharp for a spot of this width."""
    around = ndimage.maximum_filter(image, footprint=RING, mode="mirror")
    distance = max(2, round(2 * sigma))
    pairs = []
    for v, u in ((0, 1), (1, -1), (1, 0), (1, 1)):
        far = np.zeros((2 * distance + 1,) * 2)
        far[distance + v * distance, distance + u * distance] = 1 / 2
        far[distance - v * distance, distance - u * distance] = 1 / 2
        pairs.append(ndimage.correlate(image, far, mode="mirror"))
    background = np.min(pairs, axis=0)
    least = min(1 - math.exp(-1 / (2 * sigma**2)) / 2, 0.9)
    step = np.maximum(image - around, 0)
    return (step > deviations * np.sqrt(np.maximum(variance, 0))) & (
        step > least * (image - background)
    )


def without_hot_pixels(image, sigma, noise):
    """Replace pixels that are too sharp for a spot by the mean of their neighbours."""
    ring = ndimage.correlate(image, RING / 8, mode="mirror")
    beside = ndimage.correlate(image, CROSS / 4, mode="mirror")
    variance = noise.kappa**2 * noise.variance(beside)
    hot = hot_pixels(image, sigma, 6, variance) | hot_pixels(-image, sigma, 6, variance)
    return np.where(hot, ring, image)


def detect(image, sigma, noise, threshold, variance=None):
    """Return the spots whose score is above a threshold."""
    image = without_hot_pixels(np.asarray(image, float), sigma, noise)
    # By how much pixels are above their neighbours; outside of the image there is the pixel itself.
    padded = np.pad(image, 1, constant_values=np.nan)
    sides = np.stack([np.roll(padded, by, (0, 1))[1:-1, 1:-1] for by in np.argwhere(RING) - 1])
    above = image - np.where(np.isnan(sides), image, sides).mean(0)
    narrow, own, wide = (gaussian(image, width * sigma) for width in (NARROW, 1, WIDE))
    bands = own - wide, narrow - own
    level = noise.kappa**2 * noise.variance(wide)
    found = []
    for band, kernel, off in zip(bands, kernels(sigma), (2.5, 1.75), strict=True):
        total = level if variance is None else level + _filtered_variance(variance, kernel)
        places, score = _maxima(band, wide, total, sigma, noise.slope, kernel, threshold)
        y, x = places.T
        deviation = np.sqrt(total[y, x]) * kernel.gain
        own = off * kernel.middle / kernel.gain * math.sqrt(1 + 1 / 8) * deviation
        dim = kernel.beside * np.minimum(band[y, x], 4 * deviation)
        beside = band[y, x] - kernel.middle * above[y, x] > dim - own
        places, score = places[beside], score[beside]
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
