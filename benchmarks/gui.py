"""From the Fit button to coloured points: how long, and how long the viewer stands still.

Run without a screen as ``xvfb-run -a -s "-screen 0 1280x1024x24" python benchmarks/gui.py``.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import napari
from qtpy.QtCore import QEventLoop, QTimer

from napari_spotfit.simulate import simulate_movie
from napari_spotfit.widgets.fit_spots import FitSpots


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


def fit(widget: FitSpots, heart: Heartbeat) -> float:
    """Press the button; return the seconds until the points are there."""
    heart.start()
    began = time.perf_counter()
    finished: list[float] = []
    widget.finished.connect(lambda: finished.append(time.perf_counter() - began))
    widget.fit_button.click()
    wait_until(lambda: bool(finished))
    widget.finished.disconnect()
    heart.stop()
    return finished[0]


def bare_points_layer(viewer: napari.Viewer, heart: Heartbeat) -> float:
    """Return napari's own pause when it adds a Points layer with a single point."""
    heart.start()
    layer = viewer.add_points([[0, 0, 0]], name="bare")
    wait_until(lambda: True)
    heart.stop()
    viewer.layers.remove(layer)
    return heart.longest


def main() -> None:
    """Print time and longest pause of the first and of later fits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    movie, truth = simulate_movie(options.frames, spots_per_frame=45, seed=1)
    viewer, heart = napari.Viewer(), Heartbeat()
    viewer.add_image(movie[:2], name="warm-up")
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    wait_until(lambda: True, settle=2000)
    print(f"napari {napari.__version__}, Python {platform.python_version()}")
    print(f"{options.frames} frames 256×256 {movie.dtype}, {len(truth)} spots; targets 2 s, 100 ms")
    print(
        f"first fit, with what has to be compiled or loaded: {fit(widget, heart):.2f} s, ", end=""
    )
    print(f"longest pause {1e3 * heart.longest:.0f} ms")
    viewer.layers.clear()
    image = viewer.add_image(movie, name="movie")
    pauses, times, bare = [], [], []
    for _ in range(options.repeats):
        bare.append(bare_points_layer(viewer, heart))
        times.append(fit(widget, heart))
        pauses.append(heart.longest)
        print(f"{widget.status.text()}\n  button to points {times[-1]:.2f} s; longest pause "
              f"{1e3 * heart.longest:.0f} ms, {heart.when:.2f} s after the button")  # fmt: skip
        viewer.layers.remove(viewer.layers[f"{image.name} spots"])
    pause = 1e3 * statistics.median(pauses)
    print(f"median: {statistics.median(times):.2f} s, longest pause {pause:.0f} ms")
    print(f"napari's own pause for a Points layer with one point: "
          f"{1e3 * statistics.median(bare):.0f} ms")  # fmt: skip
    viewer.close()


if __name__ == "__main__":
    main()
