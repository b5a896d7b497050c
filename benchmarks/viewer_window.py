"""Control a real viewer for measurements: event loop, drawing, mouse, and widgets."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import common
import napari
from hand import SHIFT, Hand
from qtpy.QtCore import QEventLoop, QPointF, Qt, QTimer
from qtpy.QtWidgets import QApplication

from napari_spotfit.widgets.fit_spots import FitSpots


class Spent(NamedTuple):
    """Elapsed milliseconds, and CPU time of the GUI thread."""

    wall: float
    cpu: float


class Clock:
    """A stopwatch of the GUI thread; its CPU time shows how much other load adds."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def read(self) -> Spent:
        """Return the time since its creation."""
        wall, cpu = time.perf_counter() - self._wall, time.thread_time() - self._cpu
        return Spent(1e3 * wall, 1e3 * cpu)


def show(what: str, times: list[Spent], wanted: float | None = None) -> None:
    """Print the median and the longest time in milliseconds, and the median CPU time."""
    wall, cpu = zip(*times, strict=True)
    middle = statistics.median(wall)
    print(f"  {what:46s} {middle:7.1f} ms, longest {max(wall):7.1f}, computing "
          f"{statistics.median(cpu):7.1f}   {common.bar(middle, most=wanted)}",
          flush=True)  # fmt: skip


class Heartbeat:
    """Records the longest pause of the event loop."""

    def __init__(self, interval: int = 1) -> None:
        self._timer = QTimer(interval=interval)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._beat)

    def start(self) -> None:
        """Start recording, without earlier pauses."""
        #: The longest pause, and the one with the most CPU time.
        self.longest = self.busiest = Spent(0.0, 0.0)
        self._last = Clock()
        self._timer.start()

    def stop(self) -> None:
        """Stop recording."""
        self._timer.stop()

    def _beat(self) -> None:
        pause, self._last = self._last.read(), Clock()
        self.longest = max(self.longest, pause)
        self.busiest = max(self.busiest, pause, key=lambda one: one.cpu)


def wait_until(done: Callable[[], bool], settle: int = 300) -> None:
    """Run the event loop until a condition holds and the result is drawn."""
    loop, poll = QEventLoop(), QTimer(interval=5)
    poll.timeout.connect(lambda: done() and (poll.stop(), QTimer.singleShot(settle, loop.quit)))
    poll.start()
    loop.exec()


def settle(rounds: int = 5) -> None:
    """Process pending events, their consequences, and drawing."""
    for _ in range(rounds):
        QApplication.processEvents()


def spent(work: Callable[[], Any], *, drawn: bool = True) -> Spent:
    """Return the time of some work, by default until it is drawn."""
    clock = Clock()
    work()
    if drawn:
        settle()
    return clock.read()


def rest(milliseconds: float) -> None:
    """Run the event loop for a while, without computing."""
    loop = QEventLoop()
    QTimer.singleShot(round(milliseconds), loop.quit)
    loop.exec()


@contextmanager
def open_viewer() -> Iterator[tuple[napari.Viewer, FitSpots]]:
    """Open a viewer of typical size with the widget."""
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    settle()
    yield viewer, widget
    viewer.close()
    settle()


class Canvas:
    """The canvas of a viewer: moves of the mouse, and times of drawing."""

    def __init__(self, viewer: napari.Viewer) -> None:
        self.hand = Hand(viewer)
        #: Times of drawing.
        self.drawing: list[Spent] = []
        self._waiting: Callable[[], None] | None = None
        # There is no public access to the canvas' own events.
        events = viewer.window._qt_viewer.canvas._scene_canvas.events
        events.draw.connect(self._on_draw, position="first")
        events.draw.connect(self._on_drawn, position="last")

    def wait_for_drawing(self, ready: Callable[[], bool]) -> None:
        """Run the event loop until the canvas is drawn after a condition holds."""
        loop = QEventLoop()
        self._waiting = lambda: loop.quit() if ready() else None
        loop.exec()
        self._waiting = None

    def come_to(self, image: napari.layers.Image, place: Any) -> QPointF:
        """Move to a position (y, x) of the frame shown, with Shift held, and process all events."""
        rest(30)
        point = self.hand.at(image, place)
        self.hand.hover(point, SHIFT)
        rest(30)
        return point

    def _on_draw(self, event: Any) -> None:
        self._clock = Clock()

    def _on_drawn(self, event: Any) -> None:
        self.drawing.append(self._clock.read())
        if self._waiting is not None:
            # The toolkit's work after it belongs to the drawing.
            QTimer.singleShot(0, self._waiting)
