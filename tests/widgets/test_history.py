"""What was done to layers of fitted spots is taken back, and done again."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from hand import CONTROL, SHIFT
from qtpy.QtCore import Qt

from napari_spotfit import load_fits, localize, to_points_layer
from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers import history as history_module
from napari_spotfit.widgets.layers.appearance import color_faces
from napari_spotfit.widgets.layers.points import stop_counts
from napari_spotfit.widgets.results import Results


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


def seen(layer):
    """Return all that a layer shows, in values that compare."""
    features = layer.features.astype(object)
    return {
        "data": layer.data.tolist(),
        "features": features.where(features.notna(), None).to_dict("list"),
        "dtypes": [str(kind) for kind in layer.features.dtypes],
        "face": layer.face_color.round(5).tolist(),
        "border": layer.border_color.round(5).tolist(),
        "limits": layer.face_contrast_limits,
        "symbol": [str(one) for one in layer.symbol],
        "size": layer.size.tolist(),
        "shown": layer.shown.tolist(),
        "counts": stop_counts(layer),
        "selected": set(layer.selected_data),
    }


def legend(widget):
    return sum(int(label.text()) for label in widget.result.legend.counts.values())


@pytest.mark.parametrize("rows", [{1, 2, 6}, set(range(8))])
def test_spots_deleted_by_napari_come_back(viewer, widget, hand, fit, make_movie, rows):
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    layer.shown = np.arange(8) != 4
    viewer.layers.selection.active = layer
    layer.mode = "select"
    layer.selected_data = rows
    full = seen(layer)
    hand.key(Qt.Key.Key_Delete)
    few = seen(layer)
    assert len(layer.data) == sum(stop_counts(layer).values()) == legend(widget) == 8 - len(rows)
    assert f"the deletion of {len(rows)} spots" in widget.picking.undo.toolTip()
    for _ in range(2):
        hand.key(Qt.Key.Key_Z, CONTROL)
        assert seen(layer) == full
        assert legend(widget) == 8
        hand.key(Qt.Key.Key_Z, CONTROL | SHIFT)
        assert legend(widget) == 8 - len(rows)
        again = seen(layer)
        assert {**again, "limits": 0, "face": 0} == {**few, "limits": 0, "face": 0}
    hand.key(Qt.Key.Key_Z, CONTROL)
    # Spots that came back are those of the fit: the next one replaces them.
    assert fit(widget).endswith("They replace those of the last fit.")
    assert len(viewer.layers) == 2


def test_fits_are_taken_back_and_made_again(viewer, widget, fit, press, make_movie):
    image = viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    first = seen(layer)
    widget.settings.controls["roi_size"].value = 11
    fit(widget)
    second = seen(layer)
    assert second["features"]["roi_y"] != first["features"]["roi_y"]
    press(widget.picking.undo)
    assert seen(layer) == first
    assert layer.metadata["settings"]["roi_size"] == 9
    press(widget.picking.redo)
    assert seen(layer) == second
    assert layer.metadata["settings"]["roi_size"] == 11
    for _ in range(2):
        press(widget.picking.undo)
    assert list(viewer.layers) == [image]
    assert not widget.picking.undo.isEnabled()
    press(widget.picking.redo)
    assert viewer.layers["movie spots"] is layer
    assert seen(layer) == first
    # What comes after a step back is a new way: nothing is left to be done again.
    layer.selected_data = {0}
    layer.remove_selected()
    assert not widget.picking.redo.isEnabled()


def test_what_is_left_alone_keeps_its_look(viewer, widget, hand, fit, press, make_movie):
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    layer.selected_data = {3}
    layer.remove_selected()
    color_faces(layer, "photons")
    layer.size, layer.symbol = 4, "star"
    press(widget.picking.undo)
    assert len(layer.data) == 8
    assert layer.metadata["face"] == "photons"
    assert set(layer.size) == {4}
    assert {str(one) for one in layer.symbol} == {"star"}
    assert np.isfinite(layer.face_color).all()


def test_filters_colours_and_marks_are_taken_back(viewer, widget, hand, fit, make_movie, qtbot):
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer, result = viewer.layers["movie spots"], widget.result
    steps = [seen(layer)]

    def done(what):
        settle()
        assert f"Take back {what} (" in widget.picking.undo.toolTip()
        steps.append(seen(layer))

    middle = float(layer.features["photons"].median())
    for low in (0.5 * middle, middle):  # as a handle that is dragged
        result.spots.set_filters(Filters({"photons": (low, None)}))
        settle()
    assert 0 < layer.shown.sum() < 8
    done("the filter of photons")
    qtbot.mouseClick(result.legend.good, Qt.MouseButton.LeftButton)
    done("the filter of good")
    for box, name in ((result.face, "photons [counts]"), (result.marks, "cross")):
        box.setCurrentText(name)
        box.activated.emit(box.currentIndex())
        done("the marks" if box is result.marks else "the colours by photons [counts]")
    assert {str(one) for one in layer.symbol} == {"cross"}
    for step in reversed(steps[:-1]):
        hand.key(Qt.Key.Key_Z, CONTROL)
        settle()
        assert seen(layer) == step
    assert not result.spots.filters
    for step in steps[1:]:
        hand.key(Qt.Key.Key_Z, CONTROL | SHIFT)
        settle()
        assert seen(layer) == step
    assert result.spots.filters.good_only
    assert result.marks.currentText() == "cross"


@pytest.mark.parametrize(("way", "door"), [("file", None), ("file", Results), ("script", None)])
def test_a_result_that_came_another_way_has_a_history_without_fit_spots(
    viewer, hand, make_movie, tmp_path, way, door
):
    keys, movie = dict(viewer.keymap), make_movie(2)
    image, fits = viewer.add_image(movie), localize(movie, sigma=1.4)
    if door is not None:
        docked = door(viewer)
        viewer.window.add_dock_widget(docked)
    if way == "file":
        fits.save(tmp_path / "a.spots.csv")
        (layer,) = viewer.open(str(tmp_path / "a.spots.csv"), plugin="napari-spotfit")
    else:
        layer = viewer.add_layer(to_points_layer(fits, image))
    full = seen(layer)
    viewer.layers.selection.active = layer
    layer.mode = "select"
    layer.selected_data = {1, 2}
    full["selected"] = {1, 2}
    hand.key(Qt.Key.Key_Delete)
    assert len(layer.data) == 6
    hand.key(Qt.Key.Key_Z, CONTROL)
    assert seen(layer) == full
    hand.key(Qt.Key.Key_Z, CONTROL | SHIFT)
    assert len(layer.data) == 6
    # Who opens Fit spots later finds what was done; closed, it is not forgotten.
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget)
    assert "the deletion of 2 spots" in widget.picking.undo.toolTip()
    viewer.window.remove_dock_widget("all")
    hand.key(Qt.Key.Key_Z, CONTROL)
    assert len(layer.data) == 8
    viewer.layers.clear()
    assert dict(viewer.keymap) == keys


def test_a_layer_that_is_gone_is_forgotten(viewer, widget, fit, make_movie):
    viewer.add_image(make_movie(), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    layer.selected_data = {0}
    layer.remove_selected()
    assert widget.picking.undo.isEnabled()
    viewer.layers.remove(layer)
    assert not widget.picking.undo.isEnabled()


def test_memory_is_bounded_and_the_last_change_is_kept(
    viewer, widget, fit, press, make_movie, monkeypatch
):
    viewer.add_image(make_movie(), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    monkeypatch.setattr(history_module, "_MOST", 1)
    for left in (3, 2):
        layer.selected_data = {0}
        layer.remove_selected()
        assert len(layer.data) == left
    press(widget.picking.undo)
    assert len(layer.data) == 3
    assert not widget.picking.undo.isEnabled()


def test_a_point_added_by_hand_is_no_fit(viewer, widget, hand, fit, make_movie, tmp_path):
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    layer.mode = "add"
    for place in ((20, 20), (3, 3)):
        hand.click(layer, place)
    layer.mode = "pan_zoom"
    assert len(layer.data) == 10
    added = layer.features.iloc[8:]
    assert np.isnan(added[["y", "x", "sigma", "photons"]]).all().all()
    assert added["stop_condition"].tolist() == ["INVALID"] * 2
    assert added["frame"].tolist() == layer.data[8:, 0].tolist()
    assert not added["good"].any()
    assert stop_counts(layer)["INVALID"] == 2
    layer.save(str(tmp_path / "added.spots.csv"))
    fits = load_fits(tmp_path / "added.spots.csv")
    assert fits.valid.tolist() == [True] * 8 + [False] * 2
    assert not fits.good[8:].any()
    # As it was: those that are not drawn do not count as deleted.
    layer.selected_data = {8, 9}
    layer.remove_selected()
    assert stop_counts(layer)["INVALID"] == 0


def test_a_fit_of_another_model_and_its_undo_follow_no_feature_that_is_gone(
    viewer, widget, fit, make_movie
):
    """Else napari shows a warning, which is an error here."""
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    round_ones = seen(layer)
    widget.settings.controls["model"].value = "gaussian_elliptical"
    fit(widget)
    assert layer.metadata["face"] == "sigma_x"
    elliptical = seen(layer)
    widget.history.undo()
    assert seen(layer) == round_ones
    widget.history.redo()
    assert seen(layer) == elliptical
