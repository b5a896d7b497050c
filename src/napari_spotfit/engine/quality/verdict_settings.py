"""The numbers by which fits are judged, as kernels/verdict.h takes them."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ...settings.bounds import bounds_of, light_ends
from ...settings.camera_noise import electrons_of, noise_of
from ...settings.noise_model import excess_of
from ...settings.settings import Settings
from ..cpu.layouts import MAX_SHAPE, ChiBy, FitColumn, VerdictSettings, WidthParameter
from . import flags

#: Bounds of angles are given in degrees and kept in radians: they are met within so much.
_DEGREES = 1e-3
#: What single precision leaves of a number, as a fraction of it.
_SINGLE = 2e-7
#: How far a noise model that was measured may be too low, as a fraction.
_MEASURED = 0.1
#: The columns before those of the shape parameters.
COLUMNS = tuple(map(str.lower, FitColumn.NAMES[: FitColumn.SHAPE]))
#: Parameters that tell a width.
WIDTHS = tuple(map(str.lower, WidthParameter.NAMES[: WidthParameter.WIDTH_PARAMETERS]))

_NO_ENDS = MAX_SHAPE * (math.nan,)


@lru_cache(maxsize=64)
def verdict_settings(
    settings: Settings | None, roi_shape: tuple[int, int] | None
) -> tuple[tuple[str, ...], VerdictSettings]:
    """Return the columns that verdicts go by, and all other numbers, only to be read."""
    numbers = VerdictSettings(
        low=_NO_ENDS, high=_NO_ENDS, amplitude_low=math.nan,
        amplitude_high=math.nan, background_low=math.nan, background_high=math.nan,
        least_errors=flags.LEAST_ERRORS, most_chi=flags.MOST_CHI, farthest=flags.FARTHEST,
        widest=flags.WIDEST, narrowest=flags.NARROWEST, same_spot=flags.SAME_SPOT,
        same_spot_px=flags.SAME_SPOT_PX, width_at=len(WIDTHS) * (-1,),
    )  # fmt: skip
    if settings is None or roi_shape is None:
        return COLUMNS, numbers
    shape = [parameter.name for parameter in settings.profile.shape]
    numbers.shape, numbers.photon = len(shape), settings.gain or 1.0
    numbers.rows, numbers.columns = roi_shape
    numbers.width_at = tuple(shape.index(one) if one in shape else -1 for one in WIDTHS)
    is_held = not settings.fixed.keys().isdisjoint(settings.profile.widths)
    numbers.widths_judged = not is_held and settings.profile.expression is None
    _put_bounds(numbers, settings, roi_shape)
    _put_noise(numbers, settings, roi_shape)
    return (*COLUMNS, *shape), numbers


def _put_bounds(numbers: VerdictSettings, settings: Settings, roi_shape: tuple[int, int]) -> None:
    """Fill in the bounds at which a fit is no good: the engine leaves it exactly there.

    It does so in single precision.
    """
    for i, parameter in enumerate(settings.profile.shape):
        name = parameter.name
        if name in settings.fixed:
            continue
        low, high = bounds_of(name, settings, roi_shape)
        slack = _DEGREES if name == "angle" else 0.0
        if math.isfinite(low):
            numbers.low[i] = np.float32(low + slack)
        # From its highest exponent on, a Moffat profile is a Gaussian, which spots may well be.
        is_own = settings.profile.expression is not None
        is_gaussian = name == "exponent" and high == parameter.high and not is_own
        if math.isfinite(high) and not is_gaussian:
            numbers.high[i] = np.float32(high - slack)
    for name in ("amplitude", "background"):
        given = getattr(settings, f"{name}_min"), getattr(settings, f"{name}_max")
        # The background is bounded with the camera's offset, from which it is taken then.
        shift = abs(settings.offset) if name == "background" else 0.0
        low, high = (end.value for end in light_ends(settings, name))
        if given[0] is not None:
            setattr(numbers, f"{name}_low", np.float32(low + _SINGLE * (abs(low) + shift)))
        if given[1] is not None:
            setattr(numbers, f"{name}_high", np.float32(high - _SINGLE * (abs(high) + shift)))


def _put_noise(numbers: VerdictSettings, settings: Settings, roi_shape: tuple[int, int]) -> None:
    """Fill in what is known of the noise, and by that of the amplitude's error and of χ²."""
    noise = noise_of(settings)
    if noise is None:
        return
    numbers.noise_known, numbers.slope, numbers.least = True, noise.slope, noise.least
    numbers.dark = noise.intercept + noise.slope * settings.offset
    numbers.pixels = math.prod(roi_shape)
    numbers.least_with_light = noise.slope**2 / numbers.pixels
    estimator, own_model = settings.estimator_kind, settings.profile.expression is not None
    # Where the image does not show that light has noise, nobody knows how much a spot has.
    if noise.is_filtered or not noise.slope > 0 or not estimator.chi_is_judged or own_model:
        return
    electrons = electrons_of(settings)
    numbers.fitted = settings.fitted_parameters
    numbers.measured = 1.0 if settings.gain is not None else 1 + _MEASURED
    numbers.correlated = noise.correlation**2
    numbers.gain, numbers.excess = electrons.gain, electrons.excess
    numbers.tails = 3 if settings.emccd else 1
    if estimator.is_likelihood:
        numbers.chi_by = ChiBy.CHI_OF_LIKELIHOOD
        numbers.electron = excess_of(settings.emccd) * electrons.gain**2
    else:
        numbers.chi_by, numbers.electron = ChiBy.CHI_OF_COUNTS, noise.slope**2
