"""napari's own tables of points: pixels, one column an axis, then features."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..table import Column, SpotTable, UnreadableFileError
from .delimited import Rows, titles_of, write_rows
from .homes import Loss, as_ours, homeless, table_of_theirs
from .plain import columns_of, titles_line
from .scene import Scene

_AXIS = re.compile(r"axis-(\d+)")
_INDEX = "index"


def sniff(path: Path, head: bytes) -> bool:
    """Whether a file begins with napari's titles of points."""
    return titles_of(head)[:3] == [_INDEX, "axis-0", "axis-1"]


def read(path: Path, scene: Scene) -> SpotTable:
    """Read a table of points; features are columns by their names."""
    rows = Rows(path)
    axes = [title for title in rows.titles if _AXIS.fullmatch(title)]
    if len(axes) < 2 or axes != [f"axis-{number}" for number in range(len(axes))]:
        raise UnreadableFileError("line 1: the columns axis-0, axis-1, … of napari's are missing")
    index = tuple(f"axis_{number}" for number in range(len(axes) - 3))
    index += ("frame",) if len(axes) > 2 else ()
    columns = {
        name: as_ours(name, rows.numbers(axis), axis)
        for name, axis in zip((*index, "y", "x"), axes, strict=True)
    }
    # A feature of the same name is where the spot was fitted; the point may have been moved.
    known = {_INDEX, *axes, *columns}
    columns |= columns_of(rows, [title for title in rows.titles if title not in known])
    return table_of_theirs(columns, scene, index)


def write(path: Path, table: SpotTable, scene: Scene, loss: Loss) -> dict[str, str]:
    """Write points and features as napari does."""
    columns = {_INDEX: np.arange(len(table))}
    known = {_INDEX: Column("int64")}
    names = [*table.about.index, "y", "x"]
    titles = {name: f"axis-{number}" for number, name in enumerate(names)}
    for name in (*names, *(one for one in homeless(table, ()) if one not in names)):
        columns[titles.get(name, name)] = table.columns[name]
        known[titles.get(name, name)] = table.about.columns[name]
    write_rows(path, [titles_line(columns)], columns, known)
    return {}
