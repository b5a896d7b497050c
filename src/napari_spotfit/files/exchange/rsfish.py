"""RS-FISH's tables: pixels, time and channel from 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..table import SpotTable
from .delimited import Rows, titles_of, write_rows
from .homes import (
    Convention,
    Home,
    Loss,
    counted,
    from_first,
    homeless,
    ours,
    table_of_theirs,
    theirs,
)  # fmt: skip
from .scene import Scene

CONVENTION = Convention(first_frame=1)
_HOMES = (
    Home("x", "x", "place"),
    Home("y", "y", "place"),
    Home("z", "z_px"),
    Home("t", "frame", "frame"),
    Home("c", "channel"),
    Home("intensity", "amplitude"),
)


def sniff(path: Path, head: bytes) -> bool:
    """Whether a file begins with RS-FISH's titles."""
    titles = titles_of(head)
    return [title for title in titles if title != "z"] == ["x", "y", "t", "c", "intensity"]


def read(path: Path, scene: Scene) -> SpotTable:
    """Read a table of spots; the place along z is a column of its own."""
    found = Rows(path).all_numbers()
    if "c" in found and (found["c"] == 1).all():
        del found["c"]  # no other channel
    convention = from_first(CONVENTION, found, "t")
    return table_of_theirs(ours(found, _HOMES, convention, scene), scene)


def write(path: Path, table: SpotTable, scene: Scene, loss: Loss) -> dict[str, str]:
    """Write a table of spots, of channel 1 if it does not say another."""
    table = counted(table, loss)
    made = theirs(table, _HOMES, CONVENTION, scene, loss)
    made.setdefault("c", np.ones(len(table), np.int64))
    made.setdefault("intensity", np.full(len(table), np.nan))
    loss.columns += homeless(table, {home.name for home in _HOMES})
    columns = {home.title: made[home.title] for home in _HOMES if home.title in made}
    write_rows(path, [",".join(columns)], columns)
    return {}
