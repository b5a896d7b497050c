"""Spots of a layer that were fitted again with settings of their own.

The feature ``refit`` of such a spot is the number, from 1 on, of its settings among those that
the layer's metadata list; 0 stands for the settings of the layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...models.columns import REFIT
from ...settings.settings import Settings
from .cells import LABEL, LABELS
from .state import LayerState, fit_limits, put_points

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Points

    from .history import History

#: The key of the metadata with the list of settings.
REFITS = "refits"
_STOP = "stop_condition"
_WHAT = "the refit of a spot"


class Row(NamedTuple):
    """One spot of a layer, with all that is known of it."""

    #: Indices along the leading axes, y and x.
    point: NDArray[np.float64]
    cells: dict[str, Any]
    units: dict[str, str]
    #: What it was fitted with, as plain values.
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, layer: Points, row: int) -> Row:
        """Return a spot as a layer has it."""
        return cls(
            layer.data[row].copy(),
            layer.features.iloc[row].to_dict(),
            dict(layer.metadata.get("units", {})),
            settings_of_row(layer, row),
        )

    def refitted(self, new: Mapping[str, Any]) -> Row:
        """Return the same spot, fitted again.

        What a fit does not tell stays: the score, and what the user has added. What the earlier
        model alone has, is no longer known.

        Parameters
        ----------
        new : mapping
            One fit, from :func:`~napari_spotfit.widgets.picking.picked_layer.arguments`.
        """
        values = {str(name): column.iloc[0] for name, column in new["features"].items()}
        for name in ("roi_size", "offset"):  # where the layer tells them of each spot
            if name not in self.cells:
                values.pop(name, None)
        shape = [one.name for one in Settings(**self.settings).profile.shape]
        gone = {name for one in shape for name in (one, f"{one}_stderr")} - set(values)
        cells = {name: np.nan if name in gone else value for name, value in self.cells.items()}
        metadata = new["metadata"]
        units = {**self.units, **metadata["units"]}
        return Row(new["data"][0], cells | values, units, metadata["settings"])

    def is_in(self, layer: Points, row: int) -> bool:
        """Whether a layer has this spot in a row, fitted like this."""
        if row >= len(layer.data) or not np.array_equal(layer.data[row], self.point):
            return False
        there = layer.features.iloc[row].to_dict()
        same = (_same(value, there.get(name, np.nan)) for name, value in self._own.items())
        return all(same)

    @property
    def _own(self) -> dict[str, Any]:
        return {name: one for name, one in self.cells.items() if name not in (REFIT, LABEL)}


def settings_of_row(layer: Points, row: int) -> Mapping[str, Any]:
    """Return what a spot of a layer was fitted with, as plain values; empty if nobody knows."""
    settings: Mapping[str, Any] = layer.metadata.get("settings", {})
    if REFIT not in layer.features:
        return settings
    number, known = layer.features[REFIT].to_numpy()[row], layer.metadata.get(REFITS, [])
    return known[int(number) - 1] if 1 <= number <= len(known) else settings


def count_refits(features: pd.DataFrame) -> int:
    """Return how many spots were fitted again with settings of their own."""
    return int((features[REFIT].to_numpy() > 0).sum()) if REFIT in features else 0


def put_row(layer: Points, row: int, new: Row, history: History) -> None:
    """Let a row of a layer be another fit of its spot, in the colours and with the mark of that.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer.
    row : int
        Which row.
    new : Row
        What stands there then.
    history : History
        Where it is recorded.
    """
    before = LayerState.of(layer)
    with history.pause():
        _put(layer, row, new)
    history.record(layer, before, _WHAT)
    history.shown.emit(layer)


def _put(layer: Points, row: int, new: Row) -> None:
    number, refits = _numbered(layer, new.settings)
    cells = {**new.cells, REFIT: float(number)}
    metadata, old = layer.metadata, layer.features[_STOP].iloc[row]
    if LABELS in metadata and not np.array_equal(np.rint(layer.data[row]), np.rint(new.point)):
        cells[LABEL] = np.nan  # until somebody looks
    counts = dict(metadata.get("stop_counts", {}))
    if old in counts:
        counts[old] -= 1
        counts[cells[_STOP]] = counts.get(cells[_STOP], 0) + 1
    units = {**new.units, **metadata.get("units", {})}
    layer.metadata = {**metadata, "stop_counts": counts, "units": units, REFITS: refits}
    features, data = _with_cells(layer.features, row, cells), layer.data.copy()
    data[row] = new.point
    fit_limits(layer, features)
    put_points(layer, data, features)


def _numbered(layer: Points, settings: Mapping[str, Any]) -> tuple[int, list[Mapping[str, Any]]]:
    """Return the number of settings among those of a layer, and the list of its refits'."""
    refits, wanted = list(layer.metadata.get(REFITS, [])), Settings(**settings)
    known = [layer.metadata.get("settings", {}), *refits]
    for number, one in enumerate(known):
        if Settings(**one) == wanted:
            return number, refits
    return len(known), [*refits, dict(settings)]


def _with_cells(features: pd.DataFrame, row: int, cells: Mapping[str, Any]) -> pd.DataFrame:
    """Return features of which one row has other values; columns that are new are NaN elsewhere."""
    changed = features.copy()
    for name, value in cells.items():
        if name not in changed:
            changed[name] = 0.0 if name == REFIT else np.nan
        column = changed.columns.get_loc(name)
        kind = changed.dtypes.iloc[column]
        changed.iloc[row, column] = kind.type(value) if kind.kind == "f" else value
    return changed


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))
