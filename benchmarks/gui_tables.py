"""What is measured of the widgets themselves and of a million spots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import napari
import numpy as np
from gui_viewer import Canvas, Spent, open_viewer, rest, settle, show, spent
from qtpy.QtCore import Qt

from napari_spotfit import fit_spots, localize, simulate_movie, simulate_spots, to_points_layer
from napari_spotfit.results.spot_fits import SpotFits
from napari_spotfit.widgets.layers.appearance import color_faces
from napari_spotfit.widgets.spots import Spots
from napari_spotfit.widgets.table.filters import Filters


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
        back.append(spent(partial(color_faces, layer, one), drawn=drawn))
        there.append(spent(partial(color_faces, layer, other), drawn=drawn))
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


def opening(repeats: int) -> None:
    """Open and close each widget beside a fitted image."""
    frame, truth = simulate_movie(1, shape=(512, 512), spots_per_frame=1000, seed=1)
    print(f"\nOpen each widget beside an image with {len(truth)} spots, until it is drawn")
    viewer = napari.Viewer()
    viewer.window.resize(1280, 800)
    image = viewer.add_image(frame[0], name="image")
    viewer.add_layer(to_points_layer(localize(frame[0]), image))
    settle()
    for name in ("Fit spots", "Spots", "Inspect spot"):
        times = []
        for _ in range(repeats + 1):
            rest(100)
            times.append(spent(partial(_open, viewer, name)))
            for dock in list(viewer.window.dock_widgets):
                viewer.window.remove_dock_widget(viewer.window.dock_widgets[dock])
        print(f"  {name}: the first time {times[0].wall:.0f} ms")
        show(f"{name}, again", times[1:], 300)
    viewer.close()
    settle()


def _open(viewer: napari.Viewer, name: str) -> None:
    viewer.window.add_plugin_dock_widget("napari-spotfit", name)


def million(count: int, repeats: int) -> None:
    """Colours, filters and table of many spots."""
    print(f"\nSpots widget and colours, {count:,} spots")
    with open_viewer() as (viewer, _):
        image = viewer.add_image(np.zeros((2000, 8, 8), np.uint8), name="movie")
        fits = million_spots(count, frames=2000)
        layers: list[napari.layers.Points] = []
        times = []
        for _ in range(3):
            if layers:
                viewer.layers.remove(layers.pop())
                rest(100)
            times.append(
                spent(lambda: layers.append(viewer.add_layer(to_points_layer(fits, image))))
            )
        show("add them", times, 6000)
        layer = layers[0]
        rest(100)
        for names in (("photons", "stop_condition"), ("stop_condition", "x"), ("sigma", "photons")):
            colors(layer, *names, repeats)
        widgets: list[Spots] = []

        def open_widget() -> None:
            widgets.append(Spots(viewer))
            viewer.window.add_dock_widget(widgets[0], name="Spots")

        show("open the widget", [spent(open_widget)], 300)
        rest(500)
        _table(viewer, widgets[0], layer, repeats)


def _table(viewer: napari.Viewer, widget: Spots, layer: napari.layers.Points, repeats: int) -> None:
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
    show("sort", [spent(partial(header.setSortIndicator, 3, orders[i % 2]))
                  for i in range(repeats)], 1000)  # fmt: skip
    rest(100)
    show("select a row: seen in the viewer", [spent(partial(widget.table.selectRow, 1000 + i))
                                              for i in range(2 * repeats)], 60)  # fmt: skip
    here = np.flatnonzero(layer.data[:, 0] == layer.data[0, 0])[: 2 * repeats]
    show("select a spot: seen in the table", [spent(partial(_select, layer, int(row)))
                                              for row in here], 60)  # fmt: skip
    show("scroll to the end", [spent(widget.table.scrollToBottom)])
    for index in range(1, widget.tabs.count()):
        name = widget.tabs.tabText(index).lower()
        show(f"show the tab {name}", [spent(partial(widget.tabs.setCurrentIndex, index))])


def _select(layer: napari.layers.Points, row: int) -> None:
    """Select a spot as a click on it does."""
    layer.selected_data = {row}


def _without_drawing(canvas: Canvas, work: Callable[[], Any]) -> tuple[Spent, Spent]:
    """Return what something takes until all is seen, without the canvas; and what that takes."""
    canvas.drawing.clear()
    took = spent(work)
    drawing = Spent(*np.sum([(0.0, 0.0), *canvas.drawing], axis=0))
    return Spent(took.wall - drawing.wall, took.cpu - drawing.cpu), drawing
