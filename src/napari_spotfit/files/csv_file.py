"""Read and write spots as CSV: metadata in lines that start with #, then titles and rows.

pyarrow does the work where it is installed, else plain Python, more slowly. Both write the
shortest digits that restore a number to the bit. NaN is an empty cell.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from .table import (
    DERIVED,
    FORMAT_KEY,
    TEXT,
    WORDS,
    About,
    SpotTable,
    StoredColumn,
    UnreadableFileError,
    codes_of,
    from_texts,
    to_texts,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: Beginnings of formulas, also with full-width signs: at the start of a text, and after characters
#: that may separate cells.
_FORMULA = re.compile(r"""((?:^|[,;\t\r\n])[\s"]{0,64})(?=[=+\-@\uff1d\uff0b\uff0d\uff20])""")
#: Characters that separate cells or begin formulas.
_SIGNS = re.compile("[,;=+@-]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
Columns = Mapping[str, NDArray[Any]]
#: Rows per write.
CHUNK = 100_000
#: The last line: a file without it was cut off.
_END = b"# end of the spots"

_NAN = ["", "nan", "NaN"]
_TRUTH = {"true": True, "false": False}


def as_text_cell(text: str) -> str:
    """Return a text that a spreadsheet shows but does not compute.

    Examples
    --------
    >>> as_text_cell("=1+1"), as_text_cell("cell;=1"), as_text_cell("a=b")
    ("'=1+1", "cell;'=1", 'a=b')
    """
    return _FORMULA.sub(r"\1'", text)


def table_for_spreadsheets(table: SpotTable) -> SpotTable:
    """Return a table with texts and titles that no spreadsheet computes."""
    known = table.about.columns
    names = {name: as_text_cell(name) for name in known}
    columns = {names.get(name, name): values for name, values in table.columns.items()}
    for name, column in known.items():
        if column.type == TEXT and name in table.columns:
            texts = [as_text_cell(text) for text in table.columns[name]]
            columns[names[name]] = np.array(texts, object)
    about = replace(
        table.about,
        columns={names[n]: replace(c, title=as_text_cell(c.title)) for n, c in known.items()},
        index=tuple(names.get(name, name) for name in table.about.index),
    )
    return SpotTable(columns, about)


def frame_for_spreadsheets(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a DataFrame with texts and titles that no spreadsheet computes."""
    safe = frame.copy(deep=False)
    for name, values in frame.items():
        if values.dtype.kind not in "iufb":
            safe[name] = [as_text_cell(one) if isinstance(one, str) else one for one in values]
    return safe.rename(columns=lambda name: as_text_cell(str(name)))


def without_separators(json_text: str) -> str:
    r"""Escape characters in the strings of a JSON text that could separate cells.

    Examples
    --------
    >>> without_separators('{"name": "a,=b", "size": [1, 2]}')
    '{"name": "a\\u002c\\u003db", "size": [1, 2]}'
    """

    def escaped(found: re.Match[str]) -> str:
        return _SIGNS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", found[0])

    return _STRING.sub(escaped, json_text)


def write_csv(path: Path, table: SpotTable, spreadsheet: bool = False) -> None:
    """Write a table as a CSV file; with `spreadsheet`, escape what would be a formula."""
    with path.open("wb") as file:
        for _ in csv_parts(file, table, spreadsheet=spreadsheet):
            pass


def csv_parts(
    file: BinaryIO, table: SpotTable, chunk: int = CHUNK, spreadsheet: bool = False
) -> Iterator[int]:
    """Write a table as CSV in chunks; yield the number of rows written so far."""
    table = table_for_spreadsheets(table) if spreadsheet else table
    with _rows_between(file, table.about, spreadsheet) as add:
        for start in range(0, len(table), chunk):
            add(table.rows(slice(start, start + chunk)))
            yield min(start + chunk, len(table))


@contextmanager
def csv_writer(path: Path, first: SpotTable) -> Iterator[Callable[[SpotTable], None]]:
    """Open a CSV file; yield a function that appends tables with the columns of the first."""
    with path.open("wb") as file, _rows_between(file, first.about) as add:
        yield add


@contextmanager
def _rows_between(
    file: BinaryIO, about: About, spreadsheet: bool = False
) -> Iterator[Callable[[SpotTable], None]]:
    """Write metadata and titles, yield a function that appends rows, then write the last line."""
    for name, text in to_texts(about).items():
        text = without_separators(text) if spreadsheet else text
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
            "it was not written by napari-spotfit, and does not begin like any known format of "
            "another program; if it has one of these formats, say which: format=…"
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
    """Return a title as a CSV cell, in quotes where needed."""
    if title.strip() == title and title and not set(title) & set(',"#\r\n'):
        return title
    return '"' + title.replace('"', '""') + '"'


def rows_as_text(
    values: Columns, columns: Mapping[str, StoredColumn], nan: Literal["", "NaN"] = ""
) -> bytes:
    """Return rows as lines of CSV.

    Parameters
    ----------
    values, columns : mapping
        The columns by name, and how they are stored.
    nan : str
        Text of a NaN.
    """
    return (_arrow_lines if find_spec("pyarrow") else _plain_lines)(values, columns, nan)


def rows_of_text(text: bytes, columns: Mapping[str, StoredColumn]) -> dict[str, NDArray[Any]]:
    """Return columns by name from a line of titles and lines of values.

    Raises
    ------
    UnreadableFileError
        If a column is missing or has values of another type.
    """
    read = _arrow_columns if find_spec("pyarrow") else _plain_columns
    try:
        return read(text, columns)
    except UnreadableFileError:
        raise
    except (csv.Error, KeyError, ValueError) as error:
        raise UnreadableFileError(f"its columns are damaged: {error}") from None


def _has_text(columns: Mapping[str, StoredColumn]) -> bool:
    return any(column.type == TEXT for column in columns.values())


def _arrow_lines(values: Columns, columns: Mapping[str, StoredColumn], nan: str = "") -> bytes:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    arrays = []
    for name, column in columns.items():
        if column.type == WORDS:
            words = pa.array(list(column.words), pa.string())
            arrays.append(words.take(pa.array(values[name])))
        else:
            arrays.append(_arrow_numbers(values[name], nan))
    lines = io.BytesIO()
    quoting = "needed" if _has_text(columns) else "none"
    rows = pa.Table.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])
    options = arrow_csv.WriteOptions(include_header=False, quoting_style=quoting)
    arrow_csv.write_csv(rows, lines, options)
    return lines.getvalue()


def _arrow_numbers(values: NDArray[Any], nan: str) -> pa.Array:
    import pyarrow as pa

    # from_pandas: NaN becomes null, so that its cell is empty.
    numbers = pa.array(values, from_pandas=True)
    if not nan or not numbers.null_count:
        return numbers
    return pa.compute.fill_null(numbers.cast(pa.string()), nan)


def _arrow_columns(text: bytes, columns: Mapping[str, StoredColumn]) -> dict[str, NDArray[Any]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    types = {
        column.title or name: pa.string()
        if column.type in (TEXT, WORDS)
        else pa.from_numpy_dtype(column.type)
        for name, column in columns.items()
    }
    found = arrow_csv.read_csv(
        pa.BufferReader(text),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=_has_text(columns)),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=_NAN
        ),
    )
    return {
        name: _arrow_values(name, found.column(column.title or name), column)
        for name, column in columns.items()
    }


def _arrow_values(name: str, found: pa.ChunkedArray, column: StoredColumn) -> NDArray[Any]:
    if column.type == WORDS:
        words = found.dictionary_encode().unify_dictionaries().combine_chunks()
        return codes_of(name, words.indices.to_numpy(), words.dictionary.to_pylist(), column)
    if found.null_count:
        if np.dtype(column.type).kind != "f":
            raise UnreadableFileError(f"its column {name!r} has rows without a value")
        found = found.fill_null(np.nan)
    return np.array(found.to_numpy())


def _plain_lines(values: Columns, columns: Mapping[str, StoredColumn], nan: str = "") -> bytes:
    cells = [_cells(values[name], column, nan) for name, column in columns.items()]
    return "".join(f"{','.join(row)}\n" for row in zip(*cells, strict=True)).encode()


def _cells(values: NDArray[Any], column: StoredColumn, nan: str) -> Iterable[str]:
    if column.type == TEXT:
        return ('"' + text.replace('"', '""') + '"' for text in values)
    if column.type == WORDS:
        return (column.words[code] for code in values)
    if values.dtype.kind == "b":
        return np.where(values, "true", "false")
    cells = values.astype(str)
    if values.dtype.kind == "f":
        cells[np.isnan(values)] = nan
    return cells


def _plain_columns(text: bytes, columns: Mapping[str, StoredColumn]) -> dict[str, NDArray[Any]]:
    titles, *rows = csv.reader(io.StringIO(text.decode(), newline=""), strict=True)
    for number, row in enumerate(rows, 1):
        if len(row) != len(titles):
            raise ValueError(f"row {number} has {len(row)} values instead of {len(titles)}")
    cells = dict(zip(titles, zip(*rows, strict=True) if rows else [()] * len(titles), strict=True))
    return {
        name: _plain_values(name, cells[column.title or name], column)
        for name, column in columns.items()
    }


def _plain_values(name: str, cells: Sequence[str], column: StoredColumn) -> NDArray[Any]:
    if column.type == WORDS:
        words = {word: code for code, word in enumerate(dict.fromkeys(cells))}
        return codes_of(name, np.array([words[cell] for cell in cells], int), list(words), column)
    if column.type == TEXT:
        return np.array(cells, object)
    kind = np.dtype(column.type)
    if kind.kind == "b":
        return np.array([_TRUTH[cell.lower()] for cell in cells], bool)
    if kind.kind in "iu":
        return np.array([int(cell) for cell in cells], kind)
    numbers = np.array([math.nan if cell in _NAN else float(cell) for cell in cells])
    return _single(numbers, cells) if kind == np.float32 else numbers


def _single(values: NDArray[np.float64], cells: Sequence[str]) -> NDArray[np.float32]:
    """Return numbers in single precision, rounded once, from their digits.

    Rounding to double first can move a number onto the middle between two singles, and the second
    rounding then goes the wrong way.
    """
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
        neighbours = [np.nextafter(single, np.float32(end)) for end in (-np.inf, np.inf)]
    for other, end in zip(neighbours, (-1, 1), strict=True):
        halfway = values == (single.astype(np.float64) + other) / 2
        for row in np.flatnonzero(halfway & np.isfinite(values)).tolist():
            away = Fraction(cells[row]) - Fraction(values[row])
            if away and (away > 0) == (end > 0):
                single[row] = other[row]
    return single
