"""Measure the noise of an image from its coarse end: in the band in which spots are looked for.

The first measure (measured_noise.py) takes detail as fine as pixels, and what filters, denoisers
and deconvolutions have left there shows little of the noise that false spots are made of. Here the
band itself shows it, by brightness. Most maxima of most images are noise, and their heights follow
one law; where there is a crowd of spots, most are spots: the lowest of them are low, as they lie
between others. Then the band shows nothing of the noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.bands import TRUNCATE, WIDTHS, make_bands
from ..images.reading import evenly_spread
from .calm_pixels import clipped_deviation

Numbers = NDArray[np.float64]

#: How many pixels are looked at, in whole frames, or in squares of this side.
_PIXELS, _SIDE = 1 << 18, 256
#: Side of the areas that noise is measured in: for the first widths of the PSF, for larger ones.
_AREA, _LARGE_AREA, _LARGE_SIGMA = 32, 64, 3.0
#: The share of areas at either end that says nothing of whether all are as bright.
_AWAY = 0.1
#: Areas of a set of similar brightness, at least, and the number of sets.
_LEAST_TOGETHER, _MOST_SETS = 8, 6
#: The scatter of a set is this quantile of its areas: others have spots, and edges. Where noise is
#: left in some places only, these count, and the quantile is the second.
USUAL_SHARE, WORSE_SHARE = 0.4, 0.6
#: Of maxima, and depths of minima, one in ten is lower than this many deviations; that of white
#: noise is 0.68, of filtered ones from 0.3 on, of crowds of spots below 0.2; of deconvolved ones,
#: whose noise is of one frequency, both are higher, or minima are where there are spots: the least
#: of either, and their sum.
_LOW, _OF_NOISE, _OF_ONE_FREQUENCY = 0.1, 0.22, (0.62, 1.48)
#: Where nothing but noise is, filtered or not, low maxima and minima have more than the first, high
#: maxima are up to the second times as high as those of white noise, and deep minima between the
#: third and fourth times as deep; in a crowd, less than that.
_LOW_OF_PURE, _HIGH_OF_PURE, _DEPTH_OF_PURE = 0.4, 1.25, (0.97, 1.45)
#: The share of areas that count, whose highest maximum is most like their deepest minimum; how many
#: count at least; and the quantiles of maxima and minima that are compared there.
_MOST_ALIKE, _LEAST_ALIKE, _COMPARED = 1 / 3, 4, (0.1, 0.9)
#: Quantiles of the heights of white noise's maxima, and what they are in deviations.
_QUANTILES, _OF_WHITE = (0.25, 0.5, 0.75), (1.07, 1.52, 2.0)
#: At how many deviations the band is cut off, to see whether it differs along one direction.
_MOST_COHERENT = 1.5
#: The least number of maxima.
_LEAST_MAXIMA = 25
#: With less than this share of a kernel on good pixels there is no result.
_LEAST_GOOD = 0.5


class BandNoise(NamedTuple):
    """Noise in the band of spots, in sets of areas from dark to bright."""

    #: Brightness of each set, and the variance of white noise that is as strong in the band.
    level: Numbers
    variance: Numbers
    #: What one maximum in ten, and one minimum, is lower than, in deviations of the band; and how
    #: many times as high as those of white noise low maxima are, and high ones; and deep minima.
    lowest: tuple[float, float]
    low: float
    tail: float
    depth: float

    @property
    def is_noise(self) -> bool:
        """Whether maxima and minima are noise, most of them; a crowd's are spots."""
        return self.lowest[0] > _OF_NOISE

    @property
    def is_pure(self) -> bool:
        """Whether maxima are as high as minima are deep, as of noise, with few spots in it."""
        least, most = _DEPTH_OF_PURE
        return self.is_surely_noise and self.tail < _HIGH_OF_PURE and least < self.depth < most

    @property
    def is_surely_noise(self) -> bool:
        """Whether maxima and minima are noise, however many spots a crowd may have."""
        return min(self.lowest) > _LOW_OF_PURE

    @property
    def has_one_frequency(self) -> bool:
        """Whether noise is of one frequency, as deconvolution and sharp limits make it."""
        least, both = _OF_ONE_FREQUENCY
        return min(self.lowest) > least and sum(self.lowest) > both


