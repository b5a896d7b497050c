"""Tables with lengths in nm or µm: ThunderSTORM, SMAP and TrackMate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...caller import warn_caller
from ..table import TEXT, SpotTable, StoredColumn, UnreadableFileError
from .delimited import Rows, as_utf8, separator_of, titles_of, write_rows
from .image_info import PIXEL_UNITS, ImageInfo, nanometres_of
from .mapping import (
    POSITION_ERRORS,
    Convention,
    ExportReport,
    Format,
    counted_from,
    error_of_each_axis,
    from_format,
    imported_table,
    join_equal_widths,
    joint_error,
    mapped,
    mappings_of,
    to_format,
    unmapped,
    with_frame_number,
)
from .smap_mat import is_mat, read_mat


class ThunderStorm(Format):
    """ThunderSTORM's tables: origin at the corner of the first pixel, frames from 1, in nm."""

    name, title, suffix = "thunderstorm", "ThunderSTORM", ".thunderstorm.csv"
    unit, origin, first_frame = "nm (reads px and µm, too)", "0.5 px", "1"
    needs = "size of a pixel, if in a unit of length"
    _CONVENTION = Convention(unit=1.0, corner=0.5, first_frame=1)
    _MAPPINGS = mappings_of("thunderstorm")
    #: Title of the uncertainty up to version 1.3, and since.
    _OLD, _NEW = "uncertainty [nm]", "uncertainty_xy [nm]"
    _ID = "id"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file begins with ThunderSTORM's titles, in any unit of length."""
        titles = _titles_once_quoted(head)
        named = {base for base, unit in map(_in_unit, titles) if unit is not None}
        return "frame" in titles and {"x", "y"} <= named

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read a table of ThunderSTORM 1.3 or later, in the units of its titles."""
        with path.open("rb") as file:
            rows = Rows(path, _titles_once_quoted(file.read(1 << 16)))
        found = rows.all_numbers()
        found.pop(self._ID, None)
        convention = counted_from(self._CONVENTION, found, "frame")
        columns: dict[str, NDArray[Any]] = {}
        for title, values in found.items():
            base, unit = _in_unit(title)
            canonical = title if unit is None else f"{base} [nm]"
            own = convention if unit is None else replace(convention, unit=unit or None)
            if canonical in (self._OLD, self._NEW):
                columns |= error_of_each_axis(values, own, image)
            elif base in ("z", "uncertainty_z") and unit is not None:
                columns |= self._along_z(title, canonical, values, unit)
            else:
                columns |= from_format({canonical: values}, self._MAPPINGS, own, image)
        join_equal_widths(columns)
        return imported_table(columns, image)

    def _along_z(
        self, title: str, canonical: str, values: NDArray[Any], unit: float
    ) -> dict[str, NDArray[Any]]:
        """Return a column along z in nm; unchanged if in pixels, which have no size along z."""
        if not unit:
            return {title: values}
        return from_format({canonical: values * unit}, self._MAPPINGS, Convention(), ImageInfo())

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write a table as ThunderSTORM does since 1.4, with one uncertainty for both axes."""
        table = with_frame_number(table, report)
        made = to_format(table, self._MAPPINGS, self._CONVENTION, image, report)
        columns = {self._ID: np.arange(1, len(table) + 1), **made}
        if (error := joint_error(table, self._CONVENTION, image, report)) is not None:
            columns[self._NEW] = error
        report.columns += unmapped(table, {*(m.name for m in self._MAPPINGS), *POSITION_ERRORS})
        write_rows(path, [",".join(f'"{title}"' for title in columns)], columns)
        return {}


def _titles_once_quoted(head: bytes) -> list[str]:
    """Return the titles, even if a spreadsheet has quoted the whole line once more."""
    titles = titles_of(head)
    if len(titles) == 1 and set(titles[0]) & set(",;"):
        return titles_of(titles[0].encode())
    return titles


def _in_unit(title: str) -> tuple[str, float | None]:
    """Split a title into name and unit of length in nm: 0 for pixels, None without one.

    Examples
    --------
    >>> _in_unit("x [nm]"), _in_unit("sigma [px]"), _in_unit("intensity [photon]")
    (('x', 1.0), ('sigma', 0.0), ('intensity [photon]', None))
    """
    base, bracket, rest = title.partition("[")
    unit = rest.rstrip().removesuffix("]").strip()
    if not bracket:
        return title, None
    length = 0.0 if unit in PIXEL_UNITS else nanometres_of(unit)
    return (title, None) if length is None else (base.strip(), length)


