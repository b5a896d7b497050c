"""Read and write spots as Parquet files, with our metadata in their schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..untrusted import Allowance
from .table import (
    DERIVED,
    FORMAT_KEY,
    TEXT,
    WORDS,
    About,
    SpotTable,
    StoredColumn,
    UnreadableFileError,
    as_text,
    codes_of,
    from_texts,
    to_texts,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

#: Rows per row group: small groups make files large and slow.
GROUP = 1 << 17
#: Zstandard level: half the time of the default one, 3 % larger files.
_QUICK = -1


def write_parquet(path: Path, table: SpotTable) -> None:
    """Write a table as a Parquet file.

    Raises
    ------
    ImportError
        If pyarrow is missing; the message says how to get it.
    """
    with parquet_writer(path, table) as add:
        add(table)


@contextmanager
def parquet_writer(path: Path, first: SpotTable) -> Iterator[Callable[[SpotTable], None]]:
    """Open a Parquet file; yield a function that appends tables with the columns of the first.

    Raises
    ------
    ImportError
        If pyarrow is missing; the message says how to get it.
    """
    need_pyarrow()
    from pyarrow import parquet

    known = first.about.columns
    titles = {name: column.title or name for name, column in known.items()}
    empty = first.rows(slice(0))
    schema = _schema(empty)
    how: dict[str, Any] = {
        # Fitted numbers hardly ever repeat, so a dictionary only costs time. But their upper bytes
        # are similar, and compress best if stored together.
        "use_dictionary": [titles[name] for name, c in known.items() if c.type in (TEXT, WORDS)],
        "column_encoding": {
            titles[name]: "BYTE_STREAM_SPLIT"
            for name, column in known.items()
            if column.type not in (TEXT, WORDS, "bool")
        },
        "compression": "zstd",
        "compression_level": _QUICK,
        # Minimum and maximum of a group help queries only for columns that rows are sorted by.
        "write_statistics": [titles[n] for n in known if n in (*first.about.index, "y", "x")],
        "write_page_checksum": True,
    }
    # pyarrow opens only names in UTF-8, but writes faster to files that it has opened.
    named = as_text(str(path)) == str(path)
    place = nullcontext(path) if named else path.open("wb")
    with place as file, parquet.ParquetWriter(file, schema, **how) as writer:
        yield lambda table: writer.write_table(_arrow_table(table, schema), row_group_size=GROUP)


def read_parquet(path: Path) -> SpotTable:
    """Read a table that :func:`write_parquet` has written.

    Raises
    ------
    ImportError
        If pyarrow is missing; the message says how to get it.
    UnreadableFileError
        If the file is damaged, of a newer version, or something else.
    """
    with _opened(path) as (file, about):
        return _table_of_arrow(file.read(), about)


def parquet_pieces(path: Path) -> Iterator[SpotTable]:
    """Read a table in pieces, one per row group as written; at least one.

    Raises
    ------
    ImportError
        If pyarrow is missing; the message says how to get it.
    UnreadableFileError
        If the file is damaged, of a newer version, or something else.
    """
    with _opened(path) as (file, about):
        for number in range(max(file.num_row_groups, 1)):
            found = file.read_row_group(number) if file.num_row_groups else file.read()
            yield _table_of_arrow(found, about)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[parquet.ParquetFile, About]]:
    """Open a Parquet file and read its metadata; damaged rows raise an error when read."""
    need_pyarrow()
    import pyarrow as pa
    from pyarrow import parquet

    # Python's open raises the system's errors; what Arrow raises then means damage.
    with path.open("rb") as content:
        try:
            file = parquet.ParquetFile(content, page_checksum_verification=True)
            metadata = file.schema_arrow.metadata or {}
            if FORMAT_KEY.encode() not in metadata:
                raise UnreadableFileError("it was not written by napari-spotfit")
            _check_rows(file.metadata)
            check_promise(path, file.metadata)
            names = (name for name in metadata if not name.startswith(b"ARROW:"))
            about = from_texts({name.decode(): metadata[name].decode() for name in names})
            # A dictionary keeps a long text that many rows share in memory once.
            words = [c.title or n for n, c in about.columns.items() if c.type in (TEXT, WORDS)]
            yield (
                parquet.ParquetFile(
                    content, page_checksum_verification=True, read_dictionary=words
                ),
                about,
            )
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UnreadableFileError(f"it is damaged, or not a Parquet file: {error}") from None


def check_promise(path: Path, said: parquet.FileMetaData) -> None:
    """Raise an error if a file is too small for the numbers that its metadata claim."""
    Allowance(path.stat().st_size).take(said.num_rows * said.num_columns * 8, "it")


def _check_rows(said: parquet.FileMetaData) -> None:
    """Raise an error if the metadata's row counts of columns, groups and file disagree.

    Unlike pages, metadata have no checksum.
    """
    groups = [said.row_group(number) for number in range(said.num_row_groups)]
    whole = sum(group.num_rows for group in groups) == said.num_rows
    if not whole or any(
        group.column(number).num_values != group.num_rows
        for group in groups
        for number in range(group.num_columns)
    ):
        raise UnreadableFileError("it is damaged: some of its columns have more rows than others")


def need_pyarrow() -> None:
    """Raise an ImportError that says how to get pyarrow, if it is missing."""
    if find_spec("pyarrow") is None:
        raise ImportError(
            "Parquet files need pyarrow, which is missing: pip install "
            '"napari-spotfit[parquet]", or take a name that ends in .spots.csv'
        )


def _schema(table: SpotTable) -> pa.Schema:
    """Return Arrow's schema of a table, with our metadata."""
    import pyarrow as pa

    columns = []
    for name, column in table.about.columns.items():
        unit = {"unit": column.unit} if column.unit else None
        kind = _array(table.columns[name], column).type
        columns.append(pa.field(column.title or name, kind, nullable=False, metadata=unit))
    return pa.schema(columns, to_texts(table.about))


