"""The preview in a real viewer: what it shows, what it follows, what it leaves behind."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyqtgraph
import pytest
from event_loop import freed, no_worker
from hand import Mouse, in_plot
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication

from napari_spotfit import localize, noise_model, simulate_movie
from napari_spotfit.engine.detection.false_spots import expected_false_spots, score_for
from napari_spotfit.localization.peaks import peak_heights
from napari_spotfit.results.flags import Flag
from napari_spotfit.results.spot_fits import SpotFits
from napari_spotfit.settings.settings import Settings
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.maps import LayerMaps
from napari_spotfit.widgets.layers.noise import MeasuredNoise
from napari_spotfit.widgets.preview.detection_panel import _in_words
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
    for settings in (
        Settings(sigma=1.3, roi_size=9),
        Settings(sigma=1.3, false_spots=900, roi_size=7),
        Settings(sigma=1.3, roi_size=9, threshold=40),
    ):
        for maps in ({}, {"mask": mask}, {"bad_pixels": mask}):
            job = PreviewJob(movie, index, 1, settings, LayerMaps(lambda maps=maps: dict(maps)))
            result = previewer(job)
            limits = {"frames": index or None, **maps}
            expected = localize(movie, settings=settings, **limits)
            assert result.fits.columns.keys() == expected.columns.keys()
            for name, values in expected.columns.items():
                np.testing.assert_array_equal(result.fits.columns[name], values)
            np.testing.assert_array_equal(result.heights, peak_heights(movie, settings, **limits))
            least = settings.threshold or score_for(settings.false_spots, settings.sigma)
            # Of maxima that are one spot, which one it is depends on all that there are.
            assert abs((result.heights > least).sum() - len(expected)) <= 1
            everywhere = movie[index].size
            searched = {"mask": mask[index].sum(), "bad_pixels": (~mask[index]).sum()}
            assert result.searched == searched.get(next(iter(maps), ""), everywhere)
            noise = noise_model(movie, settings=settings, bad_pixels=maps.get("bad_pixels"))
            assert result.fits.settings == expected.settings.changed(noise=noise)


def changing(count):
    """Return frames whose background, and noise, change twentyfold; and spots for the last."""
    y, x = np.indices((64, 64))
    rng, places = np.random.default_rng(5), [(12.3, 14.8), (40.2, 20.1), (30.7, 50.4)]
    light = sum(60 * np.exp(-((y - a) ** 2 + (x - b) ** 2) / (2 * 1.3**2)) for a, b in places)
    levels = np.geomspace(10, 200, count)
    return np.stack([rng.poisson(level + light) for level in levels]).astype(np.uint16), places


def test_a_job_goes_by_the_noise_of_the_whole_movie():
    movie, _ = changing(9)
    noise, settings = MeasuredNoise(), Settings(sigma=1.3, roi_size=9, false_spots=1000)
    expected = localize(movie, settings=settings)
    for frame in (0, 8):
        result = Previewer()(PreviewJob(movie, (frame,), 1, settings, noise=noise))
        assert result.fits.settings.noise == noise_model(movie, settings=settings)
        here = expected.frame == frame
        assert len(result.fits) == here.sum()
        for name, values in expected.columns.items():
            np.testing.assert_array_equal(result.fits.columns[name], values[here])


def test_threads_that_ask_for_the_noise_measure_it_once():
    reads, movie = [], np.random.default_rng(1).poisson(50, (40, 64, 64)).astype(np.uint16)

    class Movie:
        shape, dtype = movie.shape, movie.dtype

        def __getitem__(self, index):
            reads.append(index)
            return movie[index]

    lazy, noise = Movie(), MeasuredNoise()
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(noise.put_into, Settings(sigma=1.3, roi_size=9), lazy, {}) for _ in range(8)
        ]
        found = {one.result().noise for one in asked}
    assert found == {noise_model(movie)}
    count = len(reads)
    wider = noise.put_into(Settings(roi_size=9, sigma=2), lazy, {})
    assert wider.noise == noise_model(movie, settings=Settings(roi_size=9, sigma=2))
    assert len(reads) == count == len({repr(index) for index in reads})


def test_the_frame_is_read_once_and_maxima_are_kept_while_false_spots_change(make_movie):
    reads = []

    class Movie:
        shape, dtype = (2, 48, 50), np.dtype("uint16")
        frames = make_movie(2)

        def __getitem__(self, index):
            reads.append(index)
            return self.frames[index]

    movie, previewer, noise = Movie(), Previewer(), MeasuredNoise()
    noise.put_into(Settings(sigma=1.3, roi_size=9), movie, {})
    reads.clear()
    first, second = (
        previewer(
            PreviewJob(movie, (1,), 1, Settings(sigma=1.3, roi_size=9, false_spots=f), noise=noise)
        )
        for f in (10.0, 1.0)
    )
    assert len(reads) == 1
    assert first.heights is second.heights
    wider = previewer(PreviewJob(movie, (1,), 1, Settings(roi_size=9, sigma=2), noise=noise))
    assert wider.heights is not first.heights
    in_counts = [
        previewer(
            PreviewJob(movie, (1,), 1, Settings(sigma=1.3, roi_size=9, threshold=t), noise=noise)
        ).heights
        for t in (5.0, 8.0)
    ]
    assert in_counts[0] is in_counts[1]
    assert in_counts[0].min() < 1 < first.heights.min()  # in counts, down to 0
    assert len(reads) == 1
    previewer(PreviewJob(movie, (0,), 1, Settings(sigma=1.3, roi_size=9), noise=noise))
    previewer(PreviewJob(movie, (0,), 2, Settings(sigma=1.3, roi_size=9), noise=noise))
    assert len(reads) == 3


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


def test_the_keyboard_changes_false_spots(widget, image, tick, shows, qtbot, viewer):
    tick(widget)
    box = widget.settings.controls["false_spots"]
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, "5e3")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    fits = shows(widget, image, viewer.dims.current_step[0], false_spots=5000)
    share = round(100 * fits.good.mean())
    qtbot.waitUntil(lambda: f"{len(fits)} spots" in widget.settings.detection_panel.count.text())
    text = widget.settings.detection_panel.count.text()
    assert f"{share}\u202f% good · about 12 false" in text


@pytest.mark.parametrize(
    ("total", "good", "false", "words"),
    [
        (0, 0, 3.0, "no spots"),
        (52, 49, 2.6, "52 spots · 94 % good · about 3 false"),
        (1, 1, 0.3, "1 spot · 100 % good · about 0.3 false"),
        (1000, 999, 0.096, "1 000 spots · 99 % good · less than 0.1 false"),
        (2, 1, 0.96, "2 spots · 50 % good · about 1 false"),
        (5000, 5000, 1234.0, "5 000 spots · 100 % good · about 1 200 false"),
        (52, 49, None, "52 spots · 94 % good"),
    ],
)
def test_the_frame_in_words(total, good, false, words):
    doubtful = np.arange(total) >= good
    flags = np.where(doubtful, np.uint32(Flag.MOVED), np.uint32(0))
    fits = SpotFits({"flags": flags, "y": np.zeros(total)}, (), Settings(sigma=1.3, roi_size=9))
    assert _in_words(fits, false).replace("\u202f", " ") == words


def test_slider_line_and_box_keep_step(widget, image, tick, shows, qtbot, viewer, monkeypatch):
    # Else pyqtgraph takes no notice of a mouse that moves so often.
    monkeypatch.setitem(pyqtgraph.CONFIG_OPTIONS, "mouseRateLimit", -1)
    assert widget.settings.detection_panel.isHidden()
    widget.settings.controls["sigma"].put(1.3)
    tick(widget)
    panel, box = widget.settings.detection_panel, widget.settings.controls["false_spots"]
    assert panel.isVisible()
    panel.slider.setFocus()
    before = box.value()
    for _ in range(10):
        qtbot.keyClick(panel.slider, Qt.Key.Key_Right)
    slid = box.value()
    assert slid < before
    assert panel.line.value() == pytest.approx(np.log10(score_for(slid, 1.3)))
    frame = viewer.dims.current_step[0]
    assert len(shows(widget, image, frame)) == 4
    place = panel.line.value()
    places = np.linspace((place, 0.3), (place - 0.25, 0.3), 11)
    Mouse(panel.plot.viewport()).drag(*(in_plot(panel.plot, *there) for there in places))
    score = 10 ** (place - 0.25)
    assert np.log10(box.value()) == pytest.approx(
        np.log10(expected_false_spots(score, 1.3)), abs=0.3
    )
    assert box.value() == float(f"{box.value():.3g}") > 1000
    assert len(shows(widget, image, frame)) > 4
    box.put(1e-9)
    low, high = panel.plot.getViewBox().viewRange()[0]
    assert panel.line.value() == pytest.approx(np.log10(score_for(1e-9, 1.3)), rel=1e-3)
    assert panel.line.value() < high  # the spots are far above all noise
    assert panel.slider.value() == panel.slider.maximum()
    qtbot.waitUntil(lambda: panel.count.text().endswith("less than 0.1 false"))
    widget.settings.controls["threshold"].put(1e6)
    assert panel.count.accessibleName()
    assert all(part.toolTip() for part in (panel.slider, panel.count, panel.plot))
    qtbot.waitUntil(lambda: panel.count.text() == "no spots")
    assert low < high


def test_a_threshold_in_counts_takes_the_place_of_false_spots(
    widget, image, tick, shows, qtbot, viewer
):
    widget.settings.controls["sigma"].put(1.3)
    tick(widget)
    panel, controls = widget.settings.detection_panel, widget.settings.controls
    frame = viewer.dims.current_step[0]
    controls["false_spots"].put(500)
    shows(widget, image, frame)
    about = controls["false_spots"].toolTip()
    controls["threshold"].put(40)
    assert not controls["false_spots"].isEnabled()
    assert "threshold is set under Advanced" in controls["false_spots"].toolTip()
    assert widget.settings.settings().threshold == 40
    assert len(shows(widget, image, frame)) == 4
    qtbot.waitUntil(lambda: panel.count.text() == "4 spots · 100\u202f% good")
    assert "counts" in panel.plot.getAxis("bottom").labelText
    assert panel.line.value() == pytest.approx(np.log10(40))
    for _ in range(10):
        qtbot.keyClick(panel.slider, Qt.Key.Key_Left)
    assert controls["threshold"].get() < 40
    assert panel.line.value() == pytest.approx(np.log10(controls["threshold"].get()))
    shows(widget, image, frame)
    controls["threshold"].put(None)
    assert controls["false_spots"].isEnabled()
    assert controls["false_spots"].toolTip() == about
    assert widget.settings.settings().false_spots == 500
    shows(widget, image, frame)
    qtbot.waitUntil(lambda: "false" in panel.count.text())
    assert panel.line.value() == pytest.approx(np.log10(score_for(500, 1.3)))


def test_many_changes_are_few_runs_and_the_last_counts(widget, image, tick, shows, qtbot, viewer):
    tick(widget)
    runs = []
    widget.preview.latest.done.connect(runs.append)
    for _ in range(3):
        for false_spots in np.geomspace(1e4, 1e-3, 60):
            widget.settings.controls["false_spots"].put(float(false_spots))
    shows(widget, image, viewer.dims.current_step[0], false_spots=1e-3)
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
    viewer.dims.set_current_step(0, 4)
    qtbot.waitUntil(lambda: widget.preview.latest.busy)
    for sigma in (1.2, 1.4, 1.6):
        widget.settings.controls["sigma"].put(sigma)
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
    widget.settings.controls["false_spots"].put(3)
    box = widget.preview.box
    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=box.rect().center())
    assert not box.isChecked()
    qtbot.waitUntil(lambda: not widget.preview.latest.busy)
    widget.settings.controls["false_spots"].put(4)
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
    controls["false_spots"].put(7)
    QApplication.processEvents()
    assert "amplitude_max = 2 counts must be above amplitude_min = 3 counts" in widget.status.text()
    assert len(errors) == 1
    assert widget.settings.detection_panel.count.text() == "–"
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
    for threshold in (1e5, 30.0, 1e5, None):
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
    widget.settings.controls["false_spots"].put(10_000)
    shows(widget, image, viewer.dims.current_step[0])
    assert widget.preview.layer.face_contrast_limits == (low, 3)
    assert not widget.result.bar.auto.isChecked()


def test_three_dimensions_and_back(viewer, widget, image, tick, shows):
    tick(widget)
    for ndisplay in (3, 2):
        viewer.dims.ndisplay = ndisplay
        widget.settings.controls["false_spots"].put(10.0**ndisplay)
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
    second.settings.controls["false_spots"].put(3)
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
    qtbot.waitUntil(lambda: "good fits (" in widget.status.text(), timeout=120_000)
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
    qtbot.waitUntil(lambda: "good fits (" in widget.status.text(), timeout=120_000)
    assert widget.settings.controls["sigma"].value() == pytest.approx(1.5, abs=0.05)


def test_sigma_without_spots_gets_a_message(viewer, widget, press, qtbot):
    press(widget.settings.estimate_button)
    assert "no image" in widget.status.text()
    viewer.add_image(np.random.default_rng(0).normal(100, 2, (40, 40)), name="noise")
    press(widget.settings.estimate_button)
    qtbot.waitUntil(lambda: "needs 3 good fits" in widget.status.text(), timeout=120_000)
    assert widget.settings.estimate_button.isEnabled()
    assert widget.settings.controls["sigma"].text() == "automatic (1.3 px)"
