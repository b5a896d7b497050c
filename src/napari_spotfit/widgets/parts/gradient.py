"""A strip of a colour map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from qtpy.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from qtpy.QtWidgets import QWidget


class Gradient(QWidget):
    """A strip of colours, evenly spaced from left to right.

    Parameters
    ----------
    colors : sequence of QColor
        Two or more colours.
    height : int
        Height in pixels.
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(
        self, colors: Sequence[QColor] = (), height: int = 12, parent: QWidget | None = None
    ):
        super().__init__(parent)
        self.colors = list(colors)
        self.setFixedHeight(height)

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the colours."""
        gradient = QLinearGradient(0, 0, self.width(), 0)
        for place, color in zip(np.linspace(0, 1, len(self.colors)), self.colors, strict=True):
            gradient.setColorAt(place, color)
        QPainter(self).fillRect(self.rect(), gradient)
