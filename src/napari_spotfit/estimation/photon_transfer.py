"""Fit the noise model of an image to the noise of its blocks, and check that one model is enough.

kernels/noise.h defines what is measured in a block: its mean; the mean squares of detail that is
fine along both axes, along x, and along y, which no spot has; the mean cube of its noise; its
lowest pixel; and how much more noise its brighter columns have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..settings.noise_model import FILTERED, SIGNIFICANT, NoiseModel
from .blue_noise import along_over_both
from .noise_by_place import uneven_blocks
from .noise_line import (
    LEAST_LEFT,
    OF_MEAN,
    Line,
    is_usable,
    line_through,
    median,
    medians,
    of_sets,
    quantiles,
)

#: A block's measurements.
BLOCK_NOISE = np.dtype(
    [
        (name, "f8")
        for name in ("mean", "both", "along_x", "along_y", "cube", "lowest", "spread", "rise")
    ]
)
#: The median over blocks of white noise's fine detail, over the mean.
MEDIAN_OVER_MEAN = 0.934
#: How many of its errors the line may be less steep than skewness says, or steeper than it is; and
#: how many errors of the columns count.
_STEEPER, _BEYOND = 2.0, 3.0
#: Columns count in blocks where their brightness differs this many times as much as by noise.
#: Fine detail reaches over several, so that they show no less than this part of the slope; and its
#: standard error, of a block where they differ by as much as the deviation of a pixel.
_UNLIKE, _LEAST_SHOWN, _OF_COLUMNS = 8.0, 0.5, 1.25
#: The variance of rounding to steps of 1, and that less what it may share with other noise.
_OF_STEPS, _ROUNDING = 1 / 12, 1 / 20
#: Where fine detail has less than this beside rounding, in units of that, it does not show what was
#: there before.
_LEAST_BESIDE = 0.15
#: The precision of the numbers that the library calculates with.
_SINGLE = float(np.finfo(np.float32).eps)
#: The standard error of how much stronger white noise looks where it is coarse, of one block; and
#: by how many of them it has to look stronger.
_CHANCE, _BEYOND_CHANCE = 0.72, 2.0
#: Spots of a narrower PSF have fine detail of their own.
LEAST_PSF = 0.95
#: Values in steps of 1 with less variance are mostly rounded.
_ROUNDED = 0.25
#: Detail along one axis is looked at closer where it is less than this part of that along both.
_MAY_BE_LESS = 0.95


class FineDetail(NamedTuple):
    """What the fine detail of an image looks like."""

    #: Variance of detail that is fine along y, and along x, over that of detail fine along both.
    along: tuple[float, float]
    #: By how much the logarithm of a block's detail, over the noise of its brightness, scatters.
    scatter: float
    #: The step between values, 0 if there is none; the darkest pixel that is usual; and the number
    #: of blocks.
    step: float
    lowest: float
    blocks: int
    #: The skewness of the noise, and its usual variance, without that of rounding.
    skewness: float = 0.0
    variance: float = 0.0
    #: The logarithm of the lower of the ratios, block by block, and its standard error.
    lower: tuple[float, float] = (0.0, math.inf)


def detail_along(blocks: NDArray[np.void], step: float) -> tuple[float, float]:
    """Return the variance of detail fine along y, and along x, over that of detail fine along both.

    Where there is none, both are 1, where it is rounding alone, infinite.
    """
    usable = blocks[is_usable(blocks)]
    if not len(usable):
        return 1.0, 1.0
    return _along(usable, step)[0]


def _along(usable: NDArray[np.void], step: float) -> tuple[tuple[float, float], float]:
    """Return the ratios of detail along each axis, and the variance of that along both."""
    both, along_y, along_x = _without_rounding(usable, step)
    return ((along_y / both, along_x / both) if both > 0 else (math.inf, math.inf)), both


def fine_detail(blocks: NDArray[np.void], noise: NoiseModel, step: float) -> FineDetail:
    """Return what the fine detail of an image looks like beside a line of its noise."""
    usable = blocks[is_usable(blocks)]
    if not len(usable):
        return FineDetail((1.0, 1.0), 0.0, step, 0.0, 0)
    lowest = float(usable["lowest"].min())
    along, both = _along(usable, step)
    if not both > 0:
        return FineDetail(along, 0.0, step, lowest, len(usable))
    ratios = _over_line(blocks, noise)
    scatter = _scatter(ratios)
    if scatter > MOST_SCATTER and len(blocks) > 1:
        # Frames may have gains of their own.
        scatter = _scatter(np.concatenate([own / _middle(own) for own in ratios]))
    skewness = median(usable["cube"]) / median(usable["both"]) ** 1.5
    # Most images show at a glance that they have no less of it.
    lower = along_over_both(blocks) if min(along) < _MAY_BE_LESS else (0.0, math.inf)
    return FineDetail(along, scatter, step, lowest, len(usable), skewness, both, lower)


def _scatter(ratios: NDArray[np.float64]) -> float:
    """Return the scatter of the logarithm of positive numbers."""
    ordered = np.sort(ratios, axis=None)
    ordered = ordered[np.searchsorted(ordered, 0.0, "right") :]
    if not len(ordered):
        return 0.0
    below, above = ordered[[int(share * len(ordered)) for share in _BELOW_AND_ABOVE[::2]]]
    return math.log(above / below) / 2


def _middle(ratios: NDArray[np.float64]) -> float:
    """Return the median of positive numbers; 1 if there are none."""
    positive = ratios[ratios > 0]
    return median(positive) if len(positive) else 1.0


def _without_rounding(usable: NDArray[np.void], step: float) -> tuple[float, float, float]:
    """Return detail that is fine along both axes, along y and along x, without that of rounding.

    Where there is little else in the first, it is 0.
    """
    step = step or _SINGLE * median(abs(usable["mean"]))
    rounded = _OF_STEPS * step**2
    both, along_y, along_x = (
        max(median(usable[name]) - MEDIAN_OVER_MEAN * rounded, 0.0)
        for name in ("both", "along_y", "along_x")
    )
    return both if both > _LEAST_BESIDE * rounded else 0.0, along_y, along_x


def photon_transfer(blocks: NDArray[np.void], step: float) -> NoiseModel:
    """Return the line of variance over mean, as if pixels were independent.

    Parameters
    ----------
    blocks : ndarray, shape (frames, rows, columns)
        What was measured in the blocks of each frame.
    step : float
        The step between values; 0 if there is none.
    """
    usable = blocks[is_usable(blocks)]
    least = _ROUNDING * step**2
    if not len(usable):
        return NoiseModel(0.0, 0.0, least)
    variance = median(usable["both"])
    skewness = max(median(usable["cube"]), 0.0) / variance
    line = line_through(blocks, skewness)
    if line is None:
        # Few blocks have no slope: a single spot makes them as skewed as anything.
        middle = variance / MEDIAN_OVER_MEAN
        least = min(max(float(usable["both"].min()) / 2, least), middle)
        return NoiseModel(0.0, middle, least, blocks=len(usable))
    least = max(_least_of_sets(usable) / 2, least)
    if not line.slope > SIGNIFICANT * line.error:
        return _by_skewness(usable, line, skewness, least, step)
    return NoiseModel(
        line.slope, line.variance - line.slope * line.level, least, slope_error=line.error,
        blocks=len(usable),
    )  # fmt: skip


def noise_line_of(blocks: NDArray[np.void], step: float, sigma: float) -> NoiseModel:
    """Return the line of variance over brightness, and whether all of the image follows it.

    Parameters
    ----------
    blocks : ndarray, shape (frames, rows, columns)
        What was measured in the blocks of each frame.
    step : float
        The step between values; 0 if there is none.
    sigma : float
        The PSF's width in pixels.
    """
    model, flat = photon_transfer(blocks, step), blocks
    if sigma < LEAST_PSF:
        flat = without_spots(blocks)
        if model.slope_error is not None:
            others = photon_transfer(flat, step)
            off = abs(model.slope - others.slope) if others.slope_error is not None else model.slope
            model = replace(model, slope_error=max(model.slope_error, off))
    # What rounding does to less noise than that goes by where counts lie.
    usable = flat["both"][is_usable(flat)]
    if not len(usable) or not median(usable) > _ROUNDED * step**2:
        return model
    return replace(model, uneven=unevenness(flat, model))


def _by_skewness(
    blocks: NDArray[np.void], line: Line, skewness: float, least: float, step: float
) -> NoiseModel:
    """Return the noise where there is too little light and shade for a line to be sure.

    Counts are as skewed as their slope is steep.
    """
    slope, usually_off = line.slope, _STEEPER * line.error
    level, darkest = (median(blocks[name]) for name in ("mean", "lowest"))
    middle = max(line.variance + slope * (level - line.level), least)
    # Where every block has a spot, that is too much; but no light is below none, and the line
    # may know better: bright blocks are noisier, too, if noise is skewed.
    apparent = line.apparent - _STEEPER * line.apparent_error
    coarse = spectral_correlation(blocks, step)
    skewness = skewness / coarse if FILTERED < coarse < math.inf else skewness
    skewness = min(skewness, max(middle / max(level - darkest, 1e-30), apparent))
    columns, beyond, most = slope_by_columns(blocks)
    if not skewness > slope + usually_off:
        slope = skewness
    elif columns - beyond > slope + usually_off:
        # Steps that have no noise make a line flat, and columns that differ by light show it.
        # What is dark is as noisy as the line says all the same.
        slope, least = skewness, max(least, middle)
    slope = min(slope, most)
    return NoiseModel(slope, middle - slope * level, least, blocks=len(blocks))


def without_spots(blocks: NDArray[np.void]) -> NDArray[np.void]:
    """Return blocks; those whose columns differ in brightness, as by a spot, become unusable."""
    usable = is_usable(blocks)
    if not usable.any():
        return blocks
    others = blocks.copy()
    others["both"][_has_spot(blocks, usable)] = np.nan
    return others


def _has_spot(blocks: NDArray[np.void], usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which blocks have columns that differ in brightness; some must be usable."""
    found: NDArray[np.bool_] = blocks["spread"] > _UNLIKE * median(blocks["both"][usable])
    return found


