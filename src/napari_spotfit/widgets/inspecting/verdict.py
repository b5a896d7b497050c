"""How a spot's fit ended, in words."""

from __future__ import annotations

import html

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QHBoxLayout, QLabel, QStackedWidget, QWidget

from ...engine.quality.flags import RULES, Flag, flags_of
from ...models.stopping import StopCondition
from ..layers.appearance import STOP_COLORS
from ..parts.color_legend import Ring
from ..parts.layout import fill
from .hints import bound_hint, hint
from .sample import roi_of
from .spot import Spot

_TIP = (
    "<p>What speaks against the fit and what to try, and why it stopped. The ring has the colour "
    "of the spot's border in the viewer.</p>"
)
_BY_HAND = (
    "The point was moved or added by hand: the numbers are those of the fit, not of its place."
)


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
        """Judge a spot's fit."""
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
    """Return what is to be said of a fit: first a few words, then sentences.

    What speaks against it comes first, that which tells most with what to try; the rest is named.
    How the fit has ended comes last, or first where nothing speaks against it.
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
    """Name a flag and say what to try; of a fit that has not converged, say why it stopped."""
    ended = StopCondition.__members__.get(stop)
    if flag is Flag.NOT_CONVERGED and ended is not None and not ended.converged:
        return _of_end(stop, calm=False)
    rule = RULES[flag]
    return [f"{rule.word.capitalize()}.", rule.sentence, rule.advice]


def _of_end(stop: str, *, calm: bool) -> list[str]:
    """Say how a fit has ended, and what to do if nothing else is said."""
    if stop not in StopCondition.__members__:
        return [stop]
    condition = StopCondition[stop]
    words = [f"{condition.words.capitalize()}.", condition.explanation]
    return [*words, condition.advice] if calm or not condition.converged else words[:1]
