"""A batch that runs in a worker thread, as a Qt object."""

from __future__ import annotations

import threading
from dataclasses import replace

from qtpy.QtCore import QObject, Signal

from ...batch.asked import Batch, images_of
from ...batch.outcome import Outcome
from ...batch.run import run_batch
from ..parts.work import Steps, Work


class BatchRun(QObject):
    """A batch in the background, which can be stopped: what is complete, and parts, are kept.

    Parameters
    ----------
    batch : Batch
        What to do.
    parent : QObject
        Qt parent; when it goes, the batch is stopped.
    """

    #: Its files are known: those that it works on.
    begun = Signal(object)
    #: There is something new of a file; a copy of its outcome.
    told = Signal(object)
    #: What became of each file, be it stopped or not.
    done = Signal(object)
    #: The error that has ended all.
    failed = Signal(object)

    def __init__(self, batch: Batch, parent: QObject):
        super().__init__(parent)
        self.batch, self._stop = batch, threading.Event()
        self.destroyed.connect(self._stop.set)
        self._work = Work(self._steps, self)
        self._work.done.connect(self.done)
        self._work.failed.connect(self.failed)

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    def start(self) -> None:
        """Begin."""
        self._work.start()

    def stop(self) -> None:
        """Ask it to stop, which it does after the frames in hand."""
        self._stop.set()

    def _steps(self) -> Steps:
        yield 0, 1
        # Each file is asked whether it is a part of another one, which takes its time.
        batch = images_of(self.batch)
        self.begun.emit(list(batch.files))
        return run_batch(batch, self._tell, self._stop.is_set)

    def _tell(self, outcome: Outcome) -> None:
        # Other threads go on to change it.
        self.told.emit(replace(outcome, warnings=list(outcome.warnings)))
