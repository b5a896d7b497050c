"""Forms that magicgui makes from the descriptions of settings."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

from magicgui.widgets import CheckBox, ComboBox, Container, FloatSpinBox, Widget, create_widget
from magicgui.widgets.bases import BaseValueWidget, ValuedContainerWidget
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QBoxLayout, QComboBox, QLabel, QWidget

from ...settings.settings import Settings
from ...settings.validation import GROUPS, Parameter, words_of
from .boxes import NumberBox, accepted
from .layout import Label, explain, fill, guard_wheel

#: Pixels that a label is wider in the viewer's font than before it has it.
_SPARE = 12
#: Pixels from which on labels are broken into lines, and the least ones of a choice.
_WIDEST, _CHOICE = 98, 90


class Number(ValuedContainerWidget[float | None]):
    """A number as magicgui's value, or None, in a box that shows what None means.

    Parameters
    ----------
    about : Parameter
        Unit, range and steps, and what None means.
    nullable : bool
        Whether None is a value.
    whole : bool
        Whether only whole numbers are accepted.
    sample : str
        A number as long as usual ones get, for which a box without arrows has room.
    **rest
        What any widget of magicgui's takes.
    """

    def __init__(
        self,
        value: float | None = None,
        *,
        about: Parameter,
        nullable: bool = False,
        whole: bool = False,
        sample: str = "",
        **rest: Any,
    ):
        super().__init__(nullable=nullable, layout="horizontal", **rest)
        #: The box itself.
        self.box = NumberBox(about, optional=nullable, whole=whole, sample=sample)
        fill(self.native.layout(), self.box)
        self.native.setFocusProxy(self.box)
        if value is not None:
            self.set_value(value)
        self.box.changed.connect(self.changed.emit)

    def get_value(self) -> float | None:
        """Return the number, or None."""
        return self.box.get()

    def set_value(self, value: float | None) -> None:
        """Show a number, or None."""
        self.box.put(value)


def widget_for(name: str, hint: Any, default: Any, about: Parameter) -> BaseValueWidget[Any]:
    """Return a control for a setting of some type, showing its default.

    Parameters
    ----------
    name : str
        The setting.
    hint : type
        What it accepts.
    default
        Its default.
    about : Parameter
        Its description.
    """
    kinds, words = {hint, *get_args(hint)}, words_of(hint)
    tip = tooltip(about, default)
    options: dict[str, Any] = {"tooltip": tip}
    if words:
        options["choices"] = [(about.words.get(word, word), word) for word in words]
    elif kinds & {int, float}:
        options |= {"widget_type": Number, "about": about, "whole": int in kinds}
    widget = create_widget(default, hint, name, label=about.label, options=options)
    assert isinstance(widget, BaseValueWidget)
    control = control_of(widget)
    control.setObjectName(name)
    explain(control, about.label, tip)
    if not isinstance(widget, Number):  # whose box has a guard of its own
        guard_wheel(control)
    if isinstance(control, QComboBox):
        control.setMinimumWidth(_CHOICE)
    return widget


def control_of(widget: Widget) -> QWidget:
    """Return the Qt widget that takes the keys and clicks of a magicgui widget."""
    native: QWidget = widget.box if isinstance(widget, Number) else widget.native
    return native


class SettingsForm:
    """The controls of settings: first those that most users set, then the others in groups.

    Parameters
    ----------
    kind : type
        The dataclass whose fields are settings.
    only : tuple of str
        Those with a row; by default all but those that are shown apart.

    Attributes
    ----------
    groups : dict of str to list of str
        The settings of each group that are folded.
    first, folded : magicgui.widgets.Container
        The rows.
    controls : dict of str to magicgui.widgets.bases.BaseValueWidget
        The control of each setting that has one.
    """

    def __init__(self, kind: type[Any] = Settings, only: tuple[str, ...] = ()):
        self._kind, fields, hints = kind, dataclasses.fields(kind), get_type_hints(kind)
        self._about: dict[str, Parameter] = {one.name: one.metadata["parameter"] for one in fields}
        self._defaults = {one.name: one.default for one in fields}
        shown = {
            name: about
            for name, about in self._about.items()
            if (name in only if only else about.shown != "apart")
        }
        self.controls = {
            name: widget_for(name, hints[name], self._defaults[name], about)
            for name, about in shown.items()
        }
        first = [name for name, about in shown.items() if about.shown == "first"]
        self.groups = {
            group: [name for name in shown if shown[name].group == group and name not in first]
            for group in GROUPS
        }
        self.first = rows_of(self.controls[name] for name in first)
        self.folded = rows_of(
            self.controls[name] for names in self.groups.values() for name in names
        )
        #: What was put below a row last.
        self._below: dict[str, QWidget] = {}
        self._headings: dict[str, QWidget] = {}
        for group, names in self.groups.items():
            if names:
                column = self.folded.native.layout()
                place = column.indexOf(_row(self.controls[names[0]]))
                self._headings[group] = title = Label(GROUPS[group])
                title.setStyleSheet("font-weight: bold; padding-top: 6px")
                column.insertWidget(place, title)

    def __getitem__(self, name: str) -> BaseValueWidget[Any]:
        return self.controls[name]

    def row(self, name: str) -> QWidget:
        """Return the row of a setting, with its label."""
        return _row(self.controls[name])

    def show_group(self, group: str, visible: bool) -> None:
        """Show or hide the rows of a group, with their heading."""
        for row in (self._headings[group], *map(self.row, self.groups[group])):
            row.setVisible(visible)

    def number(self, name: str) -> Number:
        """Return the control of a setting that is a number."""
        control = self.controls[name]
        assert isinstance(control, Number)
        return control

    def get(self) -> dict[str, Any]:
        """Return the values by name."""
        return {**self.first.asdict(), **self.folded.asdict()}

    def put(self, values: Mapping[str, Any]) -> None:
        """Show the values that are valid settings and leave the other controls alone."""
        good = {
            name: value
            for name, value in values.items()
            if name in self.controls and self._is_valid(name, value)
        }
        for rows in (self.first, self.folded):
            rows.update({row.name: good[row.name] for row in rows if row.name in good})

    def changes(self) -> list[str]:
        """Return what is not at its default, in words."""
        return [
            f"{self._about[name].label} {_shown(control)}"
            for name, control in self.controls.items()
            if control.value != self._defaults[name]
        ]

    def reset(self) -> None:
        """Show the defaults."""
        self.put({name: self._defaults[name] for name in self.controls})

    def beside(self, name: str, *widgets: QWidget, stretch: int = 0) -> None:
        """Put widgets beside a setting's control."""
        put_beside(self.controls[name], widgets, stretch)

    def below(self, name: str, widget: QWidget) -> None:
        """Put a widget, as wide as the form, below a setting's row and what was put there before.

        Without a name it comes above all rows.
        """
        column = self._rows_with(name).native.layout()
        above = self._below.get(name) or (_row(self.controls[name]) if name else None)
        column.removeWidget(widget)
        column.insertWidget(0 if above is None else column.indexOf(above) + 1, widget)
        self._below[name] = widget

    def row_below(
        self, name: str, label: str, widget: QWidget, tip: str, *beside: QWidget
    ) -> Widget:
        """Put a widget with a label there, and others beside it; return a row of magicgui's."""
        explain(widget, label, tip)
        row: Container[Widget] = Container(
            layout="horizontal", name=label, label=label, tooltip=tip, gui_only=True
        )
        fill(row.native.layout(), widget)
        self._rows_with(name).append(row)
        for one in _labels(row):
            one.setBuddy(widget)
        self.below(name, _row(row))
        put_beside(row, beside)
        return row

    def allow(self, name: str, allowed: bool, why_not: str) -> None:
        """Enable a setting's control, or disable it with the reason as its tooltip."""
        control = self.controls[name]
        about = tooltip(self._about[name], self._defaults[name])
        control.enabled, control.tooltip = allowed, about if allowed else why_not
        for part in (control_of(control), *_labels(control)):
            part.setEnabled(allowed)
            part.setToolTip(control.tooltip)

    def align(self) -> None:
        """Make all labels as wide as the widest, in the present font."""
        align_labels(self.first, spare=0)
        align_labels(self.folded, spare=0)

    def _rows_with(self, name: str) -> Container[Widget]:
        return self.folded if name and self.controls[name] in self.folded else self.first

    def _is_valid(self, name: str, value: Any) -> bool:
        if isinstance(value, (tuple, list)):  # a ROI that is not square has no control
            return False
        try:
            self._kind(**{name: value})
        except (TypeError, ValueError):
            return False
        return True


