"""The widget in a real viewer, used with the mouse."""

from __future__ import annotations

import re
import weakref

import numpy as np
import pytest
from event_loop import freed, no_worker
from qtpy.QtCore import Qt

from napari_spotfit import StopCondition
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.appearance import STOP_COLORS
from napari_spotfit.widgets.parts.form import control_of


def choose(box, data):
    """Choose an item of a combo box as the keyboard would."""
    box.setCurrentIndex(next(i for i in range(box.count()) if box.itemData(i) is data))


def near(points, spots, distance=0.3):
    """Whether every point lies at a spot and every spot has a point."""
    gaps = np.hypot(*(points[:, None, -2:] - spots[None]).transpose(2, 0, 1))
    return bool(np.all(gaps.min(axis=0) < distance) and np.all(gaps.min(axis=1) < distance))


def test_choose_fit_and_look(viewer, widget, fit, make_movie, spots):
    viewer.add_image(make_movie(5), name="other")
    image = viewer.add_image(make_movie(3), name="movie")
    widget.settings.image.layer = image
    text = fit(widget)
    assert text.startswith("12 spots in ")
    assert text.endswith(", none doubtful")
    layer = viewer.layers["movie spots"]
    assert near(layer.data, spots)
    assert set(layer.data[:, 0]) == {0, 1, 2}
    features = layer.features
    assert {"y", "x", "sigma", "photons", "frame", "sigma_stderr", "score"} <= set(features)
    np.testing.assert_array_equal(features["frame"], layer.data[:, 0])
    assert all(features[name].dtype.kind == "f" for name in features if name != "stop_condition")
    assert set(features["stop_condition"]) <= set(STOP_COLORS)
    assert features["sigma"].between(1.3, 1.5).all()
    assert layer.metadata["units"]["sigma"] == "px"
    assert layer.metadata["settings"]["roi_size"] == 9
    assert layer.metadata["summary"] == text


def test_colors_follow_sigma_and_stop_condition(viewer, widget, fit, make_movie):
    from napari.utils.colormaps import ensure_colormap
    from napari.utils.colormaps.standardize_color import transform_color

    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    sigma = layer.features["sigma"].to_numpy()
    low, high = layer.face_contrast_limits
    assert sigma.min() <= low < high <= sigma.max()
    expected = ensure_colormap("viridis").map(np.clip((sigma - low) / (high - low), 0, 1))
    np.testing.assert_allclose(layer.face_color, expected, atol=0.01)
    borders = [STOP_COLORS[name] for name in layer.features["stop_condition"]]
    np.testing.assert_allclose(layer.border_color, transform_color(borders), atol=1e-6)


def test_legend_and_face_choice(viewer, widget, fit, make_movie):
    viewer.add_image(make_movie(2), name="movie")
    assert widget.result.isHidden()
    fit(widget)
    layer = viewer.layers["movie spots"]
    assert not widget.result.isHidden()
    counts = layer.features["stop_condition"].value_counts()
    for condition in StopCondition:
        label = widget.result.legend.counts[condition.name]
        assert int(label.text()) == counts.get(condition.name, 0)
        assert label.isHidden() == (int(label.text()) == 0)
        assert condition.words in widget.result.legend.boxes[condition.name].text()
    face = widget.result.face
    face.setCurrentIndex(face.findData("photons"))
    face.activated.emit(face.currentIndex())
    low, high = layer.face_contrast_limits
    assert low < layer.features["photons"].median() < high
    assert widget.result.bar.high.text() == f"{high:.0f}"
    assert face.currentText() == "photons [counts]"  # as the gain is not known


def test_a_message_without_an_image(widget, press):
    press(widget.fit_button)
    assert "no image" in widget.status.text()


def test_no_spots(viewer, widget, fit):
    viewer.add_image(np.random.default_rng(0).normal(100, 2, (40, 40)), name="noise")
    widget.settings.controls["false_spots"].value = 1e-6
    assert "No spots" in fit(widget)
    assert [layer.name for layer in viewer.layers] == ["noise"]


def test_cancel_leaves_the_layers_as_they_were(viewer, widget, qtbot, start, press, gate):
    viewer.add_image(gate.movie, name="movie", contrast_limits=(90, 600))
    before = list(viewer.layers)
    start(widget)
    assert widget.running.progress.maximum() == len(gate.movie)
    with qtbot.waitSignal(widget.finished):
        press(widget.running.cancel_button)
    assert "Cancelled" in widget.status.text()
    assert widget.buttons.currentWidget().isAncestorOf(widget.fit_button)
    gate.open()
    qtbot.waitUntil(no_worker)
    assert list(viewer.layers) == before


