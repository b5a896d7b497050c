"""Tell noise that differs from place to place by more than light, whatever was done to the image.

The noise of one camera is a line over brightness, and how far a place is from it is chance: its
neighbours are no more alike than others. What takes light away and leaves its noise, equalises
contrast by area, divides by a shade or mixes planes leaves larger places whose noise is stronger
than the line says, and others where it is weaker. What neighbours have in common shows by how much.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .band_noise import BandAreas
from .noise_line import quantiles

Numbers = NDArray[np.float64]

#: The least number of neighbours.
_FEWEST = 100
#: Numbers farther from the usual one than this many times their scatter are cut off.
_FAR = 3.0
#: Of fine detail, places differ by this deviation of the logarithm, at least, and by this many
#: times what is chance: of raw images it is 0.25 at most where it is more than chance.
_BLOCKS, _SURE = 0.28, 6.0
#: Of the band, whose areas are larger, and have spots: of images after a filter that takes no light
#: away it is 0.35 at most in most, of band-passes over light and shade 0.48 and more.
_AREAS, _SURE_OF_AREAS = 0.4, 4.5
#: The band has no more than this many times the variance that is expected there, in most areas:
#: of filtered images 1.6, of brightest projections of filtered ones 2.7 and more.
_MOST = 2.0
_TINY = float(np.finfo(float).tiny)


class Variation(NamedTuple):
    """What neighbouring places have in common."""

    #: The deviation of the logarithm, without that of chance; and how many deviations of chance
    #: the correlation of neighbours is.
    deviation: float
    significance: float


def variation(ratios: NDArray[Any]) -> Variation:
    """Return by how much places differ, by what those have in common that are neighbours.

    Parameters
    ----------
    ratios : ndarray, shape (…, rows, columns)
        How many times the expected noise each place has; 0 or NaN where that is unknown.

    Examples
    --------
    >>> chance = np.exp(np.random.default_rng(1).normal(0, 0.4, (32, 32)))
    >>> stronger = chance * np.where(np.arange(32) < 16, 1.0, 3.0)
    >>> [round(variation(ratios).deviation, 1) for ratios in (chance, stronger)]
    [0.0, 0.5]
    """
    known = ratios > 0
    if np.count_nonzero(known) < _FEWEST:
        return Variation(0.0, 0.0)
    logarithm = np.log(np.where(known, ratios, 1.0))
    low, middle, high = (float(own) for own in quantiles(logarithm[known], 0.16, 0.5, 0.84))
    most = _FAR * (high - low) / 2
    away = np.where(known, np.clip(logarithm - middle, -most, most), 0.0)
    # Some frames, or planes, have more spots than others.
    places = np.maximum(known.sum(axis=(-2, -1), keepdims=True), 1)
    away = np.where(known, away - away.sum(axis=(-2, -1), keepdims=True) / places, 0.0)
    pairs = np.count_nonzero(known[..., 1:] & known[..., :-1]) + np.count_nonzero(
        known[..., 1:, :] & known[..., :-1, :]
    )
    variance = float(np.mean(np.square(away[known])))
    if pairs < _FEWEST or not variance > 0:
        return Variation(0.0, 0.0)
    common = float(
        np.sum(away[..., 1:] * away[..., :-1]) + np.sum(away[..., 1:, :] * away[..., :-1, :])
    ) / pairs  # fmt: skip
    deviation, sure = math.sqrt(max(common, 0.0)), common / variance * math.sqrt(pairs)
    return Variation(deviation, sure)


def uneven_blocks(ratios: Numbers) -> float:
    """Return how many times as noisy as others some places are, in fine detail; 1 if they are not.

    Parameters
    ----------
    ratios : ndarray, shape (frames, rows, columns)
        How many times the expected variance each block has; 0 where that is unknown.
    """
    found = variation(ratios)
    is_sure = found.deviation > _BLOCKS and found.significance > _SURE
    return math.exp(2 * found.deviation) if is_sure else 1.0


def is_filtered_by_place(areas: BandAreas, variance: Numbers) -> bool:
    """Whether the noise of a filtered image is not what is expected in the band, or not everywhere.

    Parameters
    ----------
    areas : BandAreas
        The band in which spots are looked for.
    variance : ndarray
        The variance that is expected in each area.
    """
    known = areas.variance > 0
    if not known.any():
        return False
    times = np.where(known, areas.variance / np.maximum(variance, _TINY), 0.0)
    if float(np.median(times[known])) > _MOST:
        return True
    found = variation(times.reshape(-1, *areas.grid))
    return found.deviation > _AREAS and found.significance > _SURE_OF_AREAS
