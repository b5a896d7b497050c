"""How a spot's fit ended, in words."""

from __future__ import annotations

import html

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QHBoxLayout, QLabel, QStackedWidget, QWidget

from ...models.stopping import StopCondition
from ...results.flags import RULES, Flag, flags_of
from ..layers.colors import STOP_COLORS
from ..parts.ring import Ring
from .hints import hint
from .sample import roi_of
from .spot import Spot

_TIP = (
    "<p>Why the fit stopped, what that means, and what to do about it. The ring has the colour "
    "of the spot's border in the viewer.</p>"
)
_BY_HAND = (
    "The point was moved or added by hand: the numbers are those of the fit, not of its place."
)


class Verdict(QWidget):
    """The stop condition's ring and words, what it means and what to try.

    Parameters
    ----------
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
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
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
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
    """Return the stop condition in words, and sentences on what it means and what to do.

    Of what is flagged, that which tells most comes first, with what to try; the rest is named.
    """
    flags = flags_of(int(np.nan_to_num(spot.values.get("flags", 0.0))))
    against = hint(spot.values, spot.settings, roi_of(spot.values, spot.settings))
    words, told = [spot.stop], False
    if spot.stop in StopCondition.__members__:
        condition = StopCondition[spot.stop]
        words = [f"{condition.words.capitalize()}.", condition.explanation]
        told = not condition.converged
        if told or not (flags or against):
            words.append(condition.advice)
    warnings = []
    if told and Flag.NOT_CONVERGED in flags:
        flags.remove(Flag.NOT_CONVERGED)
    if flags and not (flags[0] is Flag.AT_BOUND and against):
        warnings.append(f"{RULES[flags[0]].sentence} {RULES[flags[0]].advice}")
    elif against:  # which also says at which bound
        warnings.append(against)
    if len(flags) > 1:
        others = ", ".join(RULES[flag].word for flag in flags[1:])
        warnings.append(f"Also: {others}.")
    if spot.moved:
        warnings.append(_BY_HAND)
    return words + [f"⚠ {text}" for text in warnings]
