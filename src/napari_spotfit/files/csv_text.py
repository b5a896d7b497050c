"""Spots as CSV files: lines with # that say what the columns are, then titles and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from .about import FORMAT_KEY, from_texts, to_texts
from .csv_rows import rows_as_text, rows_of_text
from .table import DERIVED, About, SpotTable, UnreadableFileError

#: Rows that are written at a time.
CHUNK = 100_000
#: The last line, without which a file was cut off.
_END = b"# end of the spots"


def write_csv(path: Path, table: SpotTable) -> None:
    """Write a table as a CSV file."""
    with path.open("wb") as file:
        for _ in csv_parts(file, table):
            pass


def csv_parts(file: BinaryIO, table: SpotTable, chunk: int = CHUNK) -> Iterator[int]:
    """Write a table as CSV into a file; yield how many rows are written after each part."""
    with _rows_between(file, table.about) as add:
        for start in range(0, len(table), chunk):
            part = {name: values[start : start + chunk] for name, values in table.columns.items()}
            add(SpotTable(part, table.about))
            yield min(start + chunk, len(table))


@contextmanager
def csv_writer(path: Path, first: SpotTable) -> Iterator[Callable[[SpotTable], None]]:
    """Give what adds tables of the same columns as the first one to a CSV file."""
    with path.open("wb") as file, _rows_between(file, first.about) as add:
        yield add


@contextmanager
def _rows_between(file: BinaryIO, about: About) -> Iterator[Callable[[SpotTable], None]]:
    """Write what is known of the columns, and their titles; then rows; then that it is complete."""
    for name, text in to_texts(about).items():
        file.write(f"# {name}: {text}\n".encode())
    titles = (_title(column.title or name) for name, column in about.columns.items())
    file.write((",".join(titles) + "\n").encode())

    def add(table: SpotTable) -> None:
        file.write(rows_as_text(table.columns, about.columns))

    yield add
    file.write(_END + b"\n")


def read_csv(path: Path) -> SpotTable:
    """Read a table that :func:`write_csv` has written.

    Raises
    ------
    UnreadableFileError
        If the file is damaged, of a newer version, or something else.
    """
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    texts, begin = {}, 0
    while text.startswith(b"# ", begin):
        end = text.find(b"\n", begin) + 1 or len(text)
        name, colon, value = text[begin + 2 : end].partition(b": ")
        if colon:
            texts[name] = value
        begin = end
    if FORMAT_KEY.encode() not in texts:
        raise UnreadableFileError(
            "it was not written by napari-spotfit, and does not begin as the formats of other "
            "programs do that are known; say format=… if it is of one of them"
        )
    end = text.rfind(b"\n#", begin - 1)
    if end < 0 or not text.startswith(_END, end + 1):
        raise UnreadableFileError(f"it was cut off: its last line, “{_END.decode()}”, is missing")
    try:
        about = from_texts({name.decode(): value.decode() for name, value in texts.items()})
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"it is damaged: {error}") from None
    stored = {name: column for name, column in about.columns.items() if column.role != DERIVED}
    rows = text[begin : end + 1]
    return SpotTable(rows_of_text(rows, stored), replace(about, columns=stored))


def _title(title: str) -> str:
    """Return a title as it stands in a line of them."""
    if title.strip() == title and title and not set(title) & set(',"#\r\n'):
        return title
    return '"' + title.replace('"', '""') + '"'
