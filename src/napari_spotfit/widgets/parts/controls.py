"""Qt controls made from the settings: label, range, unit, default and tooltip."""

from __future__ import annotations

import dataclasses
import html
import re
from typing import Any, get_args, get_type_hints

from qtpy.QtCore import QSize, Signal
from qtpy.QtGui import QValidator
from qtpy.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QLabel, QWidget

from ...settings import Parameter, Settings, choices, parameters
from .wheel import guard_wheel

_DEFAULTS = Settings()
#: What one click on an arrow adds; settings not listed change by 1.
_STEPS = {
    "sigma": 0.1,
    "threshold": 0.5,
    "min_distance": 0.5,
    "roi_size": 2,
    "sigma_min": 0.1,
    "sigma_max": 0.1,
    "gain": 0.1,
}
#: Settings that one click multiplies or divides by ten.
_DECADES = ("min_delta", "min_step")
_ODD = ("roi_size",)
#: What the list says for a word, where that is not the word itself.
_SPOKEN = {"noise": "× noise", "auto": "automatic", "cpu": "CPU", "cuda": "CUDA GPU"}
_SPOKEN |= {
    "gaussian": "Gaussian",
    "gaussian_elliptical": "elliptical Gaussian",
    "gaussian_rotated": "rotated Gaussian",
    "lorentzian": "Lorentzian",
    "lse": "least squares",
    "mle": "maximum likelihood",
}
#: Words that need more than a control can give: weights.
_NOT_OFFERED = ("wlse",)
#: Spin boxes need an end; beyond it there is no meaningful count.
_LARGEST = 1e12
#: Width in pixels of a number's box.
_WIDTH = 120
#: The number that stands for None in an optional number's spin box.
_NONE = -1e15


