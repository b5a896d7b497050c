"""Base class of other programs' formats, and how their columns map to ours: units and origin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...models.columns import COLUMNS, IN_PLANE, PLANES, STDERR, STOP, Column, columns_in, describe
from ...models.estimators import StopCondition
from ..table import FIT, SpotTable, UnreadableFileError, table_of
from .image_info import ImageInfo, layer_of

Columns = Mapping[str, NDArray[Any]]
#: Computed from other columns, hence not read.
DERIVED_NAMES = ("good",)
#: Largest uint32, the type of frame numbers in some formats.
LAST_U4 = 2**32 - 1
#: Standard errors of the positions; some formats have one for both axes.
POSITION_ERRORS = tuple(axis + STDERR for axis in reversed(IN_PLANE))


@dataclass
class ExportReport:
    """What an export loses, gathered for one warning."""

    #: Columns that the format cannot store.
    columns: list[str] = field(default_factory=list)
    #: Sentences about rows and units.
    rows: list[str] = field(default_factory=list)
    #: Number of rows that are not written.
    left_out: int = 0

    def count(self, rows: int, what: str) -> None:
        """Note that some rows are changed, and why."""
        if rows:
            self.rows.append(f"{rows} {'row' if rows == 1 else 'rows'} {what}")

    def leave_out(self, rows: int, what: str) -> None:
        """Note that some rows are left out, and why."""
        self.count(rows, f"{what} left out")
        self.left_out += rows

    def text(self, title: str, name: str) -> str:
        """Return the warning; empty if nothing is lost."""
        parts = list(self.rows)
        if self.columns:
            parts.append(f"no place for {len(self.columns)} columns: {', '.join(self.columns)}")
        return f"“{name}”, {title}: {'; '.join(parts)}" if parts else ""


class Format(ABC):
    """One format of another program.

    Attributes
    ----------
    name : str
        Its name for ``format=``.
    title : str
        Its name in texts.
    suffix : str
        Files with this ending are written in this format, unless ``format=`` says otherwise.
    unit, origin, first_frame, needs : str
        For the documentation: unit of positions, position of the first pixel's centre, number of
        the first frame, and what must be known or installed.
    pattern : str
        Names that napari opens in this format, if the content agrees.
    beside : tuple of str
        Suffixes of the files that accompany it.
    keeps_text : bool
        Whether it can store columns of text, such as the names of images.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffix: ClassVar[str]
    unit: ClassVar[str] = "px"
    origin: ClassVar[str] = "0"
    first_frame: ClassVar[str] = "0"
    needs: ClassVar[str] = ""
    beside: ClassVar[tuple[str, ...]] = ()
    keeps_text: ClassVar[bool] = False

    pattern: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Use the suffix as napari's pattern, unless the class sets another."""
        cls.pattern = cls.pattern or f"*{cls.suffix}"

    def wrote(self, path: Path) -> bool:
        """Whether an accompanying file was written by this package."""
        return False

    @abstractmethod
    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file has this format, judged by its path and first bytes."""

    @abstractmethod
    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Return the spots of a file."""

    @abstractmethod
    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write spots; return the texts of accompanying files by suffix."""


@dataclass(frozen=True)
class Convention:
    """The unit and the origin of a format's positions and frames.

    Parameters
    ----------
    unit : float or None
        Its unit of length in nm; None for pixels.
    corner : float
        Position of the first pixel's centre in pixels: 0, or 0.5 if its corner is at 0.
    first_frame : int
        The number of the first frame.
    """

    unit: float | None = None
    corner: float = 0.0
    first_frame: int = 0


@dataclass(frozen=True)
class ColumnMapping:
    """One of our columns, with its title in another format."""

    title: str
    column: Column

    @property
    def name(self) -> str:
        """Our name for the column."""
        return self.column.name


def mappings_of(format: str) -> tuple[ColumnMapping, ...]:
    """Return the mappings of a format, from the table of columns.

    Examples
    --------
    >>> [(one.title, one.name) for one in mappings_of("smap")][:3]
    [('frame', 'frame'), ('xnm', 'x'), ('ynm', 'y')]
    """
    return tuple(ColumnMapping(column.formats[format], column) for column in columns_in(format))


def mapped(title: str, name: str) -> ColumnMapping:
    """Return a mapping that is not in the table of columns, as one title has several meanings."""
    return ColumnMapping(title, COLUMNS[name])


def to_format(
    table: SpotTable,
    mappings: Iterable[ColumnMapping],
    convention: Convention,
    image: ImageInfo,
    report: ExportReport,
) -> dict[str, NDArray[Any]]:
    """Convert a table's columns to the titles and units of a format.

    Spots of an image without frames get the first frame. Without the camera's gain, light stays
    in counts, and `report` says so.
    """
    settings = table.about.settings
    gain = None if settings is None else settings.gain
    made = {}
    for one in mappings:
        if one.name in table.columns:
            values = table.columns[one.name]
            made[one.title] = _to_format(values, one.column, convention, image, gain or 1.0)
        elif one.column.kind == "frame":
            made[one.title] = np.full(len(table), convention.first_frame, np.int64)
    light = any(one.name == "photons" and one.title in made for one in mappings)
    if light and table.about.columns["photons"].unit == "counts":
        report.rows.append("light is in counts instead of photons, as the camera's gain is unknown")
    return made


def from_format(
    found: Columns, mappings: Iterable[ColumnMapping], convention: Convention, image: ImageInfo
) -> dict[str, NDArray[Any]]:
    """Convert a format's columns to our names and units.

    Columns without a mapping keep their title; one that is the name of another of our columns is
    marked.
    """
    known = {one.title: one.column for one in mappings}
    taken = {column.name for column in known.values()}
    made = {}
    for title, values in found.items():
        if title in known:
            name, values = known[title].name, _from_format(values, known[title], convention, image)
        else:
            name = f"{title} (in the file)" if title in taken else title
        made[name] = as_typed(name, values, title)
    return made


def unmapped(table: SpotTable, names: Collection[str]) -> list[str]:
    """Return the columns of a table that a format cannot store."""
    return [
        name
        for name, column in table.about.columns.items()
        if name not in names and name not in DERIVED_NAMES and column.role == FIT
    ]


def as_typed(name: str, values: NDArray[Any], title: str) -> NDArray[Any]:
    """Convert a column to its type in fits.

    Raises
    ------
    UnreadableFileError
        If a column of integers has other numbers.
    """
    column = describe(name)
    if column.words or not column.type or column.type == "bool":
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    if not column.is_whole:
        with np.errstate(over="ignore"):
            return values.astype(column.type)
    kind = np.iinfo(column.type)
    with np.errstate(invalid="ignore"):
        odd = ~((values >= kind.min) & (values <= kind.max) & (values == np.rint(values)))
    if not odd.any():
        return values.astype(column.type)
    if column.optional:
        return values
    row = int(np.argmax(odd))
    raise UnreadableFileError(
        f"row {row + 1}, column {title!r}: {values[row]} is not one of its whole numbers"
    )


def with_position(table: SpotTable, report: ExportReport) -> SpotTable:
    """Return the rows that have a position; `report` counts the others, whose fits failed."""
    there = np.all([np.isfinite(table.columns[axis]) for axis in table.about.axes], axis=0)
    report.leave_out(int(np.count_nonzero(~there)), "without a position")
    return table if there.all() else table.rows(there)


def without_unknown_stops(table: SpotTable) -> SpotTable:
    """Return a table without the column of stop conditions if all are unknown."""
    if STOP not in table.columns or (table.columns[STOP] != StopCondition.UNKNOWN).any():
        return table
    columns = {name: values for name, values in table.columns.items() if name != STOP}
    known = {name: column for name, column in table.about.columns.items() if name != STOP}
    return SpotTable(columns, replace(table.about, columns=known))


def with_frame_number(table: SpotTable, report: ExportReport, last: int | None = None) -> SpotTable:
    """Return the rows whose frame number a format can store; `report` counts the others.

    A negative frame would wrap around in an unsigned type; in a format that counts from 1, readers
    would take the file for one that counts from 0.

    Parameters
    ----------
    table : SpotTable
        The rows.
    report : ExportReport
        Records the rows that are left out.
    last : int, optional
        The largest frame number that the format can store, counted from 0.
    """
    if "frame" not in table.columns:
        return table
    frames = table.columns["frame"]
    there = (frames >= 0) if last is None else (frames >= 0) & (frames <= last)
    what = "with a frame below 0" if last is None else f"with a frame outside 0 to {last}"
    report.leave_out(int(np.count_nonzero(~there)), what)
    return table if there.all() else table.rows(there)


def with_planes_named(table: SpotTable) -> SpotTable:
    """Rename z in planes to say so, as z in other programs' files is in nm."""
    if "z" not in table.columns or table.about.columns["z"].unit != PLANES:
        return table
    names = {"z": "z_px", "z" + STDERR: "z_px" + STDERR}
    columns = {names.get(name, name): values for name, values in table.columns.items()}
    known = {names.get(name, name): column for name, column in table.about.columns.items()}
    return SpotTable(columns, replace(table.about, columns=known))


