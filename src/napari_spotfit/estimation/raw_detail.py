"""Whether fine detail is noise as a camera has it, or what a filter or a denoiser has left of it.

White noise has as much detail that is fine along one axis as detail that is fine along both, and
its blocks scatter by chance only. Where that is so, the band that spots are looked for in has the
same noise, unless a denoiser left white detail alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..settings.noise_model import NoiseModel
from .band_noise import BandAreas, BandNoise, some_parts
from .calm_pixels import calm_noise
from .denoised import looks_denoised
from .noise_line import quantiles
from .photon_transfer import MOST_SCATTER, FineDetail

#: Detail along one axis over that along both, of an image that is as a camera took it. Chance of a
#: single block in this, and in the scatter of blocks.
WHITE = (0.9, 1.14)
_CHANCE, _CHANCE_OF_SCATTER = 1.5, 0.6
#: By how many of its errors, and how much, that ratio is below 1 where a filter has left more
#: detail along both axes than along one, which light never has.
_SURELY, _BLUE = 4.5, 0.92
#: Fewer blocks do not show by how much they scatter.
FEW_BLOCKS = 32
#: Fewer blocks do not show whether their detail is that of white noise.
_FEWEST_BLOCKS = 4
#: High maxima of noise are at most this many times as high as those of white noise; of bright
#: crowds 1.4 and more.
TAIL_OF_NOISE = 1.25
#: Where the band has this many times the deviation of fine detail that looks white, and calm pixels
#: have this much more detail along one axis, fine detail shows what a denoiser has left.
_BEYOND_WHITE, _SMOOTH = 3.0, 1.3
#: Without a filter, and with few spots, the band has between these of the deviation of fine detail.
_USUAL = (0.92, 1.12)
#: Where the second of these quantiles is this many times as far from the third as from the first,
#: there are spots everywhere, which widen the band: that is looked at no closer. One pixel in five
#: shows it.
_OF_LIGHT, _MANY_SPOTS, _ONE_IN = (0.05, 0.5, 0.95), 2.0, 5
#: The share of areas with the least noise, and how many times that of fine detail they have, in
#: variance, after a filter; of filtered noise low minima are as deep as low maxima are high but for
#: the first, and high ones but for the second factor.
_CALMEST, _MORE, ALIKE = 0.25, 1.35, (0.3, 1.3)
#: From the first of these times the deviation on, where pixels of the band are as far below the
#: usual as above it, but for the second part of their range (in these quantiles; of dense crowds it
#: is 0.03 to 0.5), the band may be amplified noise among cells; it is if the calmest areas, this
#: part of all, have the last number of times the variance of fine detail.
_AMPLIFIED, _SKEWED, _RANGE, _FEW_AREAS, _TIMES = 2.0, 0.15, (0.05, 0.5, 0.95), 0.1, 3.0
#: Deep minima are at least this many times as deep as those of white noise, which those of crowds
#: are 0.85 times at most. Beside edges and spots maxima are higher: in areas where they are most
#: like minima, they are no more than the second times as high. Stripes differ along one direction.
_AS_DEEP, _ABOUT_ALIKE, _NO_STRIPES = 0.9, 1.4, 0.3
_TINY = float(np.finfo(float).tiny)


def looks_raw(detail: FineDetail) -> bool:
    """Whether fine detail is that of white noise, as a camera's is, but for chance."""
    if detail.blocks < _FEWEST_BLOCKS:
        return True
    low, high = WHITE[0] / _chance(detail), WHITE[1] * _chance(detail)
    if not all(low <= ratio <= high for ratio in detail.along):
        return False
    if detail.blocks < FEW_BLOCKS:
        return True
    if is_surely_blue(detail):
        return False
    most = MOST_SCATTER + _CHANCE_OF_SCATTER / math.sqrt(max(detail.blocks, 1))
    return detail.scatter <= most


def is_surely_blue(detail: FineDetail) -> bool:
    """Whether there is more detail along both axes than along one, beyond chance.

    Light has less, and white noise as much, unless it is mostly that of rounding, or of few counts.
    Means without a pixel's own value, and medians where pixels stand out only, leave more.
    """
    if detail.blocks < FEW_BLOCKS or not detail.variance > detail.step**2:
        return False
    lower, error = detail.lower
    return lower < min(-_SURELY * error, math.log(_BLUE))