def _arrow_table(table: SpotTable, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = table.about.columns.items()
    arrays = [_array(table.columns[name], column) for name, column in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


def _table_of_arrow(found: pa.Table, about: About) -> SpotTable:
    """Convert an Arrow table to ours, without columns that are computed from others.

    Raises
    ------
    UnreadableFileError
        If a column is missing or has another type.
    """
    columns = {}
    for name, column in about.columns.items():
        if column.role == DERIVED:
            continue
        title = column.title or name
        if len(found.schema.get_all_field_indices(title)) != 1:
            raise UnreadableFileError(f"its column {title!r} is missing, or exists twice")
        columns[name] = _values(name, found.column(title), column)
    return SpotTable(columns, about)


def _array(values: NDArray[Any], column: StoredColumn) -> pa.Array:
    import pyarrow as pa

    if column.type == WORDS:
        return pa.DictionaryArray.from_arrays(
            pa.array(values.astype(np.int8)), pa.array(list(column.words), pa.string())
        )
    return pa.array(values, pa.string() if column.type == TEXT else None)


def _values(name: str, found: pa.ChunkedArray, column: StoredColumn) -> NDArray[Any]:
    """Return a column as an array that owns its memory."""
    import pyarrow as pa

    if found.null_count:
        raise UnreadableFileError(f"its column {name!r} has rows without a value")
    if column.type in (TEXT, WORDS):
        if pa.types.is_string(found.type):  # of no rows
            found = found.dictionary_encode()
        if getattr(found.type, "value_type", None) != pa.string():
            raise UnreadableFileError(f"its column {name!r} has {found.type} instead of text")
        words = found.unify_dictionaries().combine_chunks()
        known, codes = words.dictionary.to_pylist(), words.indices.to_numpy()
        if column.type == TEXT:
            texts: NDArray[Any] = np.array(known, object)[codes]
            return texts
        return codes_of(name, codes, known, column)
    values = np.array(found.to_numpy())
    if values.dtype != np.dtype(column.type):
        raise UnreadableFileError(f"its column {name!r} has {found.type} instead of {column.type}")
    return values
