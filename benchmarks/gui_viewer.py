"""A real viewer to be measured: its event loop, its drawing, and a mouse over its canvas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import napari
import numpy as np
from qtpy.QtCore import QEvent, QEventLoop, QPointF, Qt, QTimer
from qtpy.QtGui import QMouseEvent
from qtpy.QtWidgets import QApplication

from napari_spotfit.widgets.fit_spots import FitSpots

_NO_BUTTON, _LEFT = Qt.MouseButton.NoButton, Qt.MouseButton.LeftButton
_SHIFT = Qt.KeyboardModifier.ShiftModifier


class Heartbeat:
    """Beats whenever the event loop is free; remembers the longest pause."""

    def __init__(self) -> None:
        self._timer = QTimer(interval=0)
        self._timer.timeout.connect(self._beat)

    def start(self) -> None:
        self.longest, self.when, self._last = 0.0, 0.0, time.perf_counter()
        self._began = self._last
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    def _beat(self) -> None:
        now = time.perf_counter()
        if now - self._last > self.longest:
            self.longest, self.when = now - self._last, self._last - self._began
        self._last = now


def wait_until(done: Callable[[], bool], settle: int = 300) -> None:
    """Run the event loop until something is done, and until what follows is drawn."""
    loop, poll = QEventLoop(), QTimer(interval=5)
    poll.timeout.connect(lambda: done() and (poll.stop(), QTimer.singleShot(settle, loop.quit)))
    poll.start()
    loop.exec()


def settle(rounds: int = 5) -> None:
    """Do what waits, what follows from it, and draw."""
    for _ in range(rounds):
        QApplication.processEvents()


def milliseconds(work: Callable[[], Any]) -> float:
    """Return how long something takes until it is drawn."""
    began = time.perf_counter()
    work()
    settle()
    return 1e3 * (time.perf_counter() - began)


@contextmanager
def open_viewer() -> Iterator[tuple[napari.Viewer, FitSpots]]:
    """Open a viewer of a usual size with the widget."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    settle()
    yield viewer, widget
    viewer.close()
    settle()


class Canvas:
    """The canvas of a viewer: where the mouse clicks, and when it was drawn."""

    def __init__(self, viewer: napari.Viewer):
        self._viewer = viewer
        # There is no public way to the canvas' own events.
        self._canvas = viewer.window._qt_viewer.canvas
        self.drawn: list[float] = []
        self._canvas._scene_canvas.events.draw.connect(self._on_draw, position="last")

    def shift_click(self, image: napari.layers.Image, place: tuple[float, float]) -> float:
        """Shift-click a place (y, x) of the frame shown; return when."""
        point = self._at(image, place)
        self._send(QEvent.Type.MouseMove, point, _NO_BUTTON, _NO_BUTTON)
        settle()
        self.drawn.clear()
        began = time.perf_counter()
        self._send(QEvent.Type.MouseButtonPress, point, _LEFT, _LEFT)
        self._send(QEvent.Type.MouseButtonRelease, point, _LEFT, _NO_BUTTON)
        return began

    def _at(self, image: napari.layers.Image, place: tuple[float, float]) -> QPointF:
        position = np.array(image.world_to_data(self._viewer.dims.point), float)
        position[-2:] = place
        world = np.array(image.data_to_world(position))[-2:]
        x, y = self._canvas.view.scene.transform.map(world[::-1])[:2]
        return QPointF(float(x), float(y))

    def _send(self, kind: QEvent.Type, point: QPointF, button: Any, buttons: Any) -> None:
        native = self._canvas.native
        event = QMouseEvent(kind, point, native.mapToGlobal(point), button, buttons, _SHIFT)
        QApplication.sendEvent(native, event)

    def _on_draw(self, event: Any) -> None:
        self.drawn.append(time.perf_counter())
