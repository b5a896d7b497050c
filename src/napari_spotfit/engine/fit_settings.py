"""The settings of a fit as numbers, as the kernels take them on every machine."""

from __future__ import annotations

import ctypes
import math

from ..models.profiles import Profile
from ..models.stopping import SIGMA_MAX_ROI, SIGMA_MIN
from ..settings.settings import Settings

#: The most shape parameters of any model, as in kernels/fit_settings.h.
MAX_SHAPE = 12

_PerShape = ctypes.c_float * MAX_SHAPE


class FitSettings(ctypes.Structure):
    """The same as in kernels/fit_settings.h, where its fields are explained."""

    _fields_ = (
        ("max_iterations", ctypes.c_float),
        ("max_error", ctypes.c_float),
        ("min_delta", ctypes.c_float),
        ("min_step", ctypes.c_float),
        ("low", _PerShape),
        ("high", _PerShape),
        ("start", _PerShape),
        ("start_per_sigma", _PerShape),
        ("amplitude_min", ctypes.c_float),
        ("amplitude_max", ctypes.c_float),
        ("background_min", ctypes.c_float),
        ("background_max", ctypes.c_float),
        ("offset", ctypes.c_float),
        ("gain", ctypes.c_float),
        ("variance", ctypes.c_float),
        ("fitted", ctypes.c_float),
        ("held", ctypes.c_int),
        ("bounded_amplitudes", ctypes.c_int),
        ("gain_known", ctypes.c_int),
        ("errors", ctypes.c_int),
        ("turns", ctypes.c_int),
    )


def kernel_order(profile: Profile) -> tuple[str, ...]:
    """Return the shape parameters in the order of the kernels: x, y, and the others."""
    return ("x", "y", *profile.widths)


def make_fit_settings(settings: Settings, roi_shape: tuple[int, int]) -> FitSettings:
    """Return the settings as the fits take them; open bounds become infinite.

    Maximum likelihood knows no negative light: there, amplitude and background are bounded
    by 0 where the settings leave them open.

    Parameters
    ----------
    settings : Settings
        The settings.
    roi_shape : (int, int)
        Rows and columns of the ROIs, in whose pixels the centre is.

    Examples
    --------
    >>> numbers = make_fit_settings(Settings(sigma_max=3.0), (9, 9))
    >>> numbers.high[2], numbers.background_min
    (3.0, -inf)
    """
    profile = settings.profile
    names = kernel_order(profile)
    shape = {parameter.name: parameter for parameter in profile.shape}
    ends = [_in_radians(name, bounds_of(name, settings, roi_shape)) for name in names]
    lowest = 0.0 if settings.estimator == "mle" else -math.inf
    light = (
        settings.amplitude_min, settings.amplitude_max,
        settings.background_min, settings.background_max,
    )  # fmt: skip
    return FitSettings(
        max_iterations=settings.max_iterations,
        max_error=settings.max_error,
        min_delta=settings.min_delta,
        min_step=settings.min_step,
        low=_PerShape(*(low for low, _ in ends)),
        high=_PerShape(*(high for _, high in ends)),
        start=_PerShape(*(shape[name].start[0] for name in names)),
        start_per_sigma=_PerShape(*(shape[name].start[1] for name in names)),
        amplitude_min=_or(light[0], lowest),
        amplitude_max=_or(light[1], math.inf),
        background_min=_or(light[2], lowest) + settings.offset,
        background_max=_or(light[3], math.inf) + settings.offset,
        offset=settings.offset,
        gain=settings.gain or 1.0,
        variance=settings.variance or 0.0,
        fitted=len(names) + 2 - held_shape(settings).bit_count(),
        held=held_shape(settings),
        bounded_amplitudes=lowest == 0 or any(end is not None for end in light),
        gain_known=settings.gain is not None,
        errors=settings.errors,
        turns=_turns(settings),
    )


def held_shape(settings: Settings) -> int:
    """Return a bit for each shape parameter that stays at its start value."""
    names = kernel_order(settings.profile)
    return sum((name in settings.fixed) << i for i, name in enumerate(names))


def bounds_of(name: str, settings: Settings, roi_shape: tuple[int, int]) -> tuple[float, float]:
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


def _in_radians(name: str, ends: tuple[float, float]) -> tuple[float, float]:
    return (math.radians(ends[0]), math.radians(ends[1])) if name == "angle" else ends


def _turns(settings: Settings) -> int:
    """Return how a turned Gaussian may be called: by what the caller has said of its axes."""
    limited = {*settings.fixed, *settings.bounds}
    if "angle" in limited:
        return 0
    return 1 if limited & {"sigma_x", "sigma_y"} else 2


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
