"""Several images fitted in one run: ticks, colours, failures, and one step back."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import no_worker
from napari.utils.colormaps.standardize_color import transform_color
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QStyle, QStyleOptionViewItem

from napari_spotfit import fit_layers, localize, simulate_movie
from napari_spotfit.widgets.layers.appearance import CHANNEL_COLORS


@pytest.fixture
def channels(viewer):
    """Open three images whose spots have other widths."""
    for number, sigma in enumerate((1.1, 1.4, 1.8)):
        movie, _ = simulate_movie(
            1, shape=(128, 128), spots_per_frame=60, sigma=sigma, photons=3000, seed=number
        )
        viewer.add_image(movie[0], name=f"channel {number}")
    return list(viewer.layers)


def tick_at(rows, row):
    """Return where the box of a row is."""
    rect = rows.visualItemRect(rows.item(row))
    option = QStyleOptionViewItem()
    option.initFrom(rows)
    option.rect = rect
    option.features = QStyleOptionViewItem.ViewItemFeature.HasCheckIndicator
    box = rows.style().subElementRect(QStyle.SubElement.SE_ItemViewItemCheckIndicator, option, rows)
    return box.center()


def name_at(rows, row):
    rect = rows.visualItemRect(rows.item(row))
    return QPoint(rect.left() + 60, rect.center().y())


def names(layers):
    return [layer.name for layer in layers]


def test_the_selected_images_are_ticked_and_others_named(viewer, widget, channels, make_movie):
    choice, selection = widget.settings.image, viewer.layers.selection
    mask = viewer.add_labels(np.ones((128, 128), int), name="cells")
    assert names(choice.ticked) == ["channel 2"]  # a mask changes nothing
    selection.clear()
    selection.update({channels[0], channels[2], mask})
    assert names(choice.ticked) == ["channel 0", "channel 2"]
    assert choice.layer is channels[2]
    assert choice.skipped.text() == "Not fitted: “cells” (Labels, no raw image)."
    assert not choice.skipped.isHidden()
    widget.settings.limit.layer = mask  # then it is known what it is for
    gain = viewer.add_image(np.full((128, 128), 2.0), name="gain")
    widget.settings.camera.maps["gain"].layer = gain
    selection.clear()
    selection.update({*channels, gain, mask})
    assert names(choice.ticked) == names(channels)
    assert choice.skipped.text() == "Not fitted: “gain” (it is chosen as a map)."
    selection.active = channels[1]
    assert choice.skipped.isHidden()
    assert names(choice.ticked) == ["channel 1"]
    channels[0].visible = False  # several that are selected are all meant
    selection.update({channels[0]})
    assert names(choice.ticked) == ["channel 0", "channel 1"]


def test_ticks_of_the_users_own_are_pinned(viewer, widget, channels, qtbot, press):
    choice = widget.settings.image
    left = Qt.MouseButton.LeftButton

    def click(place):
        qtbot.mouseClick(choice.rows.viewport(), left, pos=place)

    assert [choice.rows.item(row).text() for row in range(3)] == names(reversed(channels))
    click(tick_at(choice.rows, 2))
    assert choice.pin.isChecked()
    assert names(choice.ticked) == ["channel 0", "channel 2"]
    assert choice.layer is channels[2]  # it is still looked at
    click(name_at(choice.rows, 2))
    assert choice.layer is channels[0]
    assert names(choice.ticked) == ["channel 0", "channel 2"]
    click(tick_at(choice.rows, 2))
    assert names(choice.ticked) == ["channel 2"]
    assert choice.layer is channels[2]
    viewer.layers.selection.active = channels[1]
    assert names(choice.ticked) == ["channel 2"]
    click(name_at(choice.rows, 1))  # a name without a tick is ticked alone
    assert names(choice.ticked) == ["channel 1"]
    choice.rows.setFocus()
    qtbot.keyClick(choice.rows, Qt.Key.Key_Space)
    assert choice.ticked == []
    assert choice.layer is None
    press(widget.fit_button)
    assert "no image to fit; tick one" in widget.status.text()
    press(choice.pin)
    assert names(choice.ticked) == ["channel 1"]
    qtbot.keyClick(choice.rows, Qt.Key.Key_Up)
    qtbot.keyClick(choice.rows, Qt.Key.Key_Return)
    assert choice.layer is channels[2]


def test_one_run_one_colour_each_and_one_step_back(viewer, widget, channels, fit, press):
    viewer.layers.selection.update(channels)
    lines = fit(widget).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"“{one.name}”" for one in channels]
    layers = [viewer.layers[f"{one.name} spots"] for one in channels]
    for image, layer, color, sigma in zip(
        channels, layers, CHANNEL_COLORS, (1.1, 1.4, 1.8), strict=False
    ):
        expected = localize(image.data)
        np.testing.assert_array_equal(layer.features["sigma"], expected.sigma[expected.valid])
        assert layer.metadata["settings"]["sigma"] == pytest.approx(sigma, rel=0.1)
        assert (layer.face_color == transform_color(color)).all()
        assert layer.border_color_mode == "cycle"
    # The form names the image whose result is shown.
    assert widget.result.layer is layers[2]
    assert widget.settings.image.layer is channels[2]
    viewer.layers.selection.active = layers[0]
    assert widget.settings.image.layer is channels[0]
    assert widget.result.layer is layers[0]
    assert names(widget.settings.image.ticked) == names(channels)
    assert widget.status.text() == layers[0].metadata["summary"]
    press(widget.picking.undo)
    assert list(viewer.layers) == channels
    assert widget.status.text() == "Taken back: the fit of 3 images."
    press(widget.picking.redo)
    assert [layer for layer in viewer.layers if layer not in channels] == layers
    # Again, with another width for all: in the same layers, and back.
    before = [layer.features["sigma"].tolist() for layer in layers]
    widget.settings.controls["sigma"].value = 3.0
    fit(widget)
    assert len(viewer.layers) == 6
    assert [layer.metadata["settings"]["sigma"] for layer in layers] == [3.0] * 3
    press(widget.picking.undo)
    assert [layer.features["sigma"].tolist() for layer in layers] == before
    for layer, color in zip(layers, CHANNEL_COLORS, strict=False):
        assert (layer.face_color == transform_color(color)).all()


def test_face_by_width_is_one_press_away(viewer, widget, channels, fit, press):
    fit(widget)
    assert viewer.layers["channel 2 spots"].face_color_mode == "colormap"  # of one image
    assert widget.result.channels.isHidden()
    viewer.layers.selection.clear()
    viewer.layers.selection.update(channels)
    fit(widget)
    layers = [viewer.layers[f"{one.name} spots"] for one in channels]
    assert {layer.face_color_mode for layer in layers} == {"direct"}
    assert widget.result.face.currentText() == "one colour"
    assert widget.result.channels.text() == "Colour by width"
    press(widget.result.channels)
    assert {layer.face_color_mode for layer in layers} == {"colormap"}
    assert {layer.metadata["face"] for layer in layers} == {"sigma"}
    assert widget.result.face.currentText() == "sigma [px]"
    press(widget.picking.undo)
    widget.result.look()
    assert {layer.face_color_mode for layer in layers} == {"direct"}
    assert widget.result.channels.text() == "Colour by width"
    press(widget.picking.redo)
    widget.result.look()
    press(widget.result.channels)
    for layer, color in zip(layers, CHANNEL_COLORS, strict=False):
        assert (layer.face_color == transform_color(color)).all()
    # A colour stays that of its image, whichever others are fitted.
    viewer.layers.selection.clear()
    viewer.layers.selection.update(channels[1:])
    fit(widget)
    assert (layers[2].face_color == transform_color(CHANNEL_COLORS[2])).all()


def test_one_that_fails_says_so_and_the_others_go_on(viewer, widget, channels, fit, make_movie):
    photo = viewer.add_image(np.zeros((128, 128, 3), np.uint8), rgb=True, name="photo")
    small = viewer.add_image(make_movie(), name="small")
    bad = viewer.add_image(np.zeros((128, 128), np.uint8), name="bad")
    widget.settings.camera.bad_pixels.layer = bad
    viewer.layers.selection.clear()
    viewer.layers.selection.update({channels[0], photo, small, channels[1]})
    lines = fit(widget).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "⚠ “photo”", "“small”", "“channel 0”", "“channel 1”",
    ]  # fmt: skip
    assert "is a colour (RGB) image" in lines[0]
    assert "“bad” has 128×128 pixels" in lines[1]
    assert " good, " in lines[2]
    assert " good, " in lines[3]
    assert widget.status.failed
    assert "channel 0 spots" in viewer.layers
    assert "channel 1 spots" in viewer.layers
    assert "small spots" not in viewer.layers


@pytest.mark.parametrize("end", ["cancel", "stop"])
def test_all_are_cancelled_or_stopped_at_once(viewer, widget, channels, qtbot, press, gate, end):
    slow = viewer.add_image(gate.movie, name="slow", contrast_limits=(90, 600))
    last = viewer.add_image(channels[0].data, name="last")
    viewer.layers.selection.clear()
    viewer.layers.selection.update({channels[0], slow, last})
    widget.settings.controls["threads"].value = 1
    before = list(viewer.layers)
    press(widget.fit_button)
    qtbot.waitUntil(lambda: "2 of 3 images" in widget.status.text())
    qtbot.waitUntil(lambda: widget.running.progress.value() >= 2)
    assert widget.running.progress.maximum() == 8  # frames: 1, 6 and 1
    button = widget.running.cancel_button if end == "cancel" else widget.running.stop_button
    with qtbot.waitSignal(widget.finished):
        press(button)
        if end == "stop":
            gate.open()
    if end == "cancel":
        assert list(viewer.layers) == before
        assert widget.status.text() == "Cancelled; the layers are as they were."
    else:
        first, second, third = widget.status.text().splitlines()
        assert " good, " in first
        assert "Stopped after" in second
        assert third.startswith("“last”: the fits were stopped before this one had begun")
        assert "last spots" not in viewer.layers
    gate.open()
    qtbot.waitUntil(no_worker)


def test_frames_are_chosen_for_all_images_with_such_axes(viewer, widget, fit, make_movie):
    movies = [viewer.add_image(make_movie(count), name=f"of {count}") for count in (3, 2)]
    flat = viewer.add_image(make_movie(), name="flat")
    viewer.layers.selection.clear()
    viewer.layers.selection.update({*movies, flat})
    widget.settings.image.look_at(movies[0])
    (axis,) = widget.settings.frames.axes
    axis.mode.setCurrentIndex(axis.mode.findData("current"))
    viewer.dims.set_current_step(0, 1)
    lines = fit(widget).splitlines()
    assert [set(viewer.layers[f"{one.name} spots"].data[:, 0]) for one in movies] == [{1}, {1}]
    assert "“flat” has other axes than the image whose frames are chosen here" in lines[0]


def test_several_from_the_console(viewer, channels):
    fits = fit_layers(reversed(channels[:2]), viewer, false_spots=1)
    assert list(fits) == ["channel 0", "channel 1"]
    assert not fits["channel 1"].done
    found = {name: fit.wait(120) for name, fit in fits.items()}
    for image in channels[:2]:
        expected = localize(image.data, false_spots=1)
        np.testing.assert_array_equal(found[image.name].x, expected.x)
    layers = [fit.layer for fit in fits.values()]
    assert len({tuple(layer.face_color[0]) for layer in layers}) == 2
    photo = viewer.add_image(np.zeros((9, 9, 3), np.uint8), rgb=True, name="photo")
    fits = fit_layers([photo, channels[2]], viewer)
    assert len(fits["channel 2"].wait(120))
    with pytest.raises(ValueError, match="colour"):
        fits["photo"].wait()
    with pytest.raises(TypeError, match="must be an Image layer"):
        fit_layers([viewer.add_labels(np.zeros((9, 9), int))], viewer)
    with pytest.raises(ValueError, match="got none"):
        fit_layers([])
