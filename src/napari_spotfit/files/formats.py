"""Tables of spots written to files and read from them, in the format that the name says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from .csv_text import read_csv, write_csv
from .parquet import read_parquet, write_parquet
from .table import TEXT, WORDS, Column, SpotTable, UnreadableFileError

FORMATS: dict[str, tuple[Callable[[Path, SpotTable], None], Callable[[Path], SpotTable]]] = {
    ".parquet": (write_parquet, read_parquet),
    ".csv": (write_csv, read_csv),
}
_ENDINGS = (
    "must end in .spots.parquet or .spots.csv, which napari opens with this plugin, or in "
    ".parquet or .csv"
)


def write(path: str | os.PathLike[str], table: SpotTable) -> Path:
    """Write a table in the format that the file's name ends in; return the path.

    The file takes its name when it is complete: should anything fail, whatever had that name is
    as it was.

    Raises
    ------
    ValueError
        If the name ends otherwise, or two columns would have one title.
    OSError
        If the file cannot be written.
    """
    place = Path(path)
    write_table, _ = _format(place)
    check_titles(table)
    with unfinished(place) as part:
        write_table(part, table)
    return place


def read(path: str | os.PathLike[str]) -> SpotTable:
    """Read a table that :func:`write` has written.

    Raises
    ------
    UnreadableFileError
        If the file is damaged, of a newer version, or something else; the message says what.
    ValueError
        If its name ends otherwise.
    OSError
        If there is no such file, or it cannot be read.
    """
    place = Path(path)
    _, read_table = _format(place)
    try:
        table = read_table(place)
        _check(table)
    except UnreadableFileError as error:
        raise UnreadableFileError(f"“{place.name}” cannot be opened: {error}") from None
    return _in_pixels(table)


def check_titles(table: SpotTable) -> None:
    """Check that the titles of a table's columns differ."""
    titles = [column.title or name for name, column in table.about.columns.items()]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise ValueError(f"two columns have the title {twice!r}; rename or delete one of them")


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Give another name to write to, and the path to what was written there once it is complete."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _format(
    path: Path,
) -> tuple[Callable[[Path, SpotTable], None], Callable[[Path], SpotTable]]:
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise ValueError(f"the name of a file of spots {_ENDINGS}; got “{path.name}”")
    return found


def _check(table: SpotTable) -> None:
    """Check that a table has what spots have."""
    for name in (*table.about.index, "y", "x", "stop_condition"):
        if name not in table.columns:
            raise UnreadableFileError(f"it has no column {name!r}, which spots have")
    if table.about.columns["stop_condition"].type != WORDS:
        raise UnreadableFileError("its column 'stop_condition' has no words")


def _in_pixels(table: SpotTable) -> SpotTable:
    """Return a table whose numbers are in their own units again."""
    columns, known = dict(table.columns), dict(table.about.columns)
    for name, column in known.items():
        if column.factor != 1 and column.type not in (TEXT, WORDS) and name in columns:
            kind = columns[name].dtype
            columns[name] = (columns[name] / np.float64(column.factor)).astype(kind)
        known[name] = Column(column.type, words=column.words, role=column.role)
    return SpotTable(columns, replace(table.about, columns=known))
