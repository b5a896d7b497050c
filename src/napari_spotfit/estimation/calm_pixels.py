"""Measure noise in calm pixels, between spots that are as sharp as noise and stand close together.

Detail of 3×3 pixels is the smallest that a level and a slope have no part in. Bright spots make
most of it huge, and leave alone what lies between them: the middle of its distribution, without its
tails, is that of the pixels between. Where these have as much detail along each axis as along both,
their noise is white: the image is as the camera took it, and what seems to be a filter are the
spots.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.cpu.library import load
from ..engine.kernel_arguments import address

Numbers = NDArray[np.float64]

#: Side of the areas that noise is measured in, and the least number of pixels for it.
_SIDE, _LEAST = 64, 200
#: The squares of the weights of a second difference, and of one along both axes, add up to these.
_ALONG_ONE, _ALONG_BOTH = 6.0, 36.0
#: A value counts as calm within this many deviations of all values of its area.
_CALM = 1.5
#: Detail along an axis over that along both, of white noise beside spots; other noise lies beyond,
#: and the chance of a single area.
_WHITE, _CHANCE = (0.8, 1.06), 0.15
#: Noise that went through a Gaussian filter of 0.3 px, where it is stronger by 8 %, lies beyond.
_SURELY_WHITE = 1.02


class CalmNoise(NamedTuple):
    """Noise between spots, by area."""

    #: Brightness and variance of the calm pixels of each area.
    level: Numbers
    variance: Numbers
    #: Detail along y and along x over that along both, in the middle of all areas.
    along: tuple[float, float]

    @property
    def is_white(self) -> bool:
        """Whether neighbouring pixels have noise of their own, or nearly so."""
        return self._within(_WHITE[1])

    @property
    def is_surely_white(self) -> bool:
        """Whether no filter, however weak, makes noise much stronger where it is coarse."""
        return self._within(_SURELY_WHITE)

    def _within(self, most: float) -> bool:
        most += _CHANCE / math.sqrt(len(self.level))
        return all(_WHITE[0] <= ratio <= most for ratio in self.along)


def calm_noise(parts: list[NDArray[np.float64]]) -> CalmNoise | None:
    """Return the noise between the spots of parts of frames; None where there is too little.

    Parameters
    ----------
    parts : list of ndarray
        Parts of frames; NaN where pixels are bad.

    Examples
    --------
    >>> white = np.random.default_rng(1).normal(50.0, 4.0, (128, 128))
    >>> found = calm_noise([white])
    >>> found.is_white, round(float(np.sqrt(np.median(found.variance))))
    (True, 4)
    """
    found = [row for part in parts for row in _areas(part)]
    if not found:
        return None
    level, variance, along_y, along_x = np.array(found).T
    deviation = np.sqrt(variance)
    along = [float(np.median(own / deviation)) for own in (along_y, along_x)]
    return CalmNoise(level, variance, (along[0], along[1]))


def _areas(part: NDArray[np.float64]) -> list[tuple[float, float, float, float]]:
    along_y = part[2:] + part[:-2] - 2 * part[1:-1]
    along_x = part[:, 2:] + part[:, :-2] - 2 * part[:, 1:-1]
    both = along_y[:, 2:] + along_y[:, :-2] - 2 * along_y[:, 1:-1]
    pixels, along_y, along_x = part[1:-1, 1:-1], along_y[:, 1:-1], along_x[1:-1]
    found = []
    for y in range(0, max(both.shape[0] - _SIDE // 2, 1), _SIDE):
        for x in range(0, max(both.shape[1] - _SIDE // 2, 1), _SIDE):
            area = (slice(y, y + _SIDE), slice(x, x + _SIDE))
            deviation = clipped_deviation(both[area])
            calm = abs(both[area]) < _CALM * deviation
            if np.count_nonzero(calm) < _LEAST:
                continue
            of_y, of_x = (
                clipped_deviation(own[area]) / math.sqrt(_ALONG_ONE) for own in (along_y, along_x)
            )
            level = float(np.median(pixels[area][calm]))
            found.append((level, deviation**2 / _ALONG_BOTH, of_y, of_x))
    return found


def clipped_deviation(values: NDArray[Any]) -> float:
    """Return the deviation of the middle of a distribution, whatever lies in its tails.

    Values that are exactly 0, or NaN, do not count.
    """
    library = load()
    flat = np.ascontiguousarray(np.nan_to_num(values, posinf=0.0, neginf=0.0), np.float32).ravel()
    return float(library.functions.spotfit_deviation(library.index, address(flat), flat.size))
