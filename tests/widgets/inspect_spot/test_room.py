"""The inspector has room for everything, wherever it is docked, and is seen in either theme."""

import pandas as pd
import pytest
from inspector import add_spots, docked, shows
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QApplication, QDockWidget, QMainWindow, QScrollArea

import napari_spotfit


def test_both_themes(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie())
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    panel, seen = inspector.panel, []
    for theme in ("light", "dark"):
        viewer.theme = theme
        QApplication.processEvents()
        brush = panel.profiles.row.dots.opts["brush"].color()
        ground = panel.pictures.data.backgroundBrush().color()
        assert abs(brush.lightness() - ground.lightness()) > 100
        picture = panel.pictures.grab().toImage()
        colors = {picture.pixelColor(x, y).name() for x in range(picture.width()) for y in (60, 70)}
        assert len(colors) > 20
        seen.append((brush.name(), ground.name()))
    assert seen[0] != seen[1]


@pytest.mark.parametrize("area", ["right", "bottom"])
def test_everything_has_room(viewer, until, make_movie, area):
    viewer.window.resize(1280, 800)
    inspector = docked(viewer, area)
    _, layer = add_spots(viewer, make_movie(3), scale=(1, 0.1, 0.1), units=("s", "um", "um"))
    # It goes below the canvas by itself, once; then the user may put it elsewhere.
    window = viewer.window._qt_window
    dock = dock_of(inspector)
    bottom, right = Qt.DockWidgetArea.BottomDockWidgetArea, Qt.DockWidgetArea.RightDockWidgetArea
    until(lambda: QMainWindow.dockWidgetArea(window, dock) == bottom)
    if area == "right":
        window.addDockWidget(right, dock)
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    until(lambda: inspector.panel.updatesEnabled())
    assert QMainWindow.dockWidgetArea(window, dock) == (right if area == "right" else bottom)
    panel = inspector.panel

    def within():
        room = panel.rect()
        for part in (panel.title, panel.pictures, panel.profiles, panel.numbers.copy_button):
            corner = part.mapTo(panel, QPoint(0, 0))
            assert room.contains(part.rect().translated(corner)), part
        return True

    until(within)
    for _, value, physical in panel.numbers.labels:
        assert value.width() >= value.sizeHint().width()
        assert physical.width() >= physical.sizeHint().width()
    side = panel.pictures.data.image.sceneBoundingRect()
    assert side.width() == pytest.approx(side.height(), rel=0.05)
    assert side.width() > 60
    numbers, profiles = (
        part.mapTo(panel, QPoint(0, 0)) for part in (panel.numbers, panel.profiles)
    )
    assert (numbers.x() > profiles.x()) == (area == "bottom")


def dock_of(widget):
    while not isinstance(widget, QDockWidget):
        widget = widget.parent()
    return widget


def whole(widget, within):
    """Whether a widget lies within another one and is as large as it asks for."""
    there = widget.rect().translated(widget.mapTo(within, QPoint(0, 0)))
    asked = widget.sizeHint()
    return (
        within.rect().contains(there)
        and widget.height() >= asked.height()
        and widget.width() >= asked.width()
    )


ORDERS = (
    ["Spots", "Inspect spot", "Fit"],
    ["Fit", "Spots", "Inspect spot"],
    ["Fit", "Inspect spot", "Spots"],
)


@pytest.mark.parametrize("order", ORDERS)
def test_a_window_of_800_lines_has_room_for_everything(viewer, until, fit, make_movie, order):
    viewer.window.resize(1280, 800)
    window = viewer.window._qt_window
    image = viewer.add_image(make_movie(), scale=(0.1, 0.1), units=("um", "um"))
    _, fit_spots = viewer.window.add_plugin_dock_widget("napari-spotfit", "Fit spots")
    opened, bottom = {}, Qt.DockWidgetArea.BottomDockWidgetArea
    for name in order:
        if name == "Fit":
            fit(fit_spots)
        else:
            _, opened[name] = viewer.window.add_plugin_dock_widget("napari-spotfit", name)
            dock = dock_of(opened[name])
            until(lambda dock=dock: QMainWindow.dockWidgetArea(window, dock) == bottom)
        QApplication.processEvents()
        assert (window.width(), window.height()) == (1280, 800)
    layer = viewer.layers[f"{image.name} spots"]
    # A verdict that needs three lines.
    states = [condition.name for condition in napari_spotfit.StopCondition]
    stops = pd.Categorical(["MAX_ITERATIONS"] * len(layer.data), states)
    layer.features = layer.features.assign(stop_condition=stops)
    settings = {**layer.metadata["settings"], "gain": 1e-3}
    layer.metadata = {**layer.metadata, "settings": settings}
    layer.selected_data = {2}
    spots, inspector = opened["Spots"], opened["Inspect spot"]
    panel, verdict = inspector.panel, inspector.panel.verdict.text
    dock_of(inspector).raise_()
    until(lambda: shows(inspector, layer, 2))
    assert (window.width(), window.height()) == (1280, 800)
    for height in (None, 210):
        if height:
            inspector.setFixedHeight(height)
        until(lambda height=height: inspector.height() <= (height or 300))
        until(panel.updatesEnabled)
        until(lambda: verdict.height() >= 3 * verdict.fontMetrics().height())
        until(lambda: panel._bar.maximum() == 0)
        labels = [label for row in panel.numbers.labels for label in row if label.isVisible()]
        scales = [panel.pictures.counts, panel.pictures.around_zero]
        parts = [panel.title, panel.numbers.copy_button, *labels, *scales]
        for part in (*parts, panel.profiles.row, panel.profiles.column):
            assert whole(part, panel), part
        inspector.setMaximumHeight(2000)
    dock_of(spots).raise_()
    spots.status.say("Said.")
    spots.setFixedHeight(210)
    until(lambda: spots.isVisible() and spots.height() == 210)
    page = spots.filters
    listed = [*page.legend.boxes.values(), *page.legend.counts.values()]
    # What no fit has is not listed.
    texts = [part for part in listed if not part.isHidden()]
    assert texts
    buttons = [spots.export.copy_button, spots.export.save_button, page.list.clear]
    limits = [page.histogram.low, page.histogram.high]
    until(lambda: all(whole(part, spots) for part in (*texts, *buttons, *limits, spots.status)))
    assert all(area.verticalScrollBar().maximum() == 0 for area in page.findChildren(QScrollArea))
    assert (window.width(), window.height()) == (1280, 800)