def test_stop_shows_what_was_found(viewer, widget, qtbot, start, press, fit, gate, make_movie):
    viewer.add_image(gate.movie, name="movie", contrast_limits=(90, 600))
    start(widget)
    with qtbot.waitSignal(widget.finished):
        press(widget.running.stop_button)
        assert not widget.running.stop_button.isEnabled()
        gate.open()  # the frames under way are done first
    text = widget.status.text()
    assert re.search(r"Stopped after [1-5] of 6 frames", text)
    layer = viewer.layers["movie spots"]
    assert 0 < len(set(layer.data[:, 0])) < 6
    assert layer.metadata["summary"] == text
    assert widget.result.layer is layer
    # The next one is whole again.
    assert widget.buttons.currentWidget().isAncestorOf(widget.fit_button)
    widget.settings.image.layer = viewer.add_image(make_movie(2), name="other")
    assert "Stopped" not in fit(widget)


def test_a_fit_after_a_cancelled_one(viewer, widget, start, press, fit, gate, make_movie):
    viewer.add_image(gate.movie, name="slow", contrast_limits=(90, 600))
    start(widget)
    press(widget.running.cancel_button)
    widget.settings.image.layer = viewer.add_image(make_movie(2), name="movie")
    assert fit(widget).startswith("8 spots")
    gate.open()
    assert "slow spots" not in viewer.layers


def test_closing_the_widget_stops_the_fit(viewer, widget, qtbot, start, gate):
    viewer.add_image(gate.movie, name="movie", contrast_limits=(90, 600))
    start(widget)
    with qtbot.waitSignal(widget.finished):
        viewer.window.remove_dock_widget(widget)
    gate.open()
    qtbot.waitUntil(no_worker)
    assert len(viewer.layers) == 1
    viewer.add_labels(np.zeros((5, 5), int))
    viewer.layers[0].name = "renamed"
    assert widget.settings.limit.count() == 1
    assert widget.settings.image.rows.item(0).text() == "movie"


def test_a_widget_that_is_docked_again_works(viewer, widget, fit, make_movie):
    viewer.window.remove_dock_widget(widget)
    viewer.add_image(make_movie(2), name="movie")
    viewer.window.add_dock_widget(widget, name="Fit spots")
    assert fit(widget).startswith("8 spots")


def test_a_closed_widget_is_freed(viewer, qtbot):
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    viewer.window.remove_dock_widget(widget)
    gone = weakref.ref(widget)
    del widget
    qtbot.waitUntil(lambda: freed(gone))


def test_points_lie_on_a_transformed_image(viewer, widget, fit, make_movie, spots):
    image = viewer.add_image(
        make_movie(2),
        name="movie",
        scale=(2, 0.1, 0.2),
        translate=(1, 5, -3),
        rotate=30,
        units=("s", "um", "um"),
        axis_labels=("t", "y", "x"),
    )
    fit(widget)
    layer = viewer.layers["movie spots"]
    assert near(layer.data, spots)
    assert layer.units == image.units
    assert layer.axis_labels == image.axis_labels
    for point in layer.data:
        np.testing.assert_allclose(layer.data_to_world(point), image.data_to_world(point))


@pytest.mark.parametrize("lengths", [(), (2,), (2, 3), (2, 1, 2)])
def test_any_number_of_leading_axes(viewer, widget, fit, make_movie, lengths, spots):
    viewer.add_image(make_movie(*lengths), name="image")
    assert len(widget.settings.frames.axes) == len(lengths)
    # Of few blocks, each with a bright spot, the noise is estimated too low.
    widget.settings.controls["false_spots"].value = 0.1
    fit(widget)
    layer = viewer.layers["image spots"]
    assert layer.ndim == 2 + len(lengths)
    assert near(layer.data, spots)
    assert len(layer.data) == 4 * np.prod(lengths, dtype=int)


