"""Write and read tables of spots, in the format of the file's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..caller import warn_caller
from ..models.columns import REQUIRED, STOP
from ..untrusted import named
from .csv_file import read_csv, table_for_spreadsheets, write_csv
from .exchange.format import ExportReport, Format
from .exchange.image_info import (
    ImageInfo,
    PixelSizeNeededError,
    as_pixel_size,
    as_shape,
    image_info_of,
)
from .exchange.mapping import with_planes_named, with_position, without_unknown_stops
from .exchange.registry import EXCHANGE, by_content, by_name
from .parquet import read_parquet, write_parquet
from .table import FORMAT_KEY, TEXT, WORDS, SpotTable, StoredColumn, UnreadableFileError
from .writing import unfinished

FORMATS: dict[str, tuple[Callable[[Path, SpotTable], None], Callable[[Path], SpotTable]]] = {
    ".parquet": (write_parquet, read_parquet),
    ".csv": (write_csv, read_csv),
}
#: Endings that several formats share; the content decides.
_SNIFFED = (".csv", ".h5", ".mat")
#: First bytes of our own CSV files.
OURS = f"# {FORMAT_KEY}".encode()
_ENDINGS = (
    "must end in .spots.parquet or .spots.csv, which napari opens with this plugin, in "
    f".parquet or .csv, or in {', '.join(one.suffix for one in EXCHANGE.values())}; or pass "
    f"format=…: {', '.join(EXCHANGE)}"
)


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
    found = EXCHANGE.get(format) if isinstance(format, str) else None
    if found is None:
        raise ValueError(f"format must be one of {', '.join(EXCHANGE)}; got {format!r}")
    return found


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


def _format(
    path: Path,
) -> tuple[Callable[[Path, SpotTable], None], Callable[[Path], SpotTable]]:
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
