"""Names in files are shown as they are: nothing in them is drawn, loaded or clicked."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from event_loop import settle
from qtpy.QtCore import QAbstractItemModel, QAbstractListModel, Qt
from qtpy.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QGraphicsTextItem,
    QGraphicsView,
    QLabel,
    QMessageBox,
    QWidget,
)
from spot_table import dock, make_fits

from napari_spotfit import SpotFits, widgets
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.import_localisations import ImportDialog
from napari_spotfit.widgets.result_pages.legend import CanvasLegend
from napari_spotfit.widgets.saved_layers import read_layer, read_localisations

#: As Qt would draw it: a picture of this machine, and a word in bold.
EVIL = '<img src="file:///tmp/evil.png"><b>evil</b>'
NAMES = {kind: f"{EVIL} {kind}" for kind in ("number", "word", "unit", "axis", "layer", "image")}


def is_rich(text: str) -> bool:
    """Whether Qt would take a text for HTML, and a name in it as a part of that."""
    return bool(Qt.mightBeRichText(text)) and "<img" in text


def drawn(window: QWidget) -> list[str]:
    """Return what is drawn of names somewhere in a window, or its tooltips, as HTML."""
    found = []
    for widget in (window, *window.findChildren(QWidget)):
        texts = [widget.toolTip(), widget.statusTip(), widget.whatsThis()]
        if isinstance(widget, QLabel) and widget.textFormat() != Qt.TextFormat.PlainText:
            texts.append(widget.text())
        if isinstance(widget, QMessageBox):
            texts += [widget.text(), widget.informativeText()]
        if isinstance(widget, (QAbstractItemView, QComboBox)) and widget.model() is not None:
            texts += tooltips(widget.model())
        if isinstance(widget, QGraphicsView) and widget.scene() is not None:
            found += [text for item in widget.scene().items() for text in parsed(item)]
        found += [f"{type(widget).__name__}: {text}" for text in texts if is_rich(text)]
    return found


def tooltips(model: QAbstractItemModel) -> list[str]:
    """Return the tooltips of headers and of the first rows of a model."""
    role, found = Qt.ItemDataRole.ToolTipRole, []
    is_list = isinstance(model, QAbstractListModel)
    rows, columns = min(model.rowCount(), 40), 1 if is_list else min(model.columnCount(), 40)
    for direction, count in ((Qt.Orientation.Horizontal, columns), (Qt.Orientation.Vertical, rows)):
        found += [model.headerData(place, direction, role) for place in range(count)]
    found += [model.index(i, j).data(role) for i in range(rows) for j in range(columns)]
    return [str(one) for one in found if one]


def parsed(item: object) -> list[str]:
    """Return the text of a plot's label in which a name has become a picture and bold."""
    if not isinstance(item, QGraphicsTextItem) or "evil" not in item.toPlainText():
        return []
    return [] if EVIL in item.toPlainText() else [f"plot: {item.toHtml()}"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table whose every name is hostile, as somebody may send it."""
    fits = make_fits(60)
    more = {
        NAMES["number"]: np.linspace(0, 1, 60).astype(np.float32),
        NAMES["word"]: np.array([EVIL, "b"] * 30, object),
        NAMES["axis"]: np.arange(60) % 3,
    }
    units = {NAMES["number"]: NAMES["unit"], "photons": EVIL}
    path = tmp_path / "evil.spots.csv"
    SpotFits(fits.columns | more, (NAMES["axis"], "frame"), None, None, units).save(path)
    return path


def open_layer(viewer, path):
    data, arguments, _ = read_layer(str(path))
    layer = viewer.add_points(data, **arguments | {"name": NAMES["layer"]})
    layer.metadata["image_name"] = NAMES["image"]
    return layer


def test_no_page_of_the_table_draws_a_name(viewer, table, qtbot, tmp_path):
    layer = open_layer(viewer, table)
    viewer.add_labels(np.ones((3, 5, 64, 64), int), name=f"{EVIL} cells")
    spots = dock(viewer)
    for title in ("inspect", "scatter", "subpixel", "summary", "cells", "channels", "drift"):
        getattr(spots, title)
    spots.filters.histogram.feature.choose(NAMES["number"])
    spots.scatter.up.choose(NAMES["number"])
    spots.scatter.across.choose(NAMES["number"])
    spots.cells.feature.choose(NAMES["number"])
    spots.spots.set_filters(spots.spots.filters.with_range(NAMES["number"], 0.2, 0.8))
    for place in range(spots.tabs.count()):
        spots.tabs.setCurrentIndex(place)
        spots.bind()
        settle()
    spots.filters.list.save_to(tmp_path / "filters.json")
    spots.filters.list.load_from(tmp_path / "filters.json")
    viewer.layers.selection.active = layer
    settle()
    assert drawn(spots) == []
    assert NAMES["number"] in spots.filters.list.rows[0][0].text()


def test_no_other_widget_draws_a_name(viewer, table, qtbot, tmp_path):
    image = viewer.add_image(
        np.zeros((3, 5, 64, 64), np.uint16),
        name=NAMES["image"],
        axis_labels=(NAMES["axis"], EVIL, "y", "x"),
    )
    layer = open_layer(viewer, table)
    results = dock(viewer)
    shown = results.spots
    shown.set_filters(shown.filters.with_range(NAMES["number"], 0.2, 0.8))
    fit = FitSpots(viewer)
    viewer.window.add_dock_widget(fit, name="Fit spots")
    fit.pages.switch.setCurrentIndex(1)
    imports = ImportDialog(viewer)
    imports.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
    imports.open()
    results.tabs.setCurrentWidget(results.inspect)
    layer.selected_data = {3}
    viewer.layers.selection.active = layer
    settle()
    viewer.layers.selection.active = image
    settle()
    imports.file.native.setText(str(table))
    imports.file.native.editingFinished.emit()
    qtbot.waitUntil(lambda: not imports.looking.busy)
    fit.status.fail(EVIL)
    seen = (fit, results, imports, CanvasLegend(fit, shown))
    found = [text for one in seen for text in drawn(one)]
    imports.reject()
    imports.deleteLater()
    assert found == []


@pytest.mark.parametrize("name", ["plain.csv", "a.napari.csv", "a.trackmate.csv"])
def test_tables_of_other_programs(name, viewer, tmp_path):
    quoted = EVIL.replace('"', '""')
    text = {
        "plain.csv": f'frame,x,y,"{quoted}"\n0,1,2,3\n1,4,5,6\n',
        "a.napari.csv": f'index,axis-0,axis-1,axis-2,"{quoted}"\n0,0,1,2,3\n1,1,4,5,6\n',
        "a.trackmate.csv": f'POSITION_X,POSITION_Y,FRAME,"{quoted}"\n(px),(px),,\n1,2,0,3\n'
        "4,5,1,6\n",
    }[name]
    (tmp_path / name).write_text(text)
    data, arguments, _ = read_localisations(str(tmp_path / name), pixel_size=100)
    viewer.add_points(data, **arguments)
    spots = dock(viewer)
    spots.filters.histogram.feature.choose(EVIL)
    settle()
    assert spots.filters.histogram.feature.name == EVIL
    assert drawn(spots) == []


def test_labels_are_plain_text():
    """Else a new one would be HTML where its text looks so."""
    folder = Path(widgets.__file__).parent
    made = {
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"(?<!\w)QLabel\(", path.read_text(encoding="utf-8"))
    }
    # The verdict escapes, the legend of histograms has none but our own words.
    assert made == {"numbers.py", "plot_pages.py"}
