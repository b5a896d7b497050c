"""Sentences on obvious faults of a fit: a parameter at a bound, no amplitude, a large residual."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..engine.fit_job import step_order
from ..engine.flags import times
from ..settings.bounds import bounds_of
from ..settings.settings import Settings, noise_of
from .group_sample import is_joint
from .spot_sample import Roi, counted_pixels, settings_of

#: σ is at a bound if it is within this fraction of it.
_AT_BOUND = 1e-3
#: The centre is at the edge of the ROI if it is so near, in pixels.
_AT_EDGE = 0.5
#: Residuals scatter too much above this multiple of the noise's variance.
_TOO_MUCH = 4.0
Bounds = Mapping[str, tuple[float, float]]
_COVARIED = ("y_stderr", "x_stderr", "sigma_stderr")


def hint(values: Mapping[str, float], settings: Mapping[str, Any], roi: Roi) -> str:
    """Return a sentence on an obvious fault of a fit; empty if there is none.

    Parameters
    ----------
    values : mapping of str to float
        The spot's columns.
    settings : mapping
        The settings of the fit.
    roi : Roi
        The fitted region.
    """
    return (
        bound_hint(values, settings, roi)
        or _height_hint(values)
        or _error_hint(values, settings_of(values, settings))
        or _residual_hint(values, settings_of(values, settings), roi)
    )


def bound_hint(values: Mapping[str, float], settings: Mapping[str, Any], roi: Roi) -> str:
    """Return a sentence on the parameter that ended at a bound; empty if none did."""
    known = settings_of(values, settings)
    given = {*known.fixed, *(known.profile.widths if is_joint(values, known) else ())}
    bounds = {
        name: bounds_of(name, known, roi.shape[-known.dimensions :])
        for name in step_order(known.profile)
        if name not in given
    }
    widths = {name: one for name, one in bounds.items() if name.startswith(("sigma", "width"))}
    return (
        _width_hint(values, widths) or _edge_hint(values, roi) or _stopped_hint(values, bounds, roi)
    )


def _width_hint(values: Mapping[str, float], bounds: Bounds) -> str:
    for name, (low, high) in bounds.items():
        label = "σ" if name == "sigma" else name
        unit = "planes" if name == "sigma_z" else "px"
        if values[name] <= low * (1 + _AT_BOUND):
            return (
                f"{label} is at its lower bound, {low:g} {unit}: a single bright pixel or noise "
                "rather than a spot."
            )
        if values[name] >= high * (1 - _AT_BOUND):
            return (
                f"{label} is at its upper bound, {high:g} {unit}: the light is wider than the "
                "ROI, so try a larger ROI size or fewer false spots."
            )
    return ""


def _edge_hint(values: Mapping[str, float], roi: Roi) -> str:
    # The outer edges of the outermost pixels.
    from_y = min(values["y"] - roi.y, roi.y + roi.rows - 1 - values["y"]) + 0.5
    from_x = min(values["x"] - roi.x, roi.x + roi.columns - 1 - values["x"]) + 0.5
    if min(from_y, from_x) > _AT_EDGE:
        return ""
    return (
        "The centre is at the edge of the ROI: a neighbour has drawn it there, or the spot lies "
        "at the image's edge."
    )


def _stopped_hint(values: Mapping[str, float], bounds: Bounds, roi: Roi) -> str:
    """Name a parameter at a bound of the user's: it has no standard error."""
    first = {"x": roi.x, "y": roi.y, "z": roi.z}
    for name, (low, high) in bounds.items():
        if not math.isnan(values.get(f"{name}_stderr", 0.0)):
            continue
        value, size = values[name] - first.get(name, 0), max(abs(low), abs(high), 1.0)
        for end, which in ((low, "lower"), (high, "upper")):
            if math.isfinite(end) and abs(value - end) <= _AT_BOUND * min(size, 1e3):
                return (
                    f"{name} is at its {which} bound, so it does not follow the data and has no "
                    "standard error; the other errors are those of a fit in which it is known."
                )
    return ""


def _height_hint(values: Mapping[str, float]) -> str:
    if values["amplitude"] > 0:
        return ""
    return (
        "The amplitude is not positive: a dark spot, which “Amplitude at least” 0 would keep out."
    )


def _error_hint(values: Mapping[str, float], known: Settings) -> str:
    if is_joint(values, known):  # with given widths, that have no error
        return ""
    if not any(math.isnan(values.get(name, 0.0)) for name in _COVARIED):
        return ""
    return (
        "There are no standard errors, as the pixels do not separate the parameters: do not trust "
        "σ and amplitude."
    )


def _residual_hint(values: Mapping[str, float], known: Settings, roi: Roi) -> str:
    """Compare the residual's variance with that of the noise, where it is known."""
    reduced = values.get("reduced_chi_square", math.nan)
    noise = noise_of(known)
    if noise is None or noise.is_filtered or not known.estimator_kind.chi_is_of_residual:
        return ""
    counted = counted_pixels(values, known, math.prod(roi.shape))
    light = (known.gain or 1.0) * values["photons"] / counted
    explained = float(noise.variance(known.offset + values["background"] + light))
    if not (explained > 0 and reduced > _TOO_MUCH * explained):
        return ""
    advice = "check gain and offset" if known.gain is not None else "give the camera's gain"
    return (
        f"The residual's variance is {times(reduced / explained)} times that of the noise: "
        f"look for a neighbour or another shape in it, or {advice}."
    )
