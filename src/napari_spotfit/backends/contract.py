"""What fits take and give, the same on every backend."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..settings import Settings
from ..stopping import SIGMA_MAX_ROI, SIGMA_MIN

#: The columns of single-precision results, in the order in which backends write them.
VALUES = ("sigma", "amplitude", "background", "photons", "chi_square", "reduced_chi_square")
ERRORS = tuple(
    f"{name}_stderr" for name in ("x", "y", "sigma", "amplitude", "background", "photons")
)


def width_of(errors: bool) -> int:
    """Return how many single-precision numbers a fit has."""
    return len(VALUES) + (len(ERRORS) if errors else 0)


class Limits(NamedTuple):
    """The settings that decide where a fit stops and what it may reach, as numbers."""

    max_iterations: float
    max_error: float
    min_delta: float
    min_step: float
    sigma_min: float
    sigma_max: float
    amplitude_min: float
    amplitude_max: float
    background_min: float
    background_max: float
    bounded_amplitudes: bool


def make_limits(settings: Settings, roi_shape: tuple[int, int]) -> Limits:
    """Return the settings as the fits take them; open bounds become infinite."""
    amplitude = settings.amplitude_min, settings.amplitude_max
    background = settings.background_min, settings.background_max
    return Limits(
        max_iterations=float(settings.max_iterations),
        max_error=settings.max_error,
        min_delta=settings.min_delta,
        min_step=settings.min_step,
        sigma_min=SIGMA_MIN if settings.sigma_min is None else settings.sigma_min,
        sigma_max=SIGMA_MAX_ROI * max(roi_shape)
        if settings.sigma_max is None
        else settings.sigma_max,
        amplitude_min=_or(amplitude[0], -math.inf),
        amplitude_max=_or(amplitude[1], math.inf),
        background_min=_or(background[0], -math.inf) + settings.offset,
        background_max=_or(background[1], math.inf) + settings.offset,
        bounded_amplitudes=any(bound is not None for bound in amplitude + background),
    )


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
