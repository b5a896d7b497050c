"""Work in the background of which only the latest counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from qtpy.QtCore import QObject, Signal

from .work import Steps, Work

Job = Callable[[], Any]


class Latest(QObject):
    """Does jobs in a worker thread, one at a time; of those that wait, only the last.

    There is never a queue: a job that is asked for while another runs replaces the one
    that waits.

    Parameters
    ----------
    parent : QObject
        Qt parent.
    """

    #: What the job returned. On the GUI thread.
    done = Signal(object)
    #: The exception that it raised instead.
    failed = Signal(object)

    def __init__(self, parent: QObject):
        super().__init__(parent)
        self._waiting: Job | None = None
        self._running: Work | None = None

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        return self._running is not None

    def ask(self, job: Job) -> None:
        """Do a job as soon as the one that runs has ended."""
        self._waiting = job
        if self._running is None:
            self._start()

    def drop(self) -> None:
        """Forget the job that waits, and be silent about the one that runs."""
        self._waiting = None
        if self._running is not None:
            self._running.cancel()

    def _start(self) -> None:
        if self._waiting is None:
            return
        self._running = Work(partial(_steps, self._waiting), self)
        self._waiting = None
        self._running.ended.connect(self._on_ended)
        self._running.done.connect(self.done)
        self._running.failed.connect(self.failed)
        self._running.start(at_once=True)

    def _on_ended(self) -> None:
        self._running = None
        self._start()


def _steps(job: Job) -> Steps:
    result = job()
    yield 1, 1
    return result
