"""Work in the background: it can be cancelled, and reports all errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from napari.qt.threading import create_worker
from napari.utils.notifications import notification_manager
from qtpy.QtCore import QObject, QThreadPool, QTimer, Signal

from ...engine.backend import BackendFallbackWarning
from ...workers import is_cancelled

#: Does the work, yields after each step how many are done of how many, returns the result.
Steps = Generator[tuple[int, int], None, Any]
Job = Callable[[], Any]


class Work(QObject):
    """Steps that are done one after the other in a worker thread.

    When they end, ``ended`` is emitted, and then either ``done`` or ``failed``, all on the
    GUI thread; after ``cancel`` only ``ended`` is.

    Parameters
    ----------
    steps : callable
        Returns the steps; called in the worker thread.
    parent : QObject
        Qt parent; when it goes, the work is cancelled.
    """

    progressed = Signal(int, int)
    #: What the steps returned.
    done = Signal(object)
    #: The exception that they raised instead.
    failed = Signal(object)
    ended = Signal()

    def __init__(self, steps: Callable[[], Steps], parent: QObject):
        super().__init__(parent)
        self._steps = steps
        self._stop = threading.Event()
        self.destroyed.connect(self._stop.set)

    def start(self, *, at_once: bool = False) -> None:
        """Start the worker.

        Parameters
        ----------
        at_once : bool
            Whether without the turn of the event loop that a worker else waits for, in which the
            window may be drawn. Not for long work: at its end napari asks only the others to stop.
        """
        worker = create_worker(_work, self._steps, self._stop, _start_thread=False)
        worker.yielded.connect(self._on_progress)
        worker.warned.connect(self._on_warning)
        worker.returned.connect(self._on_end)
        worker.finished.connect(self.deleteLater)
        self._worker = worker  # keeps it, and the signals it has emitted, until it ends
        if at_once and (pool := QThreadPool.globalInstance()) is not None:
            pool.start(worker)
        else:
            worker.start()

    def cancel(self) -> None:
        """Stop soon, at the latest before the next step, and emit nothing but ``ended``."""
        self._stop.set()

    def _on_progress(self, progress: tuple[int, int]) -> None:
        if not self._stop.is_set():
            self.progressed.emit(*progress)

    def _on_warning(self, warning: tuple[Any, ...]) -> None:
        """Show that the GPU has failed; napari does not show warnings of workers."""
        if issubclass(warning[1], BackendFallbackWarning) and not self._stop.is_set():
            notification_manager.receive_warning(*warning)

    def _on_end(self, end: _End) -> None:
        self.ended.emit()
        if not self._stop.is_set():
            self.done.emit(end.result) if end.error is None else self.failed.emit(end.error)


@dataclass(frozen=True)
class _End:
    result: Any = None
    error: Exception | None = None


def _work(
    steps: Callable[[], Steps], stop: threading.Event
) -> Generator[tuple[int, int], None, _End]:
    """Do the steps; errors are returned, not raised: a napari worker swallows a RuntimeError."""
    try:
        context = copy_context()
        context.run(is_cancelled.set, stop.is_set)
        with closing(steps()) as left:
            while not stop.is_set():
                yield context.run(next, left)
    except StopIteration as end:
        return _End(end.value)
    except Exception as error:
        return _End(error=error)
    return _End()


class Latest(QObject):
    """Does jobs in a worker thread, one at a time; the last one replaces those that wait.

    There is never a queue: a job that is asked for while another runs replaces the one
    that waits.

    Parameters
    ----------
    parent : QObject
        Qt parent.
    *slots : callable
        What ``done`` and ``failed`` are connected to.
    """

    #: What the job returned. On the GUI thread.
    done = Signal(object)
    #: The exception that it raised instead.
    failed = Signal(object)
    #: How many of its steps are done, and how many there are.
    progressed = Signal(int, int)

    def __init__(self, parent: QObject, *slots: Callable[[Any], object]):
        super().__init__(parent)
        for signal, slot in zip((self.done, self.failed), slots, strict=False):
            signal.connect(slot)
        self._waiting: Callable[[], Steps] | None = None
        self._running: Work | None = None

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        return self._running is not None

    def ask(self, job: Job) -> None:
        """Do a job as soon as the one that runs has ended."""
        self.ask_steps(partial(_steps, job))

    def ask_steps(self, steps: Callable[[], Steps]) -> None:
        """Do a job in steps, between which it can be dropped."""
        self._waiting = steps
        if self._running is None:
            self._start()

    def drop(self) -> None:
        """Forget the job that waits, and emit nothing of the one that runs."""
        self._waiting = None
        if self._running is not None:
            self._running.cancel()

    def _start(self) -> None:
        if self._waiting is None:
            return
        self._running = Work(self._waiting, self)
        self._waiting = None
        self._running.ended.connect(self._on_ended)
        self._running.done.connect(self.done)
        self._running.failed.connect(self.failed)
        self._running.progressed.connect(self.progressed)
        self._running.start(at_once=True)

    def _on_ended(self) -> None:
        self._running = None
        self._start()


def _steps(job: Job) -> Steps:
    result = job()
    yield 1, 1
    return result


def delayed(slot: Callable[[], object], milliseconds: int, parent: QObject) -> QTimer:
    """Return a timer that calls a slot once, this long after its last start."""
    timer = QTimer(parent)
    timer.setSingleShot(True)
    timer.setInterval(milliseconds)
    timer.timeout.connect(slot)
    return timer
