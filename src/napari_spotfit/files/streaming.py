"""Write a table of spots part by part, in our format or another program's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..models.columns import IN_PLANE, STOP, GroupCounter, describe
from ..workers import Workers
from .csv_file import csv_writer
from .exchange.format import Format
from .exchange.image_info import ImageInfo, PixelSizeNeededError, as_pixel_size
from .exchange.mapping import imported_table
from .exchange.registry import EXCHANGE, by_name
from .formats import FORMATS, check_beside, check_titles, read, write, write_foreign
from .parquet import GROUP, parquet_writer
from .table import SpotTable
from .writing import scratch, unfinished

#: Appends a table to an open file.
Adds = Callable[[SpotTable], None]
#: Rows to gather before a write; text takes several times the memory.
_ROWS = {".parquet": GROUP, ".csv": GROUP // 4}
_WRITERS: dict[str, Callable[[Path, SpotTable], AbstractContextManager[Adds]]] = {
    ".parquet": parquet_writer,
    ".csv": csv_writer,
}


def is_table(path: Path) -> bool:
    """Whether a name has the ending of a table, ours or another program's.

    Examples
    --------
    >>> is_table(Path("a.spots.csv")), is_table(Path("a_locs.hdf5")), is_table(Path("out.d"))
    (True, True, False)
    """
    return path.suffix.lower() in FORMATS or by_name(path) is not None


def check_name(
    path: str | os.PathLike[str],
    pixel_size: float | Sequence[float] | None = None,
    *,
    several: bool = False,
) -> Path:
    """Check that a file could be written later, and return its path.

    Called before long computations, so that they do not fail at the end.

    Parameters
    ----------
    path : str or path
        The file.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm.
    several : bool, default False
        Whether the table will have spots of several images, with a column of their names.

    Raises
    ------
    ValueError
        If the ending belongs to no format of spots, or the format needs the size of a pixel, or
        cannot store the names of several images.
    FileNotFoundError, FileExistsError
        If the folder is missing, or an accompanying file exists and is another program's.
    ImportError
        If the format needs a library that is missing.
    """
    place = Path(path)
    foreign = by_name(place)
    if foreign is None and place.suffix.lower() not in FORMATS:
        raise ValueError(
            f"the name of a file of spots must end in {' or '.join(FORMATS)}, or in "
            f"{', '.join(one.suffix for one in EXCHANGE.values())}; got “{place.name}”"
        )
    if not place.parent.is_dir():
        raise FileNotFoundError(f"there is no folder “{place.parent}”")
    if foreign is not None:
        if several and not foreign.keeps_text:
            raise ValueError(
                f"“{place.name}” would be one table of several images, but {foreign.title} cannot "
                f"store their names: choose a folder for the output, or a name that ends in "
                f"{' or '.join(f'.spots{end}' for end in FORMATS)}"
            )
        check_beside(place, foreign)
        _try(place, foreign, ImageInfo(as_pixel_size(pixel_size)))
    return place


def _try(place: Path, foreign: Format, image: ImageInfo) -> None:
    """Write an empty table elsewhere, to raise the errors of a format early."""
    none = {name: np.zeros(0, describe(name).type) for name in ("frame", *IN_PLANE, STOP)}
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            write_foreign(Path(folder) / place.name, imported_table(none, image), foreign, image)
        except PixelSizeNeededError:
            raise PixelSizeNeededError(
                f"“{place.name}” would have lengths in nm or µm, but the size of a pixel is "
                "unknown: pass pixel_size=… or --pixel-size in nm"
            ) from None


def write_parts(
    path: str | os.PathLike[str],
    parts: Iterable[SpotTable],
    *,
    pixel_size: float | Sequence[float] | None = None,
    shape: Sequence[int] | None = None,
) -> int:
    """Write tables of the same columns to one file, one after the other.

    The metadata are those of the first. The file appears when it is complete: if anything fails,
    an older file of that name is kept. Another program's format is converted from a temporary
    file in ours.

    Parameters
    ----------
    path : str or path
        The file, with an ending that :func:`~.formats.write` accepts.
    parts : iterable of SpotTable
        At least one. If the format can be written in parts, only few are in memory at a time.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm, for other programs' formats.
    shape : sequence of int, optional
        Shape of the image, for other programs' formats.

    Returns
    -------
    int
        Number of rows written.

    Raises
    ------
    ValueError
        If the ending is unknown, there are no parts, or two columns would have one title.
    OSError
        If the file cannot be written.
    """
    place = check_name(path, pixel_size)
    foreign = by_name(place)
    if foreign is None:
        with unfinished(place) as part:
            return _write_ours(part, place.suffix.lower(), parts)
    ending = ".parquet" if find_spec("pyarrow") else ".csv"
    with scratch(place, f".spots{ending}") as ours:
        count = _write_ours(ours, ending, parts)
        table = read(ours)
        write(place, table, foreign.name, pixel_size=pixel_size, shape=shape)
    return count


def _write_ours(path: Path, ending: str, parts: Iterable[SpotTable]) -> int:
    """Write tables to a file in our format; return the number of rows."""
    apart = GroupCounter()
    parts = (SpotTable(apart(part.columns), part.about) for part in parts)
    tables = _gathered(parts, _ROWS[ending])
    first = next(tables, None)
    if first is None:
        raise ValueError("there is nothing to write: at least one table is needed, even if empty")
    check_titles(first)
    with _WRITERS[ending](path, first) as add:
        return _add_behind(add, chain([first], tables))


def _add_behind(add: Adds, tables: Iterable[SpotTable]) -> int:
    """Append tables in a thread, while the next ones are computed; return the number of rows."""
    count, written = 0, Future[None]()
    written.set_result(None)
    with Workers(1, "napari-spotfit writer") as writer:
        for table in tables:
            written.result()  # keeps one table in memory, and raises errors of writing
            written = writer.submit(add, table)
            count += len(table)
        written.result()
    return count


def _gathered(parts: Iterable[SpotTable], rows: int) -> Iterator[SpotTable]:
    """Join and cut tables to the best number of rows per write; the last may be shorter.

    So the file does not depend on how the spots were divided into parts.
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
