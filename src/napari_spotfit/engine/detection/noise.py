"""The noise model of an image, from the noise of its blocks.

What is measured in a block, kernels/noise.h says: its mean; the mean squares of detail that is fine
along both axes, along x, and along y, which no spot has; the mean cube of its noise; and its lowest
pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...settings.noise_model import FILTERED, TOLD, NoiseModel

Numbers = NDArray[np.float64]

#: A block's measurements.
BLOCK_NOISE = np.dtype(
    [(name, "f8") for name in ("mean", "both", "along_x", "along_y", "cube", "lowest")]
)
#: The median over blocks of white noise's fine detail, over the mean.
_MEDIAN_OVER_MEAN = 0.934
#: A block with so many times the detail of its like has something else than noise.
_OUTLIER = 4.0
#: How much a block's fine detail scatters: it has about ten independent numbers.
_SCATTER = math.sqrt(2 / 10)
#: By so many of its errors the line may be less steep than skewness tells.
_STEEPER = 2.0
#: Blocks of similar brightness: no fewer than so many together, and no more than so many sets.
_LEAST_TOGETHER, _MOST_SETS, _LEAST_SETS = 12, 32, 4
#: The variance of rounding to whole counts, less what it may share with other noise.
_ROUNDING = 1 / 20


def photon_transfer(blocks: NDArray[np.void], whole_counts: bool) -> NoiseModel:
    """Return the line of variance over mean, as if pixels were independent."""
    blocks = _usable(blocks)
    least = _ROUNDING if whole_counts else 0.0
    if not len(blocks):
        return NoiseModel(0.0, 0.0, least)
    order = np.argsort(blocks["mean"], kind="stable")
    sets = int(np.clip(len(order) // _LEAST_TOGETHER, 1, _MOST_SETS))
    mean = _of_sets(_median, blocks["mean"][order], sets)
    variance = _of_sets(_mean_without_outliers, blocks["both"][order], sets)
    least = max(float(variance.min()) / 2, least)
    if sets < _LEAST_SETS:
        # Few blocks tell no slope: a single spot makes them as skewed as anything.
        middle = float(np.median(blocks["both"])) / _MEDIAN_OVER_MEAN
        return NoiseModel(0.0, middle, min(least, middle), blocks=len(blocks))
    line, intercept, error = _line(mean, variance)
    error *= _SCATTER / math.sqrt(len(blocks) / sets)
    slope = line
    if not slope > TOLD * error and spectral_correlation(blocks, whole_counts) < FILTERED:
        # Too little light and shade to be sure: counts are as skewed as their slope is steep.
        middle = float(np.median(blocks["both"])) / _MEDIAN_OVER_MEAN
        level = float(np.median(blocks["mean"]))
        slope = max(float(np.median(blocks["cube"])), 0.0) / middle
        # Where every block has a spot, that is too much; but no light is below none, and the line
        # may know better.
        slope = min(slope, middle / max(level - float(np.median(blocks["lowest"])), 1e-30))
        slope = line if slope > line + _STEEPER * error else slope
        intercept, error = middle - slope * level, math.inf
    return NoiseModel(
        slope, intercept, least, slope_error=error if error < math.inf else None,
        blocks=len(blocks),
    )  # fmt: skip


def spectral_correlation(blocks: NDArray[np.void], whole_counts: bool) -> float:
    """Return how much stronger coarse noise is than fine noise, as detail along the axes tells.

    The spectrum of filtered noise is taken for a product of one along y and one along x.
    """
    blocks = _usable(blocks)
    if not len(blocks):
        return 1.0
    least = _ROUNDING if whole_counts else 0.0
    both, along_x, along_y = (
        max(float(np.median(blocks[name])), least) for name in ("both", "along_x", "along_y")
    )
    return math.sqrt(along_x * along_y) / both


def _of_sets(tell: Callable[[Numbers], Numbers], values: Numbers, sets: int) -> Numbers:
    """Return what is told of sets of numbers, one after the other and as large as one another."""
    size, larger = divmod(len(values), sets)
    end = larger * (size + 1)
    rows = (values[:end].reshape(-1, size + 1), values[end:].reshape(-1, size))
    return np.concatenate([tell(own) for own in rows if len(own)])


def _median(rows: Numbers) -> Numbers:
    medians: Numbers = np.median(rows, axis=1)
    return medians


def _mean_without_outliers(rows: Numbers) -> Numbers:
    """Return the means of numbers, those far above their median lowered.

    A median would not do: the light of a block with a spot lies in a few pixels, whose squares
    have their median far below their mean.
    """
    means: Numbers = np.minimum(rows, _OUTLIER * np.median(rows, axis=1, keepdims=True)).mean(1)
    return means


def _usable(blocks: NDArray[np.void]) -> NDArray[np.void]:
    """Leave out blocks with bad pixels, and those without noise, such as outside of a mask."""
    finite = np.isfinite(blocks.view(np.float64).reshape(len(blocks), -1)).all(axis=1)
    return blocks.compress(finite & (blocks["both"] > 0))


def _line(mean: Numbers, variance: Numbers) -> tuple[float, float, float]:
    """Fit a line that does not fall, all relative errors alike; return its slope's error for 1."""
    model = np.full(len(variance), np.median(variance))
    for _ in range(5):
        weight = model**-2.0
        middle, level = (np.sum(along * weight) / np.sum(weight) for along in (mean, variance))
        spread = float(np.sum(weight * (mean - middle) ** 2))
        slope = float(np.sum(weight * (mean - middle) * (variance - level)))
        slope = max(slope / spread, 0.0) if spread > 0 else 0.0
        model = np.maximum(slope * (mean - middle) + level, variance.min() / 4)
    return slope, float(level - slope * middle), spread**-0.5 if spread > 0 else math.inf
