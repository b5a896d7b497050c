"""What a fit's numbers say against it, in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...engine.fit_settings import kernel_order
from ...settings.bounds import bounds_of
from ...settings.camera_noise import noise_of
from .sample import Roi, counted_pixels, settings_of

#: σ is at a bound if it is within this fraction of it.
_AT_BOUND = 1e-3
#: The centre is at the edge of the ROI if it is so near, in pixels.
_AT_EDGE = 0.5
#: Residuals scatter too much if their variance is so many times that of the noise.
_TOO_MUCH = 4.0
_COVARIED = ("y_stderr", "x_stderr", "sigma_stderr")


def hint(values: Mapping[str, float], settings: Mapping[str, Any], roi: Roi) -> str:
    """Return a sentence on what is plainly bad about a fit; empty if nothing is.

    Parameters
    ----------
    values : mapping of str to float
        The spot's columns.
    settings : mapping
        What the fit was made with.
    roi : Roi
        What was fitted.
    """
    return (
        bound_hint(values, settings, roi)
        or _height_hint(values)
        or _error_hint(values)
        or _residual_hint(values, settings, roi)
    )


def bound_hint(values: Mapping[str, float], settings: Mapping[str, Any], roi: Roi) -> str:
    """Return a sentence on what has ended at which bound; empty if nothing has."""
    return (
        _width_hint(values, settings, roi)
        or _edge_hint(values, roi)
        or _stopped_hint(values, settings, roi)
    )


def _width_hint(values: Mapping[str, float], settings: Mapping[str, Any], roi: Roi) -> str:
    known = settings_of(values, settings)
    for name in kernel_order(known.profile):
        if name in known.fixed or not name.startswith(("sigma", "width")):
            continue
        low, high = bounds_of(name, known, (roi.rows, roi.columns))
        label = {"sigma": "σ"}.get(name, name)
        if values[name] <= low * (1 + _AT_BOUND):
            return (
                f"{label} is at its lower bound, {low:g} px: a single bright pixel or noise "
                "rather than a spot."
            )
        if values[name] >= high * (1 - _AT_BOUND):
            return (
                f"{label} is at its upper bound, {high:g} px: the light is wider than the ROI, so "
                "try a larger ROI size or fewer false spots."
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


def _stopped_hint(values: Mapping[str, float], settings: Mapping[str, Any], roi: Roi) -> str:
    """Name what has stopped at a bound of the user's, which shows by its lack of an error."""
    known = settings_of(values, settings)
    first = {"x": roi.x, "y": roi.y}
    for name in kernel_order(known.profile):
        low, high = bounds_of(name, known, (roi.rows, roi.columns))
        value, size = values[name] - first.get(name, 0), max(abs(low), abs(high), 1.0)
        if not math.isnan(values.get(f"{name}_stderr", 0.0)):
            continue
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


def _error_hint(values: Mapping[str, float]) -> str:
    if not any(math.isnan(values.get(name, 0.0)) for name in _COVARIED):
        return ""
    return (
        "There are no standard errors, as the pixels do not tell the parameters apart: do not "
        "trust σ and amplitude."
    )


def _residual_hint(values: Mapping[str, float], settings: Mapping[str, Any], roi: Roi) -> str:
    """Compare the residual's variance with that of the noise, where it is known."""
    known, reduced = settings_of(values, settings), values.get("reduced_chi_square", math.nan)
    noise = noise_of(known)
    if noise is None or noise.is_filtered or not known.estimator_kind.chi_is_of_residual:
        return ""
    counted = counted_pixels(values, known, roi.rows * roi.columns)
    light = (known.gain or 1.0) * values["photons"] / counted
    explained = float(noise.variance(known.offset + values["background"] + light))
    if not (explained > 0 and reduced > _TOO_MUCH * explained):
        return ""
    advice = "check gain and offset" if known.gain is not None else "give the camera's gain"
    return (
        f"The residual's variance is {reduced / explained:.2g} times that of the noise: "
        f"look for a neighbour or another shape in it, or {advice}."
    )
