"""The settings of a fit as numbers, as the kernels take them on every machine."""

from __future__ import annotations

import math
from functools import lru_cache

from ..models.profiles import Profile
from ..settings.bounds import bounds_of, light_ends
from ..settings.camera_noise import electrons_of, noise_of
from ..settings.settings import Settings
from .cpu.layouts import FitSettings

_LIGHT = ("amplitude", "background")


def kernel_order(profile: Profile) -> tuple[str, ...]:
    """Return the shape parameters in the order of the kernels: x, y, and the others."""
    return ("x", "y", *profile.widths)


@lru_cache(maxsize=64)
def make_fit_settings(settings: Settings, roi_shape: tuple[int, int]) -> FitSettings:
    """Return the settings as the fits take them, only to be read; open bounds become infinite.

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
    light = [end.value for light in _LIGHT for end in light_ends(settings, light)]
    offset, noise, electrons = settings.offset, noise_of(settings), electrons_of(settings)
    line = noise.correlation**2 if noise else 0.0
    # Maximum likelihood knows no light below that of a dark pixel.
    zero = electrons.dark if settings.estimator_kind.is_likelihood else offset
    return FitSettings(
        max_iterations=settings.max_iterations,
        max_error=settings.max_error,
        min_delta=settings.min_delta,
        min_step=settings.min_step,
        low=tuple(low for low, _ in ends),
        high=tuple(high for _, high in ends),
        start=tuple(shape[name].start[0] for name in names),
        start_per_sigma=tuple(shape[name].start[1] for name in names),
        amplitude_min=light[0],
        amplitude_max=light[1],
        background_min=light[2] + (zero if settings.background_min is None else offset),
        background_max=light[3] + offset,
        offset=offset,
        photon=settings.gain or 1.0,
        dark=electrons.dark,
        gain=electrons.gain,
        excess=electrons.excess,
        noise_slope=line * noise.slope if noise else 0.0,
        noise_at_offset=line * (noise.intercept + noise.slope * offset) if noise else 0.0,
        noise_least=line * noise.least if noise else 0.0,
        fitted=settings.fitted_parameters,
        held=held_shape(settings),
        bounded_amplitudes=any(math.isfinite(end) for end in light),
        noise_known=noise is not None,
        errors=settings.errors,
        turns=_turns(settings),
    )


def held_shape(settings: Settings) -> int:
    """Return a bit for each shape parameter that stays at its start value."""
    names = kernel_order(settings.profile)
    return sum((name in settings.fixed) << i for i, name in enumerate(names))


def _in_radians(name: str, ends: tuple[float, float]) -> tuple[float, float]:
    return (math.radians(ends[0]), math.radians(ends[1])) if name == "angle" else ends


def _turns(settings: Settings) -> int:
    """Return how a turned Gaussian may be called: by what the caller has said of its axes."""
    limited = {*settings.fixed, *settings.bounds}
    if "angle" in limited:
        return 0
    return 1 if limited & {"sigma_x", "sigma_y"} else 2
