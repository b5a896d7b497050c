"""Tables of spots that come in parts: written as they come, in ours or another program's format."""

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

#: What adds a table to a file.
Adds = Callable[[SpotTable], None]
#: Rows that are gathered before they are written. Text takes several times the memory.
_ROWS = {".parquet": GROUP, ".csv": GROUP // 4}
_WRITERS: dict[str, Callable[[Path, SpotTable], AbstractContextManager[Adds]]] = {
    ".parquet": parquet_writer,
    ".csv": csv_writer,
}


def is_table(path: Path) -> bool:
    """Whether a name is that of a table: ours, or another program's.

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
    """Return the path of a file to be, or raise an error if it cannot be written so.

    For work that takes long before there is anything to write.

    Parameters
    ----------
    path : str or path
        The file.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm.
    several : bool, default False
        Whether the spots of several images are to go there, with their names beside them.

    Raises
    ------
    ValueError
        If its name says no format of spots, or the format needs the size of a pixel, or has no
        place for the names of several images.
    FileNotFoundError, FileExistsError
        If its folder is missing, or what belongs beside it is there and another's.
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
                f"“{place.name}” would be one table of several images, and {foreign.title} has no "
                f"place for their names: choose a folder for the output, or a name that ends in "
                f"{' or '.join(f'.spots{end}' for end in FORMATS)}"
            )
        check_beside(place, foreign)
        _try(place, foreign, ImageInfo(as_pixel_size(pixel_size)))
    return place


def _try(place: Path, foreign: Format, image: ImageInfo) -> None:
    """Write a table without spots elsewhere, and so find what a format lacks."""
    none = {name: np.zeros(0, describe(name).type) for name in ("frame", *IN_PLANE, STOP)}
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            write_foreign(Path(folder) / place.name, imported_table(none, image), foreign, image)
        except PixelSizeNeededError:
            raise PixelSizeNeededError(
                f"“{place.name}” would have lengths in nm or µm, and the size of a pixel is not "
                "known: say it, pixel_size=… or --pixel-size in nm"
            ) from None


def write_parts(
    path: str | os.PathLike[str],
    parts: Iterable[SpotTable],
    *,
    pixel_size: float | Sequence[float] | None = None,
    shape: Sequence[int] | None = None,
) -> int:
    """Write tables of the same columns as one file, which is that of the tables joined.

    What is said beside the columns is the first one's. The file takes its name when it is
    complete: should anything fail, whatever had that name is as it was. A file of another
    program's format is first written in ours beside it, and then converted.

    Parameters
    ----------
    path : str or path
        The file; its name ends as :func:`~.formats.write` wants it.
    parts : iterable of SpotTable
        One at least. Few are in memory at a time, where the format can be written in parts.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm, for other programs' formats.
    shape : sequence of int, optional
        Shape of the image, for other programs' formats.

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
    """Write tables to a file of ours, and count the rows."""
    apart = GroupCounter()
    parts = (SpotTable(apart(part.columns), part.about) for part in parts)
    tables = _gathered(parts, _ROWS[ending])
    first = next(tables, None)
    if first is None:
        raise ValueError("there are no spots to write, not even none of an image")
    check_titles(first)
    with _WRITERS[ending](path, first) as add:
        return _add_behind(add, chain([first], tables))


def _add_behind(add: Adds, tables: Iterable[SpotTable]) -> int:
    """Add tables to a file by a thread of its own, while the next ones are made; count the rows."""
    count, written = 0, Future[None]()
    written.set_result(None)
    with Workers(1, "napari-spotfit writer") as writer:
        for table in tables:
            written.result()  # one at a time is in memory; an error ends it
            written = writer.submit(add, table)
            count += len(table)
        written.result()
    return count


def _gathered(parts: Iterable[SpotTable], rows: int) -> Iterator[SpotTable]:
    """Join and cut tables to the number of rows that is best written at once.

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
