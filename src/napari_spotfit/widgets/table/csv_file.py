"""Spots as text: what is copied, and CSV files, which are written in a worker thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject

from ..parts.work import Steps, Work
from .columns import Column, Units

if TYPE_CHECKING:
    import pandas as pd

#: Rows that are written between two looks at whether to go on.
_CHUNK = 20_000

Rows = NDArray[np.intp]


def as_text(columns: Mapping[str, Column], units: Units, rows: Rows) -> str:
    """Return rows with a header, separated by tabs, as spreadsheets take them."""
    return str(_chunk(columns, units, rows).to_csv(sep="\t", index=False, lineterminator="\n"))


@dataclass(frozen=True, eq=False)
class CsvJob:
    """What to write; made on the GUI thread, used in the worker."""

    path: Path
    columns: Mapping[str, Column]
    units: Units
    rows: Rows


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
    """Write in parts; the file takes its name when it is complete, unless that was decided against.

    If so, or if it fails or is closed before, whatever had that name is as it was.
    """
    unfinished, rows = job.path.with_name(f".{job.path.name}.part"), job.rows
    try:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            for start in range(0, max(len(rows), 1), _CHUNK):
                part = rows[start : start + _CHUNK]
                _chunk(job.columns, job.units, part).to_csv(file, index=False, header=start == 0)
                yield start + len(part), len(rows)
        if decision.acquire(blocking=False):
            unfinished.replace(job.path)
    finally:
        unfinished.unlink(missing_ok=True)


def _chunk(columns: Mapping[str, Column], units: Units, rows: Rows) -> pd.DataFrame:
    import pandas as pd

    parts: dict[str, Any] = {}
    for name, column in columns.items():
        part = Column(name, column.values[rows], column.words)
        if not column.is_number:
            parts[units.title(name)] = pd.Categorical.from_codes(part.values, list(column.words))
        elif units.factor(name) == 1 and column.whole:
            parts[units.title(name)] = _whole(part.values)
        else:
            parts[units.title(name)] = units.convert(part)
    return pd.DataFrame(parts)


def _whole(values: NDArray[Any]) -> Any:
    """Return numbers as whole ones, with nothing for NaN, unless one is not whole."""
    import pandas as pd

    numbers = values.astype(float)
    finite = np.isfinite(numbers)
    if not np.array_equal(numbers[finite], np.rint(numbers[finite])):
        return values
    whole = np.where(finite, numbers, 0).astype(np.int64)
    return pd.arrays.IntegerArray(whole, ~finite)
