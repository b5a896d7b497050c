"""Picking beside the user's own changes, keys, widgets and viewers, and its end."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from event_loop import freed, no_worker
from hand import SHIFT, Hand
from qtpy.QtCore import QPointF

from napari_spotfit import localize, to_points_layer
from napari_spotfit.settings.settings import Settings
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.selection import SpotSelection


def test_whose_layer_it_is(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0], SHIFT)
    settle()
    layer = viewer.layers["movie (picked)"]
    layer.name, layer.opacity, layer.current_size = "mine", 0.5, 5
    image.scale = (0.5, 0.5)
    viewer.reset_view()
    hand.click(image, spots[1], SHIFT)
    settle()
    assert len(viewer.layers) == 2
    assert len(layer.data) == 2
    assert layer.opacity == 0.5
    assert layer.scale.tolist() == [0.5, 0.5]
    assert np.all(layer.size == 5)
    viewer.layers.remove(layer)
    assert not widget.picking.undo.isEnabled()
    hand.click(image, spots[1], SHIFT)
    settle()
    assert len(viewer.layers["movie (picked)"].data) == 1
    assert len(layer.data) == 2


@pytest.mark.parametrize("end", ["image removed", "widget closed"])
def test_what_ends_a_pick_leaves_nothing(viewer, widget, hand, settle, make_movie, end):
    image = viewer.add_image(make_movie(), name="slow")
    point = hand.at(image, (10, 12))
    hand.hover(point, SHIFT)
    hand.press(point, SHIFT)
    if end == "image removed":
        viewer.layers.clear()
    else:
        viewer.window.remove_dock_widget(widget)
    hand.release(QPointF(50, 50), SHIFT)
    settle()
    assert [layer.name for layer in viewer.layers] == ([] if end == "image removed" else ["slow"])


def test_a_closed_widget_leaves_mouse_and_keys_alone(viewer, hand, qtbot, make_movie, spots):
    lists = viewer.mouse_drag_callbacks, viewer.mouse_double_click_callbacks
    before = [list(callbacks) for callbacks in lists], dict(viewer.keymap)
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    image = viewer.add_image(make_movie(), name="movie")
    widget.picking.click.click()
    hand.click(image, spots[0])
    qtbot.waitUntil(lambda: "movie (picked)" in viewer.layers and no_worker(), timeout=120_000)
    viewer.window.remove_dock_widget(widget)
    assert [list(callbacks) for callbacks in lists] == before[0]
    # What was done to the layer that is left can still be taken back.
    assert len(viewer.keymap) == 2
    gone = weakref.ref(widget)
    del widget
    qtbot.waitUntil(lambda: freed(gone))
    hand.click(image, spots[1], SHIFT)
    layer = viewer.layers["movie (picked)"]
    layer.selected_data = {0}
    layer.remove_selected()
    viewer.layers.clear()
    assert dict(viewer.keymap) == before[1]


def test_a_widget_that_is_docked_again_goes_on(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0], SHIFT)
    settle()
    viewer.window.remove_dock_widget(widget)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    assert "the fit of a spot" in widget.picking.undo.toolTip()
    hand.click(image, spots[1], SHIFT)
    settle()
    assert len(viewer.layers["movie (picked)"].data) == 2
    widget.picking.undo.click()
    assert len(viewer.layers["movie (picked)"].data) == 1


def test_keys_that_are_taken_stay_so(viewer, make_movie, qtbot):
    pressed = []
    viewer.bind_key("Control-Z", pressed.append)
    first, second = FitSpots(viewer), FitSpots(viewer)
    for widget in (first, second):
        qtbot.addWidget(widget)
        widget.unbind()
    assert list(viewer.keymap.values()) == [pressed.append]


def test_two_viewers(make_napari_viewer, qtbot, make_movie, spots):
    found = []
    for number in range(2):
        viewer = make_napari_viewer(show=True)
        widget = FitSpots(viewer)
        viewer.window.add_dock_widget(widget, name="Fit spots")
        found.append((viewer, widget, viewer.add_image(make_movie(number + 1), name="movie")))
    (first, widget, image), (second, *_) = found
    Hand(first).click(image, spots[0], SHIFT)
    qtbot.waitUntil(lambda: len(first.layers) == 2 and no_worker(), timeout=120_000)
    assert len(second.layers) == 1
    for viewer, widget, _ in found:
        viewer.window.remove_dock_widget(widget)


def test_snap_is_remembered_and_the_switch_is_not(viewer, widget, qtbot):
    widget.picking.snap.click()
    widget.picking.click.click()
    again = FitSpots(viewer)
    qtbot.addWidget(again)
    assert not again.picking.snap.isChecked()
    assert not again.picking.click.isChecked()
    assert again.settings.settings() == Settings()
    for control in (again.picking.click, again.picking.snap, again.picking.undo):
        assert control.toolTip().startswith("<p>")
        assert control.accessibleName()


def test_selecting_a_pick_has_an_event(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    other = viewer.add_layer(to_points_layer(localize(image.data, sigma=1.3), image, name="all"))
    viewer.layers.selection.active = image
    selection = SpotSelection(viewer, widget)
    selection.bind()
    try:
        hand.click(image, spots[0], SHIFT)
        settle()
        assert (selection.layer, selection.row) == (viewer.layers["movie (picked)"], 0)
        other.selected_data = {2}
        assert (selection.layer, selection.row) == (other, 2)
        hand.click(image, spots[0], SHIFT)
        settle()
        assert (selection.layer, selection.row) == (viewer.layers["movie (picked)"], 0)
    finally:
        selection.unbind()
