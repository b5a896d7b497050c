"""Spots as text: what is copied, and CSV files, which are written in a worker thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject

from ...files.csv_text import csv_parts
from ...files.table import TEXT, WORDS, SpotTable
from ..parts.work import Steps, Work
from ..saved_layers import table_of_layer
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
    #: The layer's points, and what else is known of it.
    data: NDArray[np.float64]
    attributes: Mapping[str, Any]
    #: The columns in the order of the table, and their units.
    columns: tuple[str, ...]
    units: Units
    rows: Rows

    def table(self) -> SpotTable:
        """Return the rows as a file holds them, which opens as a layer again."""
        table = table_of_layer(self.data, self.attributes, self.rows)
        names = [*self.columns, *(name for name in table.columns if name not in self.columns)]
        values, known = {}, {}
        for name in names:
            values[name], column = table.columns[name], table.about.columns[name]
            factor = self.units.factor(name)
            if factor != 1 and column.type not in (TEXT, WORDS):
                # A plain number, so that single precision stays single, with its few digits.
                values[name] = values[name] * float(factor)
                column = replace(column, type=values[name].dtype.name, factor=factor)
            known[name] = replace(column, unit=self.units.unit(name), title=self.units.title(name))
        return SpotTable(values, replace(table.about, columns=known))


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
    unfinished, count = job.path.with_name(f".{job.path.name}.part"), len(job.rows)
    try:
        with unfinished.open("wb") as file:
            for done in csv_parts(file, job.table(), _CHUNK):
                yield done, count
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
