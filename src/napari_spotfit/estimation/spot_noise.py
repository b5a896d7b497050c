"""Measure how fast noise grows with light by what fits of bright spots leave in their residuals.

A flat image has no light and shade, and the skewness of its noise is that of the background: where
read-out noise hides the light there, it says little of the noise of spots. Their residuals have it.
In crowds neighbours are in the residuals, too, and brightness between spots is unknown: errors say
how little fits show then, and where residuals do not scatter as noise does, they do not count.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.reading import evenly_spread
from ..settings.noise_model import NoiseModel, Process
from ..settings.settings import Settings
from ..settings.validation import ROI_MIN
from .bright_fits import BrightFits, bright_fits, dark_variance, squares_of
from .measured_noise import Measured
from .noise_line import is_usable, line_through, median
from .photon_transfer import MOST_SCATTER, fine_detail, slope_by_columns
from .pixel_values import usual_is_lowest
from .residual_slope import (
    LEAST_SPOTS,
    NO_SLOPE,
    SHAPE_OFF,
    Slope,
    Squares,
    slope_of,
    slope_of_few,
)

Numbers = NDArray[np.float64]

#: Spots are looked for in this many pixels, and in more where chance limits the slope, or as long
#: as it is off by more than this fraction.
_PIXELS, _PRECISE = (1 << 18, 1 << 20), 0.1
#: Of slopes that do not count by themselves, this many errors limit what skewness says.
_LIMIT = 2.0
#: A few spots count if they show more than skewness by this many errors. In images of this many
#: blocks skewness is known better than the shape of spots.
_SURELY_MORE, _MANY_BLOCKS = 2.0, 32
#: The least share of the finest detail in all of the residual, of photons and of white noise; and
#: the variance, in squared steps of values, below which noise is rounding.
_RAW, _WHITE, _STEPS = 0.5, 1.0, 0.25
#: Between bare spots noise is this many times the mean square of the calmest squares of this side,
#: at this quantile, or as that of this many photons at least.
_OF_CALM, _SIDE, _CALM, _FEW_PHOTONS = 4.0, 8, 0.05, 0.05
#: By how many times its error the line of blocks is off; where the slope of spots differs by so
#: many errors, it counts if it is less, and known to within this fraction.
_LINE_OFF, _DIFFERS, _SURE = 1.5, 3.0, 0.1

#: Light is uneven in blocks whose columns differ this many times as much as by noise; from this
#: part on of what determines a slope it is nearly all.
_UNEVEN, _NEARLY_ALL = 8.0, 0.9
#: Two slopes are the same that differ by fewer errors, where these are less than this fraction.
#: That by skewness is the same within this factor.
_SAME, _SURELY_SAME, _NEARLY = 2.0, 0.15, 2.0


def between_is_no_noise(noise: NoiseModel) -> bool:
    """Whether there is no noise between spots, or it was cut off."""
    return not noise.blocks or noise.process == Process.CUT


def with_noise_of_spots(noise: NoiseModel, measured: Measured, settings: Settings) -> NoiseModel:
    """Return a noise model that grows with light as the residuals of spots say.

    Parameters
    ----------
    noise : NoiseModel
        That of blocks of the frames.
    measured : Measured
        The frames, and what was measured in their blocks.
    settings : Settings
        Those of corrected frames; ``sigma`` and ``threads`` count.
    """
    recorded, frames = measured.recorded, measured.frames
    if frames.shape[1:] != recorded.shape[1:] or min(frames.shape[1:]) <= ROI_MIN:
        return noise
    if recorded.dtype.kind == "f":
        recorded = recorded[np.isfinite(recorded).any(axis=(1, 2))]
    if not noise.is_known or not recorded.size or noise.process == Process.LEVELLED:
        return noise
    is_bare = between_is_no_noise(noise)
    is_smooth = not noise.blocks and noise.process == Process.FILTERED
    if not is_smooth and (is_bare or usual_is_lowest(recorded[0])):
        usual = float(np.nanmin(recorded) if noise.blocks else np.nanmedian(recorded[0]))
        bare = _of_bare_spots(noise, recorded, usual, measured.step, settings)
        if bare is not None:
            return bare
    if is_bare or noise.process:
        return noise
    level, white = measured.level, replace(noise, correlation=1.0)
    if _differ_by_spots(measured, noise):
        white = replace(white, slope_error=None)
    for pixels in _PIXELS:
        part = _part(frames, pixels)
        fits = bright_fits(part, settings, noise, level)
        squares = squares_of(fits, level, dark_variance(noise, level))
        slope = slope_of(squares, noise.blocks)
        wanted = max(_PRECISE * slope.value, slope.error / 2)
        if slope.chance < wanted < math.inf or part.size >= frames.size:
            break
    if noise.correlation > 1:
        is_rounding = dark_variance(noise, level) < _STEPS * measured.step**2
        is_white = not is_rounding and fits.finest_detail(measured.step) > _WHITE
        if is_white or (_is_same(white, slope) and not noise.is_filtered):
            noise = as_white(noise)
        elif noise.is_filtered:
            return noise
        else:
            slope = slope_of(_with_correlation(squares, noise.correlation), noise.blocks)
    if white.slope_error is None and _is_contradicted(measured, noise, slope):
        slope = NO_SLOPE
    steep = _agreed(white, slope)
    spots, count = np.count_nonzero(fits.usable), len(fits.usable)
    if white.slope_error is None and 0 < spots < LEAST_SPOTS and 2 * spots >= count:
        steep = _of_few(fits, squares, steep, noise.blocks, measured.step)
    return replace(noise, slope=steep, intercept=dark_variance(noise, level) - steep * level)


def _of_bare_spots(
    noise: NoiseModel, frames: NDArray[Any], level: float, step: float, settings: Settings
) -> NoiseModel | None:
    """Return the noise of spots between which most pixels have the lowest value; None if filtered.

    Photons leave residuals that are as strong in the finest detail as elsewhere, filtered ones do
    not. Where half of the noise is left between spots, there was twice as much.
    """
    part = _part(frames, _PIXELS[-1])
    fits = bright_fits(part, settings, None, level)
    slope = slope_of(squares_of(fits, level, 0.0), blocks=0).value_if_sure
    if not slope or fits.finest_detail(step) < _RAW:
        return None
    least = float(noise.variance(level))
    if noise.is_filtered or not noise.blocks:
        calm = _OF_CALM * _calm_square(part - level)
        least = min(least, max(calm, _FEW_PHOTONS * slope**2, step**2 / 12))
        noise = as_white(replace(noise, slope_error=None))
    return replace(noise, slope=slope, intercept=least - slope * level, least=least)


def as_white(noise: NoiseModel) -> NoiseModel:
    """Return noise of pixels that are independent; what seemed to be a filter are the spots."""
    process = noise.process if noise.process == Process.THRESHOLDED else Process.NONE
    uneven = 1.0 if noise.is_filtered else noise.uneven
    return replace(noise, correlation=1.0, blur=0.0, unfiltered=1.0, uneven=uneven, process=process)


def _calm_square(frames: Numbers) -> float:
    """Return the mean square of what lies in calm squares of frames."""
    rows, columns = (size // _SIDE * _SIDE for size in frames.shape[1:])
    blocks = frames[:, :rows, :columns].reshape(-1, rows // _SIDE, _SIDE, columns // _SIDE, _SIDE)
    known = np.isfinite(blocks)
    count = known.sum(axis=(2, 4))
    squares = np.where(known, np.square(blocks), 0).sum(axis=(2, 4))[count > 0] / count[count > 0]
    return float(np.quantile(squares, _CALM)) if len(squares) else math.nan


def _of_few(fits: BrightFits, squares: Squares, slope: float, blocks: int, step: float) -> float:
    """Return the slope where there are few spots: it is skewness's, unless they show more.

    Read-out noise makes counts less skewed than light is noisy.
    """
    few = slope_of_few(squares, slope, SHAPE_OFF if blocks >= _MANY_BLOCKS else 0.0)
    value = few.value * fits.share_of_noise(step)
    return value if value > slope + _SURELY_MORE * few.error else slope


def _is_same(noise: NoiseModel, slope: Slope) -> bool:
    """Whether blocks and spots have one slope, surely or, by skewness, nearly so."""
    if noise.slope_error is None:
        return noise.slope / _NEARLY < slope.value < noise.slope * _NEARLY
    off = math.hypot(noise.slope_error, slope.error, slope.shape)
    return abs(slope.value - noise.slope) < _SAME * off and off < _SURELY_SAME * noise.slope


def _differ_by_spots(measured: Measured, noise: NoiseModel) -> bool:
    """Whether blocks differ in brightness by spots alone, and scatter more than by chance.

    Where light is in few pixels, noise of most blocks is less than its mean, and the line too flat.
    """
    own = measured.blocks[is_usable(measured.blocks)]
    weight = noise.variance(own["mean"]) ** -2.0
    lever = weight * np.square(own["mean"] - np.average(own["mean"], weights=weight))
    uneven = own["spread"] > _UNEVEN * noise.variance(own["mean"])
    if not np.sum(lever[uneven]) > _NEARLY_ALL * np.sum(lever):
        return False
    return fine_detail(measured.blocks, noise, measured.step).scatter > MOST_SCATTER


def _is_contradicted(measured: Measured, noise: NoiseModel, slope: Slope) -> bool:
    """Whether blocks show that light is less noisy than residuals say, however unsure they are.

    Where most spots are too dim to be looked at, those that are bright enough are mostly two.
    """
    own = measured.blocks[is_usable(measured.blocks)]
    if slope.value > slope_by_columns(own)[2]:
        return True
    skewness = max(median(own["cube"]), 0.0) / median(own["both"])
    line = line_through(measured.blocks, skewness)
    if line is None or not line.error < math.inf or _differ_by_spots(measured, noise):
        return False
    off = math.hypot(_LINE_OFF * line.error, slope.error, slope.shape)
    return slope.value - line.slope > _DIFFERS * off


def _with_correlation(squares: Squares, correlation: float) -> Squares:
    """Return sums of squares over those of noise that fits see stronger by `correlation`."""
    below = squares.degrees * squares.dark
    return squares._replace(found=(squares.found + below) / correlation**2 - below)


def _agreed(noise: NoiseModel, slope: Slope) -> float:
    """Return the slope that blocks and spots agree on, or the surer one."""
    if not slope.error < math.inf:
        return noise.slope
    if noise.slope_error is None:
        if slope.value_if_sure:
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
