"""The verdict on a spot's fit, and its numbers as a table, alone or beside those of another fit."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtGui import QGuiApplication
from qtpy.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from ...analysis.fit_hints import bound_hint, hint
from ...analysis.group_sample import is_joint
from ...analysis.spot_sample import roi_of, settings_of
from ...engine.flags import RULES, Flag, flags_of
from ...models.calibration import Calibration
from ...models.columns import COLUMNS, DISTANCE, EVIDENCE, GROUP, GROUP_SIZE, Column
from ...models.estimators import StopCondition
from ...results.formatting import MISSING, PixelSize, with_error
from ...settings.settings import parameters
from ..layers.appearance import STOP_COLORS
from ..parts.color_legend import Ring
from ..parts.layout import Label, button, fill
from .spot import Spot

_TIP = (
    "<p>Why the fit is doubtful and what to try, and why it stopped. The ring has the colour "
    "of the spot's border in the viewer.</p>"
)
_BY_HAND = (
    "The point was moved or added by hand: the numbers are those of the fit, not of its place."
)
_COPY_TIP = (
    "<p>Copy all numbers of this spot with all their digits, as a table for a spreadsheet.</p>"
)
#: Digits after the point of a length without a standard error.
_DECIMALS = 3
#: Quantities listed after the shape parameters, in order.
_BESIDES = tuple(
    one for one in COLUMNS.values() if one.group in ("light", "fit") and not one.error_of
)
_ERROR = "After ±, the standard error."
_PHYSICAL = (
    "In the layer's own unit, from the centre of the image's first pixel or as a length: {}."
)
#: The first row of a comparison, and columns that do not help to choose between two fits.
_FIRST, _NOT_COMPARED = "reduced_chi_square", ("chi_square", "iterations", "score", GROUP)
_NOT_FITTED = "Spots that are fitted together have the PSF's width: it has no error."
_FLAGS_TIP = "What may be wrong with the fit, in words."
_SETTINGS_TIP = "The settings in which the two fits differ."


class Verdict(QWidget):
    """The stop condition's ring and words, what it means and what to try."""

    def __init__(self) -> None:
        super().__init__()
        self._ring = Ring(STOP_COLORS[StopCondition.UNKNOWN.name])
        self.text = QLabel()
        self.text.setTextFormat(Qt.TextFormat.RichText)
        self.text.setWordWrap(True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        # As high as the width asks for, not as a narrow text would be.
        self.text.setMinimumHeight(1)
        row = fill(QHBoxLayout(self), spacing=6)
        row.addWidget(self._ring, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self.text, 1)
        self.setToolTip(_TIP)

    def show_spot(self, spot: Spot) -> None:
        """Show the verdict on a spot's fit."""
        words = verdict(spot)
        self._ring.setVisible(spot.stop in STOP_COLORS)
        if spot.stop in STOP_COLORS:
            self._ring.show_color(STOP_COLORS[spot.stop])
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


class LabelRows(QGridLayout):
    """Rows of three labels whose text can be selected; only those with texts are shown.

    Parameters
    ----------
    stretched : int
        The column that takes the spare width.
    """

    def __init__(self, stretched: int) -> None:
        super().__init__()
        self.labels: list[tuple[Label, Label, Label]] = []
        self.setContentsMargins(0, 0, 0, 0)
        self.setHorizontalSpacing(12)
        self.setVerticalSpacing(1)
        self.setColumnStretch(stretched, 1)

    def show_texts(self, rows: Sequence[tuple[str, str, str]], tips: Sequence[str]) -> None:
        """Show one row of labels for each row of texts, with a tip."""
        while len(self.labels) < len(rows):
            labels = Label(), Label(), Label()
            for column, label in enumerate(labels):
                label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
                self.addWidget(label, len(self.labels), column)
            self.labels.append(labels)
        for labels, texts, tip in zip(self.labels, rows, tips, strict=False):
            for label, text in zip(labels, texts, strict=True):
                if label.text() != text:  # each change costs a new layout
                    label.setText(text)
                label.setToolTip(f"<p>{html.escape(tip)}</p>" if tip else "")
        for number, labels in enumerate(self.labels):
            for label in labels:
                label.setVisible(number < len(rows) and bool(label.text()))


class Numbers(QWidget):
    """Names and values ± standard errors, in pixels or a physical unit; all can be selected."""

    def __init__(self) -> None:
        super().__init__()
        self._table, self._grid = "", LabelRows(stretched=2)
        self.copy_button = button("Copy", _COPY_TIP, self.copy, "Copy the numbers")
        fill(QVBoxLayout(self), self._grid, 1)

    @property
    def labels(self) -> list[tuple[Label, Label, Label]]:
        """Name, value and nothing of each row."""
        return self._grid.labels

    def show_spot(self, spot: Spot, size: PixelSize | None, *, physical: bool) -> None:
        """Show a spot's numbers, lengths in the unit of the pixel's size if they are to be."""
        rows = quantities(spot, size)
        self._table = as_table(rows, spot, size)
        rows = _listed(rows, spot)
        texts = [(row.label, (physical and row.physical) or row.text, "") for row in rows]
        self._grid.show_texts(texts, [row.tip for row in rows])
        for row, labels in zip(rows, self.labels, strict=False):
            labels[0].setObjectName(row.name)
            for label in labels:  # only grows, so that its neighbours stand still
                label.setMinimumWidth(max(label.minimumWidth(), label.sizeHint().width()))

    def texts(self) -> dict[str, str]:
        """Return the texts that are shown, by the name of the quantity."""
        return {
            name.objectName(): value.text() for name, value, _ in self.labels if not name.isHidden()
        }

    def copy(self) -> None:
        """Copy the numbers to the clipboard."""
        clipboard = QGuiApplication.clipboard()
        if clipboard is not None:
            clipboard.setText(self._table)


class Comparison(QWidget):
    """The numbers of two fits, their flags, and the settings in which they differ."""

    def __init__(self) -> None:
        super().__init__()
        self._grid = LabelRows(stretched=3)
        fill(QVBoxLayout(self), self._grid, 1)

    def show_fits(self, old: Spot, new: Spot, *, new_is_kept: bool) -> None:
        """Show the fit that a layer had and another one, and which of them it has now."""
        heads = ("old", "new (kept)") if new_is_kept else ("old (kept)", "new")
        rows = comparison(old, new)
        texts = [("", *heads), *((label, one, other) for label, one, other, _ in rows)]
        self._grid.show_texts(texts, ["", *(row[3] for row in rows)])
        for label in self._grid.labels[0]:
            label.setStyleSheet("font-weight: bold")

    def texts(self) -> dict[str, tuple[str, str]]:
        """Return the texts of the old and the new fit, by their labels."""
        rows = [row for row in self._grid.labels[1:] if not row[0].isHidden()]
        return {label.text(): (old.text(), new.text()) for label, old, new in rows}


class Quantity(NamedTuple):
    """One row of the table."""

    name: str
    label: str
    #: Value, standard error and unit; and the same in the layer's physical unit, if any.
    text: str
    physical: str
    #: What it means.
    tip: str


def quantities(spot: Spot, size: PixelSize | None) -> list[Quantity]:
    """Return all numbers of a spot, with standard errors and units.

    Parameters
    ----------
    spot : Spot
        The spot.
    size : PixelSize or None
        The size of a pixel where the layer has a physical unit.
    """
    settings = settings_of({}, spot.settings)
    shape = [parameter.column for parameter in settings.profile.shape]
    if isinstance(settings.model, Calibration):
        depth = [one for one in settings.model.columns if not one.error_of and one not in shape]
        shape = [*(one for one in depth if one not in _BESIDES), *shape]
    return [
        _quantity(column, spot, size)
        for column in (*shape, *_BESIDES)
        if column.name in spot.values
    ]


def _listed(rows: list[Quantity], spot: Spot) -> list[Quantity]:
    """Return the numbers that say something: of a spot alone, nothing is said of groups."""
    empty = {GROUP} | ({DISTANCE} if not math.isfinite(spot.values.get(DISTANCE, 0.0)) else set())
    if not spot.values.get(GROUP_SIZE, 0.0) > 1:
        empty |= {GROUP_SIZE, EVIDENCE}
    return [row for row in rows if row.name not in empty]


def as_table(rows: list[Quantity], spot: Spot, size: PixelSize | None) -> str:
    """Return the numbers with all their digits, separated by tabs, for a spreadsheet."""
    unit = "" if size is None else f"\tvalue [{size.unit}]\tstandard error [{size.unit}]"
    lines = [f"quantity\tvalue\tstandard error\tunit{unit}"]
    for row in rows:
        error = spot.values.get(f"{row.name}_stderr")
        cells: list[object] = [row.name, spot.values[row.name], error, spot.units.get(row.name)]
        factor = None if size is None else size.factor(row.name)
        if size is not None:
            for number in (spot.values[row.name], error):
                cells.append(None if factor is None or number is None else number * factor)
        lines.append("\t".join("" if cell is None else str(cell) for cell in cells))
    lines.append(f"stop_condition\t{spot.stop}")
    return "\n".join(lines)


def _quantity(column: Column, spot: Spot, size: PixelSize | None) -> Quantity:
    name = column.name
    value, error = spot.values[name], spot.values.get(f"{name}_stderr")
    settings = settings_of({}, spot.settings)
    of_crowd = name in settings.profile.widths and is_joint(spot.values, settings)
    # In fits of crowds with a measured PSF, z is fitted, and has an error.
    if is_given := error == 0 or (of_crowd and not math.isfinite(error or math.nan)):
        error = None
    unit = spot.units.get(name, "")
    decimals = _DECIMALS if unit == "px" else None
    text = f"{value:.0f}" if column.is_whole else with_error(value, error, decimals)
    factor = None if size is None else size.factor(name)
    physical = ""
    if size is not None and factor is not None:
        number = with_error(value * factor, None if error is None else error * factor)
        physical = f"{number} {size.unit}"
    tips = (
        [column.meaning]
        + [_ERROR] * (error is not None)
        + [_PHYSICAL.format(physical)] * bool(physical)
        + [_NOT_FITTED] * (is_given and of_crowd)
    )
    unit, physical = (f"{one}{' (given)' * is_given}" if one else "" for one in (unit, physical))
    return Quantity(name, column.label or name, f"{text} {unit}".rstrip(), physical, " ".join(tips))


def comparison(old: Spot, new: Spot) -> list[tuple[str, str, str, str]]:
    """Return rows of a label, the old and the new fit's text, and a tip."""
    both = [{row.name: row for row in quantities(spot, None)} for spot in (old, new)]
    tip = " ".join([_FLAGS_TIP, "Old:", *verdict(old), "New:", *verdict(new)])
    rows = [("flags", _flags(old), _flags(new), tip)]
    names = [name for name in dict.fromkeys([*both[0], *both[1]]) if name not in _NOT_COMPARED]
    for name in sorted(names, key=lambda name: name != _FIRST):
        known = [one[name] for one in both if name in one]
        # A narrow table has the unit once, unless the two differ in it.
        units = [spot.units.get(name, "") for spot in (old, new)]
        unit = units[0] if units[0] == units[1] else ""
        end = f" {unit}" if unit else ""
        texts = [one[name].text.removesuffix(end) if name in one else MISSING for one in both]
        label = f"{known[0].label} [{unit}]" if unit else known[0].label
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
