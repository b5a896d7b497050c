"""Results that were not saved are offered again after a crash, and only then."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from event_loop import no_worker

from napari_spotfit.files.formats import read
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.saved_layers import attributes_of, write_csv, write_parquet

#: Another process that keeps a result of some frames, and how it ends.
PROCESS = """
import os, signal, sys
import napari_spotfit
from napari.components import ViewerModel
from qtpy.QtCore import QCoreApplication, QObject, QSettings
from qtpy.QtWidgets import QApplication
from napari_spotfit.widgets.fitting.recovery import Recovery
folder, frames, end = sys.argv[1], int(sys.argv[2]), sys.argv[3]
QSettings.setPath(QSettings.Format.IniFormat, QSettings.Scope.UserScope, folder)
app, viewer, parent = QApplication([]), ViewerModel(), QObject()
movie, _ = napari_spotfit.simulate_movie(frames, shape=(64, 64), seed=1)
image = viewer.add_image(movie, name="movie")
layer = napari_spotfit.to_points_layer(napari_spotfit.localize(movie, sigma=1.3), image)
viewer.layers.append(layer)
recovery = Recovery(viewer, parent)
recovery.keep(layer)
while end == "crash" and recovery._writing.busy:  # else it ends in the middle of it
    app.processEvents()
print(len(layer.data), flush=True)
if end == "crash":
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
"""


def run(folder: Path, end: str, frames: int) -> int:
    """Run another process to its end; return the spots kept."""
    process = subprocess.run(
        [sys.executable, "-c", PROCESS, str(folder), str(frames), end],
        capture_output=True,
        encoding="utf-8",
    )
    assert (process.returncode == 0) == (end == "in order"), process.stderr
    assert "RuntimeError" not in process.stderr
    return int(process.stdout)


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    """Return the function that gives what a crash has left, made once for a number of frames."""
    made = {}

    def crash(frames: int) -> tuple[Path, int]:
        if frames not in made:
            folder = tmp_path_factory.mktemp("crash")
            made[frames] = folder, run(folder, "crash", frames)
        return made[frames]

    return crash


@pytest.fixture
def ends(settings_folder, crashes):
    """Return the function that leaves what another process does; it returns the spots kept."""

    def leave(end: str, frames: int = 2) -> int:
        if end == "in order":
            return run(settings_folder, end, frames)
        folder, count = crashes(frames)
        shutil.copytree(folder, settings_folder, dirs_exist_ok=True)
        return count

    return leave


@pytest.fixture
def files(settings_folder):
    """Return the function that lists what is kept."""
    return lambda: sorted((settings_folder / "napari-spotfit" / "recovery").glob("*/*.spots.*"))


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


def test_what_a_crash_left_is_offered_and_opened(viewer, ends, files, press, qtbot):
    count = ends("crash")
    (kept,) = files()
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    assert not widget.left.isHidden()
    qtbot.waitUntil(lambda: f"“movie spots”, {count} spots, " in widget.left.label.text())
    other = FitSpots(viewer)  # does not offer it as well
    qtbot.addWidget(other)
    assert other.left.isHidden()
    other.unbind()
    press(widget.left.open_button)
    assert len(viewer.layers) == 0  # it is read in the background
    assert not widget.left.discard_button.isEnabled()
    qtbot.waitUntil(lambda: "movie spots" in viewer.layers)
    layer = viewer.layers["movie spots"]
    assert len(layer.data) == count
    assert widget.left.isHidden()
    assert not kept.parent.exists()
    # Now it is kept by this process.
    (kept,) = files()
    assert str(layer.metadata["kept_for_recovery"]) == str(kept)


@pytest.mark.parametrize("choice", ["open", "discard"])
def test_all_that_crashes_have_left_is_kept_or_discarded_at_once(
    viewer, ends, files, press, qtbot, choice
):
    counts = [ends("crash", frames) for frames in (1, 2)]
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    qtbot.waitUntil(lambda: len(widget.left.label.text().splitlines()) == 3)
    for count in counts:
        assert f"“movie spots”, {count} spots, " in widget.left.label.text()
    if choice == "open":
        press(widget.left.open_button)
        qtbot.waitUntil(lambda: len(viewer.layers) == 2)
        assert sorted(len(layer.data) for layer in viewer.layers) == sorted(counts)
        assert len(files()) == 2  # which this process keeps
    else:
        press(widget.left.discard_button)
        assert files() == []
        assert list(viewer.layers) == []
    assert widget.left.isHidden()


def test_nothing_is_left_of_an_end_in_order(viewer, widget, ends, files):
    assert ends("in order") > 0
    assert files() == []
    widget.left.look()
    assert widget.left.isHidden()


def test_a_damaged_file_is_named_and_stays(viewer, ends, files, press, qtbot):
    ends("crash")
    (kept,) = files()
    kept.write_bytes(b"torn")
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    press(widget.left.open_button)
    qtbot.waitUntil(lambda: "Not all was opened" in widget.status.text())
    assert widget.left.discard_button.isEnabled()
    assert not widget.left.isHidden()
    assert kept.exists()


@pytest.mark.parametrize("write", [write_parquet, write_csv])
def test_results_are_kept_until_they_are_saved(
    viewer, widget, fit, files, qtbot, make_movie, tmp_path, write
):
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    qtbot.waitUntil(lambda: no_worker() and len(files()) == 1)
    layer = viewer.layers["movie spots"]
    (kept,) = files()
    np.testing.assert_array_equal(read(kept).columns["sigma"], layer.features["sigma"])
    layer.selected_data = {0, 3}
    layer.remove_selected()
    qtbot.waitUntil(lambda: no_worker() and len(read(kept).columns["y"]) == 6)
    write(str(tmp_path / "result"), layer.data, attributes_of(layer))
    assert files() == []
    # What is changed after that is not saved.
    widget.picking.undo.click()
    qtbot.waitUntil(lambda: no_worker() and files() == [kept])
    assert len(read(kept).columns["y"]) == 8
    viewer.layers.remove(layer)
    assert files() == []


def test_it_is_said_that_a_result_cannot_be_kept(
    viewer, widget, fit, qtbot, make_movie, settings_folder
):
    (settings_folder / "napari-spotfit").mkdir(exist_ok=True)
    (settings_folder / "napari-spotfit" / "recovery").write_text("a file in the way")
    viewer.add_image(make_movie(), name="movie")
    fit(widget)
    assert "save it soon" in widget.status.text()
    assert "movie spots" in viewer.layers
