"""Track: with real clicks, the simulated microscope, a layer that grows, and pymmcore-plus."""

from __future__ import annotations

import threading
import weakref
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from psfs import measured_psf
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication

from napari_spotfit import SimulatedMicroscope, localize, read_log, to_points_layer
from napari_spotfit.tracking.microscope import SimulatedCamera
from napari_spotfit.tracking.session import FrameQueue
from napari_spotfit.widgets.fitting.calibration_choice import KNOWN
from napari_spotfit.widgets.layers.history import history_of
from napari_spotfit.widgets.napari_compat import main_window
from napari_spotfit.widgets.track import Track
from napari_spotfit.widgets.track_plots import _decades


@pytest.fixture
def widget(viewer, qtbot):
    widget = Track(viewer)
    viewer.window.add_dock_widget(widget, name=Track.title)
    yield widget
    widget.stop()


def drawn(widget, name="x"):
    values = widget.plots.lines[name].getData()[1]
    return np.empty(0) if values is None else values


def test_the_simulated_microscope_is_held_only_once_it_is_armed(widget, qtbot, press, tmp_path):
    qtbot.keyClicks(widget.form.log.native, str(tmp_path / "log.parquet"))
    press(widget.start_button)
    source = widget._source
    qtbot.waitUntil(lambda: len(drawn(widget)) > 40)
    assert not source.controller.armed
    assert not source.controller._stage.place(1e9).any()
    assert widget._viewer.layers["camera"].data.shape == (256, 256)
    press(widget.arm_button)
    qtbot.waitUntil(lambda: "Stage: moved" in widget.status.text())
    assert widget.arm_button.text().startswith("ARMED")
    qtbot.keyClicks(widget.event_line, "laser on")
    qtbot.keyClick(widget.event_line, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: bool(widget._session.snapshot().events))
    press(widget.pause_button)
    assert widget._session.paused
    press(widget.start_button)
    qtbot.waitUntil(lambda: not widget.running)
    assert not source.controller.armed
    assert not widget.arm_button.isChecked()
    press(widget.export.copy_button)
    copied = pd.read_csv(StringIO(QApplication.clipboard().text()), sep="\t")
    assert len(copied) == widget.seen.frames
    assert list(copied.event.dropna()) == ["laser on"]
    np.testing.assert_allclose(copied.x_nm, 100 * copied.x)
    table = read_log(tmp_path / "log.parquet")
    np.testing.assert_allclose(copied.y, table.y)
    assert list(table.event[table.event != ""]) == ["laser on"]
    assert (table.correction[:40] == "not armed").all()
    assert (table.correction == "moved").any()
    assert len(widget.plots.bars.opts["height"]) == 20


@pytest.mark.parametrize(
    "place", [{}, {"scale": (1, 0.1, 0.1), "rotate": 20, "translate": (0, 3, -2)}]
)
def test_a_layer_that_grows_is_followed_by_clicked_fiducials(
    place, viewer, widget, hand, qtbot, press
):
    scope = SimulatedMicroscope(4, (96, 96), drift=(0.0, 0.1), seed=3)
    movie = np.array([frame for _, frame in scope.frames(10, 20)])
    layer = viewer.add_image(movie[:10], name="movie", **place)
    viewer.dims.set_current_step(0, 0)
    widget.form.source.value = layer
    press(widget.pick_button)
    points = viewer.layers["fiducials"]
    for bead in scope.fiducials[:3]:
        hand.click(points, layer.data_to_world((0, *bead))[-2:])
    assert len(points.data) == 3
    press(widget.start_button)
    qtbot.waitUntil(lambda: len(drawn(widget)) == 10)
    assert not widget.arm_button.isEnabled()
    layer.data = movie
    qtbot.waitUntil(lambda: len(drawn(widget)) == 20)
    press(widget.start_button)
    qtbot.waitUntil(lambda: not widget.running)
    assert drawn(widget) == pytest.approx(10 * np.arange(20), abs=5)  # nm
    assert drawn(widget, "y") == pytest.approx(np.zeros(20), abs=5)
    assert "0 dropped" in widget.status.text()
    fits = localize(movie, sigma=1.3)
    spots = viewer.add_layer(to_points_layer(fits, layer))
    before = spots.data.copy()
    viewer.layers.selection.active = spots
    press(widget.correct_button)
    frame = before[:, 0].astype(int)
    assert before[:, 2] - spots.data[:, 2] == pytest.approx(0.1 * frame, abs=0.05)
    history_of(viewer).undo()
    np.testing.assert_array_equal(spots.data, before)


