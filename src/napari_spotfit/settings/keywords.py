"""The settings as the keyword arguments of the public functions, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from ..models.estimators import EstimatorName
from ..models.profiles import ModelName, Profile
from .noise_model import NoiseModel
from .settings import Backend, Devices, Neighbours, Pixel


class Options(TypedDict, total=False):
    """The settings as keyword arguments; kept equal to :class:`Settings` by a test.

    The ROI's size is missing: functions that need it have an argument of its own.
    """

    sigma: float | None
    false_spots: float
    threshold: float | None
    min_distance: float
    model: ModelName | Profile
    pixel: Pixel
    estimator: EstimatorName
    neighbours: Neighbours
    fixed: Mapping[str, float | None]
    bounds: Mapping[str, tuple[float | None, float | None]]
    errors: bool
    max_iterations: int
    max_error: float
    min_delta: float
    min_step: float
    sigma_min: float | None
    sigma_max: float | None
    amplitude_min: float | None
    amplitude_max: float | None
    background_min: float | None
    background_max: float | None
    offset: float
    gain: float | None
    variance: float | None
    emccd: bool
    noise: NoiseModel | None
    backend: Backend
    devices: Devices
    threads: int | None
