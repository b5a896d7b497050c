"""The widget follows its layer, lets it go, and meets no other viewer."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from event_loop import freed, no_worker, settle
from qtpy.QtCore import Qt
from qtpy.QtGui import QPalette
from spot_table import add_spots, click_row, dock, selected_texts

from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.results import Results


def test_layers_are_chosen_renamed_and_removed(viewer, spots, layer):
    other = add_spots(viewer, 30, seed=9, name="second")
    settle()
    assert spots.spots.layer is other
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    viewer.layers.selection.active = layer
    settle()
    assert spots.spots.layer is layer
    assert spots.count.text() == "60 of 60 shown"
    np.testing.assert_array_equal(other.shown, other.features["sigma"] >= 1.0)
    layer.name = "renamed"
    assert spots.layer.currentText() == "renamed"
    viewer.layers.selection.active = viewer.layers["movie"]
    assert spots.spots.layer is layer
    viewer.layers.remove(layer)
    settle()
    assert spots.spots.layer is other
    viewer.layers.clear()
    settle()
    assert spots.spots.layer is None
    assert spots.table.model().rowCount() == 0
    assert not spots.export.save_button.isEnabled()


def test_every_control_is_explained(spots):
    for page in range(spots.tabs.count()):
        spots.tabs.setCurrentIndex(page)
    controls = [
        spots.layer, spots.units, spots.table, spots.export.copy_button, spots.export.save_button,
        spots.export.cancel_button, spots.filters.histogram.feature, spots.filters.histogram.low,
        spots.filters.histogram.high, spots.filters.list.clear, spots.filters.list.save,
        spots.filters.list.load, spots.filters.list.others, spots.scatter.across,
        spots.scatter.up, spots.subpixel.plot,
        spots.summary.table, spots.summary.over, spots.summary.plot,
        spots.summary.export.copy_button, spots.summary.export.save_button, spots.cells.labels,
        spots.cells.feature, spots.cells.view, spots.cells.color_button,
        spots.cells.export.copy_button, spots.cells.export.save_button,
        spots.filters.legend.all, spots.filters.legend.good,
        *spots.filters.legend.boxes.values(),
    ]  # fmt: skip
    for control in controls:
        assert control.toolTip().startswith("<p>")
        named = control.accessibleName() or getattr(control, "text", str)()
        assert named or control is spots.subpixel.plot


def test_plots_have_the_colours_of_the_window(shown_viewer):
    """Also those that are made only when their tab is opened."""
    viewer = shown_viewer
    add_spots(viewer)
    spots, grounds = dock(viewer), set()
    for theme in ("light", "dark"):
        for page in ("filters", "scatter", "summary"):
            spots.tabs.setCurrentWidget(getattr(spots, page))
        settle()
        plots = spots.filters.histogram.plot, spots.scatter.plot, spots.summary.plot
        (ground,) = {plot.backgroundBrush().color().name() for plot in plots}
        (ink,) = {plot.getAxis("left").textPen().color().name() for plot in plots}
        assert (ground, ink) == tuple(
            spots.palette().color(role).name()
            for role in (QPalette.ColorRole.Window, QPalette.ColorRole.WindowText)
        )
        grounds.add(ground)
        viewer.theme = theme
        settle()
    assert len(grounds) == 2


def test_the_layout_follows_the_shape(viewer, layer, qtbot):
    spots = Results(viewer)
    qtbot.addWidget(spots)
    spots.show()
    spots.resize(1000, 300)
    assert spots.splitter.orientation() == Qt.Orientation.Horizontal
    spots.resize(360, 800)
    assert spots.splitter.orientation() == Qt.Orientation.Vertical


def test_nothing_follows_a_layer_after_closing(viewer, layer, qtbot):
    spots = dock(viewer)
    click_row(qtbot, spots, 2)
    viewer.window.remove_dock_widget(spots)
    layer.selected_data = {5}
    layer.features = layer.features.assign(extra=1.5)
    layer.shown = np.arange(60) > 30
    viewer.theme = "light"
    add_spots(viewer, 10, seed=4, name="late")
    settle()
    assert spots.spots.layer is None
    assert spots.table.model().rowCount() == 0


@pytest.mark.parametrize("used", [False, True])
def test_a_closed_widget_and_a_removed_layer_are_freed(viewer, qtbot, used):
    layer = add_spots(viewer)
    labels = viewer.add_labels(np.ones((64, 64), int))
    spots = dock(viewer)
    if used:
        spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
        for page in (1, 2, 3, 4, 0):
            spots.tabs.setCurrentIndex(page)
        spots.cells.labels.layer = labels
        settle()
        qtbot.waitUntil(lambda: "label" in layer.features and no_worker())
        click_row(qtbot, spots, 2)
        settle()
    viewer.window.remove_dock_widget(spots)
    gone = weakref.ref(spots), weakref.ref(spots.spots), weakref.ref(spots.table)
    del spots
    if used:
        layer.shown = True
        layer.selected_data = {1}
    qtbot.waitUntil(lambda: freed(*gone))


def test_a_removed_layer_is_let_go(viewer, spots, layer, qtbot):
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    viewer.layers.remove(layer)
    settle()
    assert spots.spots.layer is None
    assert spots.spots.columns == {}


def test_two_viewers(make_napari_viewer):
    one, two = make_napari_viewer(), make_napari_viewer()
    layers = add_spots(one, 20), add_spots(two, 40, seed=1)
    widgets = dock(one), dock(two)
    widgets[0].spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    assert layers[1].shown.all()
    assert widgets[1].count.text() == "40 of 40 shown"
    layers[1].selected_data = {3}
    assert selected_texts(widgets[0]) == []
    assert selected_texts(widgets[1]) == [3]
    one.window.remove_dock_widget(widgets[0])
    widgets[1].spots.set_filters(Filters({"sigma": (1.5, None)}))
    settle()
    np.testing.assert_array_equal(layers[1].shown, layers[1].features["sigma"] >= 1.5)
