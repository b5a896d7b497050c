"""Where fits stop and what they may reach, as numbers: the same on every backend."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..models.profiles import Profile
from ..models.stopping import SIGMA_MAX_ROI, SIGMA_MIN
from ..settings.settings import Settings


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


def kernel_order(profile: Profile) -> tuple[str, ...]:
    """Return the shape parameters in the order of the kernels: x, y, widths."""
    return ("x", "y", *profile.widths)


def make_limits(settings: Settings, roi_shape: tuple[int, int]) -> Limits:
    """Return the settings as the fits take them; open bounds become infinite.

    Maximum likelihood knows no negative light: there, amplitude and background are bounded
    by 0 where the settings leave them open.
    """
    lowest = 0.0 if settings.estimator == "mle" else -math.inf
    amplitude = settings.amplitude_min, settings.amplitude_max
    background = settings.background_min, settings.background_max
    names = kernel_order(settings.profile)
    ends = [_ends(name, settings, roi_shape) for name in names]
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


def _ends(name: str, settings: Settings, roi_shape: tuple[int, int]) -> tuple[float, float]:
    """Return the bounds of a shape parameter in pixels of the ROI, or as it comes."""
    own = next(shape for shape in settings.profile.shape if shape.name == name)
    low, high = settings.bounds.get(name, (own.low, own.high))
    held = settings.fixed.get(name)
    if held is not None:
        low = high = held
    if name in ("x", "y"):
        size = roi_shape[0] if name == "y" else roi_shape[1]
        first, middle, last = -0.5, (size - 1) / 2, size - 0.5
        return (
            min(max(first, middle + _or(low, -math.inf)), last),
            max(min(last, middle + _or(high, math.inf)), first),
        )
    if held is not None:
        return held, held
    if name == "angle" or settings.profile.expression is not None:
        return _or(low, -math.inf), _or(high, math.inf)
    if name.startswith("sigma"):
        low = settings.sigma_min if low is None else low
        high = settings.sigma_max if high is None else high
    return _or(low, SIGMA_MIN), _or(high, SIGMA_MAX_ROI * max(roi_shape))


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
