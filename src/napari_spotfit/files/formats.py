"""Write and read tables of spots, whole or part by part, in the format of the file's name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..caller import warn_caller
from ..models.columns import IN_PLANE, REQUIRED, STOP, GroupCounter, describe
from ..models.number_checks import one_of
from ..untrusted import named
from ..workers import Workers
from .csv_file import csv_writer, read_csv, table_for_spreadsheets, write_csv
from .exchange.image_info import (
    ImageInfo,
    PixelSizeNeededError,
    as_pixel_size,
    as_shape,
    image_info_of,
)
from .exchange.mapping import (
    ExportReport,
    Format,
    imported_table,
    with_planes_named,
    with_position,
    without_unknown_stops,
)
from .exchange.registry import EXCHANGE, by_content, by_name
from .parquet import GROUP, parquet_writer, read_parquet, write_parquet
from .table import FORMAT_KEY, TEXT, WORDS, SpotTable, StoredColumn, UnreadableFileError
from .writing import scratch, unfinished

FORMATS: dict[str, tuple[Callable[[Path, SpotTable], None], Callable[[Path], SpotTable]]] = {
    ".parquet": (write_parquet, read_parquet),
    ".csv": (write_csv, read_csv),
}
#: Endings that several formats share; the content decides.
_SNIFFED = (".csv", ".h5", ".mat")
#: What our formats may be called, which are chosen by their endings.
_OURS = {"csv": ".csv", "parquet": ".parquet"}
#: First bytes of our own CSV files.
OURS = f"# {FORMAT_KEY}".encode()
_ENDINGS = (
    "must end in .spots.parquet or .spots.csv, which napari opens with this plugin, in "
    f".parquet or .csv, or in {', '.join(one.suffix for one in EXCHANGE.values())}; or pass "
    f"format=…: {', '.join(EXCHANGE)}"
)
#: Appends a table to an open file.
Adds = Callable[[SpotTable], None]
#: Rows to gather before a write; text takes several times the memory.
_ROWS = {".parquet": GROUP, ".csv": GROUP // 4}
_WRITERS: dict[str, Callable[[Path, SpotTable], AbstractContextManager[Adds]]] = {
    ".parquet": parquet_writer,
    ".csv": csv_writer,
}


class FormatWarning(UserWarning):
    """Another program's format cannot store everything; the message lists what is lost.

    Attributes
    ----------
    left_out : int
        Number of rows that are not in the file.

    Examples
    --------
    >>> import warnings
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import FormatWarning, localize, simulate_movie
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = localize(movie)
    >>> with TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", FormatWarning)
    ...     fits.save(f"{folder}/movie.bigfish.csv")
    >>> caught[-1].message.left_out  # rows; the message lists columns
    0
    """

    left_out = 0


def write(
    path: str | os.PathLike[str],
    table: SpotTable,
    format: str | None = None,
    *,
    pixel_size: float | Sequence[float] | None = None,
    shape: Sequence[int] | None = None,
    spreadsheet: bool = False,
) -> Path:
    """Write a table in the format named, or in that of the file's ending; return the path.

    The file appears when it is complete: if anything fails, an older file of that name is kept.

    Parameters
    ----------
    path : str or path
        The file.
    table : SpotTable
        The spots.
    format : str, optional
        The name of another program's format.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm; by default that of the table's layer.
    shape : sequence of int, optional
        Shape of the image; by default that stored in the table.
    spreadsheet : bool
        Whether to escape texts and titles of CSV that spreadsheets would take for formulas.

    Warns
    -----
    FormatWarning
        If the format cannot store everything.

    Raises
    ------
    ValueError
        If the ending or the format is unknown, the format needs the size of a pixel, two columns
        would have one title, or `spreadsheet` is asked for another format than CSV.
    OSError
        If the file cannot be written.
    ImportError
        If the format needs a library that is missing.
    """
    place = Path(path)
    size, shape = as_pixel_size(pixel_size), as_shape(shape)
    foreign = _named(format) if format is not None else by_name(place)
    if spreadsheet and not (place if foreign is None else Path(foreign.suffix)).name.endswith(
        "csv"
    ):
        raise ValueError(
            f"spreadsheets read CSV, and “{place.name}” is not: choose a name that ends in .csv"
        )
    if foreign is not None:
        table = table_for_spreadsheets(table) if spreadsheet else table
        return write_foreign(place, table, foreign, image_info_of(table, size, shape))
    write_table, _ = _format(place)
    check_titles(table)
    with unfinished(place) as part:
        if spreadsheet:
            write_csv(part, table, spreadsheet=True)
        else:
            write_table(part, table)
    return place


def read(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    pixel_size: float | Sequence[float] | None = None,
) -> SpotTable:
    """Read a table that :func:`write` or another program has written.

    Raises
    ------
    UnreadableFileError
        If the file is damaged, of a newer version or of another kind; the message says which.
    ValueError
        If the ending or the format is unknown, or the format needs the size of a pixel.
    OSError
        If the file is missing or cannot be read.
    ImportError
        If the format needs a library that is missing.
    """
    place = Path(path)
    foreign = _named(format) if format is not None else _foreign(place)
    image = ImageInfo(as_pixel_size(pixel_size))
    read_table = None if foreign is not None else _format(place)[1]
    what = "" if foreign is None else f" as {foreign.title}"
    with named(f"“{place.name}” cannot be opened{what}", UnreadableFileError):
        if read_table is None:
            assert foreign is not None
            return foreign.read(place, image)
        table = read_table(place)
        _check(table)
        return _in_pixels(table)


def check_ending(path: Path, format: str | None = None) -> None:
    """Raise a ValueError if neither the file's ending nor `format` says how to write it."""
    if format is None and by_name(path) is None:
        _format(path)


