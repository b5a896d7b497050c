"""Picked spots are deleted, and every change is taken back."""

from __future__ import annotations

import numpy as np
from hand import CONTROL, SHIFT
from napari.utils.colormaps.standardize_color import transform_color
from qtpy.QtCore import Qt

from napari_spotfit import StopCondition
from napari_spotfit.widgets.layers.appearance import STOP_COLORS


def test_delete_and_undo(viewer, widget, hand, settle, qtbot, press, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    assert not widget.picking.undo.isEnabled()
    for place in spots[:3]:
        hand.click(image, place, SHIFT)
        settle()
    layer = viewer.layers["movie (picked)"]
    full, table = layer.data.copy(), layer.features.copy()
    layer.selected_data = {1}
    hand.key(Qt.Key.Key_Delete)
    np.testing.assert_array_equal(layer.data, full[[0, 2]])
    legend = widget.result.legend
    settle()
    assert sum(layer.metadata["stop_counts"].values()) == 2
    assert sum(int(legend.counts[stop.name].text()) for stop in StopCondition) == 2
    hand.key(Qt.Key.Key_Z, CONTROL)
    np.testing.assert_array_equal(layer.data, full)
    assert layer.features.astype(object).equals(table.astype(object))
    assert set(layer.selected_data) == {1}
    # All of them, by napari's own key in the layer itself.
    viewer.layers.selection.active = layer
    layer.mode = "select"
    layer.selected_data = {0, 1, 2}
    hand.key(Qt.Key.Key_Backspace)
    assert len(layer.data) == 0
    hand.key(Qt.Key.Key_Z, CONTROL)
    np.testing.assert_array_equal(layer.data, full)
    # Spots that are moved go back, too.
    hand.hover(hand.at(image, full[1]))
    hand.press(hand.at(image, full[1]))

    def moved():
        hand.move(hand.at(image, full[1] + 6))
        return not np.allclose(layer.data, full, atol=2)

    qtbot.waitUntil(moved)
    hand.release(hand.at(image, full[1] + 6))
    hand.key(Qt.Key.Key_Z, CONTROL)
    np.testing.assert_array_equal(layer.data, full)
    layer.mode = "pan_zoom"
    viewer.layers.selection.active = image
    # Undo goes back to the very beginning.
    for left in (2, 1):
        press(widget.picking.undo)
        np.testing.assert_array_equal(layer.data, full[:left])
    press(widget.picking.undo)
    assert list(viewer.layers) == [image]
    assert not widget.picking.undo.isEnabled()
    hand.key(Qt.Key.Key_Z, CONTROL)
    hand.key(Qt.Key.Key_Delete)
    assert list(viewer.layers) == [image]


def test_undo_of_a_refit_and_of_a_drag(viewer, widget, hand, settle, qtbot, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0], SHIFT)
    settle()
    first = viewer.layers["movie (picked)"].features.copy()
    widget.settings.controls["roi_size"].value = 7
    hand.hover(hand.at(image, spots[1]), SHIFT)
    hand.press(hand.at(image, spots[1]), SHIFT)
    for place in (spots[2], spots[0]):
        hand.move(hand.at(image, place), SHIFT)
        qtbot.waitUntil(lambda: widget.picking.picker._fitting is None)
    hand.release(hand.at(image, spots[0]), SHIFT)
    settle()
    assert viewer.layers["movie (picked)"].features["roi_size"].tolist() == [7]
    widget.picking.undo.click()
    assert viewer.layers["movie (picked)"].features.astype(object).equals(first.astype(object))
    assert viewer.layers["movie (picked)"].metadata["settings"]["roi_size"] == 9


def test_a_pick_after_all_were_deleted(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0], SHIFT)
    settle()
    hand.key(Qt.Key.Key_Delete)
    layer = viewer.layers["movie (picked)"]
    assert len(layer.data) == 0
    hand.click(image, spots[1], SHIFT)
    settle()
    assert viewer.layers["movie (picked)"] is layer
    np.testing.assert_allclose(layer.data, spots[1:2], atol=0.2)
    assert layer.face_color_mode == "colormap"
    assert layer.face_color[0, 3] == 1
    np.testing.assert_allclose(
        layer.border_color, transform_color([STOP_COLORS[layer.features["stop_condition"].iloc[0]]])
    )
    for _ in range(2):
        widget.picking.undo.click()
    np.testing.assert_allclose(layer.data, spots[:1], atol=0.2)
    assert np.isfinite(layer.features["sigma"]).all()


def test_delete_removes_the_picked_spot_while_results_are_active(
    viewer, widget, hand, settle, fit, make_movie, spots
):
    image = viewer.add_image(make_movie(), name="movie")
    fit(widget)
    results = viewer.layers["movie spots"]
    assert viewer.layers.selection.active is results
    # As Inspect spot does with a click on a spot.
    results.selected_data = {0}
    for place in spots[:2]:
        hand.click(image, place, SHIFT)
        settle()
    picked = viewer.layers["movie (picked)"]
    for left, key in ((1, Qt.Key.Key_Delete), (0, Qt.Key.Key_Backspace)):
        hand.key(key)
        assert (len(picked.data), len(results.data)) == (left, 4)
        picked.selected_data = set(range(left))
    # What is selected in the active layer itself goes first.
    hand.key(Qt.Key.Key_Z, CONTROL)
    picked.selected_data, results.selected_data = {0}, {1, 2}
    hand.key(Qt.Key.Key_Delete)
    assert (len(picked.data), len(results.data)) == (1, 2)
    viewer.window.remove_dock_widget("all")
    assert not results.keymap
