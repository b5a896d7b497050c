"""The verdict on a spot's fit in words: how it ended, its flags, and what to try."""

from __future__ import annotations

import html

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QHBoxLayout, QLabel, QStackedWidget, QWidget

from ...analysis.fit_hints import bound_hint, hint
from ...analysis.spot_sample import roi_of
from ...engine.quality.flags import RULES, Flag, flags_of
from ...models.stopping import StopCondition
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
