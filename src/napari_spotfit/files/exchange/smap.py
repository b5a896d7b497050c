"""SMAP's tables: nm, the first pixel's centre one pixel from 0, frames from 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..table import SpotTable
from .delimited import Rows, titles_of, write_rows
from .homes import (
    Convention,
    Home,
    Loss,
    both_errors,
    counted,
    from_first,
    homeless,
    one_error,
    ours,
    table_of_theirs,
    theirs,
)  # fmt: skip
from .scene import Scene

#: Its fitters add what they find to MATLAB's numbers of pixels, which begin with 1.
CONVENTION = Convention(unit=1.0, corner=1.0, first_frame=1)
_HOMES = (
    Home("frame", "frame", "frame"),
    Home("xnm", "x", "place"),
    Home("ynm", "y", "place"),
    Home("znm", "z"),
    Home("phot", "photons"),
    Home("bg", "background", "light"),
)
_ROUND = (Home("PSFxnm", "sigma", "length"),)
_ELLIPTICAL = (Home("PSFxnm", "sigma_x", "length"), Home("PSFynm", "sigma_y", "length"))
_ID, _Z, _ERROR = "ID", "znm", "locprecnm"


def sniff(path: Path, head: bytes) -> bool:
    """Whether a file begins with SMAP's titles."""
    return {"frame", "xnm", "ynm"} <= set(titles_of(head))


def read(path: Path, scene: Scene) -> SpotTable:
    """Read a table that SMAP has exported; a znm of 0 throughout stands for none."""
    found = Rows(path).all_numbers()
    found.pop(_ID, None)
    if _Z in found and not found[_Z].any():
        del found[_Z]
    error = found.pop(_ERROR, None)
    widths = _ELLIPTICAL if "PSFynm" in found else _ROUND
    columns = ours(found, (*_HOMES, *widths), from_first(CONVENTION, found, "frame"), scene)
    if error is not None:
        columns |= both_errors(error, CONVENTION, scene)
    return table_of_theirs(columns, scene)


def write(path: Path, table: SpotTable, scene: Scene, loss: Loss) -> dict[str, str]:
    """Write a table as SMAP exports them, with the widths behind."""
    widths = _ROUND if "sigma" in table.columns else _ELLIPTICAL
    table = counted(table, loss)
    made = theirs(table, (*_HOMES, *widths), CONVENTION, scene, loss)
    error = one_error(table, CONVENTION, scene, loss)
    columns = {
        _ID: np.arange(1, len(table) + 1),
        **{home.title: made[home.title] for home in _HOMES if home.title in made},
    }
    columns.setdefault(_Z, np.zeros(len(table), np.int64))
    if error is not None:
        columns[_ERROR] = error
    columns |= {home.title: made[home.title] for home in widths if home.title in made}
    taken = {home.name for home in (*_HOMES, *widths)} | {"x_stderr", "y_stderr"}
    loss.columns += homeless(table, taken)
    write_rows(path, [",".join(columns)], columns)
    return {}
