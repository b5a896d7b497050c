"""Tracking with the widget open: frames a second, frames dropped, latency.

A camera's driver brings frames that are there already: here they were drawn before, and a thread
hands them on at their times, as pymmcore-plus does. ``--draw`` has the simulated microscope draw
each frame meanwhile instead, in the same process, which takes several times as long as to track it.
"""

from __future__ import annotations

import argparse
import threading
import time

import napari
import numpy as np
from qtpy.QtCore import QEventLoop, QTimer

from napari_spotfit import FrameQueue, SimulatedMicroscope
from napari_spotfit.widgets.track import Track

ASKED = 1000.0
#: Pixels of a side, and how many frames are drawn: they are gone through to and fro.
_SIDE, _DRAWN = 1024, 100


class DrawnFrames:
    """A source of the widget's: frames that were drawn before, at their times.

    Parameters
    ----------
    rate : float
        Frames a second.
    """

    controller = stage = None

    def __init__(self, rate: float) -> None:
        scope = SimulatedMicroscope(20, (_SIDE, _SIDE), drift=(0.5, -0.3), seed=1)
        frames = [frame for _, frame in scope.frames(rate=1000, count=_DRAWN)]
        self._frames, self._rate = frames + frames[-2:0:-1], rate
        self.queue = FrameQueue(256)
        self.late = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def look(self) -> np.ndarray:
        """Return the first one."""
        return self._frames[0]

    def start(self) -> None:
        """Begin to hand them on."""
        self._thread.start()

    def stop(self) -> None:
        """Hand on no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        begun = time.perf_counter()
        number = 0
        while not self._stopping.is_set():
            number += 1
            early = begun + number / self._rate - time.perf_counter()
            if early > 0:
                time.sleep(early)
            self.queue.put(self._frames[number % len(self._frames)], number / self._rate)


def wait(seconds: float) -> None:
    """Let the viewer work for some time."""
    loop = QEventLoop()
    QTimer.singleShot(round(1000 * seconds), loop.quit)
    loop.exec()


class Pauses:
    """How long the viewer answers nothing."""

    def __init__(self) -> None:
        self.longest, self._last = 0.0, time.perf_counter()
        self._timer = QTimer(interval=10)
        self._timer.timeout.connect(self._on_timer)
        self._timer.start()

    def _on_timer(self) -> None:
        now = time.perf_counter()
        self.longest, self._last = max(self.longest, now - self._last - 0.01), now


def main() -> None:
    """Track for some time, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=ASKED, help="frames a second")
    parser.add_argument("--draw", action="store_true", help="draw the frames meanwhile")
    given = parser.parse_args()
    viewer = napari.Viewer()
    _, widget = viewer.window.add_plugin_dock_widget("napari-spotfit", Track.title)
    widget.form.rate.value = given.rate
    if not given.draw:
        source = DrawnFrames(given.rate)
        widget.form.make_source = lambda: source
    wait(2.0)  # as somebody does who looks at the form
    widget.start()
    pauses, begun = Pauses(), time.perf_counter()
    wait(given.seconds)
    seconds = time.perf_counter() - begun
    widget.stop()
    seen = widget.seen
    assert seen is not None
    rate = seen.frames / seconds
    missed = "" if rate >= 0.99 * ASKED and not seen.dropped else ": MISSED"
    print(
        f"20 fiducials, {given.seconds:.0f} s, {given.rate:.0f} frames/s of "
        f"{'256² px, drawn meanwhile' if given.draw else f'{_SIDE}² px'}: {rate:.0f} frames/s, "
        f"{seen.dropped} dropped (≥ {ASKED:.0f}, 0{missed}); latency {1000 * seen.latency:.2f} ms, "
        f"worst {1000 * seen.worst:.1f}, {seen.late} later than 10 ms; the viewer's longest pause "
        f"{1000 * pauses.longest:.0f} ms"
    )
    viewer.close()


if __name__ == "__main__":
    main()
