"""Read and write tables in pixels: napari's points, big-fish, RS-FISH, and plain CSV."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...caller import warn_caller
from ...models.columns import COLUMNS, IN_PLANE, STOP, describe, is_index
from ...models.estimators import STOP_NAMES
from ..table import WORDS, SpotTable, StoredColumn, UnreadableFileError, codes_of
from .delimited import Rows, titles_of, write_rows
from .image_info import PIXEL_UNITS, ImageInfo, nanometres_of
from .mapping import (
    DERIVED_NAMES,
    ColumnMapping,
    Convention,
    ExportReport,
    Format,
    as_typed,
    counted_from,
    from_format,
    imported_table,
    mappings_of,
    to_format,
    unmapped,
    with_frame_number,
)

#: Kinds of columns that are in pixels in every file.
_OF_PIXELS = ("roi", "other")
_UNIT = re.compile(r"(.+?)[ _]*(?:[\[(](.+)[\])]|_(nm|um|µm|px))")


#: A usual σ in pixels, and sizes that images rarely exceed or fall below, in pixels.
_USUAL_SIGMA, _MANY_PIXELS, _FEW_PIXELS = 1.3, 4096, 10
#: Widths in pixels above which they are likely to be in nm.
_WIDEST = 20.0
#: Other titles of the column of frames, in small letters.
_FRAMES = ("t", "frames", "frame_number", "frame_index", "slice", "time")


class NapariPoints(Format):
    """napari's own tables of points: one column per axis, then features."""

    name, title, suffix = "napari", "napari's points", ".napari.csv"
    keeps_text = True
    _AXIS = re.compile(r"axis-(\d+)")
    _INDEX = "index"
    #: Features of points whose axis before those of a plane is that of planes, not of frames.
    _OF_VOLUMES = frozenset({"sigma_z", "roi_z", "z_nm", "z_px_stderr"})

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file begins with napari's titles of points."""
        return titles_of(head)[:3] == [self._INDEX, "axis-0", "axis-1"]

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read a table of points; each feature becomes a column."""
        rows = Rows(path)
        axes = [title for title in rows.titles if self._AXIS.fullmatch(title)]
        if len(axes) < 2 or axes != [f"axis-{number}" for number in range(len(axes))]:
            raise UnreadableFileError("line 1: napari's columns axis-0, axis-1, … are missing")
        places = self._places(rows, axes)
        leading = len(axes) - len(places)
        index = tuple(f"axis_{number}" for number in range(leading - 1))
        index += ("frame",) if leading else ()
        columns = {
            name: as_typed(name, rows.numbers(axis), axis)
            for name, axis in zip((*index, *places), axes, strict=True)
        }
        # The axes win over features y and x: the point may have been moved after the fit.
        known = {self._INDEX, *axes, *columns}
        columns |= columns_of(rows, [title for title in rows.titles if title not in known])
        return imported_table(columns, image, index)

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write points and features as napari does."""
        about = table.about
        columns = {self._INDEX: np.arange(len(table))}
        known = {self._INDEX: StoredColumn("int64")}
        planes = ("z_px",) if len(about.axes) > len(IN_PLANE) or _has_planes(table) else ()
        names = [*about.index, *planes, *IN_PLANE]
        titles = {name: f"axis-{number}" for number, name in enumerate(names)}
        for name in (*names, *(one for one in unmapped(table, ()) if one not in names)):
            columns[titles.get(name, name)] = table.columns[name]
            known[titles.get(name, name)] = about.columns[name]
        write_rows(path, [titles_line(columns)], columns, known)
        return {}

    def _places(self, rows: Rows, axes: list[str]) -> tuple[str, ...]:
        """Return the axes along which spots have places: with z, if the points lie in volumes."""
        if len(axes) == len(IN_PLANE):
            return IN_PLANE
        third = rows.numbers(axes[-3])
        is_whole = (third == np.rint(third)).all()
        in_planes = is_whole and not self._OF_VOLUMES & set(rows.titles)
        return IN_PLANE if in_planes else ("z_px", *IN_PLANE)


