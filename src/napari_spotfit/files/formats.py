"""Tables of spots written to files and read from them, in the format that the name says."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..caller import warn_caller
from .about import FORMAT_KEY
from .csv_text import read_csv, write_csv
from .exchange.homes import Loss, placed
from .exchange.registry import EXCHANGE, Format, by_content, by_name
from .exchange.scene import PixelSizeNeededError, Scene, as_pixel_size, as_shape, scene_of
from .parquet import read_parquet, write_parquet
from .table import TEXT, WORDS, Column, SpotTable, UnreadableFileError
from .told_errno import told_errno

FORMATS: dict[str, tuple[Callable[[Path, SpotTable], None], Callable[[Path], SpotTable]]] = {
    ".parquet": (write_parquet, read_parquet),
    ".csv": (write_csv, read_csv),
}
#: What our own CSV files begin with.
OURS = f"# {FORMAT_KEY}".encode()
_ENDINGS = (
    "must end in .spots.parquet or .spots.csv, which napari opens with this plugin, in "
    f".parquet or .csv, or in {', '.join(one.suffix for one in EXCHANGE.values())}; or say "
    f"format=…: {', '.join(EXCHANGE)}"
)


#: What goes wrong in writing alone, whatever the error names: a disk that is full or protected.
_WRITING = frozenset(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EROFS")
    if hasattr(errno, name)  # Windows lacks some
)


class FormatWarning(UserWarning):
    """Another program's format does not take all that fits have; it says what is lost.

    Attributes
    ----------
    left_out : int
        How many rows are not in the file.
    """

    left_out = 0


def write(
    path: str | os.PathLike[str],
    table: SpotTable,
    format: str | None = None,
    *,
    pixel_size: float | Sequence[float] | None = None,
    shape: Sequence[int] | None = None,
) -> Path:
    """Write a table in the format that is named, or that the file's name ends in; return the path.

    The file takes its name when it is complete: should anything fail, whatever had that name is
    as it was.

    Parameters
    ----------
    path : str or path
        The file.
    table : SpotTable
        What to write.
    format : str, optional
        The name of another program's format.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm; by default that of the layer, if the table has one.
    shape : sequence of int, optional
        Shape of the image; by default what the table says of it.

    Warns
    -----
    FormatWarning
        If the format has no place for something.

    Raises
    ------
    ValueError
        If the name ends otherwise, there is no such format, it needs the size of a pixel and that
        is not known, or two columns would have one title.
    OSError
        If the file cannot be written.
    ImportError
        If the format needs a library that is missing.
    """
    place = Path(path)
    size, shape = as_pixel_size(pixel_size), as_shape(shape)
    foreign = _named(format) if format is not None else by_name(place)
    if foreign is not None:
        return _write_foreign(place, table, foreign, scene_of(table, size, shape))
    write_table, _ = _format(place)
    check_titles(table)
    with unfinished(place) as part:
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
        If the file is damaged, of a newer version, or something else; the message says what.
    ValueError
        If its name ends otherwise, there is no such format, or it needs the size of a pixel.
    OSError
        If there is no such file, or it cannot be read.
    ImportError
        If the format needs a library that is missing.
    """
    place = Path(path)
    foreign = _named(format) if format is not None else _foreign(place)
    scene = Scene(as_pixel_size(pixel_size))
    try:
        if foreign is not None:
            return foreign.read(place, scene)
        _, read_table = _format(place)
        table = read_table(place)
        _check(table)
    except UnreadableFileError as error:
        what = "" if foreign is None else f" as {foreign.title}"
        raise UnreadableFileError(f"“{place.name}” cannot be opened{what}: {error}") from None
    except PixelSizeNeededError as error:
        raise PixelSizeNeededError(f"“{place.name}” cannot be opened: {error}") from None
    return _in_pixels(table)


def check_ending(path: Path, format: str | None = None) -> None:
    """Raise a ValueError if a name does not say in which format to write, and nothing else does."""
    if format is None and by_name(path) is None:
        _format(path)