def tooltip(about: Parameter, default: Any) -> str:
    """Return the meaning of a setting, what it accepts, and its default."""
    words = accepted(about)
    words = f"{words[0].upper()}{words[1:]}; default " if words else "Default "
    if default is None:
        words += f"{about.none_means}, for which leave it empty."
    elif isinstance(default, bool):
        words += "yes." if default else "no."
    else:
        words += f"{default} {about.unit}".rstrip() + "."
    # A paragraph, so that Qt breaks the lines.
    return f"<p>{html.escape(about.doc)}</p><p>{html.escape(words)}</p>"


def _shown(control: BaseValueWidget[Any]) -> str:
    """Return the value of a control as it is seen."""
    if isinstance(control, Number):
        return control.box.text()
    if isinstance(control, ComboBox):
        return str(control.native.currentText())
    return "on" if control.value else "off"


def _row(widget: Widget) -> QWidget:
    """Return the row of a control and its label."""
    native: QWidget = widget.native
    row = native.parentWidget()
    return native if row is None or isinstance(widget, CheckBox) else row


def put_beside(row: Widget, widgets: Iterable[QWidget], stretch: int = 0) -> None:
    """Put widgets behind a control and its label."""
    layout = _row(row).layout()
    assert isinstance(layout, QBoxLayout)
    layout.setStretchFactor(row.native, 1)
    for widget in widgets:
        layout.addWidget(widget, stretch)


