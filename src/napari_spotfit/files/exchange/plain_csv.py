"""Read and write plain CSV: our columns by name, in pixels or in the unit of the title."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...caller import warn_caller
from ...models.columns import COLUMNS, IN_PLANE, is_index
from ..table import SpotTable, UnreadableFileError
from .delimited import Rows, titles_of, write_rows
from .format import ExportReport, Format
from .image_info import PIXEL_UNITS, ImageInfo, nanometres_of
from .mapping import ColumnMapping, Convention, as_typed, from_format, imported_table, unmapped
from .pixel_tables import columns_of, titles_line

#: Kinds of columns that are in pixels in every file.
_OF_PIXELS = ("roi", "other")
_UNIT = re.compile(r"(.+?)[ _]*(?:[\[(](.+)[\])]|_(nm|um|µm|px))")


#: A usual σ in pixels, and sizes that images rarely exceed or fall below, in pixels.
_USUAL_SIGMA, _MANY_PIXELS, _FEW_PIXELS = 1.3, 4096, 10


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
        columns = columns_of(rows, rows.titles)
        for title in rows.titles:
            if named[title][0] in IN_PLANE:
                columns[title] = as_typed(named[title][0], rows.numbers(title), title)
        if all(unit is None for _, unit in named.values()) and image.pixel_size is not None:
            length = _likely_unit(path, columns, image.pixel_size)
            named = {title: (title, length if _is_length(title) else None) for title in named}
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
    width = _median(columns, ("sigma", "sigma_x", "sigma_y"))
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


def _median(columns: Mapping[str, NDArray[Any]], names: Iterable[str]) -> float:
    """Return the median of the first of these columns that has numbers; 0 without one."""
    for name in names:
        values = columns.get(name, np.zeros(0))
        if values.dtype != object and np.isfinite(values).any():
            return float(np.nanmedian(values))
    return 0.0