def _has_planes(table: SpotTable) -> bool:
    """Whether spots of another program lie in volumes: big-fish's planes are frames."""
    depth, frame = (table.columns.get(name) for name in ("z_px", "frame"))
    return depth is not None and (frame is None or bool((np.rint(depth) != frame).any()))


def columns_of(rows: Rows, titles: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return columns of numbers and text by title."""
    columns: dict[str, NDArray[Any]] = {}
    for title in titles:
        values = rows.values(title)
        if title in DERIVED_NAMES:
            continue
        if title == STOP and values.dtype == object and len(values):
            words, codes = np.unique(values.astype(str), return_inverse=True)
            stored = StoredColumn(WORDS, words=describe(title).words)
            columns[title] = codes_of(title, codes, words.tolist(), stored)
        elif title == STOP:
            columns[title] = _codes(values)
        else:
            numbers = np.zeros(0) if not len(values) else values
            columns[title] = numbers if numbers.dtype == object else as_typed(title, numbers, title)
    return columns


def titles_line(names: Iterable[str]) -> str:
    """Return names as a line of titles."""
    return ",".join(
        '"' + name.replace('"', '""') + '"' if set(name) & set(',"\r\n') else name for name in names
    )


def _codes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Check the codes of stop conditions, and return them as uint8."""
    codes = np.zeros(0) if not len(values) else values
    if not np.isin(codes, range(len(STOP_NAMES))).all():
        raise UnreadableFileError(
            f"its column {STOP!r} has other codes than 0 to {len(STOP_NAMES) - 1}"
        )
    return codes.astype(np.uint8)


#: Columns, by the number of values per line.
_BIG_FISH = {len(names): names for names in (IN_PLANE, ("frame", *IN_PLANE))}


class BigFish(Format):
    """Spots of big-fish: rows of [z;]y;x, without titles."""

    name, title, suffix = "bigfish", "big-fish", ".bigfish.csv"
    first_frame = "as it is"
    _NUMBER = rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
    _LINE = re.compile(rb"%b(?:;%b){1,2}" % (_NUMBER, _NUMBER))
    _SEPARATOR = ";"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file begins with two or three numbers between semicolons."""
        return self._LINE.fullmatch(head.partition(b"\n")[0].strip()) is not None

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read spots; z, if there is one, is the plane along the image's leading axis."""
        with path.open("rb") as file:
            line = file.readline(1 << 16)
        if not line:  # an empty file: no spots
            names = _BIG_FISH[3]
            none = {name: np.zeros(0, describe(name).type) for name in names}
            return imported_table(none, image, ("frame",))
        count = line.count(self._SEPARATOR.encode()) + 1
        if count not in _BIG_FISH:
            raise UnreadableFileError(f"line 1 has {count} values; spots of big-fish have 2 or 3")
        names = _BIG_FISH[count]
        columns = Rows(path, names, header=0, separator=self._SEPARATOR).all_numbers()
        if "frame" in columns:
            if not np.isfinite(columns["frame"]).all():
                raise UnreadableFileError("a row has no z")
            planes = np.rint(columns["frame"])
            if (planes != columns["frame"]).any():
                columns["z_px"] = columns["frame"]
            columns["frame"] = planes.astype(np.int64)
        columns |= {name: columns[name].astype(np.float64) for name in IN_PLANE}
        return imported_table(columns, image, tuple(name for name in names if is_index(name)))

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write z or frame, y and x; of a single plane y and x."""
        first = "z_px" if "z_px" in table.columns else "frame"
        columns = {n: table.columns[n] for n in (first, *IN_PLANE) if n in table.columns}
        # Without volumes, big-fish's z is the frame.
        same = () if len(table.about.axes) > len(IN_PLANE) else ("frame",)
        report.columns += unmapped(table, {*columns, *same})
        write_rows(path, [], columns, separator=self._SEPARATOR)
        return {}


class RsFish(Format):
    """RS-FISH's tables: time and channel from 1."""

    name, title, suffix = "rsfish", "RS-FISH", ".rsfish.csv"
    first_frame = "1"
    _CONVENTION = Convention(first_frame=1)
    _MAPPINGS = mappings_of("rsfish")
    _TITLES = ("x", "y", "z", "t", "c", "intensity")

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file begins with RS-FISH's titles, with or without z."""
        titles = titles_of(head)
        return [one for one in titles if one != "z"] == [one for one in self._TITLES if one != "z"]

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read a table of spots; z becomes a column."""
        found = Rows(path).all_numbers()
        if "c" in found and (found["c"] == 1).all():
            del found["c"]  # a single channel
        convention = counted_from(self._CONVENTION, found, "t")
        return imported_table(from_format(found, self._MAPPINGS, convention, image), image)

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write a table of spots, by default of channel 1."""
        table = with_frame_number(table, report)
        made = to_format(table, self._MAPPINGS, self._CONVENTION, image, report)
        made.setdefault("c", np.ones(len(table), np.int64))
        made.setdefault("intensity", np.full(len(table), np.nan))
        report.columns += unmapped(table, {one.name for one in self._MAPPINGS})
        columns = {title: made[title] for title in self._TITLES if title in made}
        write_rows(path, [",".join(columns)], columns)
        return {}


class PlainCsv(Format):
    """Plain CSV with a line of titles: our columns by name, frames from 0."""

    name, title, suffix = "plain", "plain CSV", ".plain.csv"
    unit, needs = "px (reads nm and µm, too)", "size of a pixel, if in a unit of length"
    keeps_text = True

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file begins with titles that include those of the positions."""
        return set(IN_PLANE) <= {_in_unit(title)[0] for title in titles_of(head)}

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read columns by name; lengths in the unit of their titles, else in pixels."""
        rows = Rows(path)
        named = {title: _in_unit(title) for title in rows.titles}
        names = [name for name, _ in named.values()]
        if missing := [name for name in IN_PLANE if name not in names]:
            raise UnreadableFileError(f"its column {missing[0]!r} is missing")
        if name := next((one for one in names if names.count(one) > 1), ""):
            raise UnreadableFileError(f"line 1: two columns are {name!r}, in different units")
        with_unit, without = (
            [title for title in rows.titles if named[title][0] in IN_PLANE
             and (named[title][1] is None) == is_missing]
            for is_missing in (False, True)
        )  # fmt: skip
        if with_unit and without:
            raise UnreadableFileError(
                f"line 1: {with_unit[0]!r} says its unit and {without[0]!r} does not: write both "
                "with “[nm]”, “[µm]” or “[px]”"
            )
        columns = columns_of(rows, rows.titles)
        for title in rows.titles:
            if _is_measured(named[title][0]):
                columns[title] = as_typed(named[title][0], rows.numbers(title), title)
        if "frame" not in columns:
            columns = _with_frames(path, columns)
            named |= {title: (title, None) for title in columns if title not in named}
        if all(unit is None for _, unit in named.values()) and image.pixel_size is not None:
            length = _likely_unit(path, columns, image.pixel_size)
            named = {title: (title, length if _is_length(title) else None) for title in named}
        else:
            _warn_of_nanometres(path, columns)
        made = {}
        for title, values in columns.items():
            name, unit = named[title]
            if unit is None:
                made[name] = values
            else:
                one = ColumnMapping(title, COLUMNS[name])
                made |= from_format({title: values}, [one], Convention(unit=unit or None), image)
        index = [name for name in made if is_index(name)]
        return imported_table(made, image, tuple(index))

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write all columns."""
        names = unmapped(table, ())
        known = {name: table.about.columns[name] for name in names}
        write_rows(path, [titles_line(names)], {n: table.columns[n] for n in names}, known)
        return {}


def _is_measured(name: str) -> bool:
    """Whether a column is one of ours that has numbers in every table."""
    column = COLUMNS.get(name)
    return column is not None and column.group in ("index", "position", "shape", "light")


def _with_frames(path: Path, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return columns with that of frames, if it has another title; warn of the guess."""
    for title, values in columns.items():
        if title.lower() not in (*_FRAMES, "frame") or title in COLUMNS:
            continue
        known = values.dtype != object and np.isfinite(values).all()
        if known and len(values) and (values >= 0).all() and (values == np.rint(values)).all():
            warn_caller(
                f"“{path.name}” has no column “frame”: its column {title!r} is taken for that. If "
                "it is something else, give it another title"
            )
            frames = as_typed("frame", values, title)
            return {("frame" if one == title else one): v for one, v in columns.items()} | {
                "frame": frames
            }
        warn_caller(
            f"“{path.name}” has no column “frame”, and {title!r} has other numbers than those of "
            "frames: all spots are taken to be of one image"
        )
    return columns


def _warn_of_nanometres(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Warn of lengths without a unit that are taken for pixels, if they seem to be in nm."""
    width = _median_width(columns)
    reach = max((float(np.nanmax(columns[n], initial=0)) for n in IN_PLANE if n in columns),
                default=0.0)  # fmt: skip
    if width <= _WIDEST and (width > 0 or reach < _MANY_PIXELS):
        return
    what = f"their σ of {width:g}" if width > 0 else f"the largest position, {reach:g},"
    warn_caller(
        f"“{path.name}” does not say the unit of its lengths: {what} is taken to be in pixels. If "
        "it is in nm, give pixel_size=…, or name the columns “x [nm]”"
    )


def _is_length(name: str) -> bool:
    """Whether a column is a length in the plane, which files may have in nm."""
    return name in COLUMNS and COLUMNS[name].unit == "px" and COLUMNS[name].group not in _OF_PIXELS


def _in_unit(title: str) -> tuple[str, float | None]:
    """Split a title into name and unit in nm: 0 for pixels, None without a unit.

    Examples
    --------
    >>> _in_unit("x [nm]"), _in_unit("y_um"), _in_unit("x (px)"), _in_unit("x")
    (('x', 1.0), ('y', 1000.0), ('x', 0.0), ('x', None))
    """
    found = None if title in COLUMNS else _UNIT.fullmatch(title)
    if found is None or not _is_length(found[1]):
        return title, None
    unit = (found[2] or found[3]).strip()
    length = 0.0 if unit in PIXEL_UNITS else nanometres_of(unit)
    return (title, None) if length is None else (found[1], length)


def _likely_unit(
    path: Path, columns: Mapping[str, NDArray[Any]], pixel_size: tuple[float, float]
) -> float | None:
    """Guess the unit of lengths without one in their titles: in nm, or None for pixels.

    The widths decide, or without them the largest position. Warns of all but sure guesses.
    """
    size = float(np.sqrt(np.prod(pixel_size)))
    width = _median_width(columns)
    reach = max((float(np.nanmax(columns[n], initial=0)) for n in IN_PLANE), default=0.0)
    if width <= 0 and reach < _FEW_PIXELS * size:
        return None  # in nm, the image would be too small to have spots
    if width > 0:
        as_pixels, as_nm = (abs(np.log(one / _USUAL_SIGMA)) for one in (width, width / size))
        in_nm, why = bool(as_nm < as_pixels), f"their σ of {width:g}"
    else:
        in_nm, why = reach >= _MANY_PIXELS, f"the largest position, {reach:g},"
    if in_nm or width <= 0:
        warn_caller(
            f"“{path.name}” does not say the unit of its lengths: {why} is taken to be in "
            f"{'nm' if in_nm else 'pixels'}. Name the columns “x [nm]” or “x [px]” to be sure"
        )
    return 1.0 if in_nm else None


def _median_width(columns: Mapping[str, NDArray[Any]]) -> float:
    """Return the median of the first column of widths that has numbers; 0 without one."""
    for name in ("sigma", "sigma_x", "sigma_y"):
        values = columns.get(name, np.zeros(0))
        if values.dtype != object and np.isfinite(values).any():
            return float(np.nanmedian(values))
    return 0.0
