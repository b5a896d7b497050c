"""The preview in a real viewer: what it shows, what it follows, what it leaves behind."""

from __future__ import annotations

import weakref

import numpy as np
import pyqtgraph
import pytest
from event_loop import freed, no_worker
from hand import Mouse, in_plot
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication

from napari_spotfit import localize, noise_model, simulate_movie
from napari_spotfit.localization.peaks import peak_heights
from napari_spotfit.settings.settings import Settings
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.maps import LayerMaps
from napari_spotfit.widgets.preview.job import Previewer, PreviewJob

NAME = "movie (preview)"


@pytest.fixture
def viewer(open_viewer):
    viewer = open_viewer(show=True)
    viewer.window.resize(1280, 800)
    return viewer


@pytest.fixture
def image(viewer, make_movie):
    return viewer.add_image(make_movie(4), name="movie")


@pytest.fixture
def tick(qtbot):
    """Tick Preview with the mouse and wait for the first drawing."""

    def run(widget):
        box = widget.preview.box
        with qtbot.waitSignal(widget.preview.drawn, timeout=120_000):
            qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=box.rect().center())

    return run


@pytest.fixture
def shows(qtbot):
    """Wait until the layer shows exactly what the batch finds in a frame."""

    def run(widget, image, frame, **options):
        settings = widget.settings.settings().changed(**options)
        expected = localize(image.data, settings=settings, frames=frame)

        def same():
            layer = widget.preview.layer
            assert layer is not None
            np.testing.assert_array_equal(layer.data, expected.points())
            np.testing.assert_array_equal(layer.features["sigma"], expected.sigma)
            assert len(layer.face_color) == len(expected)

        qtbot.waitUntil(lambda: _holds(same), timeout=20_000)
        return expected

    return run


def _holds(check):
    try:
        check()
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("lengths", [(), (3,), (2, 3)])
def test_a_job_gives_what_the_batch_gives(make_movie, lengths):
    movie = make_movie(*lengths)
    index = tuple(length - 1 for length in lengths)
    mask = np.zeros(movie.shape, bool)
    mask[..., 25:] = True
    previewer = Previewer()
    for settings in (Settings(), Settings(threshold=3, roi_size=7), Settings(threshold=40)):
        # That of one frame is not quite that of all.
        settings = settings.changed(noise=noise_model(movie))
        for maps in ({}, {"mask": mask}, {"bad_pixels": mask}):
            job = PreviewJob(movie, index, 1, settings, LayerMaps(lambda maps=maps: dict(maps)))
            result = previewer(job)
            limits = {"frames": index or None, **maps}
            expected = localize(movie, settings=settings, **limits)
            assert result.fits.columns.keys() == expected.columns.keys()
            for name, values in expected.columns.items():
                np.testing.assert_array_equal(result.fits.columns[name], values)
            np.testing.assert_array_equal(result.heights, peak_heights(movie, settings, **limits))
            assert (result.heights > settings.threshold).sum() == len(expected)


def test_the_frame_is_read_once_and_maxima_are_kept_while_the_threshold_moves(make_movie):
    reads = []

    class Movie:
        shape, dtype = (2, 48, 50), np.dtype("uint16")
        frames = make_movie(2)

        def __getitem__(self, index):
            reads.append(index)
            return self.frames[index]

    movie, previewer = Movie(), Previewer()
    first, second = (
        previewer(PreviewJob(movie, (1,), 1, Settings(threshold=t))) for t in (5.0, 8.0)
    )
    assert len(reads) == 1
    assert first.heights is second.heights
    wider = previewer(PreviewJob(movie, (1,), 1, Settings(sigma=2)))
    assert len(wider.heights) < len(first.heights)
    previewer(PreviewJob(movie, (0,), 1, Settings()))
    previewer(PreviewJob(movie, (0,), 2, Settings()))
    assert len(reads) == 3


def test_it_follows_every_change(viewer, widget, image, tick, shows, qtbot):
    viewer.layers.selection.active = image
    tick(widget)
    assert viewer.layers.selection.active is image
    assert [layer.name for layer in viewer.layers] == ["movie", NAME]
    shows(widget, image, viewer.dims.current_step[0])
    controls = widget.settings.controls
    for name, value in (
        ("threshold", 2.0),
        ("threshold", 60.0),
        ("threshold", 1.5),
        ("sigma", 1.9),
        ("roi_size", 13),
        ("background_max", 40),
        ("min_distance", 6.0),
        ("threshold_unit", "counts"),
    ):
        controls[name].put(value)
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


