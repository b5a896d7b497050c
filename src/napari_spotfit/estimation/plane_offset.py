"""The counts without light of stacks whose planes differ in light, by how spots follow it.

The noise alone cannot tell read-out noise from an offset: it takes the counts at which it would
end, which are too few where there is read-out noise. The light of spots goes with that of their
planes, which counts from the true offset.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: How many spots are needed at least; how many deviations off a line they are, at most.
FEWEST, _FARTHEST = 12, 3.0
#: The usual read-out variance of cameras in electrons², and between which shares of all that is
#: likely others are possible.
_READ_OUT, _LIKELY = 3.0, (0.05, 0.95)
#: The least light of the darkest plane, of that of the brightest; and how many counts are tried.
LEAST, _TRIALS = 0.03, 60


class PlaneSpots(NamedTuple):
    """Good fits of spots in a stack, and its planes."""

    #: How much each plane counts in the fit of each spot, of shape (spots, planes), and the
    #: logarithms of their light.
    share: Array
    light: Array
    #: The background of each plane.
    level: Array

    def slope(self, dark: float) -> tuple[float, float]:
        """Return how the light of spots goes with that of their planes: a slope, and its error.

        Logarithms over each other, for this many counts without light; not a number, and
        infinite, where there are too few spots.
        """
        of_planes = self.share @ (self.level - dark) / self.share.sum(axis=1)
        return line(np.log(np.maximum(of_planes, 1e-6)), self.light)


class PlaneOffset(NamedTuple):
    """The counts without light of a stack, and the least and the most there may be."""

    dark: float
    low: float
    high: float

    def z_off(self, level: Array, sigma_z: float) -> float:
        """Return by how many planes z may be off, in the root mean square over planes."""
        shifts = [sigma_z**2 * np.gradient(np.log(level - dark)) for dark in self]
        return float(max(np.sqrt(np.mean((one - shifts[0]) ** 2)) for one in shifts[1:]))

    def light_off(self, level: Array) -> float:
        """Return which part of its light a spot may be off, in the root mean square over planes."""
        lights = [(level - dark) / (level - dark).max() for dark in self]
        return float(max(np.sqrt(np.mean((one / lights[0] - 1) ** 2)) for one in lights[1:]))


def plane_offset(spots: PlaneSpots, of_noise: float, gain: float) -> PlaneOffset | None:
    """Return the counts without light that spots and noise suggest, None if spots are too few.

    It is the mean of what is likely: spots go with the light of their planes, and there are more
    counts than those at which noise ends, by the read-out variance over the gain.

    Parameters
    ----------
    spots : PlaneSpots
        Spots, fitted in planes of one background.
    of_noise : float
        The counts at which the noise ends: there are no fewer.
    gain : float
        Counts per electron.

    Examples
    --------
    >>> planes = np.exp(-np.arange(20) / 10)
    >>> light = np.log(1000 * planes) + np.random.default_rng(1).normal(0, 0.01, 20)
    >>> found = plane_offset(PlaneSpots(np.eye(20), light, 100 + 50 * planes), 90.0, 2.0)
    >>> round(found.dark)
    100
    """
    least = spots.level.min()
    most = (least - LEAST * spots.level.max()) / (1 - LEAST)
    if not most > of_noise:
        return None
    darks = least - np.geomspace(least - of_noise, least - most, _TRIALS)
    slopes, errors = np.array([spots.slope(float(dark)) for dark in darks]).T
    if not np.isfinite(errors).all():
        return None
    cost = ((slopes - 1) / errors) ** 2 / 2
    cost += 2 * np.log1p((darks - of_noise) / (gain * _READ_OUT))  # some have far more
    weight = np.exp(cost.min() - cost) * np.gradient(darks)
    share = np.cumsum(weight) - weight / 2
    low, high = np.interp(np.array(_LIKELY) * weight.sum(), share, darks)
    return PlaneOffset(float(np.average(darks, weights=weight)), float(low), float(high))


def line(x: Array, y: Array) -> tuple[float, float]:
    """Return the slope of a line through points, without those far off, and its error."""
    kept = np.ones(len(x), np.bool_)
    for _ in range(5):
        if kept.sum() < FEWEST or np.ptp(x[kept]) == 0:
            return np.nan, np.inf
        slope, at_0 = np.polyfit(x[kept], y[kept], 1)
        off = y - slope * x - at_0
        scatter = 1.4826 * np.median(abs(off[kept]))
        now = abs(off) <= _FARTHEST * scatter
        if (now == kept).all():
            break
        kept = now
    own = off[kept]
    error = np.sqrt((own**2).sum() / (len(own) - 2) / ((x[kept] - x[kept].mean()) ** 2).sum())
    return float(slope), float(error)
