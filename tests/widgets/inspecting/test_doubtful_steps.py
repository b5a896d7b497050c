"""From one doubtful spot to the next, by buttons and keys."""

from __future__ import annotations

import numpy as np
from inspector import add_spots, go_to, results_of, shows
from qtpy.QtCore import Qt
from spot_table import dock

from napari_spotfit.analysis.filters import Filters


def doubt(layer, rows):
    """Let some rows be doubtful, and no others."""
    features = layer.features.copy()
    features["good"] = np.where(np.isin(np.arange(len(features)), rows), 0.0, 1.0)
    layer.features = features


def test_keys_and_buttons_go_through_the_doubtful_spots(
    viewer, inspector, hand, until, press, make_movie
):
    _, layer = add_spots(viewer, make_movie(3))
    doubt(layer, [1, 6, 10])
    viewer.layers.selection.active = viewer.layers["movie"]
    steps = inspector.panel.doubtful
    for row, place in ((1, 1), (6, 2), (10, 3), (1, 1)):
        hand.key(Qt.Key.Key_PageDown)
        until(lambda row=row: shows(inspector, layer, row))
        assert layer.selected_data == {row}
        assert viewer.dims.current_step[0] == layer.data[row, 0]
        assert steps.count.text() == f"{place} of 3 doubtful"
    press(steps.back)
    until(lambda: shows(inspector, layer, 10))
    press(steps.on)
    until(lambda: shows(inspector, layer, 1))
    # From a good one, to those on either side.
    go_to(inspector, layer, 4)
    until(lambda: shows(inspector, layer, 4))
    assert steps.count.text() == "3 doubtful"
    hand.key(Qt.Key.Key_PageUp)
    until(lambda: shows(inspector, layer, 1))
    # Hidden spots are passed over.
    layer.shown = np.arange(12) != 6
    press(steps.on)
    until(lambda: shows(inspector, layer, 10))


def test_over_frames_and_planes_and_past_what_a_filter_hides(
    viewer, inspector, hand, until, press, make_movie
):
    _, layer = add_spots(viewer, make_movie(2, 3), scale=(1, 2, 0.1, 0.1))
    doubt(layer, [2, 9, 13, 22])
    spots = dock(viewer)
    spots.spots.set_filters(Filters({"frame": (None, 1)}))
    until(lambda: not layer.shown.all())
    shown = [row for row in (2, 9, 13, 22) if layer.features["frame"].iloc[row] <= 1]
    assert 0 < len(shown) < 4
    steps = inspector.panel.doubtful
    for key, rows in (
        (Qt.Key.Key_PageDown, [*shown, shown[0]]),
        (Qt.Key.Key_PageUp, shown[::-1]),
    ):
        for row in rows:
            hand.key(key)
            until(lambda row=row: shows(inspector, layer, row))
            np.testing.assert_array_equal(
                np.rint(layer.world_to_data(viewer.dims.point))[:2], layer.data[row, :2]
            )
            assert steps.count.text() == f"{shown.index(row) + 1} of {len(shown)} doubtful"
            assert [index.row() for index in spots.table.selectionModel().selectedRows()] == [
                int(np.flatnonzero(spots.table.spots_model.rows == row)[0])
            ]


def test_without_doubtful_spots_nothing_moves(viewer, inspector, hand, until, make_movie):
    hand.key(Qt.Key.Key_PageDown)
    _, layer = add_spots(viewer, make_movie())
    doubt(layer, [])
    go_to(inspector, layer, 2)
    until(lambda: shows(inspector, layer, 2))
    assert not inspector.panel.doubtful.on.isEnabled()
    hand.key(Qt.Key.Key_PageDown)
    assert layer.selected_data == {2}


def test_the_keys_are_free_again(viewer, inspector):
    assert len(viewer.keymap) == 4  # with those of the history
    viewer.window.remove_dock_widget(results_of(inspector))
    assert not viewer.keymap
