"""The inspector has room for everything, wherever it is docked, and is seen in either theme."""

import pandas as pd
import pytest
from inspector import add_spots, docked, shows
from qtpy.QtCore import QPoint, Qt
from qtpy.QtGui import QFont
from qtpy.QtWidgets import QApplication, QDockWidget, QMainWindow, QScrollArea

import napari_spotfit
from napari_spotfit.widgets.parts.docking import opened


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
    for part in (panel.title, panel.pictures, panel.profiles, panel.numbers.copy_button):
        until(lambda part=part: reachable(part, panel))
    for _, value, _ in panel.numbers.labels:
        assert value.width() >= value.sizeHint().width()
    side = panel.pictures.data.image.sceneBoundingRect()
    assert side.width() == pytest.approx(side.height(), rel=0.05)
    assert side.width() > 60
    numbers, profiles = (
        part.mapTo(panel, QPoint(0, 0)) for part in (panel.numbers, panel.profiles)
    )
    assert (numbers.x() > profiles.x()) == (area == "bottom")


def reachable(part, panel):
    """Whether a part is as wide as the panel lets it be, and seen once it is scrolled to."""
    area = panel.findChild(QScrollArea)
    area.ensureWidgetVisible(part, 0, 0)
    there = part.mapTo(panel, QPoint(0, 0))
    return (
        there.x() >= 0
        and there.x() + part.width() <= panel.width()
        and not (part.visibleRegion().isEmpty())
    )


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


SIZES = [(1280, 800, 1.0), (1024, 700, 1.0), (1280, 800, 1.5), (1024, 700, 1.5)]


@pytest.mark.parametrize(("width", "height", "scale"), SIZES)
def test_no_widget_makes_the_window_larger(
    viewer, until, fit, make_movie, qapp, width, height, scale
):
    font = qapp.font()
    larger = QFont(font)
    larger.setPointSizeF(scale * font.pointSizeF())
    qapp.setFont(larger)
    try:
        viewer.window.resize(width, height)
        window = viewer.window._qt_window
        viewer.add_image(make_movie(), scale=(0.1, 0.1), units=("um", "um"))
        before = window.width(), window.height()
        areas = Qt.DockWidgetArea
        area = areas.BottomDockWidgetArea if height > 760 else areas.RightDockWidgetArea
        for name in ("Fit spots", "Results", "Track"):
            _, widget = viewer.window.add_plugin_dock_widget("napari-spotfit", name)
            if name != "Fit spots":
                dock = dock_of(widget)
                until(lambda dock=dock: QMainWindow.dockWidgetArea(window, dock) == area)
            QApplication.processEvents()
            assert (window.width(), window.height()) == before, name
            until(lambda widget=widget: not widget.visibleRegion().isEmpty())
            if name == "Fit spots":
                fit(widget)
        results = opened(viewer, "Results")
        dock_of(results).raise_()
        for page in range(results.tabs.count()):
            results.tabs.setCurrentIndex(page)
            QApplication.processEvents()
            assert (window.width(), window.height()) == before, name
    finally:
        qapp.setFont(font)


def test_a_window_of_800_lines_has_room_for_everything(viewer, until, fit, make_movie):
    viewer.window.resize(1280, 800)
    window = viewer.window._qt_window
    image = viewer.add_image(make_movie(), scale=(0.1, 0.1), units=("um", "um"))
    _, fit_spots = viewer.window.add_plugin_dock_widget("napari-spotfit", "Fit spots")
    fit(fit_spots)
    _, results = viewer.window.add_plugin_dock_widget("napari-spotfit", "Results")
    bottom = Qt.DockWidgetArea.BottomDockWidgetArea
    until(lambda: QMainWindow.dockWidgetArea(window, dock_of(results)) == bottom)
    layer = viewer.layers[f"{image.name} spots"]
    # A verdict that needs several lines.
    states = [condition.name for condition in napari_spotfit.StopCondition]
    stops = pd.Categorical(["MAX_ITERATIONS"] * len(layer.data), states)
    layer.features = layer.features.assign(stop_condition=stops)
    settings = {**layer.metadata["settings"], "gain": 1e-3}
    layer.metadata = {**layer.metadata, "settings": settings}
    layer.selected_data = {2}
    panel, verdict = results.inspect.panel, results.inspect.panel.verdict.text
    until(lambda: shows(results.inspect, layer, 2))
    until(panel.updatesEnabled)
    until(lambda: verdict.height() >= 3 * verdict.fontMetrics().height())
    until(lambda: panel._bar.maximum() == 0)
    labels = [label for row in panel.numbers.labels for label in row if label.isVisible()]
    scales = [panel.pictures.counts, panel.pictures.around_zero]
    parts = [panel.title, *labels, *scales]
    for part in (*parts, panel.profiles.row, panel.profiles.column):
        until(lambda part=part: whole(part, panel))
    assert (window.width(), window.height()) == (1280, 800)
    results.tabs.setCurrentWidget(results.filters)
    results.status.say("Said.")
    page = results.filters
    listed = [*page.legend.boxes.values(), *page.legend.counts.values()]
    # What no fit has is not listed.
    texts = [part for part in listed if not part.isHidden()]
    assert texts
    buttons = [results.export.copy_button, results.export.save_button, page.list.clear]
    limits = [page.histogram.low, page.histogram.high]
    every = (*texts, *buttons, *limits, results.status)
    until(lambda: all(whole(part, results) for part in every))
    areas = page.findChildren(QScrollArea)
    until(lambda: all(area.verticalScrollBar().maximum() == 0 for area in areas))
    assert (window.width(), window.height()) == (1280, 800)