def spin_row(
    label: str, tip: str, value: float, least: float, most: float, step: float = 1
) -> FloatSpinBox:
    """Return a number of a form, between two ends."""
    return FloatSpinBox(label=label, tooltip=tip, value=value, min=least, max=most, step=step)


def rows_of(controls: Iterable[Widget]) -> Container[Widget]:
    """Return rows of controls, whose labels lead to them."""
    rows: Container[Widget] = Container(widgets=list(controls))
    rows.margins = (0, 0, 0, 0)
    rows.native.layout().setSpacing(4)
    align_labels(rows, spare=0)
    return rows


def explained_rows(controls: Iterable[Widget]) -> Container[Widget]:
    """Return rows of controls made with tooltips, which the wheel changes only once clicked."""
    rows: Container[Widget] = Container(widgets=list(controls))
    rows.margins = (0, 0, 0, 0)
    for row in rows:
        control = control_of(row)
        explain(control, row.label, row.tooltip or "")
        guard_wheel(control)
    align_labels(rows)
    return rows


def align_labels(rows: Container[Widget], spare: int = _SPARE) -> None:
    """Make all labels as wide as the widest, and some pixels more; they lead to their controls."""
    labels = [(row, label) for row in rows for label in _labels(row)]
    widest = max((label.sizeHint().width() for _, label in labels), default=0)
    for row, label in labels:
        if not spare and widest > _WIDEST:
            label.setWordWrap(True)
            label.setFixedWidth(_WIDEST)
        else:
            label.setMinimumWidth(widest + spare)
        if label.buddy() is None:
            label.setBuddy(control_of(row))


def _labels(widget: Widget) -> list[QLabel]:
    direct = Qt.FindChildOption.FindDirectChildrenOnly
    return list(_row(widget).findChildren(QLabel, options=direct))
