"""Where fits stop and what they may reach, as numbers: the same on every backend."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..settings.settings import Settings
from .fit_settings import bounds_of, kernel_order

__all__ = ["Limits", "kernel_order", "make_limits"]


class Limits(NamedTuple):
    """The settings that decide where a fit stops and what it may reach, as numbers."""

    max_iterations: float
    max_error: float
    min_delta: float
    min_step: float
    #: Of every shape parameter in the order of the kernels: x, y, widths.
    low: tuple[float, ...]
    high: tuple[float, ...]
    held: tuple[bool, ...]
    amplitude_min: float
    amplitude_max: float
    background_min: float
    background_max: float
    bounded_amplitudes: bool


def make_limits(settings: Settings, roi_shape: tuple[int, int]) -> Limits:
    """Return the settings as the fits take them; open bounds become infinite.

    Maximum likelihood knows no negative light: there, amplitude and background are bounded
    by 0 where the settings leave them open.
    """
    lowest = 0.0 if settings.estimator == "mle" else -math.inf
    amplitude = settings.amplitude_min, settings.amplitude_max
    background = settings.background_min, settings.background_max
    names = kernel_order(settings.profile)
    ends = [bounds_of(name, settings, roi_shape) for name in names]
    return Limits(
        max_iterations=float(settings.max_iterations),
        max_error=settings.max_error,
        min_delta=settings.min_delta,
        min_step=settings.min_step,
        low=tuple(low for low, _ in ends),
        high=tuple(high for _, high in ends),
        held=tuple(name in settings.fixed for name in names),
        amplitude_min=_or(amplitude[0], lowest),
        amplitude_max=_or(amplitude[1], math.inf),
        background_min=_or(background[0], lowest) + settings.offset,
        background_max=_or(background[1], math.inf) + settings.offset,
        bounded_amplitudes=lowest == 0 or any(end is not None for end in amplitude + background),
    )


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
