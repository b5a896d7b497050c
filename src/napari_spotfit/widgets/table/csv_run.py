"""A CSV file that is being written in a worker thread, as a Qt object."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from napari.qt.threading import create_worker
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from .columns import Column, Units
from .csv_file import write_csv


@dataclass(frozen=True, eq=False)
class CsvJob:
    """What to write; made on the GUI thread, used in the worker."""

    path: Path
    columns: Mapping[str, Column]
    units: Units
    rows: NDArray[np.intp]


class CsvRun(QObject):
    """Writes a file; ``ended`` is emitted once, unless it is cancelled.

    Parameters
    ----------
    job : CsvJob
        What to write.
    parent : QObject
        Qt parent; when it goes, the run is cancelled.
    """

    progressed = Signal(int, int)
    #: None, or the exception.
    ended = Signal(object)

    def __init__(self, job: CsvJob, parent: QObject):
        super().__init__(parent)
        self.job = job
        self._stop = threading.Event()
        #: Taken once: by who cancels, or by the worker when it gives the file its name.
        self._decision = threading.Lock()
        parent.destroyed.connect(self._stop.set)

    def start(self) -> None:
        """Start the worker."""
        worker = create_worker(_work, self.job, self._stop, self._decision, _start_thread=False)
        worker.yielded.connect(self._on_progress)
        worker.returned.connect(self._on_end)
        worker.start()

    def cancel(self) -> bool:
        """Stop before the next part, leave no file and say nothing any more.

        Returns
        -------
        bool
            False if it is too late: the file is written, and ``ended`` will come.
        """
        in_time = self._decision.acquire(blocking=False)
        if in_time:
            self._stop.set()
            self.blockSignals(True)
        return in_time

    def _on_progress(self, progress: tuple[int, int]) -> None:
        self.progressed.emit(*progress)

    def _on_end(self, end: _End) -> None:
        self.ended.emit(end.error)
        self.deleteLater()


@dataclass(frozen=True)
class _End:
    error: Exception | None = None


def _work(
    job: CsvJob, stop: threading.Event, decision: threading.Lock
) -> Generator[tuple[int, int], None, _End]:
    """Write part by part; errors are returned: a napari worker swallows a RuntimeError."""
    parts = write_csv(job.path, job.columns, job.units, job.rows)
    try:
        for progress in parts:
            yield progress
            last = progress[0] == progress[1]
            if stop.is_set() or (last and not decision.acquire(blocking=False)):
                break
    except Exception as error:
        return _End(error)
    finally:
        # At once, so that an unfinished file goes.
        parts.close()
    return _End()