def test_current_frame(viewer, widget, fit, make_movie):
    viewer.add_image(make_movie(3, 2), name="image", scale=(5, 2, 1, 1))
    for axis in widget.settings.frames.axes:
        axis.mode.setCurrentIndex(axis.mode.findData("current"))
    viewer.dims.set_current_step(0, 2)
    viewer.dims.set_current_step(1, 1)
    fit(widget)
    assert np.unique(viewer.layers["image spots"].data[:, :2], axis=0).tolist() == [[2, 1]]


def test_range_of_frames(viewer, widget, fit, make_movie):
    viewer.add_image(make_movie(5), name="movie")
    (axis,) = widget.settings.frames.axes
    assert axis.ends.isHidden()
    axis.mode.setCurrentIndex(axis.mode.findData("range"))
    assert not axis.ends.isHidden()
    assert (axis.first.value(), axis.last.value(), axis.last.maximum()) == (0, 4, 4)
    axis.first.setValue(1)
    axis.last.setValue(2)
    fit(widget)
    assert set(viewer.layers["movie spots"].data[:, 0]) == {1, 2}


@pytest.mark.parametrize("kind", ["dask", "zarr", "multiscale"])
def test_other_arrays(viewer, widget, fit, make_movie, spots, kind):
    movie = make_movie(4)
    if kind == "dask":
        data = pytest.importorskip("dask.array").from_array(movie, chunks=(1, 48, 50))
    elif kind == "zarr":
        data = pytest.importorskip("zarr").array(movie, chunks=(2, 48, 50))
    else:
        data = [movie, movie[:, ::2, ::2]]
    viewer.add_image(data, name="movie", contrast_limits=(90, 600), multiscale=kind == "multiscale")
    fit(widget)
    layer = viewer.layers["movie spots"]
    assert near(layer.data, spots)
    assert len(layer.data) == 16


def test_an_image_smaller_than_the_roi_gets_a_message(viewer, widget, fit):
    viewer.add_image(np.ones((6, 20)), name="strip")
    widget.settings.controls["roi_size"].value = 9
    assert "ROI" in fit(widget)
    assert len(viewer.layers) == 1


def test_settings_that_do_not_go_together_get_a_message(viewer, widget, press, make_movie):
    viewer.add_image(make_movie(), name="image")
    widget.settings.controls["amplitude_min"].value = 3
    widget.settings.controls["amplitude_max"].value = 2
    press(widget.fit_button)
    assert "“Amplitude at most” = 2 counts must be above “Amplitude" in widget.status.text()


def test_labels_limit_the_search(viewer, widget, fit, make_movie, spots):
    viewer.add_image(make_movie(2), name="movie")
    labels = np.zeros((48, 50), int)
    labels[:, 25:] = 3
    choose(widget.settings.limit, viewer.add_labels(labels, name="cells"))
    fit(widget)
    layer = viewer.layers["movie spots"]
    assert near(layer.data, spots[spots[:, 1] > 25])
    assert len(layer.data) == 4


def test_shapes_limit_the_search(viewer, widget, fit, make_movie, spots):
    viewer.add_image(make_movie(2), name="movie", scale=(1, 0.5, 0.5))
    box = np.array([(0, 0), (0, 25), (25, 25), (25, 0)]) * 0.5
    choose(widget.settings.limit, viewer.add_shapes([box], shape_type="polygon", name="box"))
    fit(widget)
    assert near(viewer.layers["movie spots"].data, spots[:1])


