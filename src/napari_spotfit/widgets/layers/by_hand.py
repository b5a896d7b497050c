"""Points that somebody adds to a layer of fitted spots: they are no fits, and have no numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engine.quality.flags import Flag
from ...models.columns import REFIT, is_index
from ...models.stopping import StopCondition
from .marks import draw_marks, is_marked

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Points

_STOP = "stop_condition"
#: What a fit that failed has, too, by the layer's settings; all other numbers are missing.
_CELLS = {"flags": float(Flag.NOT_CONVERGED), "good": 0.0, "iterations": 0.0, REFIT: 0.0}


def unfit_rows(layer: Points, rows: Sequence[int]) -> None:
    """Take from points the numbers of another spot, which napari gives them as they are added.

    They are then as fits that failed: not good, and nothing counts them as spots.

    Parameters
    ----------
    layer : napari.layers.Points
        A layer of fitted spots.
    rows : sequence of int
        Which points; from the end where they are negative.
    """
    added = np.arange(len(layer.data))[list(rows)]
    marked = is_marked(layer)
    layer.features = _without_fits(layer.features, layer.data, added)
    _count(layer, len(added))
    if marked:
        draw_marks(layer)


def _without_fits(
    features: pd.DataFrame, points: NDArray[np.float64], rows: NDArray[np.intp]
) -> pd.DataFrame:
    """Return features of which some rows have a frame, and else what a failed fit has."""
    table = features.copy()
    index = [name for name in features if is_index(str(name))]
    for number, (name, kind) in enumerate(features.dtypes.items()):
        if name == _STOP:
            known = getattr(kind, "categories", [StopCondition.INVALID.name])
            value: Any = StopCondition.INVALID.name if StopCondition.INVALID.name in known else None
        elif name in index:
            value = np.rint(points[rows, index.index(name)])
        else:
            value = _CELLS.get(str(name), None if getattr(kind, "kind", "O") == "O" else np.nan)
        table.iloc[rows, number] = value
    return table


def _count(layer: Points, added: int) -> None:
    """Count them among the fits that failed, if those are counted."""
    counts = layer.metadata.get("stop_counts")
    if counts is not None:
        invalid = StopCondition.INVALID.name
        counts = {**counts, invalid: counts.get(invalid, 0) + added}
        layer.metadata = {**layer.metadata, "stop_counts": counts}
