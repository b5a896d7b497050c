"""The rules by which fits get their flags, for all fits at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.stopping import CONVERGED, StopCondition
from ..settings.bounds import bounds_of, light_ends
from ..settings.camera_noise import electrons_of, noise_of
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from . import flags
from .flags import Flag

Mask = NDArray[np.bool_]
Columns = Mapping[str, Any]

#: Bounds of angles are given in degrees and kept in radians: they are met within so much.
_DEGREES = 1e-3
#: What single precision leaves of a number, as a fraction of it.
_SINGLE = 2e-7
#: How far a spot's shape may be from the model's, as a fraction of its height, and the fewest
#: photo-electrons in a pixel with which χ² has the mean and the scatter that are taken here.
_MODEL, _FEWEST = 0.05, 3.0
#: Of the variance that a spot's own light adds, an amplitude's has at least so much.
_OWN_NOISE = 0.5
#: How far a noise model that was measured may be too low, as a fraction.
_MEASURED = 0.1
_CHI_COLUMNS = {"chi_square", "reduced_chi_square", "amplitude", "background", "photons"}


def judge(
    columns: Columns,
    settings: Settings | None,
    roi_shape: tuple[int, int] | None,
) -> NDArray[np.uint32]:
    """Return the flags of fits that follow from their numbers alone, :class:`Flag` by bits.

    Parameters
    ----------
    columns : mapping of str to ndarray
        The fits' columns; what is missing sets no flag.
    settings : Settings or None
        What the fits were made with; without, no bound and no noise is known.
    roi_shape : (int, int) or None
        Rows and columns of the ROIs.
    """
    stop = columns["stop_condition"]
    settled = (stop >= min(CONVERGED)) & (stop <= max(CONVERGED))
    found: NDArray[np.uint32] = ~settled * np.uint32(Flag.NOT_CONVERGED)

    def put(flag: Flag, mask: Mask) -> None:
        np.bitwise_or(found, mask * np.uint32(flag), out=found)

    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if "amplitude" in columns and "photons" in columns:
            put(Flag.NEGATIVE, (columns["amplitude"] <= 0) | (columns["photons"] <= 0))
        if "amplitude_stderr" in columns:
            error = columns["amplitude_stderr"] * _without_own_noise(columns, settings, roi_shape)
            put(Flag.WEAK, ~(abs(columns["amplitude"]) > flags.LEAST_ERRORS * error))
        if settings is not None and roi_shape is not None:
            for mask in _at_bounds(columns, settings, roi_shape):
                put(Flag.AT_BOUND, mask)
            put(Flag.POOR_FIT, _poor(columns, settings, roi_shape))
    found[stop == int(StopCondition.INVALID)] = Flag.NOT_CONVERGED
    return found


def _without_own_noise(
    columns: Columns, settings: Settings | None, roi_shape: tuple[int, int] | None
) -> Any:
    """Return how many times its own an amplitude's standard error is without the spot's shot noise.

    Where there is no spot, noise has the variance v of a dark pixel; with it, v + slope·h. Of the
    second term the amplitude's variance has 0.74 with least squares and a free σ, 0.67 with σ
    held, and with maximum likelihood from these, if dim, to 0.5, if bright.
    """
    noise = None if settings is None else noise_of(settings)
    if noise is None or settings is None or roi_shape is None or "background" not in columns:
        return 1.0
    # Of no electron in a ROI it is not known that the background has less than one there.
    level = np.maximum(_level(columns, noise, settings), noise.slope**2 / math.prod(roi_shape))
    own = noise.slope * np.maximum(columns["amplitude"].astype(float), 0.0)
    return np.sqrt(level / np.where(own > 0, level + _OWN_NOISE * own, level))


def _level(columns: Columns, noise: NoiseModel, settings: Settings) -> NDArray[np.float64]:
    """Return the variance of a pixel without light of the spot, in counts²; less correlation."""
    dark = noise.intercept + noise.slope * settings.offset
    level: NDArray[np.float64] = np.maximum(
        noise.slope * columns["background"].astype(float) + dark, noise.least
    )
    return level


def _at_bounds(columns: Columns, settings: Settings, roi_shape: tuple[int, int]) -> Iterator[Mask]:
    """Yield what ended at bounds: the engine leaves it exactly there, in single precision."""
    for name, low, high in _shape_bounds(settings, roi_shape):
        if name not in columns:
            continue
        value = columns[name]
        if name in ("y", "x"):
            value = value - columns[f"roi_{name}"] if f"roi_{name}" in columns else value
        slack = _DEGREES if name == "angle" else 0.0
        if math.isfinite(low):
            yield value <= np.float32(low + slack)
        if math.isfinite(high):
            yield value >= np.float32(high - slack)
    for name in ("amplitude", "background"):
        given = (getattr(settings, f"{name}_min"), getattr(settings, f"{name}_max"))
        if name not in columns or given == (None, None):
            continue
        # The background is bounded with the camera's offset, from which it is taken then.
        shift = abs(settings.offset) if name == "background" else 0.0
        low, high = (end.value for end in light_ends(settings, name))
        if low in given:
            yield columns[name] <= low + _SINGLE * (abs(low) + shift)
        if high in given:
            yield columns[name] >= high - _SINGLE * (abs(high) + shift)


@lru_cache(maxsize=64)
def _shape_bounds(
    settings: Settings, roi_shape: tuple[int, int]
) -> tuple[tuple[str, float, float], ...]:
    """Return the bounds of the fitted shape parameters, by name, at which a fit is no good."""
    ends = []
    for parameter in settings.profile.shape:
        if parameter.name in settings.fixed:
            continue
        low, high = bounds_of(parameter.name, settings, roi_shape)
        # From there on, a Moffat profile is a Gaussian, which spots may well be.
        gaussian = parameter.name == "exponent" and high == parameter.high
        is_own = settings.profile.expression is not None
        ends.append((parameter.name, low, math.inf if gaussian and not is_own else high))
    return tuple(ends)


def _poor(columns: Columns, settings: Settings, roi_shape: tuple[int, int]) -> Mask:
    """Return where χ² is more than the noise and the model's own tolerance explain.

    Least squares: the pixels' variances v = slope·h + that of a dark pixel, of which Σr² has the
    mean (N − p)·⟨v⟩ or less, as the light draws the fit, and the variance Σ(2v² + slope²·v); thrice
    the latter of an EMCCD. Maximum likelihood: the deviance of so many photo-electrons, with its
    first correction.
    """
    nothing = np.zeros(len(columns["stop_condition"]), bool)
    noise, estimator = noise_of(settings), settings.estimator
    # Where the image does not show that light has noise, nobody knows how much a spot has.
    if noise is None or noise.is_filtered or not noise.slope > 0 or estimator == "wlse":
        return nothing
    if settings.profile.expression is not None or not _CHI_COLUMNS.issubset(columns):
        return nothing
    chi, count = np.asarray(columns["chi_square"], float), math.prod(roi_shape)
    degrees = np.minimum(chi / columns["reduced_chi_square"], count)
    # The pixels that count, which have about all of the light.
    held = len(settings.fixed)
    count = np.minimum(np.rint(degrees) + settings.profile.parameter_count - held, count)
    light = columns["photons"] * (settings.gain or 1.0)
    height = columns["amplitude"].astype(float)
    level = _level(columns, noise, settings)
    measured = 1.0 if settings.gain is not None else 1 + _MEASURED
    if estimator == "mle":
        own = electrons_of(settings)
        electrons = level / ((2 if settings.emccd else 1) * own.gain**2)
        mean = own.excess * measured * degrees * (1 + 1 / (6 * electrons))
        mean += _MODEL**2 * light / own.gain
        variance = 2 * degrees * own.excess**2 * (1 + 1 / electrons)
    else:
        slope, stronger = noise.slope, noise.correlation**2
        electrons = level / slope**2
        average = level + slope * light / count
        mean = stronger * measured * degrees * average + _MODEL**2 * height * light / 2
        squares = count * level**2 + 2 * level * slope * light + slope**2 * height * light / 2
        tails = (3 if settings.emccd else 1) * slope**2 * count * average
        variance = stronger**2 * (2 * squares + tails)
    poor: Mask = chi > mean + flags.MOST_CHI * np.sqrt(variance)
    poor &= (electrons >= _FEWEST) & (light > 0) & (height > 0)
    return poor
