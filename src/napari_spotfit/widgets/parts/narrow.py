"""Spin boxes without arrows."""

from __future__ import annotations

from qtpy.QtWidgets import QAbstractSpinBox


def make_narrow(box: QAbstractSpinBox, width: int = 30) -> None:
    """Take a box's arrows away, and the room that the theme leaves for them.

    Parameters
    ----------
    box : QAbstractSpinBox
        The box.
    width : int
        The least width of its number in pixels.
    """
    box.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.NoButtons)
    box.setStyleSheet(f"min-width: {width}px; padding: 1px 6px")
