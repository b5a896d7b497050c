"""The noise model of an image, from the noise of its blocks.

What is measured in a block, kernels/noise.h says: its mean; the mean squares of detail that is fine
along both axes, along x, and along y, which no spot has; the mean cube of its noise; its lowest
pixel; and brightness and fine detail of the darker and the brighter half of its columns.
"""

from __future__ import annotations

import math

import numpy as np

from ...settings.noise_model import FILTERED, TOLD, NoiseModel
from .noise_line import Blocks, Parts, are_unlike, line_through, median, of_sets, parts_of

#: A block's measurements.
BLOCK_NOISE = np.dtype([(name, "f8") for name in Blocks._fields[:-2]])
#: The median over blocks of white noise's fine detail, over the mean.
_MEDIAN_OVER_MEAN = 0.934
#: By so many of its errors the line may be less steep than skewness tells, and steeper than it is;
#: and less steep, by so many that its blocks have of noise alone, than the skewness of spots.
_STEEPER, _BEYOND = 2.0, 3.0
#: So many blocks whose halves are alike tell how skewed the noise is.
_TELL_SKEWNESS = 12
#: The variance of rounding to whole counts, less what it may share with other noise.
_ROUNDING = 1 / 20
#: The standard error of how much stronger white noise looks where it is coarse, of one block; and
#: by how many of them it has to look stronger.
_CHANCE, _BEYOND_CHANCE = 0.72, 2.0


def photon_transfer(usable: Blocks, shape: tuple[int, int], whole_counts: bool) -> NoiseModel:
    """Return the line of variance over mean, as if pixels were independent.

    Parameters
    ----------
    usable : Blocks
        What was measured in the blocks of all frames.
    shape : tuple of int
        How many rows and columns of blocks a frame has.
    whole_counts : bool
        Whether pixels are whole numbers.
    """
    least = _ROUNDING if whole_counts else 0.0
    if not len(usable.both):
        return NoiseModel(0.0, 0.0, least)
    variance = median(usable.both)
    unlike = are_unlike(usable)
    # Spots are skewed themselves: what is between them tells, if that is enough.
    between = np.count_nonzero(~unlike) >= _TELL_SKEWNESS
    telling = ~unlike if between else np.ones_like(unlike)
    cube, square = median(usable.cube[telling]), median(usable.both[telling])
    skewness = max(cube, 0.0) / square
    parts = parts_of(usable, unlike)
    line = line_through(parts, shape, skewness)
    if line is None:
        # Few blocks tell no slope: a single spot makes them as skewed as anything.
        middle = variance / _MEDIAN_OVER_MEAN
        least = min(max(float(usable.both.min()) / 2, least), middle)
        return NoiseModel(0.0, middle, least, blocks=len(usable.both))
    least = max(_least_of_sets(parts) / 2, least)
    slope, level, middle, error, least_error, apparent, apparent_error = line
    if not slope > TOLD * error:
        # Too little light and shade to be sure: counts are as skewed as their slope is steep.
        usual = median(np.where(unlike, usable.dark, usable.mean))
        darkest = median(usable.lowest)
        middle, level = max(middle + slope * (usual - level), least), usual
        # Where every block has a spot, that is too much; but no light is below none, and the line
        # may know better: bright blocks are noisier, too, if noise is skewed, and so are the bright
        # halves of those with a spot.
        most = max(middle / max(level - darkest, 1e-30), apparent - _STEEPER * apparent_error)
        coarse = spectral_correlation(usable, whole_counts)
        skewness = skewness / coarse if coarse > FILTERED else skewness
        skewness = min(skewness, most)
        if between:
            slope = slope if skewness > slope + _STEEPER * error else skewness
        else:
            # That of spots counts the less, the farther it is beyond what the line may be.
            excess = skewness - slope
            slope += min(excess, max(2 * _BEYOND * least_error - excess, 0.0))
        error = math.inf
    return NoiseModel(
        slope, middle - slope * level, least, slope_error=error if error < math.inf else None,
        blocks=len(usable.both),
    )  # fmt: skip


def spectral_correlation(usable: Blocks, whole_counts: bool) -> float:
    """Return how much stronger coarse noise is than fine noise, as detail along the axes tells.

    The spectrum of filtered noise is taken for a product of one along y and one along x. What
    chance does to white noise is no more than 1.
    """
    if not len(usable.both):
        return 1.0
    least = _ROUNDING if whole_counts else 0.0
    both, along_x, along_y = (
        max(median(values), least) for values in (usable.both, usable.along_x, usable.along_y)
    )
    ratio = math.sqrt(along_x * along_y) / both
    chance = 1 + _BEYOND_CHANCE * _CHANCE / math.sqrt(len(usable.both))
    return ratio if ratio > chance else min(ratio, 1.0)


def _least_of_sets(parts: Parts) -> float:
    """Return the least variance of what is alike in brightness."""
    return float(of_sets(parts.variance, 0.5).min()) / _MEDIAN_OVER_MEAN
