"""Qt controls made from the settings: label, range, unit, default and tooltip."""

from __future__ import annotations

import dataclasses
import html
from typing import Any, get_args, get_type_hints

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox, QComboBox, QFormLayout, QLabel, QWidget

from ...settings.parameter import Parameter
from ...settings.settings import Settings, choices, parameters
from .number_box import NumberBox
from .wheel import guard_wheel

_DEFAULTS = Settings()
#: What the image tells where nothing is set, and what it is taken for until then: the numbers of a
#: diffraction-limited spot.
_AUTOMATIC = {"sigma": 1.3, "roi_size": 9}
#: What one click on an arrow adds; settings not listed change by 1.
_STEPS = {
    "sigma": 0.1,
    "false_spots": 1e-9,
    "min_distance": 0.5,
    "roi_size": 2,
    "sigma_min": 0.1,
    "sigma_max": 0.1,
    "gain": 0.1,
}
#: Settings that one click multiplies or divides by ten.
_DECADES = ("false_spots", "min_delta", "min_step")
_ODD = ("roi_size",)
#: What the list says for a word, where that is not the word itself.
_SPOKEN = {"auto": "automatic", "cpu": "CPU", "cuda": "CUDA GPU"}
_SPOKEN |= {
    "gaussian": "Gaussian",
    "gaussian_elliptical": "elliptical Gaussian",
    "gaussian_rotated": "rotated Gaussian",
    "lorentzian": "Lorentzian",
    "moffat": "Moffat",
    "lse": "least squares",
    "wlse": "weighted least squares",
    "mle": "maximum likelihood",
}


class WordBox(QComboBox):
    """One of several words."""

    changed = Signal()

    def __init__(self, name: str, parent: QWidget | None = None):
        super().__init__(parent)
        for word in choices(name):
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
        control = _number_box(name)
    control.put(default)
    control.setObjectName(name)
    control.setToolTip(tooltip(parameters()[name], default))
    control.setAccessibleName(parameters()[name].label)
    return control


def _number_box(name: str) -> NumberBox:
    hint = get_type_hints(Settings)[name]
    kinds = get_args(hint) or (hint,)
    return NumberBox(
        parameters()[name],
        optional=type(None) in kinds and getattr(_DEFAULTS, name) is None,
        automatic=_AUTOMATIC.get(name),
        whole=int in kinds,
        odd=name in _ODD,
        step=_STEPS.get(name, 1.0),
        decades=name in _DECADES,
    )


def make_label(name: str, control: QWidget) -> QLabel:
    """Return the label that belongs to a setting's control."""
    label = QLabel(parameters()[name].label)
    label.setToolTip(control.toolTip())
    label.setBuddy(control)
    return label


def add_row(form: QFormLayout, label: QLabel, control: QWidget, tip: str) -> None:
    """Add a control that belongs to no setting to a form, with its label and tooltip."""
    label.setBuddy(control)
    for widget in (label, control):
        widget.setToolTip(tip)
    control.setAccessibleName(label.text())
    form.addRow(label, control)


def tooltip(parameter: Parameter, default: Any) -> str:
    """Say what a setting means, what it accepts and what it is by default."""
    unit = f" {parameter.unit}" if parameter.unit else ""
    low, high = parameter.minimum, parameter.maximum
    if low is not None and high is not None:
        above = parameter.above_minimum
        between = f"Above {low:g}, at most" if above else f"From {low:g} to"
        accepted = f"{between} {high:g}{unit}; default "
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
