"""Spots as text: CSV files and what is copied."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .columns import Column, Units

if TYPE_CHECKING:
    import pandas as pd

#: Rows that are written between two looks at whether to go on.
_CHUNK = 20_000

Rows = NDArray[np.intp]


def as_text(columns: Mapping[str, Column], units: Units, rows: Rows) -> str:
    """Return rows with a header, separated by tabs, as spreadsheets take them."""
    return str(_chunk(columns, units, rows).to_csv(sep="\t", index=False, lineterminator="\n"))


def write_csv(
    path: Path, columns: Mapping[str, Column], units: Units, rows: Rows
) -> Generator[tuple[int, int], None, None]:
    """Write a CSV file in parts; yield how many rows are written, and of how many.

    The file takes its name when it is complete. If the iterator is closed before, or
    fails, whatever had that name is as it was.

    Parameters
    ----------
    path : Path
        The file.
    columns : mapping of str to Column
        All columns.
    units : Units
        The units in which the numbers are written; the header names them.
    rows : ndarray of int
        Which rows, in order.
    """
    unfinished = path.with_name(f".{path.name}.part")
    try:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            for start in range(0, max(len(rows), 1), _CHUNK):
                part = rows[start : start + _CHUNK]
                _chunk(columns, units, part).to_csv(file, index=False, header=start == 0)
                yield start + len(part), len(rows)
        unfinished.replace(path)
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
