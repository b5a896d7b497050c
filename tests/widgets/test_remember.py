"""Values that outlive a session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from napari_spotfit import Settings
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.parts import remember


def test_what_is_saved_is_loaded():
    assert remember.load("widget") == {}
    remember.save("widget", {"sigma": 1.5, "gain": None, "σ": "χ²"})
    assert remember.load("widget") == {"sigma": 1.5, "gain": None, "σ": "χ²"}
    assert remember.load("other") == {}


def test_many_changes_are_written_once(qtbot):
    path = Path(remember._store().fileName())
    # What a test before has saved and read at once would be written about now, and this with it.
    qtbot.wait(remember._DELAY + 100)
    for number in range(10):
        remember.save("widget", {"sigma": number})
        remember.save("other", {"sigma": number})
        qtbot.wait(1)
        assert not path.exists()
    qtbot.waitUntil(path.exists)
    remember.save("widget", {"sigma": 10})
    qtbot.waitUntil(lambda: "10" in path.read_text())
    assert remember.load("other") == {"sigma": 9}


_SESSION = """
import sys
from qtpy.QtCore import QCoreApplication, QSettings, QTimer
from napari_spotfit.widgets.parts import remember

app = QCoreApplication([])
QSettings.setPath(QSettings.Format.IniFormat, QSettings.Scope.UserScope, sys.argv[1])
remember.save("widget", {"sigma": 1})
QTimer.singleShot(0, app.quit)
app.exec()
"""


def test_the_last_change_is_written_when_napari_ends(settings_folder):
    subprocess.run([sys.executable, "-c", _SESSION, str(settings_folder)], check=True)
    assert remember.load("widget") == {"sigma": 1}


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "\x00"])
def test_what_cannot_be_read_is_nothing(text):
    remember._store().setValue("widget", text)
    assert remember.load("widget") == {}


@pytest.mark.parametrize("unit", ["noise", "counts"])
def test_a_threshold_of_before_is_not_taken_for_counts(open_viewer, unit):
    remember.save("fit_spots", {"sigma": 1.7, "threshold": 5.0, "threshold_unit": unit})
    viewer = open_viewer()
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget)
    assert widget.settings.settings() == Settings(sigma=1.7)
    widget.settings.controls["threshold"].value = 40
    again = FitSpots(viewer)
    viewer.window.add_dock_widget(again)
    assert again.settings.settings() == Settings(sigma=1.7, threshold=40)


@pytest.mark.parametrize(
    "values",
    [
        {"sigma": "wide", "roi_size": 8, "frames": 3, "face": None, "advanced": "yes"},
        {"sigma_min": 3, "sigma_max": 2, "errors": "no", "backend": "tpu", "model": 1},
        {"from_a_later_version": {"a": [1]}, "threads": 0, "gain": -1},
    ],
)
def test_old_or_broken_values_do_not_keep_the_widget_from_starting(open_viewer, values):
    remember.save("fit_spots", values)
    viewer = open_viewer()
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget)
    assert widget.settings.controls["sigma"].value is None
    assert widget.settings.controls["backend"].value == "auto"
    assert widget.settings.frames.mode == "all"