def _write_foreign(place: Path, table: SpotTable, foreign: Format, scene: Scene) -> Path:
    loss = Loss()
    table = placed(table, loss)
    before = place.exists()
    try:
        with unfinished(place) as part, ExitStack() as stack:
            for suffix, text in foreign.write(part, table, scene, loss).items():
                other = place.with_suffix(suffix)
                if other.exists() and not before:
                    raise FileExistsError(
                        f"“{place.name}” cannot be written: “{other.name}”, which belongs beside "
                        f"it, is there already and is another's; take another name, such as "
                        f"“{place.stem}_locs{place.suffix}”"
                    )
                unfinished_other = stack.enter_context(unfinished(other))
                unfinished_other.write_text(text, encoding="utf-8", newline="\n")
    except PixelSizeNeededError as error:
        raise PixelSizeNeededError(f"“{place.name}” cannot be written: {error}") from None
    if told := loss.told(foreign.title, place.name):
        warning = FormatWarning(told)
        warning.left_out = loss.left_out
        warn_caller(warning)
    return place


def _named(format: str) -> Format:
    found = EXCHANGE.get(format) if isinstance(format, str) else None
    if found is None:
        raise ValueError(f"format must be one of {', '.join(EXCHANGE)}; got {format!r}")
    return found


def _foreign(path: Path) -> Format | None:
    """Return the format of another program's file by its name or its content; None for ours."""
    name = path.name.lower()
    if name.endswith((".spots.csv", ".parquet")):
        return None
    named = by_name(path)
    if named is not None or path.suffix.lower() not in (".csv", ".h5"):
        return named
    with path.open("rb") as file:
        if file.read(len(OURS)) == OURS:
            return None
    return by_content(path)


def check_titles(table: SpotTable) -> None:
    """Check that the titles of a table's columns differ."""
    titles = [column.title or name for name, column in table.about.columns.items()]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise ValueError(f"two columns have the title {twice!r}; rename or delete one of them")


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Give another name to write to, and the path to what was written there once it is complete.

    A link stays one, and the file that it leads to is written.

    Raises
    ------
    OSError
        If it cannot be written, or what is there is no file, such as a pipe or a device.
    """
    place = _checked_place(path)
    part = place.with_name(f".{place.name}.part")
    try:
        with _naming(place, part):
            yield part
            part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _checked_place(path: Path) -> Path:
    """Return where a file is to be, behind a link if there is one, where it replaces nothing else.

    Raises
    ------
    OSError
        If what is there is no file, such as a pipe or a device, or its folder is missing.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    told = f"“{path.name}” cannot be written in “{path.parent}”"
    if path.is_dir():
        raise IsADirectoryError(f"{told}: it is a folder; take another name")
    if path.is_symlink():  # still, although it was followed
        raise OSError(f"{told}: it is a link that leads to itself; take another name")
    if path.exists() and not path.is_file():
        raise OSError(
            f"{told}: it is a pipe, a device or another thing that is no file, which a file would "
            "replace; take another name"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"“{path.name}” cannot be written: there is no folder “{path.parent}”"
        )
    return path


@contextmanager
def _naming(place: Path, part: Path) -> Iterator[None]:
    """Let errors of writing name the file that was to be; others, as of what is read, are kept."""
    try:
        yield
    except OSError as error:
        # Some of Arrow's say the number in their text alone. Our own have said all, without it.
        code = told_errno(error) or (error.strerror and error.errno) or 0
        ours = type(error).__module__ != "builtins"  # as of a part of a run: it says its own place
        if ours or not code or not (code in _WRITING or part.name in str(error)):
            raise
        text = f"“{place.name}” cannot be written in “{place.parent}”: {os.strerror(code)}"
        made = type(error)(text)
        made.errno = code
        raise made from error


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
        unit = column.unit if column.factor == 1 else ""
        known[name] = Column(column.type, unit, column.words, role=column.role)
    return SpotTable(columns, replace(table.about, columns=known))
