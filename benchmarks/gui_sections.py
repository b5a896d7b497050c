"""What is measured of the widgets, one function a section; each prints its figures."""

from __future__ import annotations

import statistics
import time
from functools import partial

import dask.array
import napari
import numpy as np
from gui_viewer import Canvas, Heartbeat, milliseconds, open_viewer, settle, wait_until
from qtpy.QtCore import Qt

from napari_spotfit import fit_spots, simulate_movie, simulate_spots, to_points_layer
from napari_spotfit.results.spot_fits import SpotFits
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.inspect_spot import InspectSpot
from napari_spotfit.widgets.layers.colors import color_faces
from napari_spotfit.widgets.layers.marks import MARKS, choose_mark
from napari_spotfit.widgets.spots import Spots
from napari_spotfit.widgets.table.filters import Filters


def show(what: str, times: list[float], wanted: float | None = None) -> None:
    """Print median and longest of some times in milliseconds."""
    bar = f"   (wanted ≤ {wanted:.0f})" if wanted is not None else ""
    print(f"  {what:46s} {statistics.median(times):7.1f} ms, longest {max(times):7.1f}{bar}")


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


def batch(frames: int, repeats: int) -> None:
    """From the Fit button to coloured points."""
    movie, truth = simulate_movie(frames, spots_per_frame=45, seed=1)
    print(f"\nFit: {frames} frames 256×256 {movie.dtype}, {len(truth)} spots")
    heart = Heartbeat()
    with open_viewer() as (viewer, widget):
        viewer.add_image(movie[:2], name="warm-up")
        first = fit(widget, heart)
        print(f"  first fit, with what has to be compiled or loaded: {first:.2f} s, ", end="")
        print(f"longest pause {1e3 * heart.longest:.0f} ms")
        viewer.layers.clear()
        image = viewer.add_image(movie, name="movie")
        pauses, times, bare = [], [], []
        for _ in range(repeats):
            bare.append(1e3 * bare_points_layer(viewer, heart))
            times.append(1e3 * fit(widget, heart))
            pauses.append(1e3 * heart.longest)
            viewer.layers.remove(viewer.layers[f"{image.name} spots"])
        print(f"  {widget.status.text()}")
        show("button to points", times, 2000)
        show("longest pause of the viewer", pauses, 100)
        show("napari's own pause for a layer with one point", bare)


def field(repeats: int) -> None:
    """From the Fit button to the points of one large frame, and to other marks."""
    frame, truth = simulate_movie(1, shape=(2048, 2048), spots_per_frame=17_000, seed=1)
    print(f"\nField: one frame of 2048×2048, {len(truth)} spots")
    heart = Heartbeat()
    with open_viewer() as (viewer, widget):
        viewer.add_image(frame[0], name="field")
        fit(widget, heart)  # the first one had the engine to load
        times, pauses = [], []
        for _ in range(repeats):
            viewer.layers.remove("field spots")
            times.append(1e3 * fit(widget, heart))
            pauses.append(1e3 * heart.longest)
        print(f"  {widget.status.text()}")
        show("button to points", times, 1500)
        show("longest pause of the viewer", pauses)
        layer = viewer.layers["field spots"]
        marks = [milliseconds(partial(choose_mark, layer, mark)) for mark in (*MARKS, *MARKS)]
        show("another mark for all of them, drawn", marks)


def picking(repeats: int) -> None:
    """From a click to the drawn point, and with the inspector open."""
    movie, truth = simulate_movie(6, shape=(512, 512), spots_per_frame=200, seed=1)
    stack = dask.array.from_array(movie.reshape(2, 3, 512, 512), chunks=(1, 1, 512, 512))
    print("\nShift-click to drawn point, 512×512")
    cases = {
        "2-D": (movie[0], {}, 0),
        "4-D Dask": (stack, {"contrast_limits": (90, 600)}, 4),
        "scaled, rotated, moved": (
            movie,
            {"scale": (1, 0.1, 0.2), "rotate": 30, "translate": (1, 5, -3)},
            2,
        ),
        "2-D, with the inspector": (movie[0], {}, 0),
    }
    for name, (image, transform, frame) in cases.items():
        with open_viewer() as (viewer, widget):
            layer = viewer.add_image(image, name="movie", **transform)
            if layer.ndim > 2:
                steps = np.unravel_index(frame, image.shape[:-2])
                for axis, step in enumerate(steps):
                    viewer.dims.set_current_step(axis, int(step))
            if "inspector" in name:
                viewer.window.add_dock_widget(InspectSpot(viewer), name="Inspect spot")
            settle(20)
            here = truth[truth["frame"] == frame].iloc[: repeats + 2]
            times = [_click(viewer, widget, layer, (row.y, row.x)) for row in here.itertuples()]
            show(name, times[2:], 50)


def _click(
    viewer: napari.Viewer,
    widget: FitSpots,
    image: napari.layers.Image,
    place: tuple[float, float],
) -> float:
    """Click a spot; return the milliseconds until it is drawn."""
    picked: list[float] = []
    canvas = Canvas(viewer)
    widget.picking.picker.layers.shown.connect(lambda *_: picked.append(time.perf_counter()))
    began = canvas.shift_click(image, place)
    while not picked or not any(when > picked[0] for when in canvas.drawn):
        settle(1)
    widget.picking.picker.layers.shown.disconnect()
    return 1e3 * (next(when for when in canvas.drawn if when > picked[0]) - began)


