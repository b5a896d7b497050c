"""The cells of an image: which spots lie in them, and what these add up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.labels import LabelSums, label_sizes, label_spots
from ..files.table import as_text
from ..files.writing import unfinished
from ..results.spot_fits import SpotFits

if TYPE_CHECKING:
    import pandas as pd

#: The column of spots with the label they lie in.
LABEL = "label"
#: What is added up in each cell.
_COLUMNS = ("photons",)
_ENDING = ".cells.csv"


class Cells:
    """The cells of one image, to which spots are added as they come.

    Parameters
    ----------
    labels : array of int
        As :func:`~napari_spotfit.label_spots` takes them.
    """

    def __init__(self, labels: Any) -> None:
        self._labels = labels
        self._sums = LabelSums(label_sizes(labels), _COLUMNS)

    def labelled(self, part: SpotFits) -> SpotFits:
        """Return spots with the column ``label``; the good ones count in their cells."""
        part = part.to_host()
        label, good = label_spots(part, self._labels), np.asarray(part.good)
        self._sums.add(label[good], {name: part.columns[name][good] for name in _COLUMNS})
        columns = {**part.columns, LABEL: label}
        return SpotFits(columns, part.index_names, part.settings)

    def table(self, file: str | None = None) -> pd.DataFrame:
        """Return a row for every cell, with a column ``file`` where several files have some."""
        table = self._sums.table()
        if file is not None:
            table.insert(0, "file", as_text(file))
        return table


def cells_path(table: Path) -> Path:
    """Return where the cells of the spots in a table are written.

    Examples
    --------
    >>> cells_path(Path("out/a.tif.spots.parquet")).as_posix()
    'out/a.tif.cells.csv'
    """
    name = table.name[: -len(table.suffix)]
    return table.with_name(name.removesuffix(".spots") + _ENDING)


def write_cells(path: Path, tables: list[pd.DataFrame]) -> None:
    """Write the tables of cells as one CSV file."""
    import pandas as pd

    with unfinished(path) as part:
        pd.concat(tables).to_csv(part, index=False)
