"""A CSV file that is being written in a worker thread, as a Qt object."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject

from ..parts.work import Steps, Work
from .columns import Column, Units
from .csv_file import write_csv


@dataclass(frozen=True, eq=False)
class CsvJob:
    """What to write; made on the GUI thread, used in the worker."""

    path: Path
    columns: Mapping[str, Column]
    units: Units
    rows: NDArray[np.intp]


class CsvRun(Work):
    """Writes a file.

    Parameters
    ----------
    job : CsvJob
        What to write.
    parent : QObject
        Qt parent; when it goes, the run is cancelled.
    """

    def __init__(self, job: CsvJob, parent: QObject):
        # Taken once: by who cancels, or by the worker when it gives the file its name.
        decision = threading.Lock()
        super().__init__(partial(_write, job, decision), parent)
        self.job, self._decision = job, decision

    def cancel_in_time(self) -> bool:
        """Cancel the run and leave no file, unless it is too late.

        Returns
        -------
        bool
            False if it is too late: the file is written, and ``done`` or ``failed`` will come.
        """
        in_time = self._decision.acquire(blocking=False)
        if in_time:
            self.cancel()
        return in_time


def _write(job: CsvJob, decision: threading.Lock) -> Steps:
    """Write part by part; an unfinished file goes at once."""
    with closing(write_csv(job.path, job.columns, job.units, job.rows)) as parts:
        for done, total in parts:
            yield done, total
            if done == total and not decision.acquire(blocking=False):
                break
