"""The verdict on a spot's fit in words: how it ended, its flags, and what to try."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QHBoxLayout, QLabel, QStackedWidget, QWidget

from ...analysis.spot_sample import Roi, counted_pixels, roi_of, settings_of
from ...engine.fit_job import step_order
from ...engine.quality.flags import RULES, Flag, flags_of
from ...models.stopping import StopCondition
from ...settings.bounds import bounds_of
from ...settings.camera_noise import noise_of
from ...settings.settings import Settings
from ..layers.appearance import STOP_COLORS
from ..parts.color_legend import Ring
from ..parts.layout import fill
from .spot import Spot

_TIP = (
    "<p>Why the fit is doubtful and what to try, and why it stopped. The ring has the colour "
    "of the spot's border in the viewer.</p>"
)
_BY_HAND = (
    "The point was moved or added by hand: the numbers are those of the fit, not of its place."
)
#: σ is at a bound if it is within this fraction of it.
_AT_BOUND = 1e-3
#: The centre is at the edge of the ROI if it is so near, in pixels.
_AT_EDGE = 0.5
#: Residuals scatter too much above this multiple of the noise's variance.
_TOO_MUCH = 4.0
Bounds = Mapping[str, tuple[float, float]]
_COVARIED = ("y_stderr", "x_stderr", "sigma_stderr")


class Verdict(QWidget):
    """The stop condition's ring and words, what it means and what to try."""

    def __init__(self) -> None:
        super().__init__()
        self._rings = QStackedWidget()
        self._rings.setFixedSize(16, 16)
        for color in STOP_COLORS.values():
            self._rings.addWidget(Ring(color))
        self.text = QLabel()
        self.text.setTextFormat(Qt.TextFormat.RichText)
        self.text.setWordWrap(True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        # As high as the width asks for, not as a narrow text would be.
        self.text.setMinimumHeight(1)
        row = fill(QHBoxLayout(self), spacing=6)
        row.addWidget(self._rings, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self.text, 1)
        self.setToolTip(_TIP)

    def show_spot(self, spot: Spot) -> None:
        """Show the verdict on a spot's fit."""
        words = verdict(spot)
        known = spot.stop in STOP_COLORS
        self._rings.setVisible(known)
        if known:
            self._rings.setCurrentIndex(list(STOP_COLORS).index(spot.stop))
        self.setToolTip(f"{_TIP}<p><i>{html.escape(spot.stop)}</i></p>" if spot.stop else _TIP)
        name, *rest = words
        text = f"<b>{html.escape(name)}</b> {html.escape(' '.join(rest))}"
        if text != self.text.text():
            self.text.setText(text)


def verdict(spot: Spot) -> list[str]:
    """Return the verdict on a fit: first a few words, then sentences.

    The gravest flag comes first, with what to try; the others are only named. How the fit ended
    comes last, or first where nothing is flagged.
    """
    flags = flags_of(int(np.nan_to_num(spot.values.get("flags", 0.0))))
    found, about = [], (spot.values, spot.settings, roi_of(spot.values, spot.settings))
    if flags:
        bound = bound_hint(*about) if flags[0] is Flag.AT_BOUND else ""
        found = [f"{RULES[Flag.AT_BOUND].word.capitalize()}.", bound] if bound else []
        found = found or _of_flag(flags[0], spot.stop)
    elif against := hint(*about):
        found = ["", against]
    if len(flags) > 1:
        found.append(f"Also: {', '.join(RULES[flag].word for flag in flags[1:])}.")
    if spot.moved:
        found = [*found, _BY_HAND] if found else ["Moved by hand.", _BY_HAND]
    end = _of_end(spot.stop, calm=not found)
    if not found:
        return end
    name, *rest = found
    return [f"⚠ {name}".rstrip(), *rest, *([] if Flag.NOT_CONVERGED in flags else end)]


def _of_flag(flag: Flag, stop: str) -> list[str]:
    """Return a flag in words and what to try; of an unconverged fit, why it stopped."""
    ended = StopCondition.__members__.get(stop)
    if flag is Flag.NOT_CONVERGED and ended is not None and not ended.converged:
        return _of_end(stop, calm=False)
    rule = RULES[flag]
    return [f"{rule.word.capitalize()}.", rule.sentence, rule.advice]


def _of_end(stop: str, *, calm: bool) -> list[str]:
    """Return how a fit ended; if calm, also what to do."""
    if stop not in StopCondition.__members__:
        return [stop]
    condition = StopCondition[stop]
    words = [f"{condition.words.capitalize()}.", condition.explanation]
    return [*words, condition.advice] if calm or not condition.converged else words[:1]


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
        or _error_hint(values)
        or _residual_hint(values, settings_of(values, settings), roi)
    )


def bound_hint(values: Mapping[str, float], settings: Mapping[str, Any], roi: Roi) -> str:
    """Return a sentence on the parameter that ended at a bound; empty if none did."""
    known = settings_of(values, settings)
    bounds = {
        name: bounds_of(name, known, roi.shape[-known.dimensions :])
        for name in step_order(known.profile)
    }
    free_widths = {
        name: pair
        for name, pair in bounds.items()
        if name not in known.fixed and name.startswith(("sigma", "width"))
    }
    return (
        _width_hint(values, free_widths)
        or _edge_hint(values, roi)
        or _stopped_hint(values, bounds, roi)
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


def _error_hint(values: Mapping[str, float]) -> str:
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
        f"The residual's variance is {reduced / explained:.2g} times that of the noise: "
        f"look for a neighbour or another shape in it, or {advice}."
    )