def test_a_second_fit_updates_the_layer(viewer, widget, fit, make_movie):
    viewer.add_image(make_movie(3), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    layer.opacity = 0.5
    widget.settings.frames.axes[0].mode.setCurrentIndex(1)
    fit(widget)
    assert viewer.layers["movie spots"] is layer
    assert len(viewer.layers) == 2
    assert len(layer.data) == len(layer.features) == 4
    assert layer.opacity == 0.5
    assert layer.face_color_mode == "colormap"


@pytest.mark.parametrize("change", ["name", "points", "features"])
def test_a_layer_that_the_user_changed_is_kept(viewer, widget, fit, make_movie, change):
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    mine = viewer.layers["movie spots"]
    if change == "name":
        mine.name = "mine"
    elif change == "points":
        mine.selected_data = {0}
        mine.remove_selected()
    else:
        mine.features = mine.features.assign(good=True)
    data, columns = mine.data.copy(), list(mine.features)
    fit(widget)
    assert len(viewer.layers) == 3
    np.testing.assert_array_equal(mine.data, data)
    assert list(mine.features) == columns
    assert len(viewer.layers[-1].data) == 8


def test_values_are_remembered(viewer, widget, qtbot):
    controls = widget.settings.controls
    controls["sigma"].value = 1.7
    controls["roi_size"].value = 11
    controls["gain"].value = 2.5
    controls["false_spots"].value = 30
    controls["emccd"].value = True
    controls["errors"].value = False
    widget.settings.advanced.expand()
    again = FitSpots(viewer)
    qtbot.addWidget(again)
    assert again.settings.settings() == widget.settings.settings()
    assert again.settings.settings().gain == 2.5
    assert again.settings.settings().false_spots == 30
    assert again.settings.settings().emccd
    assert again.settings.advanced.isExpanded()


def test_what_is_not_at_its_default_is_named_and_reset(viewer, widget, press, qtbot):
    panel = widget.settings
    before = panel.settings()
    assert panel.changes.isHidden()
    assert panel.reset_button.isHidden()
    panel.controls["sigma"].value = 3
    panel.controls["background_min"].value = 0
    panel.controls["model"].value = "gaussian_elliptical"
    panel.controls["emccd"].value = True
    panel.model.shape.boxes["sigma_x", "low"].setValue(1)
    gain = viewer.add_image(np.ones((9, 9)), name="map")
    panel.camera.maps["gain"].layer = gain
    text = (
        "PSF σ 3 px · Model elliptical Gaussian · Background at least 0 counts/px · EMCCD on · "
        "bounds of sigma_x · the camera gain in “map”"
    )
    assert set(panel.changes.text().split(" · ")) == set(text.split(" · "))
    assert not panel.advanced.isExpanded()
    # Those of another day, too.
    again = FitSpots(viewer)
    qtbot.addWidget(again)
    assert "PSF σ 3 px" in again.settings.changes.text()
    press(panel.reset_button)
    assert panel.settings() == before
    assert panel.changes.isHidden()
    assert panel.reset_button.isHidden()


def test_every_control_explains_itself(widget):
    for control in widget.settings.controls.controls.values():
        assert len(control.tooltip) > 30
        assert control_of(control).accessibleName()
    advanced = widget.settings.advanced.toggleButton()
    for other in (widget.settings.image, widget.settings.limit, widget.fit_button, advanced):
        assert other.toolTip()


def test_names_that_look_like_html_are_shown_as_they_are(viewer, widget, fit, make_movie):
    viewer.add_image(make_movie(), name="two <i>x</i>")
    fit(widget)
    title = widget.result.title
    assert title.text() == "two <i>x</i> spots"
    assert title.textFormat() == Qt.TextFormat.PlainText
    assert "two &lt;i&gt;x&lt;/i&gt; spots" in title.toolTip()


def test_an_image_smaller_than_the_roi_is_refused(viewer, widget, fit):
    viewer.add_image(np.random.default_rng(0).poisson(100, (8, 30)), name="narrow")
    widget.settings.controls["sigma"].value = 1.3
    widget.settings.controls["roi_size"].value = 15
    assert fit(widget).endswith("choose a smaller ROI size")


def test_without_a_pixel_to_search_the_last_result_stays(viewer, widget, fit, make_movie):
    movie = make_movie(2).astype(np.float32)
    labels = viewer.add_labels(np.zeros(movie.shape[-2:], int), name="nothing")
    image = viewer.add_image(movie, name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    count = len(layer.data)
    viewer.layers.selection.active = image
    widget.settings.limit.setCurrentIndex(widget.settings.limit.findText("nothing"))
    assert "“nothing” marks no pixel of the image" in fit(widget)
    assert len(layer.data) == count
    viewer.layers.remove(labels)
    image.data = np.full(image.data.shape, np.nan, np.float32)
    assert "no finite pixel" in fit(widget)
    assert len(layer.data) == count


def test_errors_are_readable_in_every_theme(shown_viewer, press):
    viewer = shown_viewer
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget)
    colors = set()
    for theme in ("dark", "light"):
        viewer.theme = theme
        press(widget.fit_button)
        colors.add(widget.status.styleSheet())
    assert len(colors) == 2
    assert all("color" in color for color in colors)


def test_napari_finds_the_viewer_argument():
    from napari._qt._qplugins._qnpe2 import _get_widget_viewer_param

    assert _get_widget_viewer_param(FitSpots, "Fit spots") == "viewer"