def counted_from(convention: Convention, found: Columns, title: str) -> Convention:
    """Return the convention of a file: frames count from 0 if it has a frame 0.

    Parameters
    ----------
    convention : Convention
        Convention of the format.
    found : mapping of str to ndarray
        The file's columns.
    title : str
        Title of its column of frames.
    """
    frames = found.get(title, ())
    return replace(convention, first_frame=0) if np.any(np.less(frames, 1)) else convention


def joint_error(
    table: SpotTable, convention: Convention, image: ImageInfo, report: ExportReport
) -> NDArray[np.float64] | None:
    """Return one precision for both axes, their root mean square; None without precisions."""
    squares = [
        _to_format(table.columns[name].astype(np.float64), COLUMNS[name], convention, image, 1.0)
        ** 2
        for name in POSITION_ERRORS
        if name in table.columns
    ]
    if len(squares) < len(POSITION_ERRORS):
        return None
    report.rows.append(f"{' and '.join(POSITION_ERRORS)} become one, their root mean square")
    mean: NDArray[np.float64] = np.sqrt(sum(squares) / len(squares))
    return mean


def error_of_each_axis(
    values: NDArray[Any], convention: Convention, image: ImageInfo
) -> dict[str, NDArray[Any]]:
    """Return the precision along each axis, from a format's joint one."""
    return {
        name: as_typed(name, _from_format(values, COLUMNS[name], convention, image), name)
        for name in POSITION_ERRORS
    }


