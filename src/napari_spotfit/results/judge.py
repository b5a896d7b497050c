"""The rules by which fits get their flags, for all fits at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.stopping import CONVERGED, StopCondition
from ..settings.bounds import bounds_of, light_ends
from ..settings.camera_noise import electrons_of, noise_of
from ..settings.settings import Settings
from . import flags
from .flags import Flag
from .near import has_near
from .widths import mean_sigma

Mask = NDArray[np.bool_]
Columns = Mapping[str, Any]

#: Bounds of angles are given in degrees and kept in radians: they are met within so much.
_DEGREES = 1e-3
#: What single precision leaves of a number, as a fraction of it.
_SINGLE = 2e-7
#: How far a spot's shape may be from the model's, as a fraction of its height, and the fewest
#: photo-electrons in a pixel with which χ² has the mean and the scatter that are taken here.
_MODEL, _FEWEST = 0.05, 3.0
#: How far a noise model that was measured may be too low, as a fraction.
_MEASURED = 0.1
#: Of the noise of a spot's own light, by its height, so much is in its amplitude's error.
_LIGHT_IN_ERROR = 0.73
_CHI_COLUMNS = {"chi_square", "reduced_chi_square", "amplitude", "background", "photons"}


class Origin(NamedTuple):
    """Where in an image fits began, and what is known of that."""

    #: Numbers of the frames, all of whose fits are there.
    frame: NDArray[np.int64]
    #: y and x from which each fit began, in pixels.
    places: NDArray[np.float64]
    #: Rows and columns of a frame.
    shape: tuple[int, int]
    #: The PSF's σ; None where nobody has said it.
    sigma: float | None


def judge(
    columns: Columns,
    settings: Settings | None,
    roi_shape: tuple[int, int] | None,
    origin: Origin | None = None,
) -> NDArray[np.uint32]:
    """Return the flags of fits, :class:`Flag` by bits.

    Parameters
    ----------
    columns : mapping of str to ndarray
        The fits' columns; what is missing sets no flag.
    settings : Settings or None
        What the fits were made with; without, no bound and no noise is known.
    roi_shape : (int, int) or None
        Rows and columns of the ROIs.
    origin : Origin, optional
        Where in an image the fits began.
    """
    stop = columns["stop_condition"]
    found = np.zeros(len(stop), np.uint32)
    settled = (stop >= min(CONVERGED)) & (stop <= max(CONVERGED))
    found[~settled] = Flag.NOT_CONVERGED
    valid = stop != int(StopCondition.INVALID)

    def put(flag: Flag, mask: Mask) -> None:
        found[mask & valid] |= np.uint32(flag)

    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if "amplitude" in columns and "photons" in columns:
            put(Flag.NEGATIVE, (columns["amplitude"] <= 0) | (columns["photons"] <= 0))
        if "amplitude_stderr" in columns:
            error = columns["amplitude_stderr"].astype(float)
            error = error * _without_its_light(columns, settings)
            put(Flag.WEAK, ~(abs(columns["amplitude"]) > flags.LEAST_ERRORS * error))
        if settings is not None and roi_shape is not None:
            for mask in _at_bounds(columns, settings, roi_shape):
                put(Flag.AT_BOUND, mask)
            put(Flag.POOR_FIT, _poor(columns, settings, roi_shape))
        if origin is not None and settings is not None:
            for flag, mask in _in_image(columns, settings, origin, valid):
                put(flag, mask)
    return found


def _without_its_light(columns: Columns, settings: Settings | None) -> Any:
    """Return the amplitude's error if there were no spot, over that with the noise of its light."""
    noise = None if settings is None else noise_of(settings)
    if settings is None or noise is None or "background" not in columns:
        return 1.0
    dark = noise.intercept + noise.slope * settings.offset
    level = np.maximum(noise.slope * columns["background"].astype(float) + dark, noise.least)
    own = noise.slope * np.maximum(columns["amplitude"].astype(float), 0.0)
    return np.sqrt(level / (level + _LIGHT_IN_ERROR * own))


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
    dark = noise.intercept + noise.slope * settings.offset
    level = np.maximum(noise.slope * columns["background"].astype(float) + dark, noise.least)
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


def _in_image(
    columns: Columns, settings: Settings, origin: Origin, valid: Mask
) -> Iterator[tuple[Flag, Mask]]:
    """Yield the flags that follow from where a fit lies, and where it began."""
    y, x = columns["y"], columns["x"]
    width = mean_sigma(columns, settings.gain or 1.0)
    scale = width if origin.sigma is None else origin.sigma
    moved = np.hypot(y - origin.places[:, 0], x - origin.places[:, 1])
    yield Flag.MOVED, moved > flags.FARTHEST * scale
    held = {*settings.profile.widths} & {*settings.fixed}
    if origin.sigma is not None and not held and settings.profile.expression is None:
        yield Flag.WIDE, width > flags.WIDEST * origin.sigma
        yield Flag.NARROW, width < flags.NARROWEST * origin.sigma
    half_side = settings.roi_shape[0] / 2, settings.roi_shape[1] / 2
    start_y, start_x = (np.ascontiguousarray(along) for along in origin.places.T)
    neighbour = has_near(origin.frame, start_y, start_x, half_side)
    yield Flag.NEIGHBOUR, neighbour
    same = max(flags.SAME_SPOT_PX, flags.SAME_SPOT * (origin.sigma or 0.0))
    rows, double = np.flatnonzero(valid), np.zeros(len(y), bool)
    # Two fits that ended together began as neighbours, or the one that moved more came from afar.
    asked = np.flatnonzero((neighbour | (moved > (min(half_side) - same) / 2))[rows])
    double[rows] = has_near(origin.frame[rows], y[rows], x[rows], (same, same), moved[rows], asked)
    yield Flag.DUPLICATE, double
    half = np.array(settings.roi_shape) // 2
    shifted = np.zeros(len(y), bool)
    for axis, (name, size) in enumerate(zip(("y", "x"), origin.shape, strict=True)):
        middle = columns[f"roi_{name}"] + half[axis]
        shifted |= abs(origin.places[:, axis] - middle) > 0.5
        shifted |= np.minimum(columns[name] + 0.5, size - 0.5 - columns[name]) < scale
    yield Flag.EDGE, shifted
