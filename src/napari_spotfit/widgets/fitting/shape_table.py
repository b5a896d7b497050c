"""A table of the model's shape parameters: where they start, are held, and their bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QGridLayout, QLabel, QLineEdit, QWidget

from ...models.profiles import ShapeParameter
from ...models.stopping import SIGMA_MIN
from ...settings.parameter import Parameter
from ..parts.layout import explain
from ..parts.number_box import NumberBox

_WIDTHS = ("sigma", "sigma_x", "sigma_y", "width")
_HEADINGS = {
    "start": (
        "start",
        "Where the fit begins: a number, or a multiple of the width sigma that is estimated from "
        "each spot, such as 2*sigma.",
    ),
    "held": (
        "held at",
        "Not fitted: every spot has this value. That of y and x counts from the middle of the "
        "ROI. Empty, the parameter is fitted.",
    ),
    "low": ("at least", "Lower bound. That of y and x counts from the middle of the ROI."),
    "high": ("at most", "Upper bound. That of y and x counts from the middle of the ROI."),
}
_NUMBERS = ("held", "low", "high")
#: What an empty box means: of the centre, of a width, of anything else.
_EMPTY = {
    "held": ("fitted", "fitted", "fitted"),
    "low": ("ROI edge", f"{SIGMA_MIN}", "open"),
    "high": ("ROI edge", "ROI side", "open"),
}
#: A number as long as usual ones, and the width of a start value's text in pixels.
_SAMPLE, _START = "1.2345", 62
_STEP = 0.1

#: What is known of one parameter: its start as a text, and numbers or None.
Row = dict[str, Any]


class ShapeTable(QWidget):
    """One row for each shape parameter of the model.

    What was set for a parameter is kept while another model is shown.
    """

    changed = Signal()
    #: The text of a start value was changed.
    start_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Row] = {}
        self._held: dict[str, float] = {}
        self._starts: dict[str, QLineEdit] = {}
        self.boxes: dict[tuple[str, str], NumberBox] = {}
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(4)

    def show_parameters(self, shape: Iterable[ShapeParameter], started: Iterable[str] = ()) -> None:
        """Show rows for these parameters, with a start value for some of them."""
        self._clear()
        started = tuple(started)
        columns = [name for name in _HEADINGS if name != "start" or started]
        for column, name in enumerate(columns, 1):
            heading, tip = _HEADINGS[name]
            self._grid.addWidget(_label(heading, tip), 0, column)
        for line, parameter in enumerate(shape, 1):
            tip = parameter.column.meaning
            unit = f" ({parameter.unit})" if parameter.unit else ""
            text = f"{parameter.column.label or parameter.name}{unit}"
            self._grid.addWidget(_label(text, tip), line, 0)
            for column, name in enumerate(columns, 1):
                if name != "start":
                    self._grid.addWidget(self._number(parameter, name, tip), line, column)
                elif parameter.name in started:
                    self._grid.addWidget(self._start(parameter.name), line, column)
        self._show_held()

    def starts(self) -> dict[str, str]:
        """Return the texts of the start values that are shown."""
        return {name: edit.text() for name, edit in self._starts.items()}

    def fixed(self) -> dict[str, float]:
        """Return what is held, by name."""
        held = {name: box.get() for (name, what), box in self.boxes.items() if what == "held"}
        return {name: value for name, value in held.items() if value is not None}

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Return lower and upper bounds of what is fitted and bounded, by name."""
        fixed, bounds = self.fixed(), {}
        for name in dict.fromkeys(name for name, _ in self.boxes):
            ends = self.boxes[name, "low"].get(), self.boxes[name, "high"].get()
            if name not in fixed and ends != (None, None):
                bounds[name] = ends
        return bounds

    def hold(self, values: Mapping[str, float]) -> None:
        """Hold these parameters, whatever their boxes say until they are let go."""
        self._held = dict(values)
        self._show_held()

    def values(self) -> dict[str, Row]:
        """Return what is remembered between sessions."""
        return {name: dict(row) for name, row in self._kept.items()}

    def put(self, values: Any) -> None:
        """Take remembered values; what cannot be right is left out."""
        kept = values if isinstance(values, dict) else {}
        self._kept = {
            str(name): {what: value for what, value in row.items() if _is_right(what, value)}
            for name, row in kept.items()
            if isinstance(row, dict)
        }
        self._put_back()

    def reset(self) -> None:
        """Hold and bound nothing."""
        self.put({})

    def _clear(self) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self.boxes, self._starts = {}, {}

    def _number(self, parameter: ShapeParameter, what: str, tip: str) -> NumberBox:
        heading, meaning = _HEADINGS[what]
        kind = 0 if parameter.name in ("y", "x") else 1 if parameter.name in _WIDTHS else 2
        own = {"low": parameter.low, "high": parameter.high}.get(what)
        positive = kind == 1 or (parameter.low is not None and parameter.low > 0)
        about = Parameter(
            heading, meaning, "bounds", minimum=0.0 if positive else None, above_minimum=positive,
            none_means=_EMPTY[what][kind] if own is None else f"{own:g}",
            step=_STEP,
        )  # fmt: skip
        box = NumberBox(about, optional=True, sample=_SAMPLE)
        box.put(self._kept.get(parameter.name, {}).get(what))
        explain(box, f"{parameter.name} {heading}", f"<p>{tip}</p><p>{meaning}</p>")
        box.changed.connect(lambda: self._on_number(parameter.name, what))
        self.boxes[parameter.name, what] = box
        return box

    def _start(self, name: str) -> QLineEdit:
        edit = QLineEdit(str(self._kept.get(name, {}).get("start", self._default_start())), self)
        explain(edit, f"{name} start", f"<p>{_HEADINGS['start'][1]}</p>")
        edit.setMinimumWidth(_START)
        edit.editingFinished.connect(lambda: self._on_start(name))
        self._starts[name] = edit
        return edit

    def _default_start(self) -> str:
        """Return σ for the first parameter of somebody's own model, which often is its width."""
        return "1" if self._starts else "sigma"

    def _on_number(self, name: str, what: str) -> None:
        if name not in self._held:
            self._kept.setdefault(name, {})[what] = self.boxes[name, what].get()
            self._show_held()
            self.changed.emit()

    def _on_start(self, name: str) -> None:
        text = self._starts[name].text()
        if text != self._kept.get(name, {}).get("start"):
            self._kept.setdefault(name, {})["start"] = text
            self.start_changed.emit()

    def _put_back(self) -> None:
        """Show what is kept."""
        for (name, what), box in self.boxes.items():
            box.show_number(self._kept.get(name, {}).get(what))
        self._show_held()
        self.changed.emit()

    def _show_held(self) -> None:
        """Show what is held, whose bounds do not count."""
        for (name, what), box in self.boxes.items():
            if what == "held":
                own = self._kept.get(name, {}).get("held")
                box.show_number(self._held.get(name, own))
                box.setEnabled(name not in self._held)
        fixed = self.fixed()
        for (name, what), box in self.boxes.items():
            if what != "held":
                box.setEnabled(name not in fixed)


def _is_right(what: Any, value: Any) -> bool:
    if what == "start":
        return isinstance(value, str)
    number = isinstance(value, (int, float)) and math.isfinite(value)
    return what in _NUMBERS and (value is None or number)


def _label(text: str, tip: str) -> QLabel:
    label = QLabel(text)
    label.setToolTip(f"<p>{tip}</p>")
    return label
