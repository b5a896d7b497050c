"""Work in a worker thread that tells how far it is, how it ended, and can be cancelled."""

from __future__ import annotations

import threading

import pytest
from qtpy.QtCore import QObject

from napari_spotfit.engine.threads import in_pieces
from napari_spotfit.widgets.parts.work import Work

pytestmark = pytest.mark.usefixtures("qapp")


@pytest.fixture
def parent():
    parent = QObject()
    yield parent
    parent.deleteLater()


def listen(work):
    """Collect what a work says, in order."""
    said = []
    work.progressed.connect(lambda done, total: said.append((done, total)))
    work.ended.connect(lambda: said.append("ended"))
    work.done.connect(said.append)
    work.failed.connect(said.append)
    return said


def test_steps_are_shown_and_then_their_result(parent, qtbot):
    def steps():
        yield 1, 2
        yield 2, 2
        return "result"

    work = Work(steps, parent)
    said = listen(work)
    with qtbot.waitSignal(work.done):
        work.start()
    assert said == [(1, 2), (2, 2), "ended", "result"]


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("nor this")])
def test_an_error_is_shown(parent, qtbot, error):
    def steps():
        yield 1, 2
        raise error

    work = Work(steps, parent)
    said = listen(work)
    with qtbot.waitSignal(work.failed):
        work.start()
    assert said == [(1, 2), "ended", error]


def test_a_long_step_is_stopped_when_its_work_is_cancelled(parent, qtbot):
    begun, stopped = threading.Event(), threading.Event()

    def fit(first, last):
        begun.set()
        assert stopped.wait(60)

    def steps():
        in_pieces(fit, 1, 1, 1, stopped.set)
        yield 1, 1

    work = Work(steps, parent)
    said = listen(work)
    with qtbot.waitSignal(work.ended):
        work.start()
        assert begun.wait(60)
        work.cancel()
    assert said == ["ended"]


@pytest.mark.parametrize("parent_goes", [False, True])
def test_work_that_is_cancelled_stops_after_the_step_and_is_silent(qtbot, parent_goes):
    gate, begun, closed, parent = *(threading.Event() for _ in range(3)), QObject()
    last = []

    def steps():
        try:
            begun.set()
            assert gate.wait(30)
            yield 1, 2
            last.append("a step too many")
            yield 2, 2
        finally:
            closed.set()

    work = Work(steps, parent)
    said = listen(work)
    work.start()
    assert begun.wait(30)
    if parent_goes:
        with qtbot.waitSignal(parent.destroyed):
            parent.deleteLater()
    else:
        work.cancel()
    gate.set()
    qtbot.waitUntil(closed.is_set)
    qtbot.wait(50)
    assert last == []
    assert said == ([] if parent_goes else ["ended"])
    if not parent_goes:
        parent.deleteLater()