class NumberBox(QDoubleSpinBox):
    """A number with its unit, or nothing at all where the setting may be left open.

    Parameters
    ----------
    name : str
        The setting.
    parent : QWidget, optional
        Qt parent.
    """

    changed = Signal()

    def __init__(self, name: str, parent: QWidget | None = None):
        super().__init__(parent)
        parameter, hint = parameters()[name], get_type_hints(Settings)[name]
        kinds = get_args(hint) or (hint,)
        self._parameter = parameter
        self._whole, self._odd = int in kinds, name in _ODD
        self._decades, self._step = name in _DECADES, _STEPS.get(name, 1)
        self._optional = type(None) in kinds
        self.setDecimals(0 if self._whole else 12)
        self.setRange(_NONE if self._optional else self._lowest(), self._highest())
        self.setSuffix(f" {parameter.unit}" if parameter.unit else "")
        if self._optional:
            self.setSpecialValueText(parameter.none_means)
        self.setKeyboardTracking(False)
        guard_wheel(self)
        self.valueChanged.connect(self.changed)

    def get(self) -> float | int | None:
        """Return the number, or None where the setting is left open."""
        self.interpretText()
        value = self.value()
        if self._optional and value == _NONE:
            return None
        return round(value) if self._whole else value

    def put(self, value: float | None) -> None:
        """Show a number, or None."""
        self.setValue(_NONE if value is None else value)

    def textFromValue(self, value: float) -> str:
        """Show no more digits than the number needs."""
        text = f"{value:.0f}" if self._whole else f"{value:.9g}"
        return re.sub(r"e([+-])0*", lambda match: f"e{match[1].strip('+')}", text)

    def valueFromText(self, text: str | None) -> float:
        """Read a number with point or comma; nothing means None."""
        return _NONE if self._says_none(text) else float(self._words(text))

    def validate(self, text: str | None, position: int) -> tuple[QValidator.State, str, int]:
        """Accept what the setting accepts and keep what may become so."""
        if self._says_none(text):
            return QValidator.State.Acceptable, text or "", position
        words = self._words(text)
        try:
            good = self._accepts(float(words))
        except ValueError:
            good = False
            if re.search(r"[^\d.eE+-]", words):
                return QValidator.State.Invalid, text or "", position
        state = QValidator.State.Acceptable if good else QValidator.State.Intermediate
        return state, text or "", position

    def fixup(self, text: str | None) -> str:
        """Turn a number outside the range, or an even one, into the nearest accepted one."""
        try:
            value = float(self._words(text))
        except ValueError:
            return text or ""
        return self.textFromValue(self._nearest(value)) + self.suffix()

    def stepBy(self, steps: int) -> None:
        """Go up or down by the setting's own step, or in decades."""
        value = self.get()
        if value is None:
            new = max(self._lowest(), 0.0)
        elif self._decades:
            new = (value or 1e-7) * 10.0 ** min(max(steps, -30), 30)
        else:
            new = value + steps * self._step
        self.setValue(self._nearest(round(new, 12)))
        self.selectAll()

    def sizeHint(self) -> QSize:
        """Ask for room for usual numbers, not for the longest that may be typed."""
        return QSize(_WIDTH, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        """Ask for the same room."""
        return QSize(_WIDTH, super().minimumSizeHint().height())

    def _says_none(self, text: str | None) -> bool:
        return self._optional and (text == self.specialValueText() or not self._words(text))

    def _words(self, text: str | None) -> str:
        return (text or "").removesuffix(self.suffix()).strip().replace(",", ".")

    def _lowest(self) -> float:
        low = self._parameter.minimum
        if low is None:
            return -_LARGEST
        return low + (self._step if self._parameter.above_minimum else 0)

    def _highest(self) -> float:
        return _LARGEST if self._parameter.maximum is None else self._parameter.maximum

    def _accepts(self, value: float) -> bool:
        low, parity = self._parameter.minimum, not (self._odd and value % 2 != 1)
        above = low is None or value > low or (value == low and not self._parameter.above_minimum)
        whole = not self._whole or value == round(value)
        return above and abs(value) <= self._highest() and parity and whole

    def _nearest(self, value: float) -> float:
        value = min(max(value, self._lowest()), self._highest())
        return 2 * (value // 2) + 1 if self._odd else value


class WordBox(QComboBox):
    """One of several words."""

    changed = Signal()

    def __init__(self, name: str, parent: QWidget | None = None):
        super().__init__(parent)
        for word in choices(name):
            if word in _NOT_OFFERED:
                continue
            self.addItem(_SPOKEN.get(word, word), word)
        guard_wheel(self)
        self.currentIndexChanged.connect(self.changed)

    def get(self) -> str:
        """Return the word."""
        return str(self.currentData())

    def put(self, value: str) -> None:
        """Choose a word, if it is offered."""
        if (index := self.findData(value)) >= 0:
            self.setCurrentIndex(index)


class TickBox(QCheckBox):
    """Yes or no."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        self.toggled.connect(self.changed)

    def get(self) -> bool:
        """Return whether it is ticked."""
        return self.isChecked()

    def put(self, value: bool) -> None:
        """Tick it or not."""
        self.setChecked(value)


Control = NumberBox | WordBox | TickBox


def make_control(name: str) -> Control:
    """Return a control for a setting, showing its default.

    Parameters
    ----------
    name : str
        Name of the setting in :class:`~napari_spotfit.settings.Settings`.
    """
    default = getattr(_DEFAULTS, name)
    control: Control
    if isinstance(default, bool):
        control = TickBox()
    elif isinstance(default, str):
        control = WordBox(name)
    else:
        control = NumberBox(name)
    control.put(default)
    control.setObjectName(name)
    control.setToolTip(tooltip(parameters()[name], default))
    control.setAccessibleName(parameters()[name].label)
    return control


def make_label(name: str, control: QWidget) -> QLabel:
    """Return the label that belongs to a setting's control."""
    label = QLabel(parameters()[name].label)
    label.setToolTip(control.toolTip())
    label.setBuddy(control)
    return label


def tooltip(parameter: Parameter, default: Any) -> str:
    """Say what a setting means, what it accepts and what it is by default."""
    unit = f" {parameter.unit}" if parameter.unit else ""
    low, high = parameter.minimum, parameter.maximum
    if low is not None and high is not None:
        accepted = f"From {low:g} to {high:g}{unit}; default "
    elif low is not None:
        accepted = f"{'Above' if parameter.above_minimum else 'At least'} {low:g}{unit}; default "
    else:
        accepted = "Default "
    if default is None:
        accepted += f"{parameter.none_means}, for which leave it empty."
    elif isinstance(default, bool):
        accepted += "yes." if default else "no."
    else:
        accepted += f"{default}{unit}."
    # A paragraph, so that Qt breaks the lines.
    return f"<p>{html.escape(parameter.doc)}</p><p>{html.escape(accepted)}</p>"


class SettingsControls:
    """The controls of several settings, read and written together.

    Parameters
    ----------
    names : tuple of str
        The settings, in order.
    """

    def __init__(self, names: tuple[str, ...]):
        self.controls: dict[str, Control] = {name: make_control(name) for name in names}

    def __getitem__(self, name: str) -> Control:
        return self.controls[name]

    def get(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: control.get() for name, control in self.controls.items()}

    def put(self, values: dict[str, Any]) -> None:
        """Show the values that are valid settings and leave the other controls alone."""
        for name, value in values.items():
            if name in self.controls and _valid(name, value):
                self.controls[name].put(value)

    def reset(self) -> None:
        """Show the defaults."""
        self.put(dataclasses.asdict(_DEFAULTS))


def _valid(name: str, value: Any) -> bool:
    if isinstance(value, (tuple, list)):  # a ROI that is not square has no control
        return False
    try:
        Settings().changed(**{name: value})
    except (TypeError, ValueError):
        return False
    return True