def slope_by_columns(blocks: NDArray[np.void]) -> tuple[float, float, float]:
    """Return the slope that columns of usable blocks show, by how much it is off, and the largest.

    Columns with a spot are brighter. They show no less than a part of the slope.
    """
    variance = median(blocks["both"])
    blocks = blocks[blocks["spread"] > _UNLIKE * variance]
    if not len(blocks):
        return 0.0, math.inf, math.inf
    weight, slope = np.sqrt(blocks["spread"]), blocks["rise"] / blocks["spread"]
    total = float(np.sum(weight))
    mean = float(np.sum(weight * slope)) / total
    scatter = np.sum(np.square(weight * (slope - mean)))
    error = math.sqrt(max(scatter, len(blocks) * (_OF_COLUMNS * variance) ** 2)) / total
    return mean, _BEYOND * error, max(mean, 0.0) / _LEAST_SHOWN + _BEYOND * error


def spectral_correlation(blocks: NDArray[np.void], step: float) -> float:
    """Return how much stronger coarse noise is than fine noise, from detail along the axes.

    The spectrum of filtered noise is taken for a product of one along y and one along x. What
    chance does to white noise is no more than 1. Values that were rounded to steps after the filter
    have white noise besides; where there is little else in fine detail, it shows nothing: infinity.
    """
    blocks = blocks[is_usable(blocks)]
    if not len(blocks):
        return 1.0
    both, along_y, along_x = _without_rounding(blocks, step)
    if not both > 0:
        return math.inf
    ratio = math.sqrt(along_x * along_y) / both
    fine = median(blocks["both"])
    chance = 1 + _BEYOND_CHANCE * _CHANCE / math.sqrt(len(blocks)) * fine / both
    return ratio if ratio > chance else min(ratio, 1.0)


