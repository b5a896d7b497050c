"""A lasso in a plot: drag around some points, and the outline stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QRectF, Qt, Signal
from qtpy.QtGui import QPainter, QPolygonF

from ..parts.plots import ORANGE, faint

#: A corner is set wherever the mouse has moved so far in pixels of the screen.
_STEP = 4.0


class Lasso(pg.GraphicsObject):  # type: ignore[misc]
    """Draws a closed outline over all of a plot."""

    #: The corners of a new outline, one row (x, y) each.
    drawn = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._kept: NDArray[np.float64] = np.zeros((0, 2))
        self._new: list[tuple[float, float]] = []
        self._covered = QRectF()
        self.setZValue(10)

    def put(self, corners: Any) -> None:
        """Show an outline, or none where there are no corners."""
        self._kept = np.reshape(np.asarray(corners, float), (-1, 2))
        self.update()

    def boundingRect(self) -> QRectF:
        """Cover all that the plot shows, so that a drag may begin anywhere."""
        return self._covered

    def cover(self, *_: Any) -> None:
        """Cover what the plot shows now."""
        self.prepareGeometryChange()
        self._covered = QRectF(self.getViewBox().viewRect())

    def paint(self, painter: QPainter, *_: Any) -> None:
        """Draw the outline that is being drawn, or else the one that stays."""
        corners = self._new or self._kept.tolist()
        painter.setPen(pg.mkPen(ORANGE, width=2))
        painter.setBrush(faint(ORANGE, 30))
        painter.drawPolygon(QPolygonF([QPointF(x, y) for x, y in corners]))

    def mouseDragEvent(self, event: Any) -> None:
        """Set corners along the way; the outline is ready when the button is let go."""
        if event.button() != Qt.MouseButton.LeftButton:
            event.ignore()
            return
        event.accept()
        if event.isStart():
            self._new = [_xy(event.buttonDownPos())]
        pixel = np.array(self.getViewBox().viewPixelSize())
        place = _xy(event.pos())
        if np.hypot(*((np.array(place) - self._new[-1]) / pixel)) >= _STEP:
            self._new.append(place)
        if event.isFinish():
            corners, self._new = self._new, []
            if len(corners) >= 3:
                self.drawn.emit(np.array(corners))
        self.update()


def _xy(point: Any) -> tuple[float, float]:
    return float(point.x()), float(point.y())
