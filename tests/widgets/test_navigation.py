"""From a spot in one widget to the same spot in another, however the widgets were opened."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from inspector import add_spots, go_to, shows
from napari._app_model import get_app_model
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QDockWidget
from spot_table import click_row

from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.parts.docking import opened
from napari_spotfit.widgets.results import Results


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


def docks(viewer, kind):
    """Return the docks with a widget of a kind."""
    window = viewer.window._qt_window
    return [dock for dock in window.findChildren(QDockWidget) if dock.findChildren(kind)]


def in_front(widget):
    """Whether a widget is seen, not behind another one's tab."""
    return widget.isVisible() and not widget.visibleRegion().isEmpty()


def by_menu(viewer, name):
    get_app_model().commands.execute_command(f"napari-spotfit.{name}").result()


@pytest.mark.parametrize("way", ["menu", "add_plugin_dock_widget", "by hand"])
def test_from_fit_spots_to_results_and_back(viewer, way, qtbot, press, make_movie):
    _, layer = add_spots(viewer, make_movie(3))
    if way == "menu":
        by_menu(viewer, "fit_spots")
    elif way == "by hand":
        for kind in (FitSpots, Results):
            viewer.window.add_dock_widget(kind(viewer), name=f"my {kind.title}")
    else:
        viewer.window.add_plugin_dock_widget("napari-spotfit", "Fit spots")
    settle()
    fit = opened(viewer, FitSpots.title)
    viewer.layers.selection.active = layer
    qtbot.waitUntil(lambda: fit.result.layer is layer)
    doubtful = np.arange(len(layer.data)) != 6
    layer.features = layer.features.assign(good=doubtful.astype(float))
    for _ in range(2):  # the second time it is open
        press(fit.steps.table)
        settle()
        results = opened(viewer, Results.title)
        assert results.layer.layer is layer
        assert in_front(results)
        results.tabs.setCurrentWidget(results.filters)
        press(fit.steps.doubtful)
        qtbot.waitUntil(lambda results=results: shows(results.inspect, layer, 6))
        assert in_front(results.inspect)
    assert viewer.dims.current_step[0] == layer.data[6, 0]
    for kind in (Results, FitSpots):
        assert len(docks(viewer, kind)) == 1
    # On to another one by the table.
    results.table.setCurrentIndex(results.table.model().index(10, 0))
    qtbot.keyClick(results.table, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: shows(results.inspect, layer, 10))
    assert layer.selected_data == {10}
    # Hidden, it comes back as it is; closed, it opens anew.
    docks(viewer, Results)[0].hide()
    settle()
    press(fit.steps.doubtful)
    settle()
    assert in_front(results.inspect)
    docks(viewer, Results)[0].close()
    settle()
    press(fit.steps.table)
    settle()
    assert len(docks(viewer, Results)) == 1
    assert opened(viewer, Results.title).layer.layer is layer


def test_the_table_finds_the_row_or_says_what_hides_it(viewer, qtbot, press, make_movie):
    _, layer = add_spots(viewer, make_movie(8))
    _, results = viewer.window.add_plugin_dock_widget("napari-spotfit", "Results")
    settle()
    inspector, table = results.inspect, results.table
    camera = getattr(viewer, "scene", viewer).camera
    center = camera.center
    results.tabs.setCurrentWidget(results.filters)
    click_row(qtbot, results, 5)
    assert not in_front(inspector)
    click_row(qtbot, results, 5, click="mouseDClick")
    qtbot.waitUntil(lambda: shows(inspector, layer, 5))
    assert in_front(inspector)
    assert viewer.dims.current_step[0] == layer.data[5, 0]
    assert camera.center == center, "it was in sight"
    # Another row, and Inspect follows; the viewer stays.
    click_row(qtbot, results, 2)
    qtbot.waitUntil(lambda: shows(inspector, layer, 2))
    # Out of sight, the camera follows, and the row is brought into sight.
    camera.zoom *= 8
    for row in (30, 29):
        go_to(inspector, layer, row)
        np.testing.assert_allclose(camera.center[-2:], layer.data[row, 1:])
    qtbot.waitUntil(lambda: shows(inspector, layer, 29))
    (at,) = {index.row() for index in table.selectionModel().selectedRows()}
    assert at == 29
    assert table.viewport().rect().intersects(table.visualRect(table.model().index(29, 0)))
    assert layer.selected_data == {29}
    # Behind a filter it is not in the table.
    results.spots.set_filters(results.spots.filters.with_range("frame", 0, 6))
    settle()
    results.go_to(layer, 29)
    text = results.status.text()
    assert "Row 29 is not listed, as it is filtered out: frame ≤ 6" in text or "0 ≤ frame" in text
    layer.selected_data = set()
    table.clearSelection()
    table.setCurrentIndex(table.model().index(-1, -1))
    qtbot.keyClick(table, Qt.Key.Key_Return)
    assert "Select the row of a spot first" in results.status.text()
    texts = [action.text() for action in table.actions()]
    assert texts[0] == "Inspect"
    table.selectRow(3)
    settle()
    table.actions()[0].trigger()
    qtbot.waitUntil(lambda: shows(inspector, layer, 3))
