"""Tables of spots that come in parts, written to one file while the next ones are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path

import numpy as np

from .csv_text import csv_writer
from .exchange.registry import by_name
from .formats import FORMATS, check_titles, unfinished
from .parquet import GROUP, parquet_writer
from .table import SpotTable

#: What adds a table to a file.
Adds = Callable[[SpotTable], None]
#: Rows that are gathered before they are written. Text takes several times the memory.
_ROWS = {".parquet": GROUP, ".csv": GROUP // 4}
_WRITERS: dict[str, Callable[[Path, SpotTable], AbstractContextManager[Adds]]] = {
    ".parquet": parquet_writer,
    ".csv": csv_writer,
}


def check_name(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to be, or raise a ValueError if its name says no format of spots.

    For work that takes long before there is anything to write.
    """
    place = Path(path)
    if (other := by_name(place)) is not None:
        raise ValueError(
            f"“{place.name}” would be a file of {other.title}, which is not written while spots "
            f"are found; write {' or '.join(f'.spots{end}' for end in FORMATS)}, and convert it"
        )
    if place.suffix.lower() not in FORMATS:
        raise ValueError(
            f"the name of a file of spots must end in {' or '.join(FORMATS)}; got “{place.name}”"
        )
    if not place.parent.is_dir():
        raise FileNotFoundError(f"there is no folder “{place.parent}”")
    return place


def write_parts(path: str | os.PathLike[str], parts: Iterable[SpotTable]) -> int:
    """Write tables of the same columns as one file, which is that of the tables joined.

    What is said beside the columns is the first one's. The file takes its name when it is
    complete: should anything fail, whatever had that name is as it was.

    Parameters
    ----------
    path : str or path
        The file; its name ends as :func:`~.formats.write` wants it.
    parts : iterable of SpotTable
        One at least. Few are in memory at a time, where the format can be written in parts.

    Returns
    -------
    int
        How many rows were written.

    Raises
    ------
    ValueError
        If the name ends otherwise, there are no parts, or two columns would have one title.
    OSError
        If the file cannot be written.
    """
    place = check_name(path)
    ending = place.suffix.lower()
    tables = _gathered(parts, _ROWS[ending])
    first = next(tables, None)
    if first is None:
        raise ValueError("there are no spots to write, not even none of an image")
    check_titles(first)
    with unfinished(place) as part, _WRITERS[ending](part, first) as add:
        return _add_behind(add, chain([first], tables))


def _add_behind(add: Adds, tables: Iterable[SpotTable]) -> int:
    """Add tables to a file by a thread of its own, while the next ones are made; count the rows."""
    count, written = 0, Future[None]()
    written.set_result(None)
    with ThreadPoolExecutor(1, "napari-spotfit writer") as writer:
        for table in tables:
            written.result()  # one at a time is in memory; an error ends it
            written = writer.submit(add, table)
            count += len(table)
        written.result()
    return count


def _gathered(parts: Iterable[SpotTable], rows: int) -> Iterator[SpotTable]:
    """Join and cut tables into such of so many rows as are best written at once.

    So a file is the same to the bit whatever the parts are; the last one may be shorter.
    """
    held: list[SpotTable] = []
    count, begun = 0, False
    for part in parts:
        held.append(part)
        count += len(part)
        if count < rows:
            continue
        joined, full = _joined(held), count - count % rows
        for start in range(0, full, rows):
            yield _rows(joined, slice(start, start + rows))
        held, count, begun = [_rows(joined, slice(full, None))], count - full, True
    if held and (count or not begun):
        yield _joined(held)


def _rows(table: SpotTable, rows: slice) -> SpotTable:
    return SpotTable({name: values[rows] for name, values in table.columns.items()}, table.about)


def _joined(tables: list[SpotTable]) -> SpotTable:
    first = tables[0]
    columns = {
        name: np.concatenate([table.columns[name] for table in tables]) for name in first.columns
    }
    return SpotTable(columns, first.about)
