"""A simulated mouse over a widget or a viewer's canvas, also for benchmarks and pictures."""

from __future__ import annotations

from typing import Any

import napari
import numpy as np
from qtpy.QtCore import QEvent, QPointF, Qt
from qtpy.QtGui import QMouseEvent
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QWidget

LEFT, RIGHT = Qt.MouseButton.LeftButton, Qt.MouseButton.RightButton
NO_BUTTON = Qt.MouseButton.NoButton
CONTROL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
NO_KEY = Qt.KeyboardModifier.NoModifier


def in_plot(plot: Any, x: float, y: float) -> QPointF:
    """Convert a position in a pyqtgraph plot's data to its viewport."""
    return QPointF(plot.mapFromScene(plot.getViewBox().mapViewToScene(QPointF(x, y))))


class Mouse:
    """Moves over a widget and presses buttons, at points of the widget."""

    def __init__(self, widget: QWidget) -> None:
        self._widget = widget

    def hover(self, point: QPointF, keys: Any = NO_KEY) -> None:
        """Move to a point without a button."""
        QApplication.processEvents()
        self._send(QEvent.Type.MouseMove, point, NO_BUTTON, NO_BUTTON, keys)

    def press(self, point: QPointF, keys: Any = NO_KEY, button: Any = LEFT) -> None:
        self._send(QEvent.Type.MouseButtonPress, point, button, button, keys)

    def move(self, point: QPointF, keys: Any = NO_KEY) -> None:
        """Move with the left button held."""
        self._send(QEvent.Type.MouseMove, point, NO_BUTTON, LEFT, keys)

    def release(self, point: QPointF, keys: Any = NO_KEY, button: Any = LEFT) -> None:
        self._send(QEvent.Type.MouseButtonRelease, point, button, NO_BUTTON, keys)

    def drag(self, *points: QPointF) -> None:
        """Press at the first point, move through the others, and release at the last one."""
        self.hover(points[0])
        self.press(points[0])
        for point in points[1:]:
            self.move(point)
        self.release(points[-1])

    def _send(self, kind: QEvent.Type, point: QPointF, button: Any, held: Any, keys: Any) -> None:
        there = QPointF(self._widget.mapToGlobal(point))
        QApplication.sendEvent(self._widget, QMouseEvent(kind, point, there, button, held, keys))


class Hand(Mouse):
    """A mouse over the canvas, and keys; positions (y, x) are those of a layer's shown frame."""

    def __init__(self, viewer: napari.Viewer) -> None:
        # There is no public access to the canvas.
        self._viewer, self._canvas = viewer, viewer.window._qt_viewer.canvas
        super().__init__(self._canvas.native)

    def at(self, layer: napari.layers.Layer, place: Any) -> QPointF:
        """Convert a position to the canvas."""
        dims = self._viewer.dims
        position = np.array(layer.world_to_data(dims.point), float)
        position[-2:] = place
        # The axis that runs down comes first, and the layer may have fewer than the viewer.
        down, right = (axis - dims.ndim for axis in dims.displayed[-2:])
        world = layer.data_to_world(position)
        x, y = self._canvas.view.scene.transform.map((world[right], world[down]))[:2]
        return QPointF(float(x), float(y))

    def click(
        self, layer: napari.layers.Layer, place: Any, keys: Any = NO_KEY, button: Any = LEFT
    ) -> None:
        # A pending layout, also by hovering, would move the position.
        for _ in range(2):
            QApplication.processEvents()
            point = self.at(layer, place)
            self.hover(point, keys)
        self.press(point, keys, button)
        self.release(point, keys, button)

    def double_click(self, layer: napari.layers.Layer, place: Any, keys: Any = NO_KEY) -> None:
        self.click(layer, place, keys)
        point = self.at(layer, place)
        self._send(QEvent.Type.MouseButtonDblClick, point, LEFT, LEFT, keys)
        self.release(point, keys)

    def key(self, key: Qt.Key, keys: Any = NO_KEY) -> None:
        QTest.keyClick(self._canvas.native, key, keys)
