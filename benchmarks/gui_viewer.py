"""A real viewer to be measured: its event loop, its drawing, and a mouse over its canvas."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import napari
from qtpy.QtCore import QEventLoop, QTimer
from qtpy.QtWidgets import QApplication

from napari_spotfit.widgets.fit_spots import FitSpots

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from hand import SHIFT, Hand


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


def milliseconds(work: Callable[[], Any], *, drawn: bool = True) -> float:
    """Return how long something takes, by default until it is drawn."""
    began = time.perf_counter()
    work()
    if drawn:
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
        self._hand = Hand(viewer)
        self.drawn: list[float] = []
        # There is no public way to the canvas' own events.
        canvas = viewer.window._qt_viewer.canvas
        canvas._scene_canvas.events.draw.connect(self._on_draw, position="last")

    def shift_click(self, image: napari.layers.Image, place: tuple[float, float]) -> float:
        """Shift-click a place (y, x) of the frame shown; return when."""
        point = self._hand.at(image, place)
        self._hand.hover(point, SHIFT)
        settle()
        self.drawn.clear()
        began = time.perf_counter()
        self._hand.press(point, SHIFT)
        self._hand.release(point, SHIFT)
        return began

    def _on_draw(self, event: Any) -> None:
        self.drawn.append(time.perf_counter())
