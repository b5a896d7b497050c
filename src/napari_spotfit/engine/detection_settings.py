"""Pass settings to detection, as kernels/layouts/detection_settings.h defines them.

The expected number of maxima of a smooth normal field above a height is Adler's (The Geometry of
Random Fields, 1981). Pixels show fewer, as both bands share some and shape tests exclude others:
how many fewer was measured by simulation.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..settings.fields import DEFAULT_FALSE_SPOTS
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from .bands import (
    SCORES,
    WIDTHS,
    Band,
    Bands,
    VolumeBands,
    highest_along_z,
    make_bands,
    make_volume_bands,
)
from .cpu.layouts import (
    BandSettings,
    DetectionSettings,
    DetectionSource,
    Maximum,
    VolumeBandSettings,
    VolumeSettings,
)
from .kernel_arguments import PIXEL_TYPES, address

#: Share of the field's maxima that is found in white noise at a score of 4, by the PSF's σ in px,
#: and by how much its logarithm falls with each unit of the score up to 5. Simulated on 25 million
#: pixels each.
_SIGMA = np.array([0.5, 0.6, 0.8, 1.0, 1.3, 1.7, 2.3, 3.5, 6.0, 10.0])
_SHARE = (0.073, 0.089, 0.152, 0.206, 0.268, 0.352, 0.462, 0.637, 0.735, 0.997)
_FALL = (0.80, 0.88, 0.75, 0.66, 0.63, 0.53, 0.44, 0.22, 0.17, 0.0)
_SIMULATED_AT, _FALLS_TO = 4.0, 5.0
#: Of volumes, the same over a plane's: more directions are tested for a spot's shape, but both
#: bands share fewer maxima. Simulated on 17 million voxels each.
_OF_VOLUMES = (1.95, 1.9, 1.45, 1.45, 1.42, 1.36, 1.25, 1.07, 1.03, 0.95)
_RISE_OF_VOLUMES = 0.4
#: Range of the search for a score.
_LEAST, _MOST = 1.0, 40.0


def expected_false_spots(
    score: float, sigma: float, sigma_z: float | None = None, depth: int = 1
) -> float:
    """Return the expected number of maxima of white noise above a score, per 10⁶ pixels.

    With a number of planes, of volumes, they are those that are highest along z, too.

    Examples
    --------
    >>> round(expected_false_spots(score_for(10, 1.3), 1.3), 6)
    10.0
    """
    field = _density(sigma) * score * math.exp(-(score**2) / 2)
    share, fall = (
        float(np.interp(math.log(sigma), np.log(_SIGMA), values)) for values in (_SHARE, _FALL)
    )
    expected = 1e6 * field * share * math.exp(-fall * (min(score, _FALLS_TO) - _SIMULATED_AT))
    if sigma_z is None:
        return expected
    more = float(np.interp(math.log(sigma), np.log(_SIGMA), _OF_VOLUMES))
    more *= math.exp(_RISE_OF_VOLUMES * (min(score, _FALLS_TO) - _SIMULATED_AT))
    return expected * more * float(np.interp(score, SCORES, highest_along_z(sigma, sigma_z, depth)))


@lru_cache(maxsize=64)
def score_for(
    false_spots: float, sigma: float, sigma_z: float | None = None, depth: int = 1
) -> float:
    """Return the score that this many maxima of white noise exceed per 10⁶ pixels."""
    low, high = _LEAST, _MOST
    for _ in range(60):
        middle = (low + high) / 2
        if expected_false_spots(middle, sigma, sigma_z, depth) > false_spots:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=64)
def _density(sigma: float) -> float:
    """Return the density of maxima of a smooth field per pixel, up to a factor of the score."""
    unlikeness: float = sum(band.unlikeness for band in make_bands(sigma, (1, 1)).bands)
    return unlikeness / float((2 * math.pi) ** 1.5)


#: A pixel that is higher in a band than those around it.
MAXIMUM = np.dtype(Maximum)
#: Bytes of a frame's limits, as GPUs have them.
LIMITS = 36

#: Of an image without noise: all that is higher than its surroundings stands out.
NO_NOISE = NoiseModel(0.0, 0.0, 0.0)

#: From this score on, a maximum of the narrow band locates a spot better than that of the wide one
#: that it belongs to; and how far it may be from it, in units of the PSF's σ, and in pixels: on
#: neighbouring pixels they are always one spot's.
_CLEAR, _REACH, _LEAST_REACH = 8.0, 1.6, 1.5
#: How far from a spot, in units of σ, dark ones show that it is texture; how far a spot makes
#: minima around it, how many times as deep as those of a Gaussian they may be, and how deep at
#: least, over its height.
_DARK_REACH, _SHARE_REACH, _DEEPER, _LEAST_SHARE = 20.0, 6.0, 2.0, 0.1
#: How far away the surroundings of a hot pixel are looked at, in units of σ, and at least in px.
_HOT_DISTANCE, _LEAST_HOT_DISTANCE = 2, 2


def bands_of(settings: Settings, shape: tuple[int, ...]) -> Bands:
    """Return the bands for frames, or volumes, of a shape."""
    if len(shape) == 2:
        return make_bands(settings.known_sigma, (shape[0], shape[1]))
    return make_volume_bands(
        settings.known_sigma, settings.known_sigma_z, (shape[0], shape[1], shape[2])
    )


def reach_in_pixels(settings: DetectionSettings) -> int:
    """Return how far from a maximum the pixels lie that decide whether it is one."""
    return int(max(settings.step, 1) + settings.radius[-1] + settings.hot_distance + 1)


def texture_reach(sigma: float) -> float:
    """Return how far from a spot those lie, in pixels, that decide whether it is texture."""
    return (2 * _DARK_REACH + _SHARE_REACH) * sigma


class Shares(NamedTuple):
    """How deep the minima around a spot may be, and how far minima of texture count."""

    #: Depth over the spot's height, in the wide band, by the square of the distance in pixels.
    shares: NDArray[np.float32]
    #: How far these reach, and how far a dark spot counts.
    reach: float
    dark_reach: float


@lru_cache(maxsize=64)
def shares_of_depth(sigma: float) -> Shares:
    """Return them for spots of a width.

    Examples
    --------
    >>> shares_of_depth(1.3).shares[[0, 18, 60]].round(2)
    array([0.1 , 0.26, 0.1 ], dtype=float32)
    """
    square = np.arange(math.ceil((_SHARE_REACH * sigma) ** 2) + 1) / sigma**2
    own, wider = (1 + width**2 for width in WIDTHS[1:])
    heights = [np.exp(-square / (2 * wide)) / wide for wide in (own, wider)]
    lobes = (heights[1] - heights[0]) / (1 / own - 1 / wider)
    shares = np.maximum(_DEEPER * lobes, _LEAST_SHARE).astype(np.float32)
    return Shares(shares, _SHARE_REACH * sigma, _DARK_REACH * sigma)


def detection_source(frames: NDArray[Any], settings: DetectionSettings) -> DetectionSource:
    """Return a view of frames (n, Y, X), C-contiguous, which must outlast it."""
    pixel_type = PIXEL_TYPES[frames.dtype.str[1:]]
    source = DetectionSource(address(frames), ctypes.addressof(settings), pixel_type)
    source.kept = settings
    return source


def make_detection_settings(
    settings: Settings,
    bands: Bands,
    address_of: Callable[[Any], int | None],
    noise: NoiseModel | None = None,
    variance_map: Any = None,
    level: float | None = None,
    depth: int | None = None,
    address_of_settings: Callable[[VolumeSettings], int] = ctypes.addressof,
    *,
    texture: bool = False,
) -> DetectionSettings:
    """Return the settings of detection as numbers.

    Parameters
    ----------
    settings : Settings
        ``sigma``, ``false_spots``, ``threshold`` and ``noise`` count.
    bands : Bands
        Their arrays must outlast the result.
    address_of : callable
        Says where one of them lies in the memory of the machine that detects.
    noise : NoiseModel, optional
        That of the pixels, instead of the settings' own.
    variance_map : array of float32, shape (Y, X), optional
        Variances of all pixels beside that noise.
    level : float, optional
        Level of the whole frame, where only a part of it is given; by default that of the pixels.
    depth : int, optional
        Planes of the whole volume, where only some of them are given.
    address_of_settings : callable
        The same for what volumes have beside planes; what it returns the address of must outlast
        the result, too.
    texture : bool
        Whether what is texture counts, too; with a threshold and in volumes it always does.
    """
    noise = noise or settings.known_noise
    factor = noise.correlation**2
    sigma = settings.known_sigma
    stack = () if bands.volume is None else (bands.volume.sigma_z, depth or bands.volume.depth)
    score = score_for(settings.false_spots, sigma, *stack)
    usual_score = score_for(DEFAULT_FALSE_SPOTS, sigma, *stack)
    by_height = settings.threshold is not None
    volume = bands.volume and _volume_settings(bands, bands.volume, address_of)
    made = DetectionSettings(
        tuple(address_of(kernel) for kernel in bands.kernels),
        _heights(bands, settings.threshold, address_of),
        None if variance_map is None else address_of(variance_map),
        bands.lowest_border,
        -math.inf if by_height else score,
        usual_score if by_height else score,
        _CLEAR, max(_REACH * sigma, _LEAST_REACH),
        math.inf if texture or by_height or stack else usual_score,
        factor * noise.slope, factor * noise.intercept, factor * noise.least, noise.slope,
        level or 0.0, *bands.shape, bands.volume.depth if bands.volume else 1,
        bands.volume.sigma_z / sigma if bands.volume else 1.0,
        volume and address_of_settings(volume),
        tuple(len(kernel) - 1 for kernel in bands.kernels),
        bands.step, bands.diagonal, bands.row_step, sigma, _hot_share(sigma),
        max(_LEAST_HOT_DISTANCE, round(_HOT_DISTANCE * sigma)), level is not None,
    )  # fmt: skip
    made.kept = volume
    return made


def _volume_settings(
    bands: Bands, volume: VolumeBands, address_of: Callable[[Any], int | None]
) -> VolumeSettings:
    wide = bands.bands[0].response
    return VolumeSettings(
        tuple(map(address_of, volume.kernels)),
        tuple(
            VolumeBandSettings(
                *map(address_of, (band.gain_z, band.skewness, band.curvature)),
                wide / flat.response, band.curvature_noise,
            )
            for band, flat in zip(volume.bands, bands.bands, strict=True)
        ),
        volume.sigma_z, tuple(len(half) - 1 for half in volume.kernels), volume.reach,
    )  # fmt: skip


def _heights(
    bands: Bands, threshold: float | None, address_of: Callable[[Any], int | None]
) -> tuple[BandSettings, ...]:
    """Return the settings of each band; a threshold is that of the wide one."""
    return tuple(
        BandSettings(
            address_of(band.gain_y), address_of(band.gain_x), band.gain,
            _least_height(band, bands.bands[0], threshold), band.skewness,
            tuple(band.curvature),
            tuple(band.roughness),
            band.own_weight,
            band.beside,
        )
        for band in bands.bands
    )  # fmt: skip


def _least_height(band: Band, wide: Band, threshold: float | None) -> float:
    """Return the height in a band of spots at the threshold in the wide band."""
    return 0.0 if threshold is None else threshold * band.response / wide.response


def _hot_share(sigma: float) -> float:
    """Return how far a pixel steps out of its neighbours when it is no spot's, over its height.

    Half-way between a pixel all alone and the middle of the sharpest spot there is.
    """
    return min(1 - math.exp(-1 / (2 * sigma**2)) / 2, 0.9)