def preview(repeats: int) -> None:
    """From a change of a setting to the drawn fits."""
    movie, _ = simulate_movie(
        3, shape=(512, 512), spots_per_frame=500, photons=1200.0, background=20.0, seed=1
    )
    print("\nPreview: change of a setting to drawn fits, 512×512, 500 spots")
    heart = Heartbeat()
    with open_viewer() as (viewer, widget):
        viewer.add_image(movie, name="movie")
        canvas, drawn = Canvas(viewer), []
        widget.preview.drawn.connect(lambda: drawn.append(time.perf_counter()))
        widget.preview.box.click()
        wait_until(lambda: bool(drawn), settle=500)
        changes = {
            "false spots": ("false_spots", (20.0, 5.0)),
            "σ": ("sigma", (1.4, 1.3)),
            "ROI size": ("roi_size", (11, 9)),
        }
        for name, (setting, values) in changes.items():
            times, pauses = [], []
            for i in range(repeats):
                drawn.clear()
                canvas.drawn.clear()
                heart.start()
                began = time.perf_counter()
                widget.settings.controls[setting].value = values[i % 2]
                while not drawn or not any(when > drawn[0] for when in canvas.drawn):
                    settle(1)
                last = next(when for when in canvas.drawn if when > drawn[0])
                heart.stop()
                times.append(1e3 * (last - began))
                pauses.append(1e3 * heart.longest)
            show(name, times, 100)
            show("  longest pause of the viewer", pauses)


def million_spots(count: int, frames: int | None = None) -> SpotFits:
    """Return fits of simulated spots, again and again, at random places of an image or movie."""
    spots, _ = simulate_spots(min(count, 50_000), photons=800, seed=1)
    fits, rng = fit_spots(spots), np.random.default_rng(1)
    rows = np.arange(count) % len(fits)
    columns = {} if frames is None else {"frame": np.sort(rng.integers(0, frames, count))}
    columns |= {name: values[rows] for name, values in fits.columns.items()}
    columns["y"], columns["x"] = rng.uniform(0, 512, (2, count))
    columns["photons"] = columns["photons"] * rng.lognormal(0, 0.3, count).astype(np.float32)
    return SpotFits(columns, () if frames is None else ("frame",), fits.settings)


def colors(
    layer: napari.layers.Points, one: str, other: str, repeats: int, *, drawn: bool = True
) -> None:
    """From one feature's colours to another one's, and back."""
    there, back = [], []
    for _ in range(repeats):
        back.append(milliseconds(lambda: color_faces(layer, one), drawn=drawn))
        there.append(milliseconds(lambda: color_faces(layer, other), drawn=drawn))
    show(f"colours: {one} to {other}", there, 1000)
    show(f"colours: {other} to {one}", back[1:] or back, 1000)


def one_image(count: int, repeats: int) -> None:
    """Colours of many spots that are all visible at once.

    OpenGL in software would draw them for minutes: times are until the canvas has the colours.
    """
    print(f"\nColours in one 2-D image, handed to the canvas but not drawn, {count:,} spots")
    with open_viewer() as (viewer, _):
        image = viewer.add_image(np.zeros((512, 512), np.uint8), name="image")
        layer = viewer.add_layer(to_points_layer(million_spots(count), image))
        for names in (("photons", "stop_condition"), ("sigma", "photons")):
            colors(layer, *names, repeats, drawn=False)
        viewer.layers.clear()


def million(count: int, repeats: int) -> None:
    """Colours, filters and table of many spots."""
    print(f"\nSpots widget and colours, {count:,} spots")
    with open_viewer() as (viewer, _):
        image = viewer.add_image(np.zeros((2000, 8, 8), np.uint8), name="movie")
        layer = viewer.add_layer(to_points_layer(million_spots(count, frames=2000), image))
        settle()
        for names in (("photons", "stop_condition"), ("stop_condition", "x"), ("sigma", "photons")):
            colors(layer, *names, repeats)
        widgets: list[Spots] = []

        def open_widget() -> None:
            widgets.append(Spots(viewer))
            viewer.window.add_dock_widget(widgets[0], name="Spots")

        show("open the widget", [milliseconds(open_widget)])
        settle(20)
        _table(widgets[0], repeats)


def _table(widget: Spots, repeats: int) -> None:
    region = widget.filters.histogram.region
    widget.filters.histogram.feature.choose("sigma")
    settle()
    handle = [
        milliseconds(lambda low=low: region.setRegion((low, 1.5)))
        for low in np.linspace(1.1, 1.25, repeats)
    ]
    show("handle moved to points hidden, table and plot", handle, 150)
    box = next(iter(widget.filters.legend.boxes.values()))
    show("stop condition ticked", [milliseconds(box.click) for _ in range(2 * repeats)], 150)
    widget.spots.set_filters(Filters())
    settle()
    header = widget.table.horizontalHeader()
    orders = Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder
    show("sort", [milliseconds(lambda i=i: header.setSortIndicator(3, orders[i % 2]))
                  for i in range(repeats)], 1000)  # fmt: skip
    show("select a row", [milliseconds(lambda i=i: widget.table.selectRow(1000 + i))
                          for i in range(repeats)])  # fmt: skip
    show("scroll to the end", [milliseconds(widget.table.scrollToBottom)])
    for index in (1, 2):
        name = widget.tabs.tabText(index).lower()
        show(f"show the tab {name}", [milliseconds(lambda i=index: widget.tabs.setCurrentIndex(i))])
