"""Widgets in rows and columns, and what they say of themselves."""

from __future__ import annotations

from typing import TypeVar

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QBoxLayout, QLabel, QLayout, QWidget

_Box = TypeVar("_Box", bound=QBoxLayout)
_Part = QWidget | QLayout | int | tuple[QWidget | QLayout, int]


def fill(
    box: _Box,
    *parts: _Part,
    margins: tuple[int, int, int, int] = (0, 0, 0, 0),
    spacing: int | None = None,
) -> _Box:
    """Put parts into a row or a column.

    Parameters
    ----------
    box : QBoxLayout
        The row or column.
    *parts : QWidget, QLayout or int
        What it gets, in a tuple with how much of the spare room; a number is empty room.
    margins : tuple of int
        Left, above, right and below, in pixels.
    spacing : int, optional
        Between the parts, in pixels; by default as the style has it.
    """
    box.setContentsMargins(*margins)
    if spacing is not None:
        box.setSpacing(spacing)
    for part in parts:
        one, stretch = part if isinstance(part, tuple) else (part, 0)
        if isinstance(one, int):
            box.addStretch(one)
        elif isinstance(one, QWidget):
            box.addWidget(one, stretch)
        else:
            box.addLayout(one, stretch)
    return box


def sentence(label: QLabel | None = None) -> QLabel:
    """Return a label for words that may need several lines and can be copied."""
    label = QLabel() if label is None else label
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


def explain(widget: QWidget, name: str, tip: str) -> None:
    """Name a widget for those who do not see it, and say what it is for."""
    widget.setAccessibleName(name)
    widget.setToolTip(tip)
