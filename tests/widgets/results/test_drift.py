"""The drift that beads among the spots tell: found, drawn, saved, subtracted and taken back."""

from __future__ import annotations

import numpy as np
import pytest
from beads_above import FRAMES, STEP, two_heights
from event_loop import settle
from hand import LEFT
from qtpy.QtCore import Qt
from spot_table import dock

from napari_spotfit import (
    Drift,
    SimulatedMicroscope,
    SpotFits,
    load_drift,
    localize,
    to_points_layer,
)
from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.layers.result_layers import subtract


@pytest.fixture
def layer(viewer):
    scope = SimulatedMicroscope(4, (96, 96), drift=(0.4, -0.2), seed=1)
    movie = np.array([frame for _, frame in scope.frames(20.0, 30)])
    image = viewer.add_image(movie, name="beads", scale=(1, 0.1, 0.1), units=("pixel", "um", "um"))
    return viewer.add_layer(to_points_layer(localize(movie, sigma=1.3), image))


@pytest.fixture
def page(viewer, layer, qtbot):
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.drift)
    return spots.drift


def press(button, qtbot):
    qtbot.mouseClick(button, LEFT)


def find(page, qtbot):
    press(page.find_button, qtbot)
    qtbot.waitUntil(lambda: not page.work.busy)
    settle()


def test_drift_is_found_and_drawn_in_the_layers_units(page, qtbot, viewer):
    assert not page.subtract_button.isEnabled()
    assert page.plot.isHidden()
    find(page, qtbot)
    assert not page.plot.isHidden()
    assert page.plot.height() >= 90
    assert page.hint.text().startswith("4 fiducials: ")
    assert "30 frames" in page.hint.text()
    x, y = page.plot.curves[0].line.getData()
    assert x.tolist() == list(range(30))
    assert y[-1] == pytest.approx(0.4 * 29 / 20 * 10, abs=0.1)
    page._spots.set_physical(True)
    settle()
    assert page.plot.curves[0].line.getData()[1][-1] == pytest.approx(0.4 * 29 / 20, abs=0.01)
    assert "µm of drift" in page.hint.text()


def test_it_is_subtracted_and_taken_back(page, layer, qtbot, viewer):
    before = layer.data.copy()
    find(page, qtbot)
    press(page.subtract_button, qtbot)
    order = np.lexsort((before[:, 0], np.rint(before[:, 1] / 24), np.rint(before[:, 2] / 24)))
    assert np.ptp(before[order][:25, 1]) > 3
    assert np.abs(layer.data[:, 1] - layer.features["y"]).max() < 1e-9
    assert layer.data[:, 1].std() < before[:, 1].std()
    assert "Undo takes it back" in page.hint.text()
    assert page._history.last == "the subtraction of the drift"
    settle()
    assert "Undo takes it back" in page.hint.text()
    page._history.undo()
    settle()
    assert "Undo" not in page.hint.text()
    np.testing.assert_array_equal(layer.data, before)
    np.testing.assert_array_equal(layer.features["y"], before[:, 1])
    page._history.redo()
    assert not np.array_equal(layer.data, before)


def test_the_page_says_when_a_drift_is_subtracted_again(page, layer, qtbot):
    data, features = layer.data.copy(), layer.features.copy()
    find(page, qtbot)
    assert "subtracted before" not in page.hint.text()
    press(page.subtract_button, qtbot)
    assert "twice" not in page.hint.text()
    find(page, qtbot)
    assert page.hint.text().endswith("A drift was subtracted before: this is what is left")
    # The spots of another table of the movie, but with this history.
    layer.data, layer.features = data, features
    settle()
    find(page, qtbot)
    assert page.hint.text().endswith("This drift was subtracted before")
    press(page.subtract_button, qtbot)
    assert "moved by twice the drift. Undo takes it back" in page.hint.text()


def test_a_new_fit_clears_the_drift_of_the_last_one(viewer, make_movie, widget, fit, qtbot):
    viewer.add_image(make_movie(10), name="movie")
    (axis,) = widget.settings.frames.axes
    axis.mode.setCurrentIndex(axis.mode.findData("range"))
    axis.last.setValue(4)
    fit(widget)
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.drift)
    find(spots.drift, qtbot)
    assert spots.drift.subtract_button.isEnabled()
    spots.drift._spots.set_physical(True)
    settle()
    assert spots.drift.subtract_button.isEnabled()
    axis.last.setValue(9)
    fit(widget)
    settle()
    assert "other spots" in spots.drift.hint.text()
    assert not spots.drift.subtract_button.isEnabled()
    assert spots.drift.plot.isHidden()


def test_a_drift_that_ends_before_the_spots_moves_none(layer, page, viewer):
    before, zeros = layer.data.copy(), np.zeros(10)
    drift = Drift(zeros + 1, zeros, zeros, zeros, zeros.astype(int))
    with pytest.raises(ValueError, match=r"10 frames.* in frame 29"):
        subtract(layer, drift, page._history)
    np.testing.assert_array_equal(layer.data, before)


