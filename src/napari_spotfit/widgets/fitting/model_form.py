"""The controls for what is fitted: model, start values, bounds and estimator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from magicgui.widgets import ComboBox
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox, QGridLayout, QLabel, QLineEdit, QWidget

from ...models.columns import Column
from ...models.estimators import SIGMA_MIN
from ...models.expressions.grammar import unknown_names
from ...models.profiles import MODELS, YX, Profile, ShapeParameter
from ...settings.validation import Parameter
from ..parts.boxes import NumberBox
from ..parts.form import SettingsForm
from ..parts.layout import Label, explain, sentence
from ..parts.work import Latest
from .calibration_choice import TIP, CalibrationChoice

_WIDTHS = ("sigma", "sigma_x", "sigma_y", "width")
_HEADINGS = {
    "start": (
        "start",
        "Where the fit begins: a number, or a multiple of the width sigma that is estimated from "
        "each spot, such as 2*sigma.",
    ),
    "fixed": (
        "fixed at",
        "Not fitted: every spot has this value. That of y and x counts from the middle of the "
        "ROI. Empty, the parameter is fitted.",
    ),
    "low": ("at least", "Lower bound. That of y and x counts from the middle of the ROI."),
    "high": ("at most", "Upper bound. That of y and x counts from the middle of the ROI."),
}
_NUMBERS = ("fixed", "low", "high")
#: What an empty box means: of the centre, of a width, of anything else.
_EMPTY = {
    "fixed": ("fitted", "fitted", "fitted"),
    "low": ("edge", f"{SIGMA_MIN}", "open"),
    "high": ("edge", "side", "open"),
}
#: A number as long as usual ones, and the width of a start value's text in pixels.
_SAMPLE, _START = "1.23", 50
_STEP = 0.1
#: What is set for one parameter: its start as a text, fixed value and bounds as numbers or None.
Row = dict[str, Any]
#: The choice of an own expression among the models.
OWN = "own"
#: Names of the centre's y and x in an expression.
_CENTER_NAMES = ("y0", "x0")
_EXAMPLE = "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)"
_FIX_TIP = (
    "<p>Do not fit the σ of Gaussians: every spot has the PSF σ set above, which must be a number "
    "then (<b>Estimate</b> finds one).</p>"
)
_EXPRESSION_TIP = (
    "<p>The spot's shape in terms of <b>x</b> and <b>y</b> in pixels, its centre <b>x0</b> and "
    "<b>y0</b>, and further parameters by any name; amplitude and background come on top. "
    "Made of numbers, + - * / **, parentheses, pi and the functions exp, log, sqrt, abs, sin, "
    "cos, tan, tanh and erf.</p>"
)
_CALIBRATED_TIP = "<p>That of the calibration below, from which spots have z.</p>"
_READING = "Reading the expression…"


class ModelForm(QObject):
    """What is fitted.

    Parameters
    ----------
    controls : SettingsForm
        Has the controls of model, pixels, estimator and the PSF's σ.
    parent : QObject
        Qt parent.
    """

    #: :meth:`settings` returns or raises something else.
    changed = Signal()

    def __init__(self, controls: SettingsForm, parent: QObject):
        super().__init__(parent)
        self._controls = controls
        self.fix_sigma, self.expression = QCheckBox("Fix σ"), QLineEdit(_EXAMPLE)
        self.fix_sigma.setToolTip(_FIX_TIP)
        self.message, self.depth = sentence(), CalibrationChoice()
        self.shape = ShapeTable()
        self._read, self._error = "", ""
        self._profile: Profile | None = None
        self._latest = Latest(self, self._on_done, self._on_failed)
        model = controls["model"]
        assert isinstance(model, ComboBox)
        self._model = model
        words = [(model.native.itemText(row), word) for row, word in enumerate(model.choices)]
        # As a function, magicgui does not forget them.
        self._model.choices = lambda _: [*words, ("own expression", OWN)]

    def settings(self) -> dict[str, Any]:
        """Return the settings of the model, and its fixed values and bounds.

        Raises
        ------
        ValueError
            If the expression makes no model, or there is no σ to fix.
        """
        if self.depth.calibration is not None:
            own = self.depth.calibration.settings
            decided = {name: own[name] for name in ("estimator", "pixel") if name in own}
            return {"model": self.depth.calibration, "fixed": {}, "bounds": {}, **decided}
        model: str | Profile | None = self._model.value
        if model == OWN:
            model = self._profile
            if model is None:
                raise ValueError(self._error or f"{_READING} Try again in a moment")
        if self._fixed_widths() and self._controls["sigma"].value is None:
            raise ValueError(
                "σ is to be fixed at that of the PSF, which is automatic: press Estimate or type a "
                "number, or untick Fix σ"
            )
        return {"model": model, "fixed": self.shape.fixed(), "bounds": self.shape.bounds()}

    def values(self) -> dict[str, Any]:
        """Return what is remembered between sessions."""
        return {
            "fix_sigma": self.fix_sigma.isChecked(),
            "own": self._model.value == OWN,
            "expression": self.expression.text(),
            "shape": self.shape.values(),
            "calibration": self.depth.calibration and self.depth.calibration.to_dict(),
        }

    def put(self, values: dict[str, Any]) -> None:
        """Show remembered values."""
        self.shape.put(values.get("shape"))
        self.depth.put(values.get("calibration"))
        self.expression.setText(str(values.get("expression", _EXAMPLE)))
        if values.get("own") is True:
            self._model.value = OWN
        self.fix_sigma.setChecked(values.get("fix_sigma") is True)

    def reset(self) -> None:
        """Show the defaults; the expression stays, for the next time."""
        self.fix_sigma.setChecked(False)
        self.shape.put({})
        self.depth.choose("")

    def changes(self) -> list[str]:
        """Return what is not at its default, in words, but for the model itself."""
        if self.depth.calibration is not None:
            return [f"z from {self.depth.calibration.words}"]
        fixed, bounds = self.shape.fixed(), self.shape.bounds()
        words = [f"{name} fixed at {value:g}" for name, value in fixed.items()]
        return words + [f"bounds of {name}" for name in bounds]

    def bind(self) -> None:
        """Resume reading an unfinished expression."""
        self._on_expression()

    def unbind(self) -> None:
        """Read no further."""
        self._latest.drop()
        if self._profile is None:
            self._read = ""

    def add_rows(self) -> None:
        """Put the controls below those of the settings."""
        form = self._controls
        self._expression_row = form.row_below(
            "model", "Expression", self.expression, _EXPRESSION_TIP
        )
        form.below("model", self.message)
        form.row_below("model", "z from", self.depth, TIP)
        form.below("errors", self.fix_sigma)
        form.below("errors", self.shape)
        self._model.changed.connect(self._on_model)
        self.expression.editingFinished.connect(self._on_expression)
        self.fix_sigma.toggled.connect(self._on_fix)
        self.depth.changed.connect(self._on_depth)
        self.depth.failed.connect(self._on_unopened)
        form["sigma"].changed.connect(self._on_fix)
        self.shape.changed.connect(self.changed)
        self.shape.start_changed.connect(self._on_starts)
        self._on_model()

    def _on_model(self) -> None:
        self._show_own()
        if self._model.value == OWN:
            self._on_expression()
        else:
            self._latest.drop()
            self._read = ""
            self.shape.show_parameters(MODELS[self._model.value].shape)
            self._on_fix()

    def _on_expression(self) -> None:
        """Read the expression if it has changed: its parameters, and whether it is valid."""
        text = self.expression.text()
        if text == self._read or self._model.value != OWN:
            return
        self._read = text
        try:
            names = _own_names(text)
        except ValueError as error:
            self._on_failed(error)
            return
        columns = (Column(name, "", "A parameter of the expression.") for name in names)
        own = [ShapeParameter(column) for column in columns]
        self.shape.show_parameters((*YX, *own), names)
        self._on_fix()
        self._on_starts()

    def _on_starts(self) -> None:
        self._profile, self._error = None, ""
        self._show_message(_READING)
        text, starts = self.expression.text(), self.shape.starts()
        self._latest.ask(
            partial(Profile.from_expression, text, start=starts, center=_CENTER_NAMES, name="own")
        )
        self.changed.emit()

    def _on_done(self, profile: Profile) -> None:
        self._profile = profile
        self._show_message("")
        self.changed.emit()

    def _on_failed(self, error: Exception) -> None:
        self._profile, self._error = None, str(error)
        self._latest.drop()
        self._show_message(f"⚠ {error}")
        self.changed.emit()

    def _on_fix(self) -> None:
        """Fix the widths of the model at the PSF's σ, or fit them."""
        sigma = self._controls["sigma"].value
        self.shape.fix({} if sigma is None else dict.fromkeys(self._fixed_widths(), float(sigma)))
        self.changed.emit()

    def _fixed_widths(self) -> list[str]:
        """Return the widths of the model that are fixed at the PSF's σ."""
        if not self.fix_sigma.isChecked() or self._is_special():
            return []
        return [name for name in MODELS[self._model.value].widths if name.startswith("sigma")]

    def _show_message(self, text: str) -> None:
        self.message.setText(text)
        self._show_own()

    def _show_own(self) -> None:
        own = self._model.value == OWN
        self._expression_row.visible = own
        self.message.setVisible(own and bool(self.message.text()))
        self.fix_sigma.setEnabled(not self._is_special())
        # A calibration has a model of its own.
        free = self.depth.calibration is None
        for name in ("model", "estimator", "pixel"):
            self._controls.allow(name, free, _CALIBRATED_TIP)
        self.shape.setVisible(free)

    def _is_special(self) -> bool:
        """Whether the model is an expression, or that of a calibration."""
        return self._model.value == OWN or self.depth.calibration is not None

    def _on_depth(self) -> None:
        self._show_own()
        self._on_fix()

    def _on_unopened(self, why: str) -> None:
        self._show_message(f"⚠ {why}")
        self.message.show()


