"""Measure how fast noise grows with light by what fits of bright spots leave in their residuals.

A flat image has no light and shade, and the skewness of its noise is that of the background: where
read-out noise hides the light there, it says little of the noise of spots. Their residuals have it.
In crowds neighbours are in the residuals, too, and brightness between spots is unknown: errors say
how little fits show then, and where residuals do not scatter as noise does, they do not count.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.block import Block, Positions
from ..engine.fit_job import FitJob
from ..engine.groups import link_positions
from ..engine.quality.flags import NOT_GOOD, Flag
from ..engine.select import select_backend
from ..images.pixel_calibration import PixelCalibration
from ..images.reading import evenly_spread
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from ..settings.validation import ROI_MIN
from .measured_noise import Measured
from .quantiles import median, quantiles
from .width_search import roi_for

Numbers = NDArray[np.float64]

#: Spots are looked for in this many pixels, and in more where chance limits the slope, or as long
#: as it is off by more than this fraction.
_PIXELS, _PRECISE = (1 << 18, 1 << 20), 0.1
#: Spots that count, at least; and how many photo-electrons the brightest pixel of each has. Sparse
#: ones draw the fit.
_LEAST_SPOTS, _LEAST_ELECTRONS = 5, 5.0
#: What speaks against a spot. A poor fit is one by the noise that is asked for.
_DOUBTFUL = (NOT_GOOD & ~Flag.POOR_FIT) | Flag.EDGE
#: Least height of spots in deviations of a pixel; most bright pixels that are looked at.
_BRIGHT, _MOST_BRIGHT = 6.0, 1 << 15
#: How many σ the light of a spot reaches: that of a neighbour must not reach the ROI.
_REACH = 3.0
#: A spot's shape may be off by so much of its height, so that bright ones count for less.
_SHAPE = 0.02
#: Standard deviations within which spots count, and rounds in which these are found.
_FAR, _ROUNDS = 3.0, 4
#: The usual σ, in pixels.
_WIDTH = 1.3
#: Sums of squares scatter by so many of the standard deviations of noise, or there is more in them.
_AS_NOISE, _MIDDLE = (0.6, 1.6), (0.16, 0.84)
#: How far the noise below spots may be off, as a fraction; that of one block; and as a fraction of
#: the noise of light that lies between spots.
_LEVEL_OFF, _OF_BLOCK, _OF_LIGHT_BETWEEN = 0.003, 0.6, 0.15
#: Below spots it is darker than elsewhere: noise there is no less than none, within this factor;
#: and how far brightness may be off, in deviations of a pixel.
_MOST_BELOW, _OF_LEVEL = 1.25, 0.1
#: A slope counts whose error is no larger a fraction; elsewhere so many errors limit what skewness
#: says.
_WORST, _LIMIT = 0.5, 2.0
#: By how many times its error the line of blocks is off; where the slope of spots differs by so
#: many errors, it counts if it is less, and known to within this fraction.
_LINE_OFF, _DIFFERS, _SURE = 1.5, 3.0, 0.1

#: Two slopes are the same that differ by fewer errors, where these are less than this fraction.
#: That by skewness is the same within this factor.
_SAME, _SURELY_SAME, _NEARLY = 2.0, 0.15, 2.0


class _Squares(NamedTuple):
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


class _Slope(NamedTuple):
    value: float
    #: Its standard error, the part of it that is chance, and how much of it may be spots' shape.
    error: float
    chance: float
    shape: float


_NONE = _Slope(0.0, math.inf, 0.0, 0.0)


def with_noise_of_spots(noise: NoiseModel, measured: Measured, settings: Settings) -> NoiseModel:
    """Return a noise model that grows with light as the residuals of spots say.

    Parameters
    ----------
    noise : NoiseModel
        That of blocks of the frames.
    measured : Measured
        The frames, and what was measured in their blocks.
    settings : Settings
        Those of corrected frames; ``sigma``, ``pixel`` and ``threads`` count.
    """
    frames = measured.frames if noise.blocks else measured.recorded
    if frames.shape[1:] != measured.recorded.shape[1:] or min(frames.shape[1:]) <= ROI_MIN:
        return noise
    if not noise.is_known or noise.is_filtered:
        return noise
    level = measured.level if noise.blocks else float(np.nanmedian(frames[0]))
    for pixels in _PIXELS:
        part = _part(frames, pixels)
        squares = _squares(part, settings, noise, level)
        white = replace(noise, correlation=1.0)
        slope = _slope_of(squares, white)
        wanted = max(_PRECISE * slope.value, slope.error / 2)
        if slope.chance < wanted < math.inf or part.size >= frames.size:
            break
    if noise.correlation > 1:
        if _is_same(white, slope):
            noise = white  # what is coarser than white noise are spots
        else:
            slope = _slope_of(_with_correlation(squares, noise.correlation), noise)
    steep = _agreed(noise, slope)
    return replace(noise, slope=steep, intercept=_dark(noise, level) - steep * level)


def _is_same(noise: NoiseModel, slope: _Slope) -> bool:
    """Whether blocks and spots have one slope, surely or, by skewness, nearly so."""
    if noise.slope_error is None:
        return noise.slope / _NEARLY < slope.value < noise.slope * _NEARLY
    off = math.hypot(noise.slope_error, slope.error, slope.shape)
    return abs(slope.value - noise.slope) < _SAME * off and off < _SURELY_SAME * noise.slope


def _with_correlation(squares: _Squares, correlation: float) -> _Squares:
    """Return sums of squares over those of noise that fits see stronger by `correlation`."""
    below = squares.degrees * squares.dark
    return squares._replace(found=(squares.found + below) / correlation**2 - below)


def _agreed(noise: NoiseModel, slope: _Slope) -> float:
    """Return the slope that blocks and spots agree on, or the surer one."""
    if not slope.error < math.inf:
        return noise.slope
    if noise.slope_error is None:
        if slope.error < _WORST * slope.value:
            return slope.value
        off = _LIMIT * slope.error
        return min(max(noise.slope, slope.value - off, 0.0), slope.value + off)
    # Neighbours and another shape than the model's leave more than noise, nothing leaves less.
    is_less = slope.value < noise.slope
    error = slope.error if is_less else math.hypot(slope.error, slope.shape)
    off = _LINE_OFF * noise.slope_error
    if abs(slope.value - noise.slope) > _DIFFERS * math.hypot(off, error):
        return slope.value if is_less and error < _SURE * slope.value else noise.slope
    weights = error**-2, off**-2
    return (weights[0] * slope.value + weights[1] * noise.slope) / sum(weights)


def _part(frames: NDArray[Any], pixels: int) -> NDArray[Any]:
    """Return some frames, or the middle of one, with about `pixels` pixels."""
    count, rows, columns = frames.shape
    if frames.size < 2 * pixels:
        return frames
    if rows * columns <= pixels:
        return frames[evenly_spread(min(pixels // (rows * columns), count), count)]
    height = min(max(math.isqrt(pixels), pixels // columns), rows)
    width = min(pixels // height, columns)
    y, x = (rows - height) // 2, (columns - width) // 2
    middle = count // 2
    return np.ascontiguousarray(frames[middle : middle + 1, y : y + height, x : x + width])


def _dark(noise: NoiseModel, level: float) -> float:
    """Return the variance at a brightness; 0 where the image has constant areas between spots."""
    return max(noise.slope * level + noise.intercept, noise.least) if noise.blocks else 0.0


def _squares(frames: NDArray[Any], settings: Settings, noise: NoiseModel, level: float) -> _Squares:
    """Return what fits of the spots in frames leave."""
    shape, sigma = (frames.shape[1], frames.shape[2]), _usual_width(settings.known_sigma)
    own = Settings(
        sigma=sigma, roi_size=roi_for(sigma, shape),
        pixel=settings.pixel, noise=noise, threads=settings.threads, backend="cpu",
    )  # fmt: skip
    calibration = PixelCalibration(frames.shape, own)
    dark = _dark(noise, level)
    height = max(_BRIGHT * math.sqrt(dark), _LEAST_ELECTRONS * noise.slope)
    positions, alone = _bright_spots(frames, level + height, own)
    fits = select_backend(own).fit(
        FitJob.of(calibration, frames.dtype),
        Block.of(calibration, np.arange(len(frames)), frames),
        positions,
    )
    names = ("chi_square", "reduced_chi_square", "photons", "amplitude", "background")
    with np.errstate(invalid="ignore", divide="ignore"):
        usable = (fits["flags"] & int(_DOUBTFUL)) == 0
        usable &= alone & (fits["reduced_chi_square"] > 0)
        chi_square, reduced, light, height, below = (
            fits[name][usable].astype(np.float64) for name in names
        )
    left, overlap = light_left(own.known_sigma, own.roi_shape)
    degrees = chi_square / reduced
    return _Squares(
        chi_square - degrees * dark,
        left * light + degrees * (below - level), left * light, degrees, dark,
        overlap * height * light, height,
    )  # fmt: skip


def _usual_width(sigma: float) -> float:
    """Return the nearest of a few widths: σ as given or as estimated then has the same noise."""
    return float(np.clip(_WIDTH * 2 ** (round(4 * math.log2(sigma / _WIDTH)) / 4), 0.5, 10))


def _bright_spots(
    frames: NDArray[Any], least: float, settings: Settings
) -> tuple[Positions, NDArray[np.bool_]]:
    """Return the highest pixels of what is brighter than a value, and which stand alone."""
    rows, columns = frames.shape[1:]
    if frames.dtype.kind in "iu":
        ends = np.iinfo(frames.dtype)
        least = frames.dtype.type(min(max(math.floor(least), ends.min), ends.max))
    flat = frames.reshape(-1)
    at = np.flatnonzero(flat > least)[:_MOST_BRIGHT]
    y, x = at // columns % rows, at % columns
    at = at[(y > 0) & (y < rows - 1) & (x > 0) & (x < columns - 1)]
    for beside in (1, columns - 1, columns, columns + 1):
        at = at[(flat[at] > flat[at - beside]) & (flat[at] >= flat[at + beside])]
    # Noise makes several maxima of wide spots.
    of_one = link_positions(_positions(at, frames.shape), 2 * settings.known_sigma, (rows, columns))
    order = np.lexsort((-flat[at].astype(np.float64), of_one))
    first = np.ones(len(at), bool)
    first[1:] = np.diff(of_one[order]) > 0
    found = _positions(np.sort(at[order[first]]), frames.shape)
    reach = np.array(settings.roi_shape) / 2 + _REACH * settings.known_sigma
    group = link_positions(found, reach, (rows, columns))
    return found, np.bincount(group)[group] == 1


def _positions(at: NDArray[np.int64], shape: tuple[int, ...]) -> Positions:
    frame, y, x = np.unravel_index(at, shape)
    return Positions(np.column_stack([y, x]).astype(np.float64), frame)


def _slope_of(all_squares: _Squares, noise: NoiseModel) -> _Slope:
    """Return the slope that explains most sums of squares."""
    usable = (all_squares.rise > 0) & (all_squares.height > 0)
    slope = noise.slope
    for _ in range(2):
        own = _chosen(all_squares, usable)
        if len(own.found) < _LEAST_SPOTS:
            return _NONE
        slope = max(median(own.found / own.rise), 0.0)
        usable &= all_squares.height > _LEAST_ELECTRONS * slope
    return _weighted(own, slope, noise.blocks)


def _chosen(squares: _Squares, rows: NDArray[np.bool_]) -> _Squares:
    return _Squares(
        **{name: own if name == "dark" else own[rows] for name, own in squares._asdict().items()}
    )


def _weighted(own: _Squares, slope: float, blocks: int) -> _Slope:
    counts = np.ones(len(own.found))
    for _ in range(_ROUNDS):
        variance = _variance(own, slope)
        total = variance + np.square(_SHAPE**2 * own.overlap)
        weight = counts / total
        information = float(np.sum(weight * own.rise * own.rise))
        if not 0 < information < math.inf:
            return _NONE
        slope = max(float(np.sum(weight * own.found * own.rise)) / information, 0.0)
        away = own.found - slope * own.rise
        counts = (abs(away) < _FAR * np.sqrt(total)).astype(np.float64)
    low, high = quantiles(away / np.sqrt(variance), *_MIDDLE)
    lower = -median((own.rise - own.own) / own.degrees) - _OF_LEVEL * math.sqrt(own.dark)
    if own.dark and slope * lower > _MOST_BELOW * own.dark:
        return _NONE  # there would be less than no noise below spots
    if not _AS_NOISE[0] < (high - low) / 2 < _AS_NOISE[1] or counts.sum() < _LEAST_SPOTS:
        return _NONE
    lever = weight * own.rise / information
    chance = 1 / math.sqrt(information)
    level_off = math.hypot(_LEVEL_OFF, _OF_BLOCK / math.sqrt(max(blocks, 1)))
    of_level = level_off * own.dark * float(np.sum(lever * own.degrees))
    between = _OF_LIGHT_BETWEEN * slope * float(np.sum(lever * abs(own.rise - own.own)))
    of_shape = _SHAPE**2 * float(np.sum(lever * own.overlap))
    return _Slope(slope, math.hypot(chance, of_level, between), chance, of_shape)


def _variance(own: _Squares, slope: float) -> Numbers:
    """Return the variance of sums of squares, of noise with the tails of photons."""
    below = np.maximum(own.dark + slope * (own.rise - own.own) / own.degrees, 0.1 * own.dark)
    light = slope * own.own
    squares = own.degrees * below**2 + 2 * below * light + slope**2 * own.overlap
    variance: Numbers = 2 * squares + slope**2 * (own.degrees * below + light)
    return variance


@lru_cache(maxsize=64)
def light_left(sigma: float, roi_shape: tuple[int, ...]) -> tuple[float, float]:
    """Return which share of the noise of a spot's own light a fit leaves in the residual.

    And the sum of the squares of the spot's counts, over its height and its light.

    Examples
    --------
    >>> left, overlap = light_left(1.3, (9, 9))
    >>> 0.7 < left < 0.9, round(overlap, 2)
    (True, 0.5)
    """
    rows, columns = roi_shape
    y, x = np.indices(roi_shape) - np.array([(rows - 1) / 2, (columns - 1) / 2])[:, None, None]
    profile = np.exp(-(y**2 + x**2) / (2 * sigma**2)).ravel()
    y, x = y.ravel(), x.ravel()
    slopes = np.stack([profile, np.ones(rows * columns), profile * y, profile * x,
                       profile * (y**2 + x**2)], axis=1)  # fmt: skip
    basis, _ = np.linalg.qr(slopes)
    leverage = (basis**2).sum(axis=1)
    light = float(np.sum(profile))
    return float(np.sum(profile * (1 - leverage))) / light, float(np.sum(profile**2)) / light
