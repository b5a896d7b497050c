"""The preview in a real viewer: what it follows, and what it leaves behind."""

from __future__ import annotations

import weakref

import numpy as np
from event_loop import freed, no_worker
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication

from napari_spotfit.widgets.fit_spots import FitSpots

NAME = "movie (preview)"


def test_it_follows_every_change(viewer, widget, image, tick, shows, qtbot):
    viewer.layers.selection.active = image
    tick(widget)
    assert viewer.layers.selection.active is image
    assert [layer.name for layer in viewer.layers] == ["movie", NAME]
    shows(widget, image, viewer.dims.current_step[0])
    controls = widget.settings.controls
    for name, value in (
        ("false_spots", 10_000),
        ("false_spots", 1e-9),
        ("false_spots", 50_000),
        ("sigma", 1.9),
        ("roi_size", 13),
        ("background_max", 40),
        ("min_distance", 6.0),
        ("threshold", 60.0),
        ("threshold", None),
    ):
        controls[name].value = value
        shows(widget, image, viewer.dims.current_step[0])
    for frame in (0, 3):
        viewer.dims.set_current_step(0, frame)
        shows(widget, image, frame)
    image.data = image.data[::-1].copy()
    shows(widget, image, 3)
    image.data[:] = image.data[::-1].copy()
    image.data = image.data
    shows(widget, image, 3)
    image.scale = (1, 0.5, 0.5)
    layer = widget.preview.layer
    qtbot.waitUntil(lambda: np.array_equal(layer.scale, image.scale))
    assert widget.result.layer is layer


def test_many_changes_are_few_runs_and_the_last_counts(widget, image, tick, shows, qtbot, viewer):
    tick(widget)
    runs = []
    widget.preview.latest.done.connect(runs.append)
    for _ in range(3):
        for false_spots in np.geomspace(1e4, 1e-3, 60):
            widget.settings.controls["false_spots"].value = float(false_spots)
    shows(widget, image, viewer.dims.current_step[0], false_spots=1e-3)
    assert len(runs) <= 2
    runs.clear()
    for step in range(60):
        widget.settings.controls["sigma"].value = 1 + step / 100
        QApplication.processEvents()
    qtbot.waitUntil(lambda: bool(runs) and runs[-1].job.settings.sigma == 1.59)
    shows(widget, image, viewer.dims.current_step[0], sigma=1.59)
    assert [run.job.settings.sigma for run in runs] == sorted(
        run.job.settings.sigma for run in runs
    )


def test_a_slow_frame_does_not_hold_up_the_viewer(viewer, widget, gate, tick, qtbot):
    image = viewer.add_image(gate.movie, name="slow", contrast_limits=(90, 600))
    viewer.dims.set_current_step(0, 0)
    tick(widget)
    layer = widget.preview.layer
    assert set(layer.data[:, 0]) == {0}
    # The viewer itself would wait for the closed frames.
    image.visible = False
    viewer.dims.set_current_step(0, 4)
    qtbot.waitUntil(lambda: widget.preview.latest.busy)
    for sigma in (1.2, 1.4, 1.6):
        widget.settings.controls["sigma"].value = sigma
        QApplication.processEvents()
    assert set(layer.data[:, 0]) == {0}
    runs = []
    widget.preview.latest.done.connect(runs.append)
    gate.open()
    qtbot.waitUntil(lambda: set(layer.data[:, 0]) == {4} and not widget.preview.latest.busy)
    assert len(runs) <= 2
    assert runs[-1].job.settings.sigma == 1.6


def test_unticked_it_leaves_nothing(viewer, widget, image, tick, press, qtbot):
    tick(widget)
    widget.settings.controls["false_spots"].value = 3
    box = widget.preview.box
    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=box.rect().center())
    assert not box.isChecked()
    qtbot.waitUntil(lambda: not widget.preview.latest.busy)
    widget.settings.controls["false_spots"].value = 4
    QApplication.processEvents()
    assert list(viewer.layers) == [image]
    assert not widget.preview.latest.busy
    assert widget.settings.detection_panel.isHidden()
    assert widget.result.isHidden()


def test_deleting_its_layer_unticks_it(viewer, widget, image, tick):
    tick(widget)
    viewer.layers.selection.active = widget.preview.layer
    viewer.layers.remove_selected()
    assert not widget.preview.box.isChecked()
    assert list(viewer.layers) == [image]
    tick(widget)
    viewer.layers.clear()
    assert not widget.preview.box.isChecked()
    assert len(viewer.layers) == 0


def test_it_goes_with_its_image_to_another_one(viewer, widget, image, tick, shows, qtbot):
    other = viewer.add_image(image.data[:, ::-1].copy(), name="other")
    viewer.layers.selection.active = image
    tick(widget)
    assert widget.preview.layer.name == NAME
    widget.settings.image.layer = other
    qtbot.waitUntil(lambda: viewer.layers[-1].name == "other (preview)")
    assert len(viewer.layers) == 3
    assert widget.preview.layer.name == "other (preview)"
    viewer.layers.remove(other)
    shows(widget, image, viewer.dims.current_step[0])
    assert [layer.name for layer in viewer.layers] == ["movie", NAME]
    viewer.layers.remove(image)
    qtbot.waitUntil(lambda: len(viewer.layers) == 0)
    assert widget.settings.image.layer is None


