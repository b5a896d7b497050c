"""How many maxima of pure noise exceed a score, and the score that so many exceed.

The expected number of maxima of a smooth normal field above a height is Adler's (The Geometry of
Random Fields, 1981). Pixels show fewer, as both bands share some and shape tests drop others: how
many fewer was measured by simulation.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .band import make_bands

#: Share of the field's maxima that is found in white noise at a score of 4, by the PSF's σ in px,
#: and by how much its logarithm falls with each unit of the score up to 5. Simulated on 25 million
#: pixels each.
_SIGMA = np.array([0.5, 0.6, 0.8, 1.0, 1.3, 1.7, 2.3, 3.5, 6.0, 10.0])
_SHARE = (0.073, 0.089, 0.152, 0.206, 0.268, 0.352, 0.462, 0.637, 0.735, 0.997)
_FALL = (0.80, 0.88, 0.75, 0.66, 0.63, 0.53, 0.44, 0.22, 0.17, 0.0)
_SIMULATED_AT, _FALLS_TO = 4.0, 5.0
#: Scores between which the one is looked for that so many maxima exceed.
_LEAST, _MOST = 1.0, 40.0


def expected_false_spots(score: float, sigma: float) -> float:
    """Return how many maxima of white noise exceed a score, per 10⁶ pixels.

    Examples
    --------
    >>> round(expected_false_spots(score_for(10, 1.3), 1.3), 6)
    10.0
    """
    field = _density(sigma) * score * math.exp(-(score**2) / 2)
    share, fall = (
        float(np.interp(math.log(sigma), np.log(_SIGMA), values)) for values in (_SHARE, _FALL)
    )
    return 1e6 * field * share * math.exp(-fall * (min(score, _FALLS_TO) - _SIMULATED_AT))


@lru_cache(maxsize=64)
def score_for(false_spots: float, sigma: float) -> float:
    """Return the score that so many maxima of white noise exceed per 10⁶ pixels."""
    low, high = _LEAST, _MOST
    for _ in range(60):
        middle = (low + high) / 2
        if expected_false_spots(middle, sigma) > false_spots:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=64)
def _density(sigma: float) -> float:
    """Return how many maxima a smooth field has per pixel, but for a factor of the score."""
    unlikeness: float = sum(band.unlikeness for band in make_bands(sigma, (1, 1)).bands)
    return unlikeness / float((2 * math.pi) ** 1.5)