def _least_of_sets(blocks: NDArray[np.void]) -> float:
    """Return the least variance of blocks of similar brightness."""
    ordered = blocks["both"][np.argsort(blocks["mean"], kind="stable")]
    return float(of_sets(medians, ordered).min()) / MEDIAN_OVER_MEAN


#: Fewer blocks of a frame, or of a part of all frames, are ignored.
_LEAST_BLOCKS = 12
#: They show only that there is less noise than this share of what there should be.
_OF_FEW = 0.1
#: The least scatter of the logarithm of a block's fine detail, the error of a median over that of a
#: mean, and how many errors two of them have to differ by.
_SCATTER, _OF_MEDIAN, _MODEL_CHANCE = 0.4, 1.25, 3.0
#: What lies between these is twice the scatter.
_BELOW_AND_ABOVE = (0.16, 0.5, 0.84)
#: In an image that is as a camera took it, it scatters by no more than this.
MOST_SCATTER = 0.58
#: Half the number of independent numbers in a block's fine detail; at how many times the line's
#: value it is cut off; and by how many of its errors a slope may be more than what is found.
_SHAPE, _MOST_RATIO, _SURELY = 6.0, 3.0, 3.0
#: Blocks this many deviations darker than the brightest ones are not saturated.
_SATURATE = 3.0
#: Parts of the frames along each axis.
_PARTS = 3


def unevenness(blocks: NDArray[np.void], noise: NoiseModel) -> float:
    """Return how many times as strong noise is in some frames, or parts of all, as in others.

    In variance, by what the model says for their brightness; the part of chance is excluded.

    Parameters
    ----------
    blocks : ndarray, shape (frames, rows, columns)
        What was measured in the blocks of each frame.
    noise : NoiseModel
        The line that all are held against.
    """
    ratios, low, high = _over_line(blocks, noise), math.inf, -math.inf
    for number, found in _usual_of_parts(ratios):
        below, middle, above = map(math.log, found)
        scatter = max((above - below) / 2, _SCATTER)
        chance = _MODEL_CHANCE * _OF_MEDIAN * scatter / math.sqrt(number)
        low, high = min(low, middle + chance), max(high, middle - chance)
    return max(
        math.exp(max(high - low, 0.0)), _steeper_between_frames(blocks, ratios, noise),
        uneven_blocks(np.where(_shows_noise(blocks, noise), ratios, 0.0)),
    )  # fmt: skip


