"""Find how fast noise grows with light by the sums of squares that fits of spots leave."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .noise_line import median, quantiles

Numbers = NDArray[np.float64]

#: Spots that count, at least; and how many photo-electrons the brightest pixel of each has. Sparse
#: ones draw the fit.
LEAST_SPOTS, LEAST_ELECTRONS = 5, 5.0
#: A spot's shape may be off by this fraction of its height, so that bright ones count for less.
SHAPE_OFF = 0.02
#: Standard deviations within which spots count, and rounds in which these are found.
_FAR, _ROUNDS = 3.0, 4
#: The scatter of sums of squares in standard deviations of noise, least and most, or there is more
#: than noise in them; and the quantiles that lie one deviation from the middle.
_AS_NOISE, _MIDDLE = (0.3, 1.25), (0.16, 0.84)
#: How far the noise below spots may be off, as a fraction; that of one block; and as a fraction of
#: the noise of light that lies between spots.
_LEVEL_OFF, _OF_BLOCK, _OF_LIGHT_BETWEEN = 0.003, 0.6, 0.15
#: Below spots it is darker than elsewhere: noise there is no less than none, within this factor;
#: and how far brightness may be off, as a fraction of the spots' height.
_MOST_BELOW, _OF_HEIGHT = 1.25, 0.01
#: The largest relative error of a slope that counts by itself.
_WORST = 0.5
#: By how much squares of few numbers are too small in standard errors: where they have ν degrees of
#: freedom, by 1 + 2/ν, and this is the least ν that counts.
_LEAST_DEGREES = 6.0
_ROOT = math.sqrt(2)


class Squares(NamedTuple):
    """Sums of squares that fits leave, less those of the noise below the spots."""

    found: Numbers
    #: What a slope of 1 adds to each, in all, and by the light of its spot.
    rise: Numbers
    own: Numbers
    #: The number of squares, the variance of each below the spot, and the sum of the squares of the
    #: spot's own counts.
    degrees: Numbers
    dark: float
    overlap: Numbers
    height: Numbers


class Slope(NamedTuple):
    """How fast noise grows with light, in counts² per count."""

    value: float
    #: Its standard error, the part of it that is chance, and how much of it may be spots' shape.
    error: float
    chance: float
    shape: float

    @property
    def value_if_sure(self) -> float:
        """The slope; 0 if its error is larger than a part of it."""
        return self.value if self.error < _WORST * self.value else 0.0


NO_SLOPE = Slope(0.0, math.inf, 0.0, 0.0)


def slope_of(all_squares: Squares, blocks: int, shape_off: float = SHAPE_OFF) -> Slope:
    """Return the slope that explains most sums of squares.

    Parameters
    ----------
    all_squares : Squares
        Those of fits.
    blocks : int
        In how many blocks the noise below the spots was measured.
    shape_off : float
        The fraction of its height by which a spot's shape may be off.
    """
    usable = (all_squares.rise > 0) & (all_squares.height > 0)
    for _ in range(2):
        own = _chosen(all_squares, usable)
        if len(own.found) < LEAST_SPOTS:
            return NO_SLOPE
        slope = max(median(own.found / own.rise), 0.0)
        usable &= all_squares.height > LEAST_ELECTRONS * slope
    return _weighted(own, slope, blocks, shape_off)


def _chosen(squares: Squares, rows: NDArray[np.bool_]) -> Squares:
    return Squares(
        **{name: own if name == "dark" else own[rows] for name, own in squares._asdict().items()}
    )


def _weighted(own: Squares, slope: float, blocks: int, shape_off: float) -> Slope:
    for _ in range(_ROUNDS):
        variance = _variance(own, slope)
        total = variance + np.square(shape_off**2 * own.overlap)
        away = own.found - slope * own.rise
        counts = (abs(away) < _FAR * np.sqrt(total)).astype(np.float64)
        weight = counts / total
        information = float(np.sum(weight * own.rise * own.rise))
        if not 0 < information < math.inf:
            return NO_SLOPE
        slope = max(float(np.sum(weight * own.found * own.rise)) / information, 0.0)
    away = own.found - slope * own.rise
    low, high = quantiles(away / np.sqrt(variance), *_MIDDLE)
    lower = -median((own.rise - own.own) / own.degrees + _OF_HEIGHT * own.height)
    if own.dark and slope * lower > _MOST_BELOW * own.dark:
        return NO_SLOPE  # there would be less than no noise below spots
    if not _AS_NOISE[0] < (high - low) / 2 < _AS_NOISE[1] or counts.sum() < LEAST_SPOTS:
        return NO_SLOPE
    lever = weight * own.rise / information
    chance = 1 / math.sqrt(information)
    level_off = math.hypot(_LEVEL_OFF, _OF_BLOCK / math.sqrt(max(blocks, 1)))
    of_level = level_off * own.dark * float(np.sum(lever * own.degrees))
    between = _OF_LIGHT_BETWEEN * slope * float(np.sum(lever * abs(own.rise - own.own)))
    of_shape = shape_off**2 * float(np.sum(lever * own.overlap))
    return Slope(slope, math.hypot(chance, of_level, between), chance, of_shape)


def slope_of_few(own: Squares, least: float = 0.0, shape_off: float = 0.0) -> Slope:
    """Return what one spot says, or a few do.

    It is the mean of all slopes from 0 on that explain the squares, and a little more, as standard
    errors that go by few numbers scatter as Student's t does.

    Parameters
    ----------
    own : Squares
        Those of fits.
    least : float
        The slope for which the error is given.
    shape_off : float
        The fraction of its height by which a spot's shape may be off.
    """
    slope = max(float(np.sum(own.found)) / float(np.sum(own.rise)), 0.0)
    found, information = slope, 0.0
    for _ in range(_ROUNDS):
        weight = own.rise / _variance(own, slope)
        information = float(np.sum(weight * own.rise))
        if not 0 < information < math.inf:
            return NO_SLOPE
        found = float(np.sum(weight * own.found)) / information
        slope = max(found, 0.0)
    chance = 1 / math.sqrt(information)
    away = found / chance
    density, below = math.exp(-(away**2) / 2) / math.sqrt(2 * math.pi), math.erfc(-away / _ROOT) / 2
    mean = found + chance * density / below if below > 0 else chance
    shape = np.square(shape_off**2 * own.overlap)
    information = float(np.sum(own.rise * own.rise / (_variance(own, least) + shape)))
    more = 1 + 2 / max(2 * away**2, _LEAST_DEGREES)
    return Slope(more * mean, 1 / math.sqrt(information), chance, 0.0)


def _variance(own: Squares, slope: float) -> Numbers:
    """Return the variance of sums of squares, of noise with the tails of photons."""
    below = np.maximum(own.dark + slope * (own.rise - own.own) / own.degrees, 0.1 * own.dark)
    light = slope * own.own
    squares = own.degrees * below**2 + 2 * below * light + slope**2 * own.overlap
    variance: Numbers = 2 * squares + slope**2 * (own.degrees * below + light)
    return variance


@lru_cache(maxsize=64)
def light_left(
    sigma: float, roi_shape: tuple[int, ...], model: str = "gaussian"
) -> tuple[float, float]:
    """Return which share of the noise of a spot's own light a fit leaves in the residual.

    And the sum of the squares of the spot's counts, over its height and its light. A fit of a
    spot that may be elongated leaves less.

    Examples
    --------
    >>> left, overlap = light_left(1.3, (9, 9))
    >>> 0.7 < left < 0.9, round(overlap, 2)
    (True, 0.5)
    """
    profile, slopes = _derivatives(sigma, roi_shape, model)
    basis, _ = np.linalg.qr(slopes)
    leverage = (basis**2).sum(axis=1)
    light = float(np.sum(profile))
    return float(np.sum(profile * (1 - leverage))) / light, float(np.sum(profile**2)) / light


def _derivatives(
    sigma: float, roi_shape: tuple[int, ...], model: str = "gaussian"
) -> tuple[Numbers, Numbers]:
    """Return a spot of height 1, and its derivatives by the parameters of a fit."""
    rows, columns = roi_shape
    y, x = np.indices(roi_shape) - np.array([(rows - 1) / 2, (columns - 1) / 2])[:, None, None]
    profile = np.exp(-(y**2 + x**2) / (2 * sigma**2)).ravel()
    y, x = y.ravel(), x.ravel()
    squares = [y**2 + x**2] if model == "gaussian" else [y**2, x**2]
    squares += [y * x] if model == "gaussian_rotated" else []
    slopes = [profile, np.ones(rows * columns), profile * y, profile * x]
    slopes += [profile * square for square in squares]
    return profile, np.stack(slopes, axis=1)


#: Heights of spots over what is below them between which deviances are known, and how many.
_HEIGHTS = np.geomspace(1e-3, 1e4, 57)


class DevianceParts(NamedTuple):
    """The expected deviance of a fit: of what is below the spot, and of its own light."""

    below: Numbers
    own: Numbers


@lru_cache(maxsize=16)
def _deviance_table(sigma: float, roi_shape: tuple[int, ...]) -> DevianceParts:
    profile, slopes = _derivatives(sigma, roi_shape)
    parts = []
    for height in _HEIGHTS:
        light = height * profile
        basis, _ = np.linalg.qr(slopes / np.sqrt(1 + light)[:, None])
        left = 1 - (basis**2).sum(axis=1)
        parts.append((float(np.sum(left / (1 + light))), float(np.sum(left * light / (1 + light)))))
    return DevianceParts(*np.array(parts).T)


def deviance_parts(sigma: float, roi_shape: tuple[int, ...], height: Numbers) -> DevianceParts:
    """Return what deviances of fits by maximum likelihood are of, where the camera is as given.

    Parameters
    ----------
    sigma : float
        The spots' width in pixels.
    roi_shape : tuple of int
        Rows and columns of the ROI.
    height : ndarray
        That of each spot over the variance below it, both in photo-electrons.

    Examples
    --------
    >>> below, own = deviance_parts(1.3, (9, 9), np.array([1e-3, 10.0]))
    >>> np.round(below + own).tolist(), bool(own[1] > 20)
    ([76.0, 76.0], True)
    """
    table = _deviance_table(sigma, roi_shape)
    at = np.log(np.clip(height, _HEIGHTS[0], _HEIGHTS[-1]))
    return DevianceParts(*(np.interp(at, np.log(_HEIGHTS), values) for values in table))
