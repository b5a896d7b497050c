"""Tell images whose noise differs from place to place where their light does not.

Noise of light grows with it. A difference or a Laplacian of Gaussians, and other band-passes, take
the light away, and leave its noise: cells have many times the noise of what is around them, and are
as dark. Spots in some places, and none in others, differ more in height than in depth.
"""

from __future__ import annotations

import math

import numpy as np

from .band_noise import BandAreas

#: Fewer areas show nothing.
_FEWEST = 16
#: Areas are compared that have less noise, or light, than most, and more.
_LOW, _HIGH = 0.1, 0.9
#: There is this many times the variance in the band, by light that differs by less than these parts
#: of the deviation of the noisy areas, and of the calm ones. One photon in a pixel makes it half of
#: the first; of spots in some places, it is 0.21 and more.
_TIMES, _OF_NOISY, _OF_CALM = 3.5, 0.17, 1.0
#: In noisy areas the first of these quantiles is as deep as the second is high: of spots in some
#: places it is less by 1.45 times and more, of noise with a few spots by up to 1.4 times.
_TAILS, _ALIKE = (0.05, 0.95), (0.6, 1.45)


def is_band_passed(areas: BandAreas) -> bool:
    """Whether some areas are noisier than others, and no brighter, and it is no light of spots.

    Parameters
    ----------
    areas : BandAreas
        The band in which spots are looked for.

    Examples
    --------
    >>> from scipy import ndimage
    >>> base = np.where(np.arange(256) < 128, 10.0, 200.0)
    >>> raw = np.random.default_rng(1).poisson(base, (256, 256)).astype(float)
    >>> [is_band_passed(BandAreas([a], 1.3)) for a in (raw, -ndimage.gaussian_laplace(raw, 1.3))]
    [False, True]
    """
    usable = areas.variance > 0
    if np.count_nonzero(usable) < _FEWEST:
        return False
    level, variance = areas.level[usable], areas.variance[usable]
    dark, bright = np.quantile(level, (_LOW, _HIGH))
    calm, noisy = np.quantile(variance, (_LOW, _HIGH))
    differs = bright - dark
    most = min(_OF_NOISY * math.sqrt(noisy), _OF_CALM * math.sqrt(calm))
    if not (noisy > _TIMES * calm and differs < most):
        return False
    ratios = areas.ratio[usable][variance >= noisy]
    deep, high = np.quantile(ratios.reshape(len(ratios), -1), _TAILS, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        alike = float(np.median(-high / deep))
    return _ALIKE[0] < alike < _ALIKE[1]