def test_what_cannot_be_tracked_is_shown(viewer, widget, qtbot, press):
    layer = viewer.add_image(np.zeros((3, 64, 64), np.uint16), name="dark")
    widget.form.source.value = layer
    press(widget.start_button)
    qtbot.waitUntil(lambda: not widget.running)
    assert widget.status.text().startswith("⚠")
    assert widget.start_button.text() == "Start"
    press(widget.pick_button)
    press(widget.start_button)
    assert "has no points" in widget.status.text()


@pytest.mark.parametrize(("choice", "frames"), [("hold, and go on", 12), ("stop", 5)])
def test_trouble_is_held_through_or_ends_it_all(viewer, widget, qtbot, press, choice, frames):
    """A frame without light: the tracking goes on with the next one, or stops and says why."""
    scope = SimulatedMicroscope(8, (128, 128), seed=2)
    movie = np.stack([scope.frame(0.01 * number) for number in range(12)])
    movie[5] = movie.min()
    widget.form.source.value = viewer.add_image(movie)
    widget.form.trouble.value = choice
    press(widget.start_button)
    stops = choice == "stop"
    qtbot.waitUntil(lambda: not widget.running if stops else len(drawn(widget)) == frames)
    assert widget.seen.frames == frames
    assert bool(widget.seen.error) == stops
    if stops:
        assert "no fiducial is left" in widget.status.text()
        assert widget.start_button.text() == "Start"
        widget.form.source.value = "simulated microscope"
        assert widget.form.make_source().controller._on_error == "stop"
    else:
        assert np.isnan(drawn(widget)[5])
        press(widget.start_button)
        qtbot.waitUntil(lambda: not widget.running)


def test_a_layer_that_is_removed_ends_it(viewer, widget, qtbot, press, tmp_path):
    scope = SimulatedMicroscope(4, (96, 96), seed=3)
    layer = viewer.add_image(np.array([frame for _, frame in scope.frames(10, 12)]), name="movie")
    other = viewer.add_image(np.zeros((4, 4)))
    widget.form.source.value = layer
    qtbot.keyClicks(widget.form.log.native, str(tmp_path / "log.parquet"))
    press(widget.start_button)
    qtbot.waitUntil(lambda: len(drawn(widget)) == 12)
    viewer.layers.remove(other)
    assert widget.start_button.isEnabled()
    viewer.layers.remove(layer)
    qtbot.waitUntil(lambda: not widget.running)
    assert widget.status.text().startswith("⚠ “movie” was removed, so tracking has ended")
    assert widget.start_button.text() == "Start"
    assert len(read_log(tmp_path / "log.parquet")) == 12
    press(widget.start_button)  # of what is chosen then
    qtbot.waitUntil(lambda: "frames" in widget.status.text())
    assert not widget.status.text().startswith("⚠")


def test_a_place_for_no_log_is_named_before_anything_starts(widget, qtbot, press, tmp_path):
    qtbot.keyClicks(widget.form.log.native, str(tmp_path))
    press(widget.start_button)
    assert "is a folder" in widget.status.text()
    assert not widget.running


def leave_by_window(viewer):
    main_window(viewer).close()


def leave_by_platform(viewer):
    main_window(viewer).windowHandle().close()


def leave_by_viewer(viewer):
    viewer.close()


def leave_by_deletion(viewer):
    """As Qt does with all that a window has, without a signal."""
    sip = pytest.importorskip("PyQt6.sip")
    (track,) = main_window(viewer).findChildren(Track)
    sip.delete(track.parent())


