"""The scale of the face colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from qtpy.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from qtpy.QtWidgets import QHBoxLayout, QLabel, QWidget

if TYPE_CHECKING:
    from napari.layers import Points


class _Gradient(QWidget):
    """A strip of a colour map."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(12)
        self.colors: list[QColor] = []

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the colours from left to right."""
        gradient = QLinearGradient(0, 0, self.width(), 0)
        for place, color in zip(np.linspace(0, 1, len(self.colors)), self.colors, strict=True):
            gradient.setColorAt(place, color)
        QPainter(self).fillRect(self.rect(), gradient)


class ColorBar(QWidget):
    """The colours of a Points layer's faces between the two values that limit them.

    napari can draw such a bar in the canvas, but crashed when a layer with one was
    removed (0.7.1, 0.8.0 and 0.9.2, on Mesa's OpenGL); and it cannot say the unit.

    Parameters
    ----------
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        self.low, self.high, self._gradient = QLabel(), QLabel(), _Gradient()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.low)
        row.addWidget(self._gradient, 1)
        row.addWidget(self.high)

    def show_layer(self, layer: Points, unit: str) -> None:
        """Show a layer's face colours; nothing if no quantity colours them."""
        limits = layer.face_contrast_limits
        self.setVisible(layer.face_color_mode == "colormap" and limits is not None)
        if limits is None:
            return
        low, high = (f"{limit:.3g}" for limit in limits)
        if low == high:
            low, high = (f"{limit:.6g}" for limit in limits)
        self.low.setText(f"≤ {low}")
        self.high.setText(f"≥ {high} {unit}".rstrip())
        colors = np.asarray(layer.face_colormap.map(np.linspace(0, 1, 17)))
        self._gradient.colors = [QColor.fromRgbF(*map(float, color)) for color in colors]
        self._gradient.update()
