"""TrackMate's tables of spots: four lines of titles, calibrated lengths, frames from 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..table import TEXT, Column, SpotTable, UnreadableFileError
from .delimited import Rows, titles_of, write_rows
from .homes import Convention, Home, Loss, homeless, ours, table_of_theirs, theirs
from .scene import Scene, nanometres_of

_HOMES = (
    Home("TRACK_ID", "track"),
    Home("QUALITY", "score"),
    Home("POSITION_X", "x", "place"),
    Home("POSITION_Y", "y", "place"),
    Home("FRAME", "frame", "frame"),
    Home("RADIUS", "radius", "length"),
)
_HEADER = 4
_FIRST = (
    "LABEL", "ID", "TRACK_ID", "QUALITY", "POSITION_X", "POSITION_Y", "POSITION_Z", "POSITION_T",
    "FRAME", "RADIUS", "VISIBILITY",
)  # fmt: skip
_WORDS = ("Label", "Spot ID", "Track ID", "Quality", "X", "Y", "Z", "T", "Frame")
#: What is of no use here, or follows from the rest.
_LEFT_OUT = frozenset({"LABEL", "ID", "POSITION_T", "VISIBILITY", "MANUAL_SPOT_COLOR"})
_MICRON = 1000.0


def sniff(path: Path, head: bytes) -> bool:
    """Whether a file begins with TrackMate's titles of spots."""
    return {"POSITION_X", "POSITION_Y", "FRAME"} <= set(titles_of(head))


def read(path: Path, scene: Scene) -> SpotTable:
    """Read a table of spots, in whichever unit it says."""
    rows = Rows(path, header=_HEADER)
    units = _fourth_line(path)
    if len(units) != len(rows.titles) or "POSITION_X" not in rows.titles:
        raise UnreadableFileError(
            "lines 1 to 4 are not TrackMate's: names, two lines of titles, and units"
        )
    unit = units[rows.titles.index("POSITION_X")].strip("()")
    length = nanometres_of(unit)
    if length is None and unit not in ("", "pixel", "pixels", "px"):
        raise UnreadableFileError(f"line 4: {unit!r} is no unit of length that is known")
    found = {
        title: rows.numbers(title)
        for title in rows.titles
        if title not in _LEFT_OUT and rows.values(title).dtype != object
    }
    for title in ("POSITION_X", "POSITION_Y", "FRAME"):
        found[title] = rows.numbers(title)
    if np.isnan(found.get("TRACK_ID", np.nan)).all():
        found.pop("TRACK_ID", None)
    if not np.any(found.get("POSITION_Z", 0)):
        found.pop("POSITION_Z", None)
    return table_of_theirs(ours(found, _HOMES, Convention(unit=length), scene), scene)


def write(path: Path, table: SpotTable, scene: Scene, loss: Loss) -> dict[str, str]:
    """Write spots in µm, or in pixels where nobody has said how large those are."""
    micron = scene.pixel_size is not None
    convention = Convention(unit=_MICRON if micron else None)
    rows = len(table)
    made = theirs(table, _HOMES, convention, scene, loss)
    if "RADIUS" not in made and "sigma" in table.columns:
        # The radius to which a detector's Laplacian of Gaussian in two dimensions is matched.
        home = Home("RADIUS", "sigma", "length")
        made |= theirs(table, [home], convention, scene, loss)
        made["RADIUS"] = made["RADIUS"] * np.sqrt(2)
    numbers = np.arange(rows)
    made |= {
        "LABEL": np.array([f"ID{number}" for number in numbers], object),
        "ID": numbers,
        "POSITION_Z": np.zeros(rows),
        "POSITION_T": made["FRAME"].astype(np.float64),
        "VISIBILITY": np.ones(rows, np.int64),
    }
    columns = {name: made.get(name, np.full(rows, np.nan)) for name in _FIRST}
    known = {
        name: Column(TEXT if name == "LABEL" else values.dtype.name)
        for name, values in columns.items()
    }
    unit = "(micron)" if micron else "(pixel)"
    units = ["", "", "", "(quality)", unit, unit, unit, "(frame)", "", unit, ""]
    header = [_FIRST, (*_WORDS, "Radius", "Visibility"), (*_WORDS, "R", "Visibility"), units]
    loss.columns += homeless(table, {home.name for home in _HOMES})
    write_rows(path, [",".join(line) for line in header], columns, known, nan="")
    return {}


def _fourth_line(path: Path) -> list[str]:
    with path.open("rb") as file:
        lines = [file.readline() for _ in range(_HEADER)]
    return titles_of(lines[-1])
