"""The noise model of an image, from the noise of its blocks.

What is measured in a block, kernels/noise.h says: its mean; the mean squares of detail that is fine
along both axes, along x, and along y, which no spot has; the mean cube of its noise; its lowest
pixel; and how much more noise its brighter columns have.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..settings.noise_model import FILTERED, TOLD, NoiseModel
from .noise_line import Line, is_usable, line_through, median, of_sets

#: A block's measurements.
BLOCK_NOISE = np.dtype(
    [
        (name, "f8")
        for name in ("mean", "both", "along_x", "along_y", "cube", "lowest", "spread", "rise")
    ]
)
#: The median over blocks of white noise's fine detail, over the mean.
MEDIAN_OVER_MEAN = 0.934
#: By so many of its errors the line may be less steep than skewness tells, and steeper than it is;
#: and what columns tell.
_STEEPER, _BEYOND = 2.0, 3.0
#: Columns tell in blocks where they differ in brightness so many times as much as noise makes them.
#: Fine detail reaches over several, so that they show no less than this part of the slope; and its
#: standard error, of a block where they differ by as much as the deviation of a pixel.
_UNLIKE, _LEAST_SHOWN, _OF_COLUMNS = 8.0, 0.5, 1.25
#: The variance of rounding to whole counts, less what it may share with other noise.
_ROUNDING = 1 / 20
#: Where fine detail has less than this beside rounding, in units of that, it does not tell what was
#: there before.
_LEAST_BESIDE = 0.15
#: The precision of the numbers that the library calculates with.
_SINGLE = float(np.finfo(np.float32).eps)
#: The standard error of how much stronger white noise looks where it is coarse, of one block; and
#: by how many of them it has to look stronger.
_CHANCE, _BEYOND_CHANCE = 0.72, 2.0


def photon_transfer(blocks: NDArray[np.void], whole_counts: bool) -> NoiseModel:
    """Return the line of variance over mean, as if pixels were independent.

    Parameters
    ----------
    blocks : ndarray, shape (frames, rows, columns)
        What was measured in the blocks of each frame.
    whole_counts : bool
        Whether pixels are whole numbers.
    """
    usable = blocks[is_usable(blocks)]
    least = _ROUNDING if whole_counts else 0.0
    if not len(usable):
        return NoiseModel(0.0, 0.0, least)
    variance = float(np.median(usable["both"]))
    skewness = max(float(np.median(usable["cube"])), 0.0) / variance
    line = line_through(blocks, skewness)
    if line is None:
        # Few blocks tell no slope: a single spot makes them as skewed as anything.
        middle = variance / MEDIAN_OVER_MEAN
        least = min(max(float(usable["both"].min()) / 2, least), middle)
        return NoiseModel(0.0, middle, least, blocks=len(usable))
    least = max(_least_of_sets(usable) / 2, least)
    if not line.slope > TOLD * line.error:
        return _by_skewness(usable, line, skewness, least, whole_counts)
    return NoiseModel(
        line.slope, line.variance - line.slope * line.level, least, slope_error=line.error,
        blocks=len(usable),
    )  # fmt: skip


def _by_skewness(
    blocks: NDArray[np.void], line: Line, skewness: float, least: float, whole_counts: bool
) -> NoiseModel:
    """Return the noise where there is too little light and shade for a line to be sure.

    Counts are as skewed as their slope is steep.
    """
    slope, usually_off = line.slope, _STEEPER * line.error
    level, darkest = (float(np.median(blocks[name])) for name in ("mean", "lowest"))
    middle = max(line.variance + slope * (level - line.level), least)
    # Where every block has a spot, that is too much; but no light is below none, and the line
    # may know better: bright blocks are noisier, too, if noise is skewed.
    apparent = line.apparent - _STEEPER * line.apparent_error
    coarse = spectral_correlation(blocks, whole_counts)
    skewness = skewness / coarse if FILTERED < coarse < math.inf else skewness
    skewness = min(skewness, max(middle / max(level - darkest, 1e-30), apparent))
    columns, beyond = _by_columns(blocks)
    if not skewness > slope + usually_off:
        slope = skewness
    elif columns - beyond > slope + usually_off:
        # Steps that have no noise make a line flat, and columns that differ by light tell of it.
        # What is dark is as noisy as the line says all the same.
        slope, least = skewness, max(least, middle)
    slope = min(slope, max(columns, 0.0) / _LEAST_SHOWN + beyond)
    return NoiseModel(slope, middle - slope * level, least, blocks=len(blocks))


def without_spots(blocks: NDArray[np.void]) -> NDArray[np.void]:
    """Return blocks; those whose columns differ in brightness, as by a spot, tell nothing."""
    usable = blocks[is_usable(blocks)]
    if not len(usable):
        return blocks
    others = blocks.copy()
    others["both"][blocks["spread"] > _UNLIKE * float(np.median(usable["both"]))] = np.nan
    return others


def _by_columns(blocks: NDArray[np.void]) -> tuple[float, float]:
    """Return the slope that columns of blocks show, and by how much it may be off.

    Columns with a spot are brighter. They show no less than a part of the slope.
    """
    variance = float(np.median(blocks["both"]))
    blocks = blocks[blocks["spread"] > _UNLIKE * variance]
    if not len(blocks):
        return 0.0, math.inf
    weight, slope = np.sqrt(blocks["spread"]), blocks["rise"] / blocks["spread"]
    total = float(np.sum(weight))
    mean = float(np.sum(weight * slope)) / total
    scatter = np.sum(np.square(weight * (slope - mean)))
    error = math.sqrt(max(scatter, len(blocks) * (_OF_COLUMNS * variance) ** 2)) / total
    return mean, _BEYOND * error


def spectral_correlation(blocks: NDArray[np.void], whole_counts: bool) -> float:
    """Return how much stronger coarse noise is than fine noise, as detail along the axes tells.

    The spectrum of filtered noise is taken for a product of one along y and one along x. What
    chance does to white noise is no more than 1. Counts that were rounded after the filter have
    white noise besides; where there is little else in fine detail, it tells nothing: infinity.
    """
    blocks = blocks[is_usable(blocks)]
    if not len(blocks):
        return 1.0
    step = 1.0 if whole_counts else _SINGLE * float(np.median(abs(blocks["mean"])))
    rounded, fine = step**2 / 12, float(np.median(blocks["both"]))
    both, along_x, along_y = (
        max(float(np.median(blocks[name])) - MEDIAN_OVER_MEAN * rounded, 0.0)
        for name in ("both", "along_x", "along_y")
    )
    if not both > _LEAST_BESIDE * rounded:
        return math.inf
    ratio = math.sqrt(along_x * along_y) / both
    chance = 1 + _BEYOND_CHANCE * _CHANCE / math.sqrt(len(blocks)) * fine / both
    return ratio if ratio > chance else min(ratio, 1.0)


def _least_of_sets(blocks: NDArray[np.void]) -> float:
    """Return the least variance of blocks that are alike in brightness."""
    ordered = blocks["both"][np.argsort(blocks["mean"], kind="stable")]
    return float(of_sets(median, ordered).min()) / MEDIAN_OVER_MEAN
