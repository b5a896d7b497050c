"""Open, read and use the widget "Results" with a known table."""

from __future__ import annotations

import numpy as np
from event_loop import settle
from hand import LEFT
from qtpy.QtCore import QPoint, Qt

from napari_spotfit import to_points_layer
from napari_spotfit.results.spot_fits import SpotFits
from napari_spotfit.widgets.results import Results

PIXEL = 0.1


def make_fits(count: int, seed: int = 0, frames: int = 5) -> SpotFits:
    """Return fits with known columns, sorted only by frame."""
    rng = np.random.default_rng(seed)
    columns = {
        "frame": np.sort(rng.integers(0, frames, count)),
        "y": rng.uniform(3, 60, count),
        "x": rng.uniform(3, 60, count),
        "sigma": rng.uniform(0.5, 2.5, count).astype(np.float32),
        "amplitude": rng.uniform(50, 500, count).astype(np.float32),
        "background": rng.uniform(10, 20, count).astype(np.float32),
        "photons": rng.uniform(100, 4000, count).astype(np.float32),
        "chi_square": rng.uniform(50, 90, count).astype(np.float32),
        "iterations": rng.integers(1, 20, count).astype(np.uint16),
        "stop_condition": rng.integers(0, 5, count).astype(np.uint8),
        "sigma_stderr": np.where(rng.random(count) < 0.2, np.nan, 0.05).astype(np.float32),
    }
    return SpotFits(columns, ("frame",))


def add_spots(viewer, count=60, seed=0, **transform):
    """Add a movie and the layer of its spots."""
    transform = {
        "scale": (1, PIXEL, PIXEL),
        "units": ("pixel", "um", "um"),
        "name": "movie",
        **transform,
    }
    image = viewer.add_image(np.zeros((5, 64, 64), np.uint8), **transform)
    return viewer.add_layer(to_points_layer(make_fits(count, seed), image))


def dock(viewer):
    widget = Results(viewer)
    viewer.window.add_dock_widget(widget, name="Results")
    widget.tabs.setCurrentWidget(widget.filters)
    widget.resize(900, 300)
    return widget


def titles(widget):
    model = widget.table.model()
    role = Qt.ItemDataRole.DisplayRole
    return [
        model.headerData(column, Qt.Orientation.Horizontal, role)
        for column in range(model.columnCount())
    ]


def texts(widget, title):
    """Return the texts of a column of the table."""
    model, column = widget.table.model(), titles(widget).index(title)
    return [model.index(row, column).data() for row in range(model.rowCount())]


def click_row(qtbot, widget, row, modifier=Qt.KeyboardModifier.NoModifier, click="mouseClick"):
    table = widget.table
    table.scrollTo(table.model().index(row, 0))
    place = table.visualRect(table.model().index(row, 1)).center()
    getattr(qtbot, click)(table.viewport(), LEFT, modifier, place)
    settle()


def click_header(qtbot, widget, title):
    header = widget.table.horizontalHeader()
    column = titles(widget).index(title)
    widget.table.scrollTo(widget.table.model().index(0, column))
    x = header.sectionViewportPosition(column) + header.sectionSize(column) // 2
    qtbot.mouseClick(header.viewport(), LEFT, pos=QPoint(x, header.height() // 2))
    settle()


def selected_texts(widget):
    """Return the table's rows that are drawn as selected, as Qt knows them."""
    return sorted(index.row() for index in widget.table.selectionModel().selectedRows())