def _usual_of_parts(ratios: NDArray[np.float64]) -> Iterator[tuple[int, Iterable[float]]]:
    """Yield how many blocks each frame, and each part of all, has, and what most ratios are.

    Of those with enough blocks, the quantiles that :func:`unevenness` looks at.
    """
    parts = _parts(ratios.shape)
    rows = ratios.reshape(len(ratios), -1)
    if rows.shape[1] >= _LEAST_BLOCKS and rows.min() > 0:
        # All blocks are usable, as in most images: all frames at once.
        found = np.stack(quantiles(rows, *_BELOW_AND_ABOVE), axis=1)
        yield from ((rows.shape[1], own) for own in found.tolist())
        parts = itertools.islice(parts, len(ratios), None)
    for part in parts:
        own = ratios[part]
        own = own[own > 0]
        if len(own) >= _LEAST_BLOCKS:
            yield len(own), [float(one) for one in quantiles(own, *_BELOW_AND_ABOVE)]


def _shows_noise(blocks: NDArray[np.void], noise: NoiseModel) -> NDArray[np.bool_]:
    """Return which blocks have no spots, and are darker than the brightest, which may saturate.

    Where most are as bright as that, they are not saturated.
    """
    usable = is_usable(blocks)
    if usable.any():
        usable &= ~_has_spot(blocks, usable)
    if not usable.any():
        return usable
    brightest = float(blocks["mean"][usable].max())
    darker = blocks["mean"] < brightest - _SATURATE * math.sqrt(noise.variance(brightest))
    return usable & darker if 2 * np.count_nonzero(usable & darker) > usable.sum() else usable


def _steeper_between_frames(
    blocks: NDArray[np.void], ratios: NDArray[np.float64], noise: NoiseModel
) -> float:
    """Return how many times too steep the line is for the blocks of each frame; 1 if it is not.

    Channels of two gains make a line from one to the other, and light and shade in each frame know
    better.
    """
    measured = ratios > 0
    if noise.slope_error is None or not measured.any():
        return 1.0
    frame = np.nonzero(measured)[0]
    brightness, ratio = blocks["mean"][measured], np.minimum(ratios[measured], _MOST_RATIO)
    line = blocks["both"][measured] / ratios[measured]
    weight = line**-2.0

    def without_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.maximum(np.bincount(frame, weight), np.finfo(float).tiny)
        away: NDArray[np.float64] = values - (np.bincount(frame, weight * values) / total)[frame]
        return away

    away = without_mean(brightness)
    spread = float(np.sum(weight * away * away))
    # Noise alone makes blocks of equal light differ.
    own_spread = spread - OF_MEAN * float(np.sum(weight * line))
    if not own_spread > LEAST_LEFT * spread:
        return 1.0
    slope = float(np.sum(weight * away * without_mean(ratio * line))) / own_spread
    most = max(slope, 0.0) + _SURELY * math.sqrt(spread / _SHAPE) / own_spread
    return max(noise.slope / most, 1.0)


def usual_over_line(blocks: NDArray[np.void], noise: NoiseModel) -> float:
    """Return how many times a line's variance blocks have; NaN for too few of them."""
    ratios = _over_line(blocks, noise)
    ratios = ratios[ratios > 0]
    if not len(ratios):
        return math.nan
    usual = median(ratios) / MEDIAN_OVER_MEAN
    # In few blocks spots may be taken for noise; they make none less noisy.
    return usual if len(ratios) >= _LEAST_BLOCKS or usual < _OF_FEW else math.nan


def _over_line(blocks: NDArray[np.void], noise: NoiseModel) -> NDArray[np.float64]:
    """Return the fine detail of blocks over a line's value at their brightness, or 0."""
    line = np.maximum(noise.slope * blocks["mean"] + noise.intercept, noise.least)
    usable = is_usable(blocks) & (line > 0)
    ratios = np.zeros(blocks.shape)
    with np.errstate(over="ignore"):
        np.divide(blocks["both"], line, out=ratios, where=usable)
    return np.where(np.isfinite(ratios), ratios, 0.0)


def _parts(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield each frame's blocks, then those of a part of all frames."""
    for frame in range(shape[0]):
        yield (slice(frame, frame + 1),)
    rows, columns = (
        [slice(size * i // _PARTS, size * (i + 1) // _PARTS) for i in range(_PARTS)]
        for size in shape[1:]
    )
    for across in rows:
        for along in columns:
            yield slice(None), across, along
