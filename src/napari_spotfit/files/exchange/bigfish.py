"""Spots of big-fish: rows of [z;]y;x in pixels, without titles."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..table import SpotTable, UnreadableFileError
from .delimited import Rows, write_rows
from .homes import Loss, homeless, table_of_theirs
from .scene import Scene

_NUMBER = rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_LINE = re.compile(rb"%b(?:;%b){1,2}" % (_NUMBER, _NUMBER))
_SEPARATOR = ";"
_NAMES = {2: ("y", "x"), 3: ("frame", "y", "x")}


def sniff(path: Path, head: bytes) -> bool:
    """Whether a file begins with two or three numbers between semicolons."""
    return _LINE.fullmatch(head.partition(b"\n")[0].strip()) is not None


def read(path: Path, scene: Scene) -> SpotTable:
    """Read spots; z, if there is one, is the plane along the image's leading axis."""
    with path.open("rb") as file:
        line = file.readline(1 << 16)
    if not line:  # no spots: there are no titles either
        names = _NAMES[3]
        none = {name: np.zeros(0, np.int64 if name == "frame" else np.float64) for name in names}
        return table_of_theirs(none, scene, names[:-2])
    count = line.count(_SEPARATOR.encode()) + 1
    if count not in _NAMES:
        raise UnreadableFileError(f"line 1 has {count} values; spots of big-fish have 2 or 3")
    names = _NAMES[count]
    rows = Rows(path, names, header=0, separator=_SEPARATOR)
    columns = rows.all_numbers()
    if "frame" in columns:
        if not np.isfinite(columns["frame"]).all():
            raise UnreadableFileError("a row has no z")
        planes = np.rint(columns["frame"])
        if (planes != columns["frame"]).any():
            columns["z_px"] = columns["frame"]
        columns["frame"] = planes.astype(np.int64)
    columns |= {name: columns[name].astype(np.float64) for name in ("y", "x")}
    return table_of_theirs(columns, scene, names[:-2])


def write(path: Path, table: SpotTable, scene: Scene, loss: Loss) -> dict[str, str]:
    """Write places: the frame, or z where it is known, comes first; of one plane, y and x."""
    names = [name for name in ("frame", "y", "x") if name in table.columns]
    columns = {name: table.columns[name] for name in names}
    if "z_px" in table.columns and "frame" in columns:
        columns["frame"] = table.columns["z_px"]
    loss.columns += homeless(table, {*names, "z_px"})
    write_rows(path, [], columns, separator=_SEPARATOR)
    return {}