class Smap(Format):
    """SMAP's tables: nm, the first pixel's centre one pixel from 0, frames from 1."""

    name, title, suffix = "smap", "SMAP", ".smap.csv"
    unit, origin, first_frame = "nm", "1 px", "1"
    needs = "size of a pixel, if a `.mat` lacks it; `napari-spotfit[hdf5]` for v7.3"
    #: MATLAB counts pixels from 1.
    _CONVENTION = Convention(unit=1.0, corner=1.0, first_frame=1)
    _MAPPINGS = mappings_of("smap")
    #: The same title is the width of round spots, and the width along x of elliptical ones.
    _ROUND = (mapped("PSFxnm", "sigma"),)
    _ELLIPTICAL = (mapped("PSFxnm", "sigma_x"), mapped("PSFynm", "sigma_y"))
    _ID, _Z, _ERROR = "ID", "znm", "locprecnm"
    #: Further columns of tables saved as .mat.
    _ERRORS = (mapped("xnmerr", "x_stderr"), mapped("ynmerr", "y_stderr"))
    _SAVED = (mapped("locprecznm", "z_stderr"), mapped("photerr", "photons_stderr"))

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file begins with SMAP's titles, or is a .mat file."""
        return is_mat(head) or {"frame", "xnm", "ynm"} <= set(titles_of(head))

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read a table that SMAP exported or saved; if znm is 0 throughout, there is no z."""
        with path.open("rb") as file:
            saved = is_mat(file.read(1 << 10))
        if saved:
            found, image = read_mat(path, image)
        else:
            found = Rows(path).all_numbers()
        found.pop(self._ID, None)
        if self._Z in found and not found[self._Z].any():
            del found[self._Z]
        error = found.pop(self._ERROR, None)
        widths = self._ELLIPTICAL if "PSFynm" in found else self._ROUND
        convention = counted_from(self._CONVENTION, found, "frame")
        own = {one.title for one in self._ERRORS}
        if error is not None and not own <= set(found):
            columns = error_of_each_axis(error, convention, image)
        else:
            columns, widths = {}, (*widths, *self._ERRORS)
        known = (*self._MAPPINGS, *widths, *(self._SAVED if saved else ()))
        columns = from_format(found, known, convention, image) | columns
        if saved:
            join_equal_widths(columns)
        return imported_table(columns, image)

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write a table as SMAP exports it, with the widths last."""
        widths = self._ROUND if "sigma" in table.columns else self._ELLIPTICAL
        mappings = (*self._MAPPINGS, *widths)
        table = with_frame_number(table, report)
        made = to_format(table, mappings, self._CONVENTION, image, report)
        error = joint_error(table, self._CONVENTION, image, report)
        columns = {
            self._ID: np.arange(1, len(table) + 1),
            **{one.title: made[one.title] for one in self._MAPPINGS if one.title in made},
        }
        columns.setdefault(self._Z, np.zeros(len(table), np.int64))
        if error is not None:
            columns[self._ERROR] = error
        columns |= {one.title: made[one.title] for one in widths if one.title in made}
        report.columns += unmapped(table, {*(one.name for one in mappings), *POSITION_ERRORS})
        write_rows(path, [",".join(columns)], columns)
        return {}