def _own_names(text: str) -> tuple[str, ...]:
    """Return the names of an expression's parameters besides the centre.

    Raises
    ------
    ValueError
        If it is no expression, or has no centre or no other parameter.
    """
    names = unknown_names(text)
    for axis, middle in zip(("y", "x"), _CENTER_NAMES, strict=True):
        if middle not in names:
            raise ValueError(
                f"the expression must have the centre's {axis} in it, by name {middle}"
            )
    own = tuple(name for name in names if name not in (*_CENTER_NAMES, "x", "y"))
    if not own:
        raise ValueError(
            "the expression must have a parameter besides the centre, such as a width s in "
            "exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2))"
        )
    return own


class ShapeTable(QWidget):
    """One row for each shape parameter of the model.

    Values of a parameter are kept while another model is shown.
    """

    changed = Signal()
    #: The text of a start value was changed.
    start_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Row] = {}
        self._given: dict[str, float] = {}
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
            unit = f" [{parameter.unit}]" if parameter.unit else ""
            text = f"{parameter.column.label or parameter.name}{unit}"
            label = _label(text, tip)
            label.setWordWrap(True)
            self._grid.addWidget(label, line, 0)
            for column, name in enumerate(columns, 1):
                if name != "start":
                    self._grid.addWidget(self._number(parameter, name, tip), line, column)
                elif parameter.name in started:
                    self._grid.addWidget(self._start(parameter.name), line, column)
        self._show_fixed()

    def starts(self) -> dict[str, str]:
        """Return the texts of the start values that are shown."""
        return {name: edit.text() for name, edit in self._starts.items()}

    def fixed(self) -> dict[str, float]:
        """Return the fixed values, by name."""
        fixed = {name: box.get() for (name, what), box in self.boxes.items() if what == "fixed"}
        return {name: value for name, value in fixed.items() if value is not None}

    def bounds(self) -> dict[str, tuple[float | None, float | None]]:
        """Return the lower and upper bounds of fitted parameters, by name."""
        fixed, bounds = self.fixed(), {}
        for name in dict.fromkeys(name for name, _ in self.boxes):
            ends = self.boxes[name, "low"].get(), self.boxes[name, "high"].get()
            if name not in fixed and ends != (None, None):
                bounds[name] = ends
        return bounds

    def fix(self, values: Mapping[str, float]) -> None:
        """Fix parameters at these values, before those of their boxes."""
        self._given = dict(values)
        self._show_fixed()

    def values(self) -> dict[str, Row]:
        """Return what is remembered between sessions."""
        return {name: dict(row) for name, row in self._kept.items()}

    def put(self, values: Any) -> None:
        """Take remembered values, as far as they are valid."""
        kept = values if isinstance(values, dict) else {}
        self._kept = {
            str(name): {what: value for what, value in row.items() if _is_right(what, value)}
            for name, row in kept.items()
            if isinstance(row, dict)
        }
        for (name, what), box in self.boxes.items():
            box.show_number(self._kept.get(name, {}).get(what))
        self._show_fixed()
        self.changed.emit()

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
        # The first parameter of an expression is often its width.
        default = "1" if self._starts else "sigma"
        edit = QLineEdit(str(self._kept.get(name, {}).get("start", default)), self)
        explain(edit, f"{name} start", f"<p>{_HEADINGS['start'][1]}</p>")
        edit.setMinimumWidth(_START)
        edit.editingFinished.connect(lambda: self._on_start(name))
        self._starts[name] = edit
        return edit

    def _on_number(self, name: str, what: str) -> None:
        if name not in self._given:
            self._kept.setdefault(name, {})[what] = self.boxes[name, what].get()
            self._show_fixed()
            self.changed.emit()

    def _on_start(self, name: str) -> None:
        text = self._starts[name].text()
        if text != self._kept.get(name, {}).get("start"):
            self._kept.setdefault(name, {})["start"] = text
            self.start_changed.emit()

    def _show_fixed(self) -> None:
        """Show fixed values, and disable the bounds of fixed parameters."""
        for (name, what), box in self.boxes.items():
            if what == "fixed":
                own = self._kept.get(name, {}).get("fixed")
                box.show_number(self._given.get(name, own))
                box.setEnabled(name not in self._given)
        fixed = self.fixed()
        for (name, what), box in self.boxes.items():
            if what != "fixed":
                box.setEnabled(name not in fixed)


def _is_right(what: Any, value: Any) -> bool:
    if what == "start":
        return isinstance(value, str)
    number = isinstance(value, (int, float)) and math.isfinite(value)
    return what in _NUMBERS and (value is None or number)


def _label(text: str, tip: str) -> QLabel:
    label = Label(text)
    label.setToolTip(f"<p>{tip}</p>")
    return label
