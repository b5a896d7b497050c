"""The controls for what is fitted: model, pixels, estimator, what is held and bounded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from magicgui.widgets import ComboBox
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox, QLineEdit

from ...models.columns import Column
from ...models.expressions.grammar import unknown_names
from ...models.profiles import CENTER, MODELS, Profile, ShapeParameter
from ..parts.form import SettingsForm
from ..parts.latest import Latest
from ..parts.layout import sentence
from .shape_table import ShapeTable

#: The word for somebody's own model among the models.
OWN = "own"
#: Names of the centre's y and x in an expression.
_CENTER = ("y0", "x0")
_EXAMPLE = "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)"
_HOLD_TIP = (
    "<p>Do not fit the σ of Gaussians: every spot has the PSF σ set above, which must be a number "
    "then (<b>Estimate</b> finds one).</p>"
)
_EXPRESSION_TIP = (
    "<p>The spot's shape in terms of <b>x</b> and <b>y</b> in pixels, its centre <b>x0</b> and "
    "<b>y0</b>, and further parameters by any name; amplitude and background come on top. "
    "Made of numbers, + - * / **, parentheses, pi and the functions exp, log, sqrt, abs, sin, "
    "cos, tan, tanh and erf.</p>"
)
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

    #: What :meth:`settings` returns, or that it raises, has changed.
    changed = Signal()

    def __init__(self, controls: SettingsForm, parent: QObject):
        super().__init__(parent)
        self._controls = controls
        self.hold_sigma, self.expression = QCheckBox("Hold σ"), QLineEdit(_EXAMPLE)
        self.hold_sigma.setToolTip(_HOLD_TIP)
        self.message = sentence()
        self.shape = ShapeTable()
        self._read, self._error = "", ""
        self._profile: Profile | None = None
        self._latest = Latest(self)
        model = controls["model"]
        assert isinstance(model, ComboBox)
        self._model = model
        words = [(model.native.itemText(row), word) for row, word in enumerate(model.choices)]
        # As a function, magicgui does not forget them.
        self._model.choices = lambda _: [*words, ("own expression", OWN)]

    def settings(self) -> dict[str, Any]:
        """Return the settings of the model, and of what is held and bounded.

        Raises
        ------
        ValueError
            If the expression makes no model, or there is no σ to hold.
        """
        model: str | Profile | None = self._model.value
        if model == OWN:
            model = self._profile
            if model is None:
                raise ValueError(self._error or f"{_READING} Try again in a moment")
        if self._held() and self._controls["sigma"].value is None:
            raise ValueError(
                "σ is to be held at that of the PSF, which is automatic: press Estimate or type a "
                "number, or untick Hold σ"
            )
        return {"model": model, "fixed": self.shape.fixed(), "bounds": self.shape.bounds()}

    def values(self) -> dict[str, Any]:
        """Return what is remembered between sessions."""
        return {
            "hold_sigma": self.hold_sigma.isChecked(),
            "own": self._model.value == OWN,
            "expression": self.expression.text(),
            "shape": self.shape.values(),
        }

    def put(self, values: dict[str, Any]) -> None:
        """Show remembered values."""
        self.shape.put(values.get("shape"))
        self.expression.setText(str(values.get("expression", _EXAMPLE)))
        if values.get("own") is True:
            self._model.value = OWN
        self.hold_sigma.setChecked(values.get("hold_sigma") is True)

    def reset(self) -> None:
        """Show the defaults; the expression stays, for the next time."""
        self.hold_sigma.setChecked(False)
        self.shape.reset()

    def bind(self) -> None:
        """Read an expression that has not been read to the end."""
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
        form.below("errors", self.hold_sigma)
        form.below("errors", self.shape)
        self._connect()
        self._on_model()

    def _on_model(self) -> None:
        self._show_own()
        if self._model.value == OWN:
            self._on_expression()
        else:
            self._latest.drop()
            self._read = ""
            self.shape.show_parameters(MODELS[self._model.value].shape)
            self._on_hold()

    def _on_expression(self) -> None:
        """Read the expression if it is another one: which parameters it has, and if it will do."""
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
        self.shape.show_parameters((*CENTER, *own), names)
        self._on_hold()
        self._on_starts()

    def _on_starts(self) -> None:
        self._profile, self._error = None, ""
        self._say(_READING)
        self._latest.ask(self._reading())
        self.changed.emit()

    def _reading(self) -> Callable[[], Profile]:
        return partial(
            Profile.from_expression,
            self.expression.text(),
            start=self.shape.starts(),
            center=_CENTER,
            name="own",
        )

    def _on_done(self, profile: Profile) -> None:
        self._profile = profile
        self._say("")
        self.changed.emit()

    def _on_failed(self, error: Exception) -> None:
        self._profile, self._error = None, str(error)
        self._latest.drop()
        self._say(f"⚠ {error}")
        self.changed.emit()

    def _on_hold(self) -> None:
        """Hold what is a σ of the model at that of the PSF, or let it go."""
        sigma = self._controls["sigma"].value
        self.shape.hold({} if sigma is None else dict.fromkeys(self._held(), float(sigma)))
        self.changed.emit()

    def _held(self) -> list[str]:
        """Return what is a σ of the model, if that is to be held."""
        if not self.hold_sigma.isChecked() or self._model.value == OWN:
            return []
        return [name for name in MODELS[self._model.value].widths if name.startswith("sigma")]

    def _say(self, text: str) -> None:
        self.message.setText(text)
        self._show_own()

    def _show_own(self) -> None:
        own = self._model.value == OWN
        self._expression_row.visible = own
        self.message.setVisible(own and bool(self.message.text()))
        self.hold_sigma.setEnabled(not own)

    def _connect(self) -> None:
        self._model.changed.connect(self._on_model)
        self.expression.editingFinished.connect(self._on_expression)
        self.hold_sigma.toggled.connect(self._on_hold)
        self._controls["sigma"].changed.connect(self._on_hold)
        self.shape.changed.connect(self.changed)
        self.shape.start_changed.connect(self._on_starts)
        self._latest.done.connect(self._on_done)
        self._latest.failed.connect(self._on_failed)


def _own_names(text: str) -> tuple[str, ...]:
    """Return the names of an expression's parameters besides the centre.

    Raises
    ------
    ValueError
        If it is no expression, or has no centre or no other parameter.
    """
    names = unknown_names(text)
    for axis, middle in zip(("y", "x"), _CENTER, strict=True):
        if middle not in names:
            raise ValueError(
                f"the expression must have the centre's {axis} in it, by name {middle}"
            )
    own = tuple(name for name in names if name not in (*_CENTER, "x", "y"))
    if not own:
        raise ValueError(
            "the expression must have a parameter besides the centre, such as a width s in "
            "exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2))"
        )
    return own