def some_parts(frames: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Return some frames, or squares of large ones."""
    return [np.ascontiguousarray(one, np.float64) for one in recorded_parts(frames)]


def recorded_parts(frames: NDArray[Any]) -> NDArray[Any]:
    """Return what :func:`some_parts` does, one after the other, in the type of the frames."""
    count, *shape = frames.shape
    size = shape[0] * shape[1]
    chosen: NDArray[Any] = frames[evenly_spread(min(max(_PIXELS // size, 1), count), count)]
    if size <= 2 * _PIXELS:
        return chosen
    side = [min(_SIDE, own) for own in shape]
    corners = [evenly_spread(2, own - part + 1) for own, part in zip(shape, side, strict=True)]
    return np.stack([
        chosen[0, y : y + side[0], x : x + side[1]]
        for y in corners[0].tolist() for x in corners[1].tolist()
    ])  # fmt: skip


class BandAreas:
    """The band in which spots are looked for, in areas of parts of frames.

    Parameters
    ----------
    parts : list of ndarray
        Parts of frames, of one shape; NaN where pixels are bad.
    sigma : float
        The PSF's width in pixels.
    """

    def __init__(self, parts: list[NDArray[np.float64]], sigma: float) -> None:
        from scipy import ndimage  # takes longer to import than a few fits

        #: The PSF's width.
        self.sigma = sigma
        self._side = min(_AREA if sigma <= _LARGE_SIGMA else _LARGE_AREA, *parts[0].shape)
        #: Rows and columns of areas in each part.
        self.grid = (parts[0].shape[0] // self._side, parts[0].shape[1] // self._side)
        bands, highest, lowest, levels = [], [], [], []
        for part in parts:
            middle = float(np.nanmedian(part)) if np.isfinite(part).any() else 0.0
            band, base = _filtered(part - middle, sigma)
            bands.append(self._cut(band))
            highest.append(self._cut(band == ndimage.maximum_filter(band, 3)))
            lowest.append(self._cut(band == ndimage.minimum_filter(band, 3)))
            levels.append(np.median(self._cut(base), axis=(1, 2)) + middle)
        #: Pixels of each area.
        self.pixels = np.concatenate([self._cut(part) for part in parts])
        #: Brightness and variance of each.
        self.level = np.concatenate(levels)
        found = np.concatenate(bands)
        deviation = np.array([clipped_deviation(own) for own in found])
        self.variance = deviation**2
        #: The band in deviations of its area, and which pixels are maxima, and minima.
        with np.errstate(divide="ignore", invalid="ignore"):
            self.ratio = found / deviation[:, np.newaxis, np.newaxis]
        known = (self.ratio != 0) & np.isfinite(self.ratio)
        self.highest = np.concatenate(highest) & known
        self.lowest = np.concatenate(lowest) & known

    def _cut(self, values: NDArray[Any]) -> NDArray[Any]:
        rows, columns = (size // self._side for size in values.shape)
        side = self._side
        whole = values[: rows * side, : columns * side].reshape(rows, side, columns, side)
        areas: NDArray[Any] = whole.swapaxes(1, 2).reshape(rows * columns, side, side)
        return areas

    def noise(self, share: float = USUAL_SHARE) -> BandNoise | None:
        """Return the noise; None where there is nothing to measure.

        ``share`` is the part of a set's areas that is calmer than what is taken for all of them.
        """
        usable = self.variance > 0
        highs, lows = self.ratio[self.highest], -self.ratio[self.lowest]
        if not usable.any() or min(len(highs), len(lows)) < _LEAST_MAXIMA:
            return None
        levels, variances = _by_brightness(self.level[usable], self.variance[usable], share)
        lowest = (float(np.quantile(highs, _LOW)), float(np.quantile(lows, _LOW)))
        low = float(np.quantile(highs, _QUANTILES[0])) / _OF_WHITE[0]
        return BandNoise(levels, variances, lowest, low, _tail(highs), _tail(lows))

    def coherence(self) -> float:
        """Return how far the band differs along one direction only, in most areas: 0 to 1."""
        band = np.clip(self.ratio, -_MOST_COHERENT, _MOST_COHERENT)  # spots do not count for more
        along_y = (band[:, 1:] - band[:, :-1])[:, :, 1:]
        along_x = (band[:, :, 1:] - band[:, :, :-1])[:, 1:]
        yy, xx, yx = (
            np.nansum(a * b, axis=(1, 2))
            for a, b in ((along_y, along_y), (along_x, along_x), (along_y, along_x))
        )
        total = yy + xx
        known = np.isfinite(total) & (total > 0)
        if not known.any():
            return 0.0
        return float(np.median(np.hypot(yy - xx, 2 * yx)[known] / total[known]))

    def contrast(self) -> tuple[float, float]:
        """Return how much deeper low minima are than maxima; high maxima over minima.

        In areas whose highest maximum is most like their deepest minimum: there is least light.
        Without either, that is 0 and 1.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            unlike = abs(np.log(self.ratio.max((1, 2)) / -self.ratio.min((1, 2))))
        usable = np.flatnonzero(np.isfinite(unlike))
        ordered = usable[np.argsort(unlike[usable], kind="stable")]
        own = ordered[: max(int(np.ceil(_MOST_ALIKE * len(ordered))), _LEAST_ALIKE)]
        heights = self.ratio[own][self.highest[own]]
        depths = -self.ratio[own][self.lowest[own]]
        if not (len(heights) and len(depths)):
            return 0.0, 1.0
        (low, high), (shallow, deep) = (np.quantile(each, _COMPARED) for each in (heights, depths))
        return float(shallow - low), float(high / deep)


def _tail(heights: Numbers) -> float:
    """Return how many times as high as those of white noise high maxima are.

    The ratio rises with height, and spots are among the highest: so it is continued.
    """
    _, middle, high = np.quantile(heights, _QUANTILES) / _OF_WHITE
    return float(high * max(high / max(middle, _OF_NOISE), 1.0))


def band_noise(parts: list[NDArray[np.float64]], sigma: float) -> BandNoise | None:
    """Return the noise in the band of spots of a width; None where there is nothing to measure.

    Parameters
    ----------
    parts : list of ndarray
        Parts of frames; NaN where pixels are bad.
    sigma : float
        The PSF's width in pixels.

    Examples
    --------
    >>> white = np.random.default_rng(1).normal(50.0, 4.0, (256, 256))
    >>> found = band_noise([white], 1.3)
    >>> found.is_noise, bool(abs(found.variance / 16 - 1).max() < 0.1)
    (True, True)
    """
    return BandAreas(parts, sigma).noise()


def _filtered(part: NDArray[np.float64], sigma: float) -> tuple[Numbers, Numbers]:
    """Return the band, over the deviation that white noise of 1 has there, and what is around."""
    from scipy import ndimage  # takes longer to import than a few fits

    good = np.isfinite(part)
    clean = np.where(good, part, 0.0)
    weights = None if good.all() else good.astype(np.float64)

    def smooth(width: float) -> NDArray[Any]:
        way = {"mode": "mirror", "truncate": TRUNCATE}
        own: NDArray[Any] = ndimage.gaussian_filter(clean, width * sigma, **way)
        if weights is None:
            return own
        share = ndimage.gaussian_filter(weights, width * sigma, **way)
        return np.where(share > _LEAST_GOOD, own / np.maximum(share, _LEAST_GOOD), 0)

    inner, outer = (smooth(width) for width in WIDTHS[1:])
    gain = make_bands(sigma, (part.shape[0], part.shape[1])).bands[0].gain
    band = (inner - outer) / gain
    return np.where(good, band, 0), outer


def _by_brightness(level: Numbers, variance: Numbers, share: float) -> tuple[Numbers, Numbers]:
    """Return brightness and variance of sets of areas, from dark to bright."""
    ordered = np.argsort(level, kind="stable")
    sets = min(max(len(level) // _LEAST_TOGETHER, 1), _MOST_SETS)
    parts = np.array_split(ordered, sets)
    levels = np.array([np.median(level[own]) for own in parts])
    low, high = np.quantile(level, (_AWAY, 1 - _AWAY))
    if high - low < np.sqrt(np.median(variance)):  # all are alike
        return levels, np.full(sets, np.quantile(variance, share))
    return levels, np.array([np.quantile(variance[own], share) for own in parts])
