"""Of work in the background only the latest counts."""

from __future__ import annotations

import threading

import pytest
from qtpy.QtCore import QObject, QThread

from napari_spotfit.engine.backend import BackendFallbackWarning
from napari_spotfit.widgets.parts.work import Latest

pytestmark = pytest.mark.usefixtures("qapp")


@pytest.fixture
def latest():
    parent = QObject()
    yield Latest(parent)
    parent.deleteLater()


def test_of_the_jobs_that_wait_only_the_last_is_done(latest, qtbot):
    gate, done, results = threading.Event(), [], []
    latest.done.connect(results.append)

    def job(number):
        def work():
            done.append(number)
            if number == 0:
                assert gate.wait(30)
            return number

        return work

    for number in range(50):
        latest.ask(job(number))
    assert latest.busy
    gate.set()
    qtbot.waitUntil(lambda: not latest.busy)
    assert done == [0, 49]
    assert results == [0, 49]


def test_a_job_runs_beside_the_gui_and_reports_on_its_thread(latest, qtbot):
    threads = []
    latest.done.connect(lambda worker: threads.extend([worker, QThread.currentThread()]))
    here = QThread.currentThread()
    with qtbot.waitSignal(latest.done):
        latest.ask(QThread.currentThread)
    assert threads[0] != here
    assert threads[1] == here


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("nor this")])
def test_an_error_is_reported_and_the_next_job_runs(latest, qtbot, error):
    def fail():
        raise error

    with qtbot.waitSignal(latest.failed) as caught:
        latest.ask(fail)
    assert caught.args == [error]
    with qtbot.waitSignal(latest.done) as result:
        latest.ask(lambda: 7)
    assert result.args == [7]


def test_dropped_jobs_are_silent(latest, qtbot):
    gate, results = threading.Event(), []
    latest.done.connect(results.append)
    latest.ask(lambda: gate.wait(30))
    latest.ask(lambda: "waits")
    latest.drop()
    gate.set()
    qtbot.waitUntil(lambda: not latest.busy)
    assert results == []
    latest.ask(lambda: gate.wait(30))
    latest.drop()
    with qtbot.waitSignal(latest.done):
        latest.ask(lambda: "asked after the drop")
    assert results == ["asked after the drop"]


def test_a_failing_gpu_is_shown(latest, qtbot):
    import warnings

    from napari.utils.notifications import notification_manager

    shown = []
    notification_manager.notification_ready.connect(shown.append)
    with qtbot.waitSignal(latest.done):
        latest.ask(lambda: warnings.warn("the GPU has failed", BackendFallbackWarning, 1))
    notification_manager.notification_ready.disconnect(shown.append)
    assert "the GPU has failed" in str(shown[0].message)