def _chance(detail: FineDetail) -> float:
    return 1 + _CHANCE / math.sqrt(max(detail.blocks, 1))


def hides_noise(
    frames: NDArray[Any],
    sigma: float,
    noise: NoiseModel,
    detail: FineDetail,
    of_band: tuple[NDArray[Any], float, NDArray[np.float32]],
) -> bool:
    """Whether detail that looks white is what a denoiser has left, or what was amplified hides it.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN in areas of constant value, and where pixels are bad.
    sigma : float
        The PSF's width.
    noise : NoiseModel
        That of fine detail.
    detail : FineDetail
        What fine detail looks like.
    of_band : tuple
        The middle of a frame; there, the deviation in the band of spots over that of white noise,
        and pixels of the band.
    """
    inner, scatter, ratios = of_band
    if is_usual(scatter):
        return False
    known = inner.ravel()[::_ONE_IN]
    known = known[np.isfinite(known)]
    if not known.size:
        return False
    if scatter > _AMPLIFIED and not _is_skewed(ratios):
        areas = BandAreas(some_parts(frames), sigma)
        if is_amplified(areas, areas.noise(), noise) and areas.coherence() < _NO_STRIPES:
            return True
    low, middle, high = (float(value) for value in quantiles(known, *_OF_LIGHT))
    if high - middle > _MANY_SPOTS * (middle - low):
        return False
    parts = some_parts(inner)
    if looks_denoised(parts, noise, detail):
        return True
    if not scatter > 1:
        return False
    areas = BandAreas(parts, sigma)
    band = areas.noise()
    if band is None:
        return False
    if is_all_noise(areas, band, noise, detail):
        return True
    calm = calm_noise(parts) if scatter > _BEYOND_WHITE and band.is_noise else None
    return calm is not None and min(calm.along) > _SMOOTH and band.tail < TAIL_OF_NOISE


def _is_skewed(ratios: NDArray[np.float32]) -> bool:
    """Whether pixels of the band are higher than deep, as those of spots are."""
    low, middle, high = (float(value) for value in quantiles(ratios, *_RANGE))
    return high + low - 2 * middle > _SKEWED * (high - low)


def is_amplified(areas: BandAreas, band: BandNoise | None, noise: NoiseModel) -> bool:
    """Whether noise in the band is several times that of fine detail in nearly all areas."""
    if band is None or not (band.is_surely_noise and band.depth > _AS_DEEP):
        return False
    if not (band.tail < TAIL_OF_NOISE or _is_alike(areas)):
        return False
    usable = areas.variance > 0
    times = areas.variance[usable] / np.maximum(noise.variance(areas.level[usable]), _TINY)
    return bool(np.quantile(times, _FEW_AREAS) > _TIMES)


def _is_alike(areas: BandAreas) -> bool:
    """Whether, where spots are least, maxima are as minima, or less: edges of cells have both."""
    apart, over = areas.contrast()
    return abs(apart) < ALIKE[0] and over < _ABOUT_ALIKE


def is_all_noise(areas: BandAreas, band: BandNoise, noise: NoiseModel, detail: FineDetail) -> bool:
    """Whether the band has more noise than fine detail says, in all areas and not of spots.

    Only a filter leaves less detail along one axis than along both.
    """
    is_blue = min(detail.along) < WHITE[0] / _chance(detail)
    if not (band.is_noise if is_blue else band.is_pure):
        return False
    usable = areas.variance > 0
    times = areas.variance[usable] / np.maximum(noise.variance(areas.level[usable]), _TINY)
    if not float(np.quantile(times, _CALMEST)) > _MORE:
        return False
    apart, over = areas.contrast()
    return is_blue or (abs(apart) < ALIKE[0] and 1 / ALIKE[1] < over < ALIKE[1])


def is_usual(scatter: float) -> bool:
    """Whether the band has the noise that fine detail says, and few spots."""
    return _USUAL[0] < scatter < _USUAL[1]
