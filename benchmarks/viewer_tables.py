"""Measure the viewer with a million spots, and while a camera runs."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import napari
import numpy as np
from common import bar
from qtpy.QtCore import Qt
from viewer_window import Canvas, Heartbeat, Spent, open_viewer, rest, settle, show, spent

import napari_spotfit as spotfit
from napari_spotfit import SpotFits, to_points_layer
from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.layers.appearance import color_faces
from napari_spotfit.widgets.layers.selection import select
from napari_spotfit.widgets.results import Results
from napari_spotfit.widgets.track import Track


def fits_of(count: int, frames: int | None = None) -> SpotFits:
    """Return repeated fits of simulated spots, at random positions of an image or movie."""
    spots, _ = spotfit.simulate_spots(min(count, 50_000), photons=800, seed=1)
    fits, rng = spotfit.fit_spots(spots), np.random.default_rng(1)
    rows = np.arange(count) % len(fits)
    columns = {} if frames is None else {"frame": np.sort(rng.integers(0, frames, count))}
    columns |= {name: values[rows] for name, values in fits.columns.items()}
    columns["y"], columns["x"] = rng.uniform(0, 512, (2, count))
    columns["photons"] = columns["photons"] * rng.lognormal(0, 0.3, count).astype(np.float32)
    return SpotFits(columns, () if frames is None else ("frame",), fits.settings)


def colors(layer: Any, one: str, other: str, repeats: int, *, drawn: bool = True) -> None:
    """From the colours of one feature to those of another, and back."""
    there, back = [], []
    for _ in range(repeats):
        back.append(spent(partial(color_faces, layer, one), drawn=drawn))
        there.append(spent(partial(color_faces, layer, other), drawn=drawn))
    show(f"colours: {one} to {other}", there, 1000)
    show(f"colours: {other} to {one}", back[1:] or back, 1000)


def one_image(options: argparse.Namespace) -> None:
    """Colours of many spots that are visible at once.

    As software OpenGL would draw for minutes, times are until the canvas has the colours.
    """
    print(f"\nColours in one 2-D image, given to the canvas, not drawn, {options.spots:,} spots")
    with open_viewer() as (viewer, _):
        image = viewer.add_image(np.zeros((512, 512), np.uint8), name="image")
        layer = viewer.add_layer(to_points_layer(fits_of(options.spots), image))
        for names in (("photons", "stop_condition"), ("sigma", "photons")):
            colors(layer, *names, options.repeats, drawn=False)
        viewer.layers.clear()


def million(options: argparse.Namespace) -> None:
    """Colours, filters and table of many spots."""
    print(f"\nResults and colours, {options.spots:,} spots")
    with open_viewer() as (viewer, _):
        image = viewer.add_image(np.zeros((2000, 8, 8), np.uint8), name="movie")
        fits = fits_of(options.spots, frames=2000)
        times = []
        for _ in range(3):
            viewer.layers.remove(viewer.layers[-1]) if times else None
            rest(100)
            times.append(spent(lambda: viewer.add_layer(to_points_layer(fits, image))))
        show("add them", times, 6000)
        layer = viewer.layers[-1]
        rest(100)
        for names in (("photons", "stop_condition"), ("stop_condition", "x"), ("sigma", "photons")):
            colors(layer, *names, options.repeats)
        widgets: list[Results] = []

        def open_widget() -> None:
            widgets.append(Results(viewer))
            viewer.window.add_dock_widget(widgets[0], name="Results")

        show("open the widget", [spent(open_widget)], 300)
        rest(500)
        _table(viewer, widgets[0], layer, options.repeats)


def _table(viewer: napari.Viewer, widget: Results, layer: Any, repeats: int) -> None:
    widget.tabs.setCurrentWidget(widget.filters)
    region, canvas = widget.filters.histogram.region, Canvas(viewer)
    widget.filters.histogram.feature.choose("sigma")
    settle()
    steps = [
        _without_drawing(canvas, partial(region.setRegion, (low, 1.5)))
        for low in np.linspace(1.1, 1.25, 4 * repeats)
    ]
    show("handle moved: points hidden, table, plot", [own for own, _ in steps], 60)
    show("  and the canvas drawn", [drawing for _, drawing in steps])
    box = next(iter(widget.filters.legend.boxes.values()))
    show("stop condition ticked", [spent(box.click) for _ in range(2 * repeats)], 150)
    widget.spots.set_filters(Filters())
    settle()
    header = widget.table.horizontalHeader()
    orders = Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder
    sorts = [spent(partial(header.setSortIndicator, 3, orders[i % 2])) for i in range(repeats)]
    show("sort", sorts, 1000)
    rest(100)
    rows = [spent(partial(widget.table.selectRow, 1000 + i)) for i in range(2 * repeats)]
    show("select a row: seen in the viewer", rows, 60)
    here = np.flatnonzero(layer.data[:, 0] == layer.data[0, 0])[: 2 * repeats]
    # Like a click; assignment would only make napari compute colours for new points.
    spots = [_without_drawing(canvas, partial(select, layer, {int(row)}))[0] for row in here]
    show("select a spot: seen in the table", spots, 150)
    show("scroll to the end", [spent(widget.table.scrollToBottom)])
    for index in range(1, widget.tabs.count()):
        name = widget.tabs.tabText(index).lower()
        show(f"show the tab {name}", [spent(partial(widget.tabs.setCurrentIndex, index))])


def _without_drawing(canvas: Canvas, work: Callable[[], Any]) -> tuple[Spent, Spent]:
    """Return the time of some work until it is visible, without the canvas, and of the canvas."""
    canvas.drawing.clear()
    took = spent(work)
    drawing = Spent(*np.sum([(0.0, 0.0), *canvas.drawing], axis=0))
    return Spent(took.wall - drawing.wall, took.cpu - drawing.cpu), drawing


class DrawnFrames:
    """A camera driver that delivers prepared frames on time, from a thread."""

    controller = stage = layer = None

    def __init__(self, rate: float) -> None:
        scope = spotfit.SimulatedMicroscope(20, (1024, 1024), drift=(0.5, -0.3), seed=1)
        frames = [frame for _, frame in scope.frames(rate=1000, count=100)]
        self._frames, self._rate = frames + frames[-2:0:-1], rate
        self.queue, self.late = spotfit.FrameQueue(256), 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.start = self._thread.start

    def look(self) -> np.ndarray:
        return self._frames[0]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        begun, number = time.perf_counter(), 0
        while not self._stopping.is_set():
            number += 1
            time.sleep(max(begun + number / self._rate - time.perf_counter(), 0))
            self.queue.put(self._frames[number % len(self._frames)], number / self._rate)


def tracking(options: argparse.Namespace) -> None:
    """Frames per second, dropped frames and latency of tracking with the widget open."""
    with open_viewer() as (viewer, _):
        _, widget = viewer.window.add_plugin_dock_widget("napari-spotfit", Track.title)
        widget.form.rate.value = options.rate
        source = DrawnFrames(options.rate)
        widget.form.make_source = lambda: source
        rest(2000)  # like a user who reads the form
        widget.start()
        heart, begun = Heartbeat(10), time.perf_counter()
        heart.start()
        rest(1000 * options.seconds)
        seconds = time.perf_counter() - begun
        widget.stop()
        heart.stop()
        seen = widget.seen
        rate = seen.frames / seconds
        print(f"\nTracking of 20 fiducials, {seconds:.0f} s, {options.rate:.0f} frames/s of 1024²: "
              f"{rate:.0f} frames/s {bar(rate, least=0.99 * options.rate, form='.0f')}, "
              f"{seen.dropped} dropped {bar(seen.dropped, most=0)}; latency "
              f"{1000 * seen.latency:.2f} ms, worst {1000 * seen.worst:.1f}, {seen.late} later "
              f"than 10 ms; the viewer's longest pause {heart.longest.wall:.0f} ms")  # fmt: skip