@pytest.fixture
def armed(make_napari_viewer, qtbot, press, tmp_path):
    """Return a viewer, its widget, and what moves its stage now, of a run with a log."""
    viewer = make_napari_viewer(show=True)
    widget = Track(viewer)
    viewer.window.add_dock_widget(widget, name=Track.title)
    qtbot.keyClicks(widget.form.log.native, str(tmp_path / "log.parquet"))
    press(widget.start_button)
    qtbot.waitUntil(lambda: len(drawn(widget)) > 20)
    press(widget.arm_button)
    assert widget._source.controller.armed
    yield viewer, widget, widget._source.controller
    widget._left.close()
    if main_window(viewer) is None and hasattr(viewer.window, "_qt_window"):
        del viewer.window._qt_window  # else napari's fixture would close it, too


@pytest.mark.parametrize(
    "leave", [leave_by_window, leave_by_platform, leave_by_viewer, leave_by_deletion]
)
def test_no_stage_moves_once_the_window_is_closed(armed, qtbot, tmp_path, leave):
    viewer, widget, controller = armed
    session, seen = widget._session, widget._session.snapshot().frames
    leave(viewer)
    assert not controller.armed
    qtbot.waitUntil(lambda: not session.running)
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"spotfit tracking", "spotfit camera"}
    frames = session.snapshot().frames
    assert frames >= seen
    assert not session.snapshot().error
    assert [path.name for path in tmp_path.glob("log*")] == ["log.parquet"]
    assert len(read_log(tmp_path / "log.parquet")) == frames


def test_a_window_that_stays_open_goes_on(armed, monkeypatch):
    """As after napari has asked whether to close it, and the answer was no."""
    viewer, widget, controller = armed
    window = main_window(viewer)
    monkeypatch.setattr(type(window), "closeEvent", lambda window, event: event.ignore())
    assert not window.close()
    assert window.isVisible()
    assert widget.bound
    assert controller.armed
    assert widget.running
    monkeypatch.undo()
    viewer.close()
    assert not widget.bound
    assert not controller.armed


def test_what_is_not_there_has_no_numbers_and_no_label_is_cut(viewer, widget, qtbot, press):
    plots = widget.plots
    below = (plots.spectrum, plots.allan, plots.health)
    assert numbers(plots.displacement) == [[], []]
    assert [numbers(plot) for plot in below] == [[[], []]] * 3
    widget.resize(900, widget.minimumHeight())
    press(widget.start_button)
    qtbot.waitUntil(lambda: bool(numbers(plots.allan)[1]))
    widget.grab()  # as it is drawn, pyqtgraph lays out
    assert numbers(plots.displacement) == [None, None]  # pyqtgraph's own
    for plot in (plots.displacement, *below):
        axis = plot.getAxis("left")
        label = axis.label.document()
        assert label.idealWidth() - 2 * label.documentMargin() <= axis.height()


def numbers(plot):
    return [plot.getAxis(axis)._tickLevels for axis in ("bottom", "left")]


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (0.3, 2.5, ["0.5", "1", "2"]),
        (0.01, 100.0, ["0.01", "0.1", "1", "10", "100"]),
        (1e-6, 1e2, ["1e-06", "0.0001", "0.01", "1", "100"]),
    ],
)
def test_a_logarithmic_axis_has_few_numbers(least, most, words):
    marks = _decades(np.array([least, most]))
    inside = [word for at, word in marks if np.log10(least) <= at + 1e-9 <= np.log10(most) + 1e-6]
    assert inside == words


def test_frames_of_pymmcore_plus(widget, qtbot, press):
    core = pytest.importorskip("pymmcore_plus").CMMCorePlus.instance()
    scope = SimulatedMicroscope(4, (96, 96), drift=(0.1, 0.0), seed=3)
    widget.form.source.value = "pymmcore-plus"
    press(widget.start_button)
    for _, frame in scope.frames(10, 8):
        core.mda.events.frameReady.emit(frame, None, {})
    qtbot.waitUntil(lambda: len(drawn(widget)) == 8)
    assert drawn(widget, "y")[-1] == pytest.approx(70, abs=5)
    press(widget.start_button)