def test_the_keyboard_moves_the_threshold(widget, image, tick, shows, qtbot, viewer):
    tick(widget)
    box = widget.settings.controls["threshold"]
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, "2.5")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    fits = shows(widget, image, viewer.dims.current_step[0], threshold=2.5)
    share = int(100 * fits.good.mean())
    qtbot.waitUntil(lambda: f"{len(fits)} spots" in widget.settings.threshold_panel.count.text())
    assert f"{share}\u202f% good" in widget.settings.threshold_panel.count.text()


def test_slider_line_and_box_keep_step(widget, image, tick, shows, qtbot, viewer, monkeypatch):
    # Else pyqtgraph takes no notice of a mouse that moves so often.
    monkeypatch.setitem(pyqtgraph.CONFIG_OPTIONS, "mouseRateLimit", -1)
    assert widget.settings.threshold_panel.isHidden()
    tick(widget)
    panel, box = widget.settings.threshold_panel, widget.settings.controls["threshold"]
    assert panel.isVisible()
    panel.slider.setFocus()
    before = box.value()
    for _ in range(10):
        qtbot.keyClick(panel.slider, Qt.Key.Key_Right)
    slid = box.value()
    assert slid > before
    assert panel.line.value() == pytest.approx(np.log10(slid))
    frame = viewer.dims.current_step[0]
    shows(widget, image, frame)
    place = panel.line.value()
    places = np.linspace((place, 0.3), (place - 0.4, 0.3), 11)
    Mouse(panel.plot.viewport()).drag(*(in_plot(panel.plot, *there) for there in places))
    assert np.log10(box.value()) == pytest.approx(place - 0.4, abs=0.05)
    assert len(shows(widget, image, frame)) > 4
    box.put(1e6)
    low, high = panel.plot.getViewBox().viewRange()[0]
    assert box.value() == 1e6
    assert panel.line.value() == pytest.approx(high)
    assert panel.slider.value() == panel.slider.maximum()
    assert panel.count.accessibleName()
    assert all(part.toolTip() for part in (panel.slider, panel.count, panel.plot))
    qtbot.waitUntil(lambda: panel.count.text() == "no spots")
    assert low < high


def test_many_changes_are_few_runs_and_the_last_counts(widget, image, tick, shows, qtbot, viewer):
    tick(widget)
    runs = []
    widget.preview.latest.done.connect(runs.append)
    for _ in range(3):
        for threshold in np.linspace(2, 30, 60):
            widget.settings.controls["threshold"].put(float(threshold))
    shows(widget, image, viewer.dims.current_step[0], threshold=30)
    assert len(runs) <= 2
    runs.clear()
    for step in range(60):
        widget.settings.controls["sigma"].put(1 + step / 100)
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
    viewer.dims.set_current_step(0, 3)
    qtbot.waitUntil(lambda: widget.preview.latest.busy)
    for sigma in (1.2, 1.4, 1.6):
        widget.settings.controls["sigma"].put(sigma)
        QApplication.processEvents()
    assert set(layer.data[:, 0]) == {0}
    runs = []
    widget.preview.latest.done.connect(runs.append)
    gate.open()
    qtbot.waitUntil(lambda: set(layer.data[:, 0]) == {3} and not widget.preview.latest.busy)
    assert len(runs) <= 2
    assert runs[-1].job.settings.sigma == 1.6


def test_unticked_it_leaves_nothing(viewer, widget, image, tick, press, qtbot):
    tick(widget)
    widget.settings.controls["threshold"].put(3)
    box = widget.preview.box
    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=box.rect().center())
    assert not box.isChecked()
    qtbot.waitUntil(lambda: not widget.preview.latest.busy)
    widget.settings.controls["threshold"].put(4)
    QApplication.processEvents()
    assert list(viewer.layers) == [image]
    assert not widget.preview.latest.busy
    assert widget.settings.threshold_panel.isHidden()
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


