"""Work in the background of which only the latest counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from napari.qt.threading import create_worker
from napari.utils.notifications import notification_manager
from qtpy.QtCore import QObject, Signal

from ...backends.errors import BackendFallbackWarning
from .collector import CollectorAtRest

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
        self._running: Job | None = None
        self._dropped = False

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
        self._waiting, self._dropped = None, True

    def _start(self) -> None:
        self._running, self._waiting, self._dropped = self._waiting, None, False
        worker = create_worker(_work, self._running, _start_thread=False)
        worker.returned.connect(self._on_end)
        worker.warned.connect(self._on_warning)
        worker.start()

    def _on_warning(self, warning: tuple[Any, ...]) -> None:
        if issubclass(warning[1], BackendFallbackWarning) and not self._dropped:
            notification_manager.receive_warning(*warning)

    def _on_end(self, end: tuple[Any, Exception | None]) -> None:
        result, error = end
        dropped, self._running = self._dropped, None
        if self._waiting is not None:
            self._start()
        if not dropped:
            self.done.emit(result) if error is None else self.failed.emit(error)


def _work(job: Job) -> tuple[Any, Exception | None]:
    """Return the job's result or its error: a napari worker swallows a RuntimeError."""
    try:
        with CollectorAtRest():
            return job(), None
    except Exception as error:
        return None, error