def test_a_drift_along_z_moves_the_heights_that_are_shown(layer, page):
    layer.features = layer.features.assign(z=100.0)
    before, zeros = layer.data.copy(), np.zeros(30)
    rise = np.arange(30.0)
    drift = Drift(zeros, zeros, zeros, zeros, zeros.astype(int), rise, zeros)
    subtract(layer, drift, page._history)
    frame = before[:, 0].astype(int)
    np.testing.assert_array_equal(layer.features["z"], 100.0 - rise[frame])
    np.testing.assert_array_equal(layer.data, before)


def test_tracks_lie_on_the_spots(page, layer, qtbot, viewer):
    find(page, qtbot)
    press(page.tracks_button, qtbot)
    tracks = viewer.layers[-1]
    assert tracks.name == f"{layer.name} tracks"
    assert len(np.unique(tracks.data[:, 0])) >= 4
    np.testing.assert_allclose(tracks.scale, layer.scale)


def test_it_is_saved(page, qtbot, tmp_path):
    find(page, qtbot)
    said = []
    page.said.connect(said.append)
    page.save_to(tmp_path / "beads.drift.csv")
    assert len(load_drift(tmp_path / "beads.drift.csv")) == 30
    assert "30 frames" in said[0]
    page.failed.connect(said.append)
    page.save_to(tmp_path / "nowhere" / "beads.drift.csv")
    assert "was not written" in said[-1]


def test_selected_spots_are_the_fiducials(page, layer, qtbot):
    near = np.flatnonzero(np.abs(layer.data[:, 1:] - layer.data[0, 1:]).max(axis=1) < 12)
    layer.selected_data = set(near.tolist())
    find(page, qtbot)
    assert page.hint.text().startswith("1 fiducial: ")


def test_the_drift_of_one_file_moves_its_spots_alone(viewer, layer, qtbot):
    fits = localize(viewer.layers["beads"].data, sigma=1.3)
    both = SpotFits.concatenate([fits, fits[fits.frame < 20]])
    names = np.repeat(np.array(["a.tif", "b.tif"], object), [len(fits), len(both) - len(fits)])
    named = SpotFits({"file": names, **both.columns}, both.index_names, both.settings)
    own = viewer.add_layer(to_points_layer(named, viewer.layers["beads"]))
    spots = dock(viewer)
    viewer.layers.selection.active = own
    spots.tabs.setCurrentWidget(spots.drift)
    page = spots.drift
    before = own.data.copy()
    find(page, qtbot)
    assert "2 files" in page.hint.text()
    assert not page.subtract_button.isEnabled()
    of_b = np.flatnonzero(names == "b.tif")
    own.selected_data = set(of_b.tolist())
    find(page, qtbot)
    assert page.hint.text().startswith("4 fiducials: ")
    assert "20 frames" in page.hint.text()
    press(page.subtract_button, qtbot)
    assert page.hint.text() == "Subtracted from all spots of b.tif. Undo takes it back."
    moved = np.abs(own.data - before).max(axis=1) > 0
    assert not moved[names == "a.tif"].any()
    assert moved[of_b].mean() > 0.9


def test_z_of_other_programs_counts_by_what_the_page_asks_for(viewer, qtbot):
    image = viewer.add_image(np.zeros((FRAMES, 64, 64), np.uint8))
    viewer.add_layer(to_points_layer(two_heights(), image))
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.drift)
    page = spots.drift
    assert not page.z_scale.isHidden()
    find(page, qtbot)
    assert page.hint.text().startswith("⚠ 1 fiducial: ")
    assert "Z is left out, as how far apart the planes of the column z_px are" in page.hint.text()
    assert "pass “Pixels per z”, how many pixels one plane is" in page.hint.text()
    assert page.subtract_button.isEnabled()
    box = page.z_scale.box
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, "3")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    find(page, qtbot)
    assert page.hint.text().startswith("2 fiducials: ")
    moved = page.plot.curves[1].line.getData()[1]
    np.testing.assert_allclose(moved, STEP * np.arange(FRAMES), atol=1e-9)


def test_what_hides_frames_is_said(page, layer, qtbot):
    layer.shown = layer.features["frame"].to_numpy() < 25
    settle()
    assert page.z_scale.isHidden()
    find(page, qtbot)
    assert page.hint.text().startswith("⚠ 4 fiducials: ")
    assert "No fiducial is seen in frames 25–29" in page.hint.text()


def test_what_has_no_drift_is_said(viewer, qtbot):
    image = viewer.add_image(np.zeros((64, 64)))
    fits = localize(np.random.default_rng(1).poisson(50, (64, 64)).astype(float), sigma=1.3)
    viewer.add_layer(to_points_layer(fits, image))
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.drift)
    press(spots.drift.find_button, qtbot)
    assert "another number of axes" in spots.drift.hint.text()


def test_what_goes_wrong_is_said_with_the_names_of_the_boxes(page, layer, qtbot):
    page.share.put(100)
    page.distance.put(0.01)
    find(page, qtbot)
    text = page.hint.text()
    assert text.startswith("⚠ No track is seen in 100% of the 30 frames")
    assert text.endswith("larger “Farthest step” or “Missing”, or take a smaller “Seen in”")
    page._spots.set_filters(Filters({"sigma": (50.0, None)}))
    settle()
    find(page, qtbot)
    assert page.hint.text().startswith("⚠ No spots are shown")