def join_equal_widths(columns: dict[str, NDArray[Any]]) -> None:
    """Replace the widths along x and y by one if they are equal in all spots."""
    names = "sigma_x", "sigma_y"
    if not set(names) <= set(columns):
        return
    x, y = (columns[name] for name in names)
    if np.array_equal(x, y, equal_nan=True):
        columns["sigma"] = columns.pop("sigma_x")
        del columns["sigma_y"]


def imported_table(
    columns: Mapping[str, NDArray[Any]], image: ImageInfo, index: tuple[str, ...] = ("frame",)
) -> SpotTable:
    """Return the table of another program's spots.

    Without stop conditions, spots get UNKNOWN, or INVALID where a position is NaN.

    Raises
    ------
    UnreadableFileError
        If a column of positions is missing.
    """
    first = (*index, *IN_PLANE)
    for name in first:
        if name not in columns:
            raise UnreadableFileError(f"it has no column for {name!r}, which spots have")
    made = {name: columns[name] for name in first} | {
        name: values for name, values in columns.items() if name not in first
    }
    if STOP not in made:
        there = np.all([np.isfinite(made[axis]) for axis in IN_PLANE], axis=0)
        codes = np.where(there, StopCondition.UNKNOWN, StopCondition.INVALID)
        made[STOP] = codes.astype(np.uint8)
    units = {name: _imported_unit(describe(name)) for name in made}
    layer = None
    if image.pixel_size is not None:
        layer = layer_of(image.pixel_size, len(first))
    known = None if image.shape is None else {"shape": list(image.shape)}
    return table_of(made, {}, units, index=index, layer=layer, image=known)


def _imported_unit(column: Column) -> str:
    """Return the unit of a column from another program, whose light may not be in counts."""
    if column.group == "position" and column.axis not in IN_PLANE:
        return "nm"
    unit = "photons/px" if column.kind == "light" else column.unit
    return "" if unit in ("counts", "counts²") else unit


def _to_format(
    values: NDArray[Any], column: Column, convention: Convention, image: ImageInfo, gain: float
) -> NDArray[Any]:
    if column.kind == "frame":
        return values + convention.first_frame
    if column.kind == "light":
        return values / gain if gain != 1 else values
    if column.kind == "number":
        return values
    shift = convention.corner if column.kind == "position" else 0.0
    return (values + shift) * _pixel_in(convention, column, image)


def _from_format(
    values: NDArray[Any], column: Column, convention: Convention, image: ImageInfo
) -> NDArray[Any]:
    if column.kind == "frame":
        return values - convention.first_frame
    if column.kind in ("light", "number"):
        return values
    shift = convention.corner if column.kind == "position" else 0.0
    return values / _pixel_in(convention, column, image) - shift


def _pixel_in(convention: Convention, column: Column, image: ImageInfo) -> float:
    """Return the size of a pixel along a column's axis in the unit of a format."""
    if convention.unit is None:
        return 1.0
    return image.pixel_in(column.axis, convention.unit)
