"""Whether one noise model is right for all of an image: channels have gains of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..settings.noise_model import NoiseModel
from .noise_line import LEAST_LEFT, OF_MEAN, is_usable
from .photon_transfer import MEDIAN_OVER_MEAN

#: Fewer blocks tell nothing of a frame, or of a part of all frames.
_LEAST_BLOCKS = 12
#: The logarithm of a block's fine detail scatters by so much at least, a median's error is so many
#: times that of a mean, and two of them have to differ by so many errors.
_SCATTER, _OF_MEDIAN, _CHANCE = 0.4, 1.25, 3.0
#: What lies between these is twice the scatter.
_BELOW_AND_ABOVE = (0.16, 0.5, 0.84)
#: Half the number of independent numbers in a block's fine detail; no more than so many times what
#: the line says counts of it; a slope is surely no more than so many of its errors above what is
#: found.
_SHAPE, _MOST_RATIO, _SURELY = 6.0, 3.0, 3.0
#: Parts of the frames along each axis.
_PARTS = 3


def unevenness(blocks: NDArray[np.void], noise: NoiseModel) -> float:
    """Return how many times as strong noise is in some frames, or parts of all, as in others.

    In variance, by what the model says for their brightness; what chance does is left out.

    Parameters
    ----------
    blocks : ndarray, shape (frames, rows, columns)
        What was measured in the blocks of each frame.
    noise : NoiseModel
        The line that all are held against.
    """
    ratios, low, high = _over_line(blocks, noise), math.inf, -math.inf
    for part in _parts(blocks.shape):
        own = ratios[part]
        own = own[own > 0]
        if len(own) >= _LEAST_BLOCKS:
            below, middle, above = np.log(np.quantile(own, _BELOW_AND_ABOVE))
            scatter = max((above - below) / 2, _SCATTER)
            chance = _CHANCE * _OF_MEDIAN * scatter / math.sqrt(len(own))
            low, high = min(low, middle + chance), max(high, middle - chance)
    return max(math.exp(max(high - low, 0.0)), _steeper_between_frames(blocks, ratios, noise))


def _steeper_between_frames(
    blocks: NDArray[np.void], ratios: NDArray[np.float64], noise: NoiseModel
) -> float:
    """Return how many times too steep the line is for the blocks of each frame; 1 if it is not.

    Channels of two gains make a line from one to the other, and light and shade in each frame know
    better.
    """
    tells = ratios > 0
    if noise.slope_error is None or not tells.any():
        return 1.0
    frame = np.nonzero(tells)[0]
    brightness, ratio = blocks["mean"][tells], np.minimum(ratios[tells], _MOST_RATIO)
    line = blocks["both"][tells] / ratios[tells]
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
    """Return how many times a line's variance blocks have; NaN where there are too few."""
    ratios = _over_line(blocks, noise)
    ratios = ratios[ratios > 0]
    if len(ratios) < _LEAST_BLOCKS:
        return math.nan
    return float(np.median(ratios)) / MEDIAN_OVER_MEAN


def _over_line(blocks: NDArray[np.void], noise: NoiseModel) -> NDArray[np.float64]:
    """Return blocks' fine detail over what a line says for their brightness, or 0."""
    line = np.maximum(noise.slope * blocks["mean"] + noise.intercept, noise.least)
    tells = is_usable(blocks) & (line > 0)
    ratios = np.zeros(blocks.shape)
    with np.errstate(over="ignore"):
        np.divide(blocks["both"], line, out=ratios, where=tells)
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