def test_errors_are_told_once_and_empty_the_layer(viewer, widget, image, tick, shows, qtbot):
    tick(widget)
    controls = widget.settings.controls
    errors = []
    widget.preview.failed.connect(errors.append)
    controls["amplitude_min"].put(3)
    controls["amplitude_max"].put(2)
    qtbot.waitUntil(lambda: len(widget.preview.layer.data) == 0)
    controls["threshold"].put(7)
    QApplication.processEvents()
    assert "amplitude_max = 2 counts must be above amplitude_min = 3 counts" in widget.status.text()
    assert len(errors) == 1
    assert widget.settings.threshold_panel.count.text() == "–"
    controls["amplitude_max"].put(None)
    controls["amplitude_min"].put(None)
    shows(widget, image, viewer.dims.current_step[0])
    assert widget.status.text() == ""


def test_rgb_gets_a_message(viewer, widget, press, qtbot):
    viewer.add_image(np.zeros((20, 20, 3), np.uint8), name="photo", rgb=True)
    widget.preview.box.click()
    qtbot.waitUntil(lambda: "RGB" in widget.status.text())
    assert len(viewer.layers) == 1


def test_no_spots_and_spots_again(viewer, widget, image, tick, shows):
    tick(widget)
    for threshold in (1e5, 5.0, 1e5, 2.0):
        widget.settings.controls["threshold"].put(threshold)
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
    widget.settings.controls["threshold"].put(2)
    shows(widget, image, viewer.dims.current_step[0])
    assert widget.preview.layer.face_contrast_limits == (low, 3)
    assert not widget.result.bar.auto.isChecked()


def test_three_dimensions_and_back(viewer, widget, image, tick, shows):
    tick(widget)
    for ndisplay in (3, 2):
        viewer.dims.ndisplay = ndisplay
        widget.settings.controls["threshold"].put(2.0 + ndisplay)
        shows(widget, image, viewer.dims.current_step[0])


def test_closing_while_it_works_leaves_nothing(viewer, image, qtbot, tick):
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    tick(widget)
    widget.settings.controls["sigma"].put(1.7)
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
    second.settings.controls["threshold"].put(3)
    assert len(other.layers) == 1
    assert not second.preview.box.isChecked()


@pytest.mark.parametrize("start", [1.0, 2.5])
def test_sigma_is_estimated_from_the_frame(viewer, widget, press, qtbot, start):
    movie, _ = simulate_movie(
        3, shape=(256, 256), spots_per_frame=30, sigma=1.8, photons=5000, background=10, seed=4
    )
    viewer.add_image(movie, name="movie")
    widget.settings.controls["sigma"].put(start)
    press(widget.settings.estimate_button)
    assert not widget.settings.estimate_button.isEnabled()
    qtbot.waitUntil(lambda: "isolated spots" in widget.status.text(), timeout=120_000)
    assert widget.settings.controls["sigma"].value() == pytest.approx(1.8, abs=0.05)
    assert f"PSF σ {widget.settings.controls['sigma'].value():g} px" in widget.status.text()
    assert "scatter 0.0" in widget.status.text()
    assert widget.settings.estimate_button.isEnabled()


def test_sigma_is_estimated_from_other_frames_if_one_has_too_few(viewer, widget, press, qtbot):
    movie, _ = simulate_movie(
        9, shape=(64, 64), spots_per_frame=1, sigma=1.5, photons=8000, background=5, seed=5
    )
    viewer.add_image(movie, name="movie")
    press(widget.settings.estimate_button)
    qtbot.waitUntil(lambda: "isolated spots" in widget.status.text(), timeout=120_000)
    assert widget.settings.controls["sigma"].value() == pytest.approx(1.5, abs=0.05)


def test_sigma_without_spots_gets_a_message(viewer, widget, press, qtbot):
    press(widget.settings.estimate_button)
    assert "no image" in widget.status.text()
    viewer.add_image(np.random.default_rng(0).normal(100, 2, (40, 40)), name="noise")
    press(widget.settings.estimate_button)
    qtbot.waitUntil(lambda: "stand alone" in widget.status.text(), timeout=120_000)
    assert widget.settings.estimate_button.isEnabled()
    assert widget.settings.controls["sigma"].value() == 1.3
