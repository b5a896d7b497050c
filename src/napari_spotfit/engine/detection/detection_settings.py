"""What detection is told and what it finds, as kernels/detection_settings.h declares it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...settings.noise_model import NoiseModel
from ...settings.settings import DEFAULT_FALSE_SPOTS, Settings
from ..c_types import fields
from .band import Band, Bands
from .false_spots import score_for

#: A pixel that is higher in a band than those around it.
MAXIMUM = np.dtype(
    [(name, np.int32) for name in ("frame", "y", "x", "band", "on_flat_area")]
    + [(name, np.float32) for name in ("height", "score")]
)

#: Of an image without noise: all that is higher than its surroundings stands out.
NO_NOISE = NoiseModel(0.0, 0.0, 0.0)

#: From this score on, a maximum of the narrow band tells a place better than that of the wide one
#: that it belongs to; and how far it may be from it, in units of the PSF's σ, and in pixels: on
#: neighbouring pixels they are always one spot's.
_CLEAR, _REACH, _LEAST_REACH = 8.0, 1.6, 1.5
#: How far away the surroundings of a lone pixel are looked at, in units of σ, and at least in px.
_LONE_DISTANCE, _LEAST_LONE_DISTANCE = 2, 2
_WIDTHS, _BANDS, _DIRECTIONS = 3, 2, 4


class BandSettings(ctypes.Structure):
    """What is told of each band."""

    _fields_ = (
        *fields("pointer gain_y gain_x", "double gain least_height", "float skewness"),
        ("curvature", ctypes.c_float * _DIRECTIONS),
        ("roughness", ctypes.c_float * _DIRECTIONS),
    )


class DetectionSettings(ctypes.Structure):
    """What detection is told, the same for all frames of a call."""

    _fields_ = (
        ("kernels", ctypes.c_void_p * _WIDTHS),
        ("bands", BandSettings * _BANDS),
        *fields(
            "pointer variance_map",
            "double lowest_border least_score shape_score clear_score reach",
            "double slope intercept least_variance own_slope level", "long height width",
        ),
        ("radius", ctypes.c_int * _WIDTHS),
        *fields("int step diagonal row_step", "float sigma lone_share"),
        *fields("int lone_distance level_known"),
    )  # fmt: skip

    @property
    def reach_in_pixels(self) -> int:
        """How many rows and columns around a maximum tell that it is one."""
        return int(max(self.step, 1) + self.radius[-1] + self.lone_distance + 1)


def make_detection_settings(
    settings: Settings,
    bands: Bands,
    address: Callable[[Any], int | None],
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
    address : callable
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
        (ctypes.c_void_p * _WIDTHS)(*(address(kernel) for kernel in bands.kernels)),
        (BandSettings * _BANDS)(*_heights(bands, settings.threshold, address)),
        None if variance_map is None else address(variance_map),
        bands.lowest_border,
        -math.inf if by_height else score,
        score_for(DEFAULT_FALSE_SPOTS, sigma) if by_height else score,
        _CLEAR, max(_REACH * sigma, _LEAST_REACH),
        factor * noise.slope, factor * noise.intercept, factor * noise.least, noise.slope,
        level or 0.0, *bands.shape,
        (ctypes.c_int * _WIDTHS)(*(len(kernel) - 1 for kernel in bands.kernels)),
        bands.step, bands.diagonal, bands.row_step, sigma, _lone_share(sigma),
        max(_LEAST_LONE_DISTANCE, round(_LONE_DISTANCE * sigma)), level is not None,
    )  # fmt: skip


def _heights(
    bands: Bands, threshold: float | None, address: Callable[[Any], int | None]
) -> list[BandSettings]:
    """Return what is told of each band; a threshold is that of the wide one."""
    return [
        BandSettings(
            address(band.gain_y), address(band.gain_x), band.gain,
            _least_height(band, bands.bands[0], threshold), band.skewness,
            (ctypes.c_float * _DIRECTIONS)(*band.curvature),
            (ctypes.c_float * _DIRECTIONS)(*band.roughness),
        )
        for band in bands.bands
    ]  # fmt: skip


def _least_height(band: Band, wide: Band, threshold: float | None) -> float:
    """Return what spots whose height in the wide band is the threshold have in a band."""
    return 0.0 if threshold is None else threshold * band.response / wide.response


def _lone_share(sigma: float) -> float:
    """Return how far a pixel steps out of its neighbours when it is no spot's, over its height.

    Half-way between a pixel all alone and the middle of the sharpest spot there is.
    """
    return min(1 - math.exp(-1 / (2 * sigma**2)) / 2, 0.9)
