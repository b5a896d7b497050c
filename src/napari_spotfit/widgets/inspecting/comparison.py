"""The numbers of two fits of one spot, side by side."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QGridLayout, QLabel, QWidget

from ...engine.quality.flags import RULES, flags_of
from ...settings.settings import parameters
from .quantities import quantities
from .sample import settings_of
from .verdict import verdict

if TYPE_CHECKING:
    from .spot import Spot

_NOTHING = "–"
#: What comes first, and what is no reason to keep one fit rather than the other.
_FIRST, _LEFT_OUT = "reduced_chi_square", ("chi_square", "iterations", "score")
_FLAGS_TIP = "What may be wrong with the fit, in words."
_SETTINGS_TIP = "The settings in which the two fits differ."


class Comparison(QWidget):
    """A table with a row for each number of either fit, for what is flagged, and what differs."""

    def __init__(self) -> None:
        super().__init__()
        self._labels: list[QLabel] = []
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(1)
        self._grid.setColumnStretch(3, 1)

    def show_fits(self, old: Spot, new: Spot, *, new_is_kept: bool) -> None:
        """Show the fit that a layer had, and another one; and which of them it has."""
        heads = ("old", "new (kept)") if new_is_kept else ("old (kept)", "new")
        texts = [("", *heads, ""), *comparison(old, new)]
        while len(self._labels) < 3 * len(texts):
            label = QLabel(self)
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            place = divmod(len(self._labels), 3)
            label.setStyleSheet("" if place[0] else "font-weight: bold")
            self._grid.addWidget(label, *place)
            self._labels.append(label)
        self._grid.setRowStretch(len(self._labels) // 3, 1)
        for number, label in enumerate(self._labels):
            row, column = divmod(number, 3)
            label.setVisible(row < len(texts))
            if row < len(texts):
                label.setText(texts[row][column])
                label.setToolTip(f"<p>{html.escape(texts[row][3])}</p>" if row else "")

    def texts(self) -> dict[str, tuple[str, str]]:
        """Return what is shown of the old and of the new fit, by what it is."""
        cells = [label.text() for label in self._labels if not label.isHidden()]
        return {cells[i]: (cells[i + 1], cells[i + 2]) for i in range(3, len(cells), 3)}


def comparison(old: Spot, new: Spot) -> list[tuple[str, str, str, str]]:
    """Return rows of a label, the old and the new fit's text, and a tip."""
    both = [{row.name: row for row in quantities(spot, None)} for spot in (old, new)]
    tip = " ".join([_FLAGS_TIP, "Old:", *verdict(old), "New:", *verdict(new)])
    rows = [("flags", _flags(old), _flags(new), tip)]
    names = [name for name in dict.fromkeys([*both[0], *both[1]]) if name not in _LEFT_OUT]
    for name in sorted(names, key=lambda name: name != _FIRST):
        known = [one[name] for one in both if name in one]
        # A table that is narrow has the unit once, unless the two differ in it.
        units = [spot.units.get(name, "") for spot in (old, new)]
        unit = units[0] if units[0] == units[1] else ""
        end = f" {unit}" if unit else ""
        texts = [one[name].text.removesuffix(end) if name in one else _NOTHING for one in both]
        label = f"{known[0].label} ({unit})" if unit else known[0].label
        rows.append((label, texts[0], texts[1], known[0].tip))
    return rows + [(*row, _SETTINGS_TIP) for row in differences(old, new)]


def differences(old: Spot, new: Spot) -> list[tuple[str, str, str]]:
    """Return the settings in which two fits differ: label, old and new value."""
    one, other = (settings_of(spot.values, spot.settings) for spot in (old, new))
    return [
        (about.label, _in_words(getattr(one, name)), _in_words(getattr(other, name)))
        for name, about in parameters().items()
        if getattr(one, name) != getattr(other, name)
    ]


def _flags(spot: Spot) -> str:
    words = [RULES[flag].word for flag in flags_of(int(np.nan_to_num(spot.values.get("flags", 0))))]
    return "\n".join(words) or "none"


def _in_words(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if hasattr(value, "items"):
        return "\n".join(f"{name} {_in_words(one)}" for name, one in value.items()) or "none"
    return str(value).replace("_", " ")