def check_beside(place: Path, foreign: Format) -> None:
    """Check that the accompanying files of a new file do not exist yet, or are ours.

    Raises
    ------
    FileExistsError
        If one exists that this package has not written.
    """
    for suffix in foreign.beside:
        other = place.with_suffix(suffix)
        if other.exists() and not place.exists() and not foreign.wrote(other):
            raise FileExistsError(
                f"“{place.name}” cannot be written: “{other.name}”, which would accompany it, "
                "exists already and is another program's; choose another name, such as "
                f"“{place.stem}_locs{place.suffix}”"
            )


def write_foreign(place: Path, table: SpotTable, foreign: Format, image: ImageInfo) -> Path:
    """Write a table in another program's format, and warn of what is lost."""
    report = ExportReport()
    table = without_unknown_stops(with_planes_named(with_position(table, report)))
    check_beside(place, foreign)
    try:
        # Accompanying files appear after the file itself.
        with ExitStack() as stack, unfinished(place) as part:
            for suffix, text in foreign.write(part, table, image, report).items():
                other = place.with_suffix(suffix)
                unfinished_other = stack.enter_context(unfinished(other))
                unfinished_other.write_text(text, encoding="utf-8", newline="\n")
    except PixelSizeNeededError as error:
        raise PixelSizeNeededError(f"“{place.name}” cannot be written: {error}") from None
    if text := report.text(foreign.title, place.name):
        warning = FormatWarning(text)
        warning.left_out = report.left_out
        warn_caller(warning)
    return place


def _named(format: str) -> Format:
    if isinstance(format, str) and format.lower() in _OURS:
        raise ValueError(
            f"format={format!r} is this package's own one, chosen by a file name that ends in "
            f"{_OURS[format.lower()]}, without format; a table of titles and numbers alone is "
            "format='plain'"
        )
    one_of("format", format, tuple(EXCHANGE))
    return EXCHANGE[format]


def _foreign(path: Path) -> Format | None:
    """Return another program's format by a file's name or content; None for our formats."""
    name = path.name.lower()
    if name.endswith((".spots.csv", ".parquet")):
        return None
    named = by_name(path)
    if named is not None or path.suffix.lower() not in _SNIFFED:
        return named
    with path.open("rb") as file:
        if file.read(len(OURS)) == OURS:
            return None
    return by_content(path)


def check_titles(table: SpotTable) -> None:
    """Raise a ValueError if two columns of a table have the same title."""
    titles = [column.title or name for name, column in table.about.columns.items()]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise ValueError(f"two columns have the title {twice!r}; rename or delete one of them")


def _format(path: Path) -> tuple[Callable[[Path, SpotTable], None], Callable[[Path], SpotTable]]:
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise ValueError(f"the name of a file of spots {_ENDINGS}; got “{path.name}”")
    return found


def _check(table: SpotTable) -> None:
    """Check that a table has the columns and the metadata of spots."""
    about = table.about
    for name in (*about.index, *REQUIRED, *about.axes):
        if name not in table.columns:
            raise UnreadableFileError(f"it has no column {name!r}, which spots have")
    if about.columns[STOP].type != WORDS:
        raise UnreadableFileError(f"its column {STOP!r} has no words")
    if about.roi_shape is not None and len(about.roi_shape) != len(about.axes):
        raise UnreadableFileError(f"its ROIs have {len(about.roi_shape)} sides")


def _in_pixels(table: SpotTable) -> SpotTable:
    """Undo the factors by which a file's columns were multiplied."""
    columns, known = dict(table.columns), dict(table.about.columns)
    for name, column in known.items():
        if column.factor != 1 and column.type not in (TEXT, WORDS) and name in columns:
            kind = columns[name].dtype
            columns[name] = (columns[name] / np.float64(column.factor)).astype(kind)
        unit = column.unit if column.factor == 1 else ""
        known[name] = StoredColumn(column.type, unit, column.words, role=column.role)
    return SpotTable(columns, replace(table.about, columns=known))


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
                "unknown: pass pixel_size=… in nm"
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
            return _write_own_format(part, place.suffix.lower(), parts)
    ending = ".parquet" if find_spec("pyarrow") else ".csv"
    with scratch(place, f".spots{ending}") as own:
        count = _write_own_format(own, ending, parts)
        table = read(own)
        write(place, table, foreign.name, pixel_size=pixel_size, shape=shape)
    return count


def _write_own_format(path: Path, ending: str, parts: Iterable[SpotTable]) -> int:
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
            yield joined.rows(slice(start, start + rows))
        held, count, begun = [joined.rows(slice(full, None))], count - full, True
    if held and (count or not begun):
        yield _joined(held)


def _joined(tables: list[SpotTable]) -> SpotTable:
    first = tables[0]
    columns = {
        name: np.concatenate([table.columns[name] for table in tables]) for name in first.columns
    }
    return SpotTable(columns, first.about)