def test_it_stays_above_its_image(viewer, widget, image, tick, qtbot):
    tick(widget)
    viewer.layers.move(0, 2)
    qtbot.waitUntil(lambda: [layer.name for layer in viewer.layers] == ["movie", NAME])


def test_errors_are_shown_once_and_empty_the_layer(viewer, widget, image, tick, shows, qtbot):
    tick(widget)
    controls = widget.settings.controls
    errors = []
    widget.preview.failed.connect(errors.append)
    controls["amplitude_min"].value = 3
    controls["amplitude_max"].value = 2
    qtbot.waitUntil(lambda: len(widget.preview.layer.data) == 0)
    controls["false_spots"].value = 7
    QApplication.processEvents()
    assert "“Amplitude at most” = 2 counts must be above “Amplitude" in widget.status.text()
    assert len(errors) == 1
    assert widget.settings.detection_panel.count.text() == "–"
    controls["amplitude_max"].value = None
    controls["amplitude_min"].value = None
    shows(widget, image, viewer.dims.current_step[0])
    assert widget.status.text() == ""


def test_rgb_gets_a_message(viewer, widget, press, qtbot):
    viewer.add_image(np.zeros((20, 20, 3), np.uint8), name="photo", rgb=True)
    widget.preview.box.click()
    qtbot.waitUntil(lambda: "RGB" in widget.status.text())
    assert len(viewer.layers) == 1


def test_no_spots_and_spots_again(viewer, widget, image, tick, shows):
    tick(widget)
    for threshold in (1e5, 30.0, 1e5, None):
        widget.settings.controls["threshold"].value = threshold
        shows(widget, image, viewer.dims.current_step[0])
        assert len(widget.preview.layer.border_color) == len(widget.preview.layer.data)
    assert widget.preview.layer.face_color_mode == "colormap"


def test_labels_limit_it_as_they_are_painted(viewer, widget, image, tick, qtbot, spots):
    labels = viewer.add_labels(np.zeros((48, 50), int), name="cells")
    widget.settings.limit.layer = labels
    tick(widget)
    assert len(widget.preview.layer.data) == 0
    labels.brush_size = 12
    labels.paint(tuple(spots[0]), 1)
    qtbot.waitUntil(lambda: len(widget.preview.layer.data) == 1)
    np.testing.assert_allclose(widget.preview.layer.data[0, 1:], spots[0], atol=0.3)
    labels.undo()
    qtbot.waitUntil(lambda: len(widget.preview.layer.data) == 0)


def test_the_batch_fit_takes_its_place(viewer, widget, image, tick, fit):
    tick(widget)
    assert fit(widget).startswith("16 spots")
    assert not widget.preview.box.isChecked()
    assert [layer.name for layer in viewer.layers] == ["movie", "movie spots"]
    assert widget.result.layer is viewer.layers["movie spots"]
    tick(widget)
    fit(widget)
    assert [layer.name for layer in viewer.layers] == ["movie", "movie spots"]


def test_limits_that_were_typed_outlast_a_change(viewer, widget, image, tick, shows):
    tick(widget)
    widget.result.bar.high.setValue(3)
    low, high = widget.preview.layer.face_contrast_limits
    assert high == 3
    widget.settings.controls["false_spots"].value = 10_000
    shows(widget, image, viewer.dims.current_step[0])
    assert widget.preview.layer.face_contrast_limits == (low, 3)
    assert not widget.result.bar.auto.isChecked()


def test_three_dimensions_and_back(viewer, widget, image, tick, shows):
    tick(widget)
    for ndisplay in (3, 2):
        viewer.dims.ndisplay = ndisplay
        widget.settings.controls["false_spots"].value = 10.0**ndisplay
        shows(widget, image, viewer.dims.current_step[0])


def test_closing_while_it_works_leaves_nothing(viewer, image, qtbot, tick):
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    tick(widget)
    widget.settings.controls["sigma"].value = 1.7
    QApplication.processEvents()
    viewer.window.remove_dock_widget(widget)
    assert list(viewer.layers) == [image]
    gone = weakref.ref(widget)
    del widget
    viewer.dims.set_current_step(0, 1)
    image.data = image.data.copy()
    qtbot.waitUntil(no_worker)
    qtbot.waitUntil(lambda: freed(gone))
    viewer.theme = "light"


def test_two_viewers_do_not_meddle(make_napari_viewer, widget, image, tick, make_movie):
    other = make_napari_viewer()
    other.add_image(make_movie(2), name="other")
    second = FitSpots(other)
    other.window.add_dock_widget(second, name="Fit spots")
    tick(widget)
    second.settings.controls["false_spots"].value = 3
    assert len(other.layers) == 1
    assert not second.preview.box.isChecked()
