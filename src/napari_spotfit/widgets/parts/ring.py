"""The rings and crosses that stand for fits in lists."""

from __future__ import annotations

from qtpy.QtCore import QRectF
from qtpy.QtGui import QColor, QPainter, QPaintEvent, QPen
from qtpy.QtWidgets import QWidget


class Ring(QWidget):
    """A ring in a stop condition's colour, as it is drawn in the viewer."""

    def __init__(self, color: str):
        super().__init__()
        self._color = QColor(color)
        self.setFixedSize(16, 16)

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the ring, with a grey edge so that white shows on white."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for color, width in ((QColor(128, 128, 128), 5.0), (self._color, 3.0)):
            painter.setPen(QPen(color, width))
            painter.drawEllipse(QRectF(4, 4, 8, 8))


class Cross(QWidget):
    """The cross of doubtful fits."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedSize(16, 16)

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the cross in a grey that shows on dark and on light."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(144, 144, 144), 2.0))
        painter.drawLine(4, 4, 12, 12)
        painter.drawLine(4, 12, 12, 4)
