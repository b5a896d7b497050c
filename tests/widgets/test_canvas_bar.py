"""The scale of the face colours on the canvas."""

from __future__ import annotations

import numpy as np
import pytest
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QApplication

from napari_spotfit import to_points_layer
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.appearance import color_faces
from napari_spotfit.widgets.napari_compat import camera_of
from napari_spotfit.widgets.parts.color_legend import CanvasBar


@pytest.fixture
def fitted(shown_viewer, make_movie, fit):
    """Return a shown viewer, the widget and its layer of fitted spots."""
    viewer = shown_viewer
    viewer.add_image(make_movie(), name="movie")
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    fit(widget)
    QApplication.processEvents()
    return viewer, widget, viewer.layers["movie spots"]


def test_quantity_unit_and_limits_are_read_on_the_canvas(fitted):
    viewer, widget, layer = fitted
    bar = widget.result.on_canvas.bar
    canvas = viewer.window._qt_viewer.canvas.native
    assert bar.parentWidget() is canvas
    assert bar.isVisible()
    assert bar.title == "sigma [px]"
    low, high = layer.face_contrast_limits
    assert (float(bar.low), float(bar.high)) == pytest.approx((low, high), rel=0.01)
    assert canvas.rect().contains(bar.geometry())
    assert bar.geometry().right() > canvas.width() - 20


def test_its_colours_are_those_of_the_map(fitted):
    _, widget, layer = fitted
    color_faces(layer, "photons", "magma")
    bar = widget.result.on_canvas.bar
    bar.look()
    assert bar.title.startswith("photons [")
    QApplication.processEvents()
    picture = bar.grab().toImage()
    strip = bar._gradient.geometry()
    row = strip.center().y()
    for place in (0.1, 0.5, 0.9):
        color = picture.pixelColor(int(strip.left() + place * strip.width()), row)
        expected = 255 * layer.face_colormap.map(np.array([place]))[0, :3]
        seen = np.array([color.red(), color.green(), color.blue()])
        np.testing.assert_allclose(seen, expected, atol=12)


def test_it_is_there_only_while_the_colours_are_seen(fitted, qtbot):
    viewer, widget, layer = fitted
    bar = widget.result.on_canvas.bar
    layer.visible = False
    qtbot.waitUntil(lambda: not bar.isVisible())
    layer.visible = True
    qtbot.waitUntil(bar.isVisible)
    color_faces(layer, "stop_condition")
    qtbot.waitUntil(lambda: not bar.isVisible())
    color_faces(layer, "sigma", limits=(0.5, 4.25))
    qtbot.waitUntil(lambda: bar.isVisible() and bar.high == "4.25")
    viewer.layers.remove(layer)
    assert not bar.isVisible()


def test_it_stays_in_its_corner(fitted):
    viewer, widget, _ = fitted
    bar = widget.result.on_canvas.bar
    viewer.window.resize(1100, 850)
    QApplication.processEvents()
    canvas = viewer.window._qt_viewer.canvas.native
    assert 0 < canvas.width() - bar.geometry().right() < 20


def test_it_goes_with_the_widget(fitted):
    viewer, widget, layer = fitted
    canvas = viewer.window._qt_viewer.canvas.native
    assert canvas.findChildren(CanvasBar)
    viewer.window.remove_dock_widget(widget)
    QApplication.processEvents()
    assert not canvas.findChildren(CanvasBar)
    assert layer in viewer.layers


def test_a_panel_without_a_canvas_needs_none(qtbot, make_movie):
    from napari.components import ViewerModel

    from napari_spotfit import localize
    from napari_spotfit.widgets.fitting.result_panel import ResultPanel

    panel = ResultPanel(ViewerModel())
    qtbot.addWidget(panel)
    panel.show_layer(to_points_layer(localize(make_movie(), sigma=1.3)))
    assert panel.on_canvas.bar is None


def test_the_legend_is_a_line_on_the_canvas_that_unfolds_into_the_filter(fitted, qtbot):
    viewer, widget, layer = fitted
    legend, canvas = widget.result.on_canvas.bar.below, viewer.window._qt_viewer.canvas.native
    count, camera = len(layer.data), camera_of(viewer).zoom
    assert legend.line.text() == f"▸ {count} of {count} shown"
    assert legend.height() < 40
    assert legend.y() > widget.result.on_canvas.bar.geometry().bottom()
    qtbot.mouseClick(legend.line, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: legend.legend.isVisible() and legend.height() > 60)
    assert canvas.rect().contains(legend.geometry())
    box = legend.legend.boxes["MIN_DELTA"]
    panel = widget.result.legend.boxes["MIN_DELTA"]
    # Where the box is drawn, as its words end before its right edge.
    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(8, box.height() // 2))
    qtbot.waitUntil(lambda: not panel.isChecked())
    hidden = (layer.features["stop_condition"] == "MIN_DELTA").to_numpy()
    np.testing.assert_array_equal(layer.shown, ~hidden)
    assert f"{int((~hidden).sum())} of {count}: " in legend.line.text()
    assert not layer.selected_data  # the click was none on the image
    assert camera_of(viewer).zoom == camera
    panel.click()
    qtbot.waitUntil(lambda: box.isChecked() and bool(layer.shown.all()))
    color_faces(layer, "stop_condition")
    qtbot.waitUntil(lambda: not widget.result.on_canvas.bar.isVisible())
    assert legend.isVisible()
    assert legend.y() < 20
    layer.visible = False
    qtbot.waitUntil(lambda: not legend.isVisible())
