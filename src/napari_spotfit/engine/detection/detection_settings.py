"""What detection is told and what it finds, as kernels/detection_settings.h declares it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...settings.noise_model import NoiseModel
from ...settings.settings import Settings
from ..c_types import fields
from .band import Band

#: A pixel that is higher in the filtered frame than those around it.
MAXIMUM = np.dtype(
    [(name, np.int32) for name in ("frame", "y", "x", "on_flat_area")]
    + [(name, np.float32) for name in ("height", "score")]
)


NO_NOISE = NoiseModel(0.0, 0.0, 0.0)


class DetectionSettings(ctypes.Structure):
    """What detection is told, the same for all frames of a call."""

    _fields_ = fields(
        "pointer narrow wide gain_y gain_x", "double gain lowest_border least_score least_height",
        "long height width", "int narrow_radius radius row_step",
        "double slope intercept least_variance", "float lone_share", "int lone_distance",
    )  # fmt: skip


def make_detection_settings(
    settings: Settings,
    band: Band,
    address: Callable[[Any], int | None],
    noise: NoiseModel = NO_NOISE,
) -> DetectionSettings:
    """Return what the settings ask for.

    Parameters
    ----------
    settings : Settings
        ``threshold`` and ``threshold_unit`` count.
    band : Band
        The band-pass; its arrays must outlast the result.
    address : callable
        Says where one of them lies in the memory of the machine that detects.
    noise : NoiseModel, optional
        That of the pixels.
    """
    in_noise = settings.threshold_unit == "noise"
    return DetectionSettings(
        address(band.narrow), address(band.wide), address(band.gain_y), address(band.gain_x),
        band.gain, band.lowest_border,
        settings.threshold if in_noise else 0.0, 0.0 if in_noise else settings.threshold,
        *band.shape, len(band.narrow) - 1, len(band.wide) - 1, band.row_step,
        noise.slope, noise.intercept, noise.least, _lone_share(settings.sigma),
        max(2, round(2 * settings.sigma)),
    )  # fmt: skip


def _lone_share(sigma: float) -> float:
    """Return how far a pixel steps out of its neighbours when it is no spot's, over its height.

    Half-way between a pixel all alone and the middle of the sharpest spot there is.
    """
    return min(1 - math.exp(-1 / (2 * sigma**2)) / 2, 0.9)
