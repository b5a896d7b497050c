"""Why most fits of an image are doubtful, and what would mend it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QPushButton, QWidget

from ...engine.quality.flags import Flag, main_reasons
from ...settings.settings import Settings, parameters
from ..parts.layout import fill, sentence

#: How many fits there must be at least, and how far a given σ may be from that of the image.
_LEAST, _OFF = 5, 1.4
#: The settings that may have made most fits doubtful, by what is wrong with those.
_CAUSES = {
    Flag.NOT_CONVERGED: ("max_iterations", "min_delta", "min_step", "roi_size"),
    Flag.WEAK: ("threshold", "false_spots"),
    Flag.NEGATIVE: ("threshold", "false_spots"),
    Flag.MOVED: ("roi_size", "neighbours"),
    Flag.AT_BOUND: ("roi_size",),
    Flag.ELONGATED: ("model",),
}
#: What else most fits may have in common.
_WORDS = {
    Flag.NOT_CONVERGED: "the fits do not converge: is it an image of spots?",
    Flag.WEAK: "they are hardly above the noise: allow fewer false spots",
    Flag.NEGATIVE: "they are dark places: fit the image's negative",
    Flag.ELONGATED: "they are longer than wide: are these spots? An elliptical model may fit",
    Flag.SATURATED: "the camera was saturated: expose less",
}
_OF_WIDTH = (Flag.WIDE, Flag.NARROW)
_DEFAULTS = Settings()


class Advice(NamedTuple):
    """Why most fits are doubtful, and the settings with which they would not be."""

    why: str
    #: What a button offers; nothing if there is no such setting.
    offer: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})


def most_are_doubtful(good: NDArray[np.bool_]) -> bool:
    """Whether most of some fits are not good."""
    return len(good) >= _LEAST and 2 * int(np.count_nonzero(good)) < len(good)


def advice(flags: NDArray[Any], given: Settings, sigma: float | None) -> Advice:
    """Return why most fits are doubtful.

    Parameters
    ----------
    flags : ndarray
        Those of all fits.
    given : Settings
        What was set, before anything was estimated.
    sigma : float or None
        The σ that the image shows, if one was given; None if it shows none.
    """
    if given.sigma and sigma and not 1 / _OFF < given.sigma / sigma < _OFF:
        shown = f"{sigma:.3g} px"
        why = f"σ is given as {given.sigma:g} px, the image shows {shown}"
        return Advice(why, f"Fit with {shown}", {"sigma": None})
    reasons = main_reasons(flags)
    reason = max(reasons, key=lambda one: reasons[one])
    for name in _CAUSES.get(reason, ()):
        value, default = getattr(given, name), getattr(_DEFAULTS, name)
        if value != default:
            return Advice(_cause(name, value), "Fit with its default", {name: default})
    if reason in _OF_WIDTH:
        return Advice("there are no spots of one width here: is it an image of spots?")
    return Advice(_WORDS.get(reason, "see why in the legend"))


def _cause(name: str, value: Any) -> str:
    about = parameters()[name]
    shown = getattr(value, "name", value)
    return f"{about.label} is given as {shown} {about.unit}".rstrip()


class AdviceLine(QWidget):
    """One line that says why most fits are doubtful, and a button that mends it."""

    #: The settings to fit again with.
    accepted = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.label, self.button = sentence(), QPushButton()
        self._advice: Advice | None = None
        self.button.clicked.connect(self._on_clicked)
        fill(QHBoxLayout(self), (self.label, 1), self.button)
        self.hide()

    def show_advice(self, advice: Advice | None, image: str = "") -> None:
        """Show why most are doubtful, of an image that is named; nothing without advice."""
        self._advice = advice
        self.setVisible(advice is not None)
        if advice is not None:
            whose = f" of “{image}”" if image else ""
            self.label.setText(f"⚠ Most{whose} are doubtful: {advice.why}.")
            self.button.setText(advice.offer)
            self.button.setVisible(bool(advice.offer))

    def _on_clicked(self) -> None:
        if self._advice is not None:
            self.accepted.emit(self._advice.settings)
