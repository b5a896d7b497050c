"""What detection is told and what it finds, as kernels/layouts/detection_settings.h has it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.noise_model import NoiseModel
from ...settings.settings import DEFAULT_FALSE_SPOTS, Settings
from ..cpu.layouts import BandSettings, DetectionSettings, DetectionSource, Maximum
from ..kernel_arguments import PIXEL_TYPES, address
from .band import Band, Bands
from .false_spots import score_for

#: A pixel that is higher in a band than those around it.
MAXIMUM = np.dtype(Maximum)

#: Of an image without noise: all that is higher than its surroundings stands out.
NO_NOISE = NoiseModel(0.0, 0.0, 0.0)

#: From this score on, a maximum of the narrow band tells a place better than that of the wide one
#: that it belongs to; and how far it may be from it, in units of the PSF's σ, and in pixels: on
#: neighbouring pixels they are always one spot's.
_CLEAR, _REACH, _LEAST_REACH = 8.0, 1.6, 1.5
#: How far away the surroundings of a lone pixel are looked at, in units of σ, and at least in px.
_LONE_DISTANCE, _LEAST_LONE_DISTANCE = 2, 2


def reach_in_pixels(settings: DetectionSettings) -> int:
    """Return how many rows and columns around a maximum tell that it is one."""
    return int(max(settings.step, 1) + settings.radius[-1] + settings.lone_distance + 1)


def detection_source(frames: NDArray[Any], settings: DetectionSettings) -> DetectionSource:
    """Return frames (n, Y, X), C-contiguous, which must outlast it."""
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
) -> DetectionSettings:
    """Return what the settings ask for.

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
        That of a frame of which the pixels are a part, as :func:`~.level.level_of` tells it; else
        they tell it themselves.
    """
    noise = noise or settings.known_noise
    factor = noise.correlation**2
    sigma = settings.known_sigma
    score = score_for(settings.false_spots, sigma)
    by_height = settings.threshold is not None
    return DetectionSettings(
        tuple(address_of(kernel) for kernel in bands.kernels),
        _heights(bands, settings.threshold, address_of),
        None if variance_map is None else address_of(variance_map),
        bands.lowest_border,
        -math.inf if by_height else score,
        score_for(DEFAULT_FALSE_SPOTS, sigma) if by_height else score,
        _CLEAR, max(_REACH * sigma, _LEAST_REACH),
        factor * noise.slope, factor * noise.intercept, factor * noise.least, noise.slope,
        level or 0.0, *bands.shape,
        tuple(len(kernel) - 1 for kernel in bands.kernels),
        bands.step, bands.diagonal, bands.row_step, sigma, _lone_share(sigma),
        max(_LEAST_LONE_DISTANCE, round(_LONE_DISTANCE * sigma)), level is not None,
    )  # fmt: skip


def _heights(
    bands: Bands, threshold: float | None, address_of: Callable[[Any], int | None]
) -> tuple[BandSettings, ...]:
    """Return what is told of each band; a threshold is that of the wide one."""
    return tuple(
        BandSettings(
            address_of(band.gain_y), address_of(band.gain_x), band.gain,
            _least_height(band, bands.bands[0], threshold), band.skewness,
            tuple(band.curvature),
            tuple(band.roughness),
        )
        for band in bands.bands
    )  # fmt: skip


def _least_height(band: Band, wide: Band, threshold: float | None) -> float:
    """Return what spots whose height in the wide band is the threshold have in a band."""
    return 0.0 if threshold is None else threshold * band.response / wide.response


def _lone_share(sigma: float) -> float:
    """Return how far a pixel steps out of its neighbours when it is no spot's, over its height.

    Half-way between a pixel all alone and the middle of the sharpest spot there is.
    """
    return min(1 - math.exp(-1 / (2 * sigma**2)) / 2, 0.9)
