"""A strip of a colour map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from qtpy.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from qtpy.QtWidgets import QWidget

#: Places from left to right at which the map is asked; in between, colours are mixed.
_PLACES = np.linspace(0, 1, 17)


class Gradient(QWidget):
    """The colours of a map from left to right.

    Parameters
    ----------
    height : int
        Height in pixels.
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, height: int = 12, parent: QWidget | None = None):
        super().__init__(parent)
        self._colors: list[QColor] = []
        self.setFixedHeight(height)

    def show_map(self, colormap: Callable[[Any], Any]) -> None:
        """Show a map, given as what turns numbers from 0 to 1 into red, green, blue and alpha."""
        colors = np.asarray(colormap(_PLACES), float)
        self._colors = [QColor.fromRgbF(*color) for color in colors.tolist()]
        self.update()

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the colours."""
        gradient = QLinearGradient(0, 0, self.width(), 0)
        for place, color in zip(_PLACES, self._colors, strict=False):
            gradient.setColorAt(place, color)
        QPainter(self).fillRect(self.rect(), gradient)