@pytest.fixture
def microscope(monkeypatch):
    """A microscope of pymmcore-plus whose stage moves a simulated sample, and its camera."""
    from core_stage import Stage, put_into, unicore

    scope = SimulatedMicroscope(8, (128, 128), drift=(0.02, 0.0), angle=30.0, seed=4)

    class Device(Stage):
        works = True

        def set_relative_position_um(self, dx, dy):
            super().set_relative_position_um(dx, dy)
            if self.works:
                scope.stage.move_by(dy, dx, 0.0)

    core, device = unicore.UniMMCore(), Device()
    device.scope = scope
    put_into(core, device)
    monkeypatch.setattr("pymmcore_plus.core._mmcore_plus._instance", weakref.ref(core))
    queue, ended = FrameQueue(), threading.Event()

    def stream():
        while not ended.is_set():
            taken = queue.take(0.05)
            if taken is not None:
                core.mda.events.frameReady.emit(taken[0], None, {})

    camera, streaming = SimulatedCamera(scope, queue, 50.0), threading.Thread(target=stream)
    streaming.start()
    camera.start()
    yield device
    camera.stop()
    ended.set()
    streaming.join()


def test_a_stage_of_pymmcore_plus_is_calibrated_once_it_is_armed(microscope, widget, qtbot, press):
    """The image is turned by 30° against the stage, which nobody has said."""
    widget.form.source.value = "pymmcore-plus"
    press(widget.start_button)
    qtbot.waitUntil(lambda: len(drawn(widget)) > 20)
    assert microscope.place == (0.0, 0.0)
    press(widget.arm_button)
    assert widget.arm_button.text() == "Calibrating…"
    qtbot.waitUntil(lambda: microscope.place != (0.0, 0.0))
    assert widget._source.controller is None
    qtbot.waitUntil(lambda: "Stage: moved" in widget.status.text(), timeout=30_000)
    assert widget.arm_button.text().startswith("ARMED")
    matrix = widget._source.controller._calibration.matrix
    assert abs(matrix - microscope.scope.matrix).max() < 1  # of 10 px/µm
    before = len(drawn(widget))
    qtbot.waitUntil(lambda: len(drawn(widget)) > before + 60, timeout=30_000)
    press(widget.arm_button)
    assert not widget._source.controller.armed
    held = drawn(widget, "y")[before + 30 : before + 60]
    assert abs(held).max() < 40  # nm; it drifts by 20 nm a second, for ten seconds by now
    press(widget.start_button)
    qtbot.waitUntil(lambda: not widget.running)


def test_a_stage_that_does_not_move_is_not_armed(microscope, widget, qtbot, press):
    microscope.works = False
    widget.form.source.value = "pymmcore-plus"
    press(widget.start_button)
    qtbot.waitUntil(lambda: len(drawn(widget)) > 20)
    press(widget.arm_button)
    qtbot.waitUntil(lambda: "is not armed" in widget.status.text(), timeout=30_000)
    assert "that the stage moves" in widget.status.text()
    assert not widget.arm_button.isChecked()
    assert widget.arm_button.text() == "Arm the stage"
    assert microscope.place == pytest.approx((0.0, 0.0), abs=1e-9)
    assert widget._source.controller is None
    press(widget.arm_button)
    press(widget.start_button)  # in the middle of it
    qtbot.waitUntil(lambda: not widget.running)
    qtbot.waitUntil(lambda: microscope.place == pytest.approx((0.0, 0.0), abs=1e-9))


def test_z_is_tracked_and_held_with_a_calibration(widget, qtbot, press, monkeypatch):
    model = measured_psf()
    monkeypatch.setattr(KNOWN, "by_name", {"psf.h5": model})
    widget.form.depth.choose("psf.h5")
    assert not widget.form.sigma.enabled
    widget.form.rate.value = 50
    press(widget.start_button)
    qtbot.waitUntil(lambda: len(drawn(widget, "z")) > 20, timeout=20_000)
    # The sample rises by 5 nm a second until the stage holds it.
    assert np.isfinite(widget.seen.z).all()
    press(widget.arm_button)
    qtbot.waitUntil(lambda: "Stage: moved" in widget.status.text())
    qtbot.waitUntil(lambda: widget._source.controller._stage.place(1e9)[2] != 0)
    press(widget.start_button)
    qtbot.waitUntil(lambda: not widget.running)
    table = widget._named().table
    np.testing.assert_array_equal(table.z, widget.seen.z)
    np.testing.assert_array_equal(drawn(widget, "z"), widget.seen.z)  # nm, as they are
