"""ThunderSTORM's tables: nm from the corner of the first pixel, frames from 1."""

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
    one_width,
    ours,
    table_of_theirs,
    theirs,
)  # fmt: skip
from .scene import Scene

CONVENTION = Convention(unit=1.0, corner=0.5, first_frame=1)
#: In their order; of the two titles of the uncertainty, the first is that of 1.3 and before.
_HOMES = (
    Home("frame", "frame", "frame"),
    Home("x [nm]", "x", "place"),
    Home("y [nm]", "y", "place"),
    Home("z [nm]", "z"),
    Home("sigma [nm]", "sigma", "length"),
    Home("sigma1 [nm]", "sigma_x", "length"),
    Home("sigma2 [nm]", "sigma_y", "length"),
    Home("intensity [photon]", "photons"),
    Home("offset [photon]", "background", "light"),
    Home("chi2", "chi_square"),
    Home("uncertainty_z [nm]", "z_stderr"),
)
_OLD, _NEW = "uncertainty [nm]", "uncertainty_xy [nm]"
_ID = "id"


def sniff(path: Path, head: bytes) -> bool:
    """Whether a file begins with ThunderSTORM's titles."""
    return {"frame", "x [nm]", "y [nm]"} <= set(_titles(head))


def read(path: Path, scene: Scene) -> SpotTable:
    """Read a table of ThunderSTORM 1.3 or later."""
    with path.open("rb") as file:
        rows = Rows(path, _titles(file.read(1 << 16)))
    found = rows.all_numbers()
    found.pop(_ID, None)
    uncertainty = found.pop(_OLD, found.pop(_NEW, None))
    columns = ours(found, _HOMES, from_first(CONVENTION, found, "frame"), scene)
    if uncertainty is not None:
        columns |= both_errors(uncertainty, CONVENTION, scene)
    one_width(columns)
    return table_of_theirs(columns, scene)


def write(path: Path, table: SpotTable, scene: Scene, loss: Loss) -> dict[str, str]:
    """Write a table as ThunderSTORM does since 1.4; one uncertainty stands for both axes."""
    table = counted(table, loss)
    made = theirs(table, _HOMES, CONVENTION, scene, loss)
    columns = {_ID: np.arange(1, len(table) + 1), **made}
    taken = {home.name for home in _HOMES} | {"x_stderr", "y_stderr"}
    if (error := one_error(table, CONVENTION, scene, loss)) is not None:
        columns[_NEW] = error
    loss.columns += homeless(table, taken)
    write_rows(path, [",".join(f'"{title}"' for title in columns)], columns)
    return {}


def _titles(head: bytes) -> list[str]:
    """Return the titles; those that a spreadsheet has quoted once more, too."""
    titles = titles_of(head)
    if len(titles) == 1 and "," in titles[0]:
        return titles_of(titles[0].encode())
    return titles
