"""Which image is fitted, what its axes are, and what becomes of a fit whose image changes."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import no_worker
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest

from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.images import image_of


def test_the_selected_image_is_fitted_unless_another_is_pinned(
    viewer, widget, fit, press, make_movie
):
    choice, panel = widget.settings.image, viewer.layers.selection
    first, second = (viewer.add_image(make_movie(n), name=f"of {n}") for n in (1, 2))
    assert choice.layer is second
    panel.active = first
    assert choice.layer is first
    viewer.add_labels(np.zeros((9, 9), int))
    assert choice.layer is first
    press(choice.pin)
    panel.active = second
    assert choice.layer is first
    assert fit(widget).startswith("4 spots")
    press(choice.pin)  # to what is selected then
    panel.active = second
    assert choice.layer is second
    hidden = viewer.add_image(make_movie(3), name="hidden", visible=False)
    assert choice.layer is second
    choice.layer = hidden  # who asks for it gets it
    assert fit(widget).startswith("12 spots")
    press(choice.pin)
    viewer.layers.remove(hidden)
    assert choice.layer is second  # what was chosen before
    viewer.layers.clear()
    assert choice.layer is None
    assert not choice.pin.isChecked()


def test_a_map_of_the_camera_is_not_fitted(viewer, widget, fit, press, make_movie):
    movie = viewer.add_image(make_movie(2), name="movie")
    panel = widget.settings
    gain = viewer.add_image(np.full(movie.data.shape[-2:], 2.0), name="gain")
    assert panel.image.layer is gain  # nothing says yet what it is
    panel.camera.maps["gain"].layer = gain
    assert panel.image.layer is movie
    viewer.layers.selection.active = movie
    viewer.layers.selection.active = gain
    assert panel.image.layer is movie
    assert fit(widget).startswith("8 spots")
    panel.image.layer = gain
    press(widget.fit_button)
    said = "“gain” is chosen for the camera gain, so it is not fitted itself"
    assert said in widget.status.text()
    # A widget that is opened later begins with what is seen and is no map.
    gain.visible = False
    later = FitSpots(viewer)
    viewer.window.add_dock_widget(later)
    assert later.settings.image.layer is movie


@pytest.mark.parametrize("kind", ["bool", "multiscale", "RGB"])
def test_other_kinds_of_images(viewer, widget, press, qtbot, make_movie, spots, kind):
    place = {"scale": (2, 0.1, 0.2), "translate": (1, 5, -3), "rotate": 30}
    place |= {"units": ("s", "um", "um"), "axis_labels": ("t", "y", "x")}
    movie = make_movie(2)
    if kind == "RGB":
        viewer.add_image(np.zeros((20, 20, 3), np.uint8), rgb=True, name="photo")
    elif kind == "bool":
        viewer.add_image(movie > 200, **place)
    else:
        fine = [movie, movie[:, ::2, ::2]]
        viewer.add_image(fine, multiscale=True, contrast_limits=(90, 600), **place)
    image = viewer.layers[0]
    with qtbot.waitSignal(widget.finished, raising=False, timeout=1 if kind == "RGB" else 60_000):
        press(widget.fit_button)
    if kind == "RGB":
        assert "“photo” is a colour (RGB) image" in widget.status.text()
        return
    layer = widget.result.layer
    gaps = np.hypot(*(layer.data[:, None, 1:] - spots).transpose(2, 0, 1)).min(axis=0)
    assert (gaps < 0.6).all()
    assert (layer.units, layer.axis_labels) == (image.units, image.axis_labels)
    for point in layer.data:
        np.testing.assert_allclose(layer.data_to_world(point), image.data_to_world(point))


def test_time_or_z_is_asked_once(viewer, widget, fit, make_movie, tmp_path):
    frames = widget.settings.frames
    stack = viewer.add_image(make_movie(2), name="stack")
    assert frames.kinds[0].currentText() == "time, z, …?"
    assert frames.planes.isHidden()
    assert "⚠" not in fit(widget)  # nobody has to answer
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Down):
        frames.kinds[0].setFocus()
        QTest.keyClick(frames.kinds[0], key)
    assert frames.kinds[0].currentText() == "z"
    assert "a spot that is seen in 5 planes gives 5 fits" in frames.planes.text()
    assert not frames.planes.isHidden()
    assert "⚠ Each plane along axis z is fitted by itself" in fit(widget)
    path = str(tmp_path / "a.spots.csv")
    viewer.layers["stack spots"].save(path)
    # Another image, and this one again.
    viewer.add_image(make_movie(2), name="named", axis_labels=("t", "y", "x"))
    assert frames.kinds == {}
    viewer.layers.selection.active = stack
    assert frames.kinds[0].currentText() == "z"
    assert frames.kinds[0].count() == 3
    # Opened again, without what the layer knew, but with the result.
    data = stack.data
    viewer.layers.clear()
    viewer.open(path, plugin="napari-spotfit")
    viewer.add_image(data, name="stack")
    assert frames.kinds[0].currentText() == "z"
    viewer.add_image(make_movie(1, 2), name="one by two")
    assert list(frames.kinds) == [1]  # there is but one along the first axis
    viewer.add_image(make_movie(2), axis_labels=("z", "y", "x"))
    assert frames.kinds == {}
    assert not frames.planes.isHidden()


@pytest.mark.parametrize("change", ["renamed", "other pixels", "removed"])
def test_an_image_that_changes_while_it_is_fitted(viewer, widget, qtbot, start, gate, change):
    image = viewer.add_image(gate.movie, name="movie", contrast_limits=(90, 600))
    start(widget)
    if change == "renamed":
        image.name = "other"
        with qtbot.waitSignal(widget.finished):
            gate.open()
        assert " spots in " in widget.status.text()
        assert [layer.name for layer in viewer.layers] == ["other", "other spots"]
    else:
        with qtbot.waitSignal(widget.finished):
            if change == "removed":
                viewer.layers.remove(image)
            else:
                image.data = np.zeros((6, 50, 60), np.uint16)
        what = "was removed" if change == "removed" else "got other pixels"
        assert f"“movie” {what} before its fit had ended" in widget.status.text()
        assert len(viewer.layers) == (change != "removed")
    gate.open()
    qtbot.waitUntil(no_worker)


def test_spots_from_a_file_find_their_image_under_another_name(
    viewer, widget, fit, press, make_movie, tmp_path
):
    file, path = tmp_path / "movie.npy", str(tmp_path / "a.spots.parquet")
    np.save(file, make_movie(2))
    (image,) = viewer.open(str(file), plugin="napari")
    fit(widget)
    viewer.layers["movie spots"].save(path)
    viewer.layers.clear()
    (opened,) = viewer.open(path, plugin="napari-spotfit")
    (again,) = viewer.open(str(file), plugin="napari")
    again.name = "renamed"
    assert image_of(opened, viewer.layers) is again  # it came from the same file
    widget.result.look()
    tie = widget.result.image
    assert tie.isHidden()
    viewer.layers.remove(again)
    widget.result.look()  # as it does by itself
    assert tie.label.text() == "Their image “movie” is not open."
    assert tie.button.isHidden()  # there is none to choose
    viewer.add_image(make_movie(3), name="too long")
    image = viewer.add_image(image.data, name="another name")
    widget.result.look()
    assert image_of(opened, viewer.layers) is None
    menu = tie.button.menu()
    menu.aboutToShow.emit()
    (action,) = menu.actions()
    assert action.text() == "another name"
    action.trigger()
    assert image_of(opened, viewer.layers) is image
    assert tie.isHidden()
    assert "are of the image “another name” now" in widget.status.text()


def test_an_axis_of_channels_is_named_though_it_is_the_only_one(viewer, widget, make_movie):
    for label, text in (("c", "channel"), ("t", None)):
        viewer.add_image(make_movie(2), name=label, axis_labels=(label, "y", "x"))
        (own,) = widget.settings.frames._labels
        shown = own.text() if own.parentWidget() is not None else None
        assert shown == text
