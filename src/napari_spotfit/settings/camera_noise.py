"""Noise and photo-electrons by the settings, for standard errors and maximum likelihood."""

from __future__ import annotations

import math
from typing import NamedTuple

from .noise_model import NoiseModel, excess_of
from .settings import Settings

#: Of a slope that is less times the least noise, single precision would lose the light.
_LEAST_SLOPE = 1e-3


class Electrons(NamedTuple):
    """Conversion of counts to photo-electrons for maximum likelihood."""

    #: Counts without light, and counts per photo-electron.
    dark: float
    gain: float
    #: The read-out variance of all pixels in counts², without a map of it.
    variance: float = 0.0
    #: How many times the variance of results is that of photo-electrons.
    excess: float = 1.0


def noise_of(settings: Settings) -> NoiseModel | None:
    """Return the noise that standard errors follow: the camera's, else the image's, if known.

    Examples
    --------
    >>> float(noise_of(Settings(gain=2.0, offset=100.0)).variance(150))
    100.0
    """
    if settings.gain is not None:
        return NoiseModel.of_camera(
            settings.gain, settings.offset, settings.variance or 0.0, emccd=settings.emccd
        )
    return settings.noise if settings.noise is not None and settings.noise.is_known else None


def electrons_of(settings: Settings) -> Electrons:
    """Return the conversion that maximum likelihood uses; without a gain, that of the noise.

    With a gain of the noise's slope, and without light as many counts as have no variance but that
    of the read-out, counts are as noisy as photo-electrons.

    Examples
    --------
    >>> electrons_of(Settings(noise=NoiseModel(2.0, -200.0, 5.0)))
    Electrons(dark=100.0, gain=2.0, variance=0.0, excess=1.0)
    """
    noise, excess = settings.noise, excess_of(settings.emccd)
    known = Electrons(settings.offset, settings.gain or 1.0, settings.variance or 0.0, excess)
    if settings.gain is not None or noise is None or not has_shot_noise(noise):
        return known
    variance, dark = settings.variance or 0.0, settings.offset
    if dark == 0:
        dark = (variance - noise.intercept) / noise.slope
    elif settings.variance is None:
        variance = max(noise.intercept + noise.slope * dark, 0.0)
    return Electrons(dark, noise.slope / excess, variance, excess * noise.correlation**2)


def has_shot_noise(noise: NoiseModel) -> bool:
    """Whether the noise grows with the light, so that its slope gives the number of electrons."""
    return noise.slope > _LEAST_SLOPE * math.sqrt(noise.least)