class TrackMate(Format):
    """TrackMate's spot tables: four header lines, or one; calibrated units, frames from 0."""

    name, title, suffix = "trackmate", "TrackMate", ".trackmate.csv"
    unit, needs = "µm, else px", "size of a pixel, if in a unit of length"
    _MAPPINGS = mappings_of("trackmate")
    _HEADER = 4
    _FIRST = (
        "LABEL", "ID", "TRACK_ID", "QUALITY", "POSITION_X", "POSITION_Y", "POSITION_Z",
        "POSITION_T", "FRAME", "RADIUS", "VISIBILITY",
    )  # fmt: skip
    _WORDS = ("Label", "Spot ID", "Track ID", "Quality", "X", "Y", "Z", "T", "Frame")
    _NEEDED = ("POSITION_X", "POSITION_Y", "FRAME")
    #: Not read: not needed, or computed from other columns.
    _LEFT_OUT = frozenset({"LABEL", "ID", "POSITION_T", "VISIBILITY", "MANUAL_SPOT_COLOR"})
    _MICRON = 1000.0

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file begins with the titles of TrackMate's spots."""
        return set(self._NEEDED) <= set(titles_of(head))

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read a table of spots, in the unit of its header."""
        titles, units, header = self._header_of(path)
        rows = Rows(path, titles, header)
        if units is None:
            length = self._assumed_unit(path, image)
        else:
            length = _unit_of_length(units[titles.index("POSITION_X")], header)
        found = {
            title: rows.numbers(title)
            for title in rows.titles
            if title not in self._LEFT_OUT and rows.values(title).dtype != object
        }
        for title in self._NEEDED:
            found[title] = rows.numbers(title)
        if np.isnan(found.get("TRACK_ID", np.nan)).all():
            found.pop("TRACK_ID", None)
        if not np.any(found.get("POSITION_Z", 0)):
            found.pop("POSITION_Z", None)
        columns = from_format(found, self._MAPPINGS, Convention(unit=length), image)
        return imported_table(columns, image)

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write spots in µm, or in pixels if the size of a pixel is unknown."""
        micron = image.pixel_size is not None
        convention = Convention(unit=self._MICRON if micron else None)
        rows = len(table)
        made = to_format(table, self._MAPPINGS, convention, image, report)
        if "RADIUS" not in made and "sigma" in table.columns:
            # A 2D Laplacian-of-Gaussian detector responds best at radius σ√2.
            made |= to_format(table, [mapped("RADIUS", "sigma")], convention, image, report)
            made["RADIUS"] = made["RADIUS"] * np.sqrt(2)
        numbers = np.arange(rows)
        made |= {
            "LABEL": np.array([f"ID{number}" for number in numbers], object),
            "ID": numbers,
            "POSITION_Z": np.zeros(rows),
            "POSITION_T": made["FRAME"].astype(np.float64),
            "VISIBILITY": np.ones(rows, np.int64),
        }
        columns = {name: made.get(name, np.full(rows, np.nan)) for name in self._FIRST}
        stored = {
            name: StoredColumn(TEXT if name == "LABEL" else values.dtype.name)
            for name, values in columns.items()
        }
        report.columns += unmapped(table, {one.name for one in self._MAPPINGS})
        header = self._header("(micron)" if micron else "(pixel)")
        write_rows(path, header, columns, stored, nan="")
        return {}

    def _header(self, unit: str) -> list[str]:
        units = ["", "", "", "(quality)", unit, unit, unit, "(frame)", "", unit, ""]
        words = [(*self._WORDS, radius, "Visibility") for radius in ("Radius", "R")]
        return [",".join(line) for line in (self._FIRST, *words, units)]

    def _header_of(self, path: Path) -> tuple[list[str], list[str] | None, int]:
        """Return the titles, the units if a line has them, and the number of header lines.

        Raises
        ------
        UnreadableFileError
            If the header is not TrackMate's.
        """
        with path.open("rb") as file:
            lines = as_utf8(b"".join(file.readline(1 << 16) for _ in range(self._HEADER)))
        first, *others = lines.splitlines()[: self._HEADER] or [b""]
        titles = titles_of(first)
        if not set(self._NEEDED) <= set(titles):
            raise UnreadableFileError(
                f"line 1 lacks the titles of TrackMate's spots, {', '.join(self._NEEDED)}"
            )
        separator = separator_of(first.decode(errors="replace"))
        header = [titles]
        for line in others:
            cells = titles_of(line, separator)
            if len(cells) != len(titles) or _is_number(cells[titles.index("FRAME")]):
                break
            header.append(cells)
        has_units = len(header) == self._HEADER or any(c.startswith("(") for c in header[-1])
        return titles, header[-1] if has_units and len(header) > 1 else None, len(header)

    def _assumed_unit(self, path: Path, image: ImageInfo) -> float | None:
        """Return a unit of length in nm for a file that says none, and warn."""
        start = f"“{path.name}” does not say the unit of its lengths: they are read as"
        if image.pixel_size is None:
            warn_caller(f"{start} pixels. If they are µm, say the size of a pixel, pixel_size=…")
            return None
        warn_caller(f"{start} µm. If they are pixels, leave out the size of a pixel, pixel_size=…")
        return self._MICRON


def _unit_of_length(cell: str, line: int) -> float | None:
    """Return the unit of length that a cell of the header names, in nm; None for pixels."""
    unit = cell.strip("()")
    length = nanometres_of(unit)
    if length is None and unit and unit not in PIXEL_UNITS:
        raise UnreadableFileError(f"line {line}: {unit!r} is no known unit of length")
    return length


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True
