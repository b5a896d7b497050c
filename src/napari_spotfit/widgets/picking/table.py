"""The picked spots as a value: what a pick adds or replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...engine.quality.widths import mean_sigma
from ...models.stopping import STOP_NAMES
from ...results.spot_fits import SpotFits
from ..layers.maps import NO_MAPS, LayerMaps
from ..layers.points import default_face, points_arguments

if TYPE_CHECKING:
    import pandas as pd

    from ..layers.state import LayerState


class Picked(NamedTuple):
    """The spots of a picked layer."""

    #: Indices along the leading axes, y and x.
    data: NDArray[np.float64]
    features: pd.DataFrame
    #: Rows of the selected spots.
    selected: frozenset[int]
    #: Settings and maps of the last pick, as they stand in the layer's metadata.
    made_with: dict[str, Any]

    @classmethod
    def of(cls, state: LayerState) -> Picked:
        """Return the spots of what a layer shows."""
        return cls(
            state.data,
            state.features.reset_index(drop=True),
            state.selected,
            _made_with(state.metadata),
        )

    def stop_counts(self) -> dict[str, int]:
        """Return how many spots ended under each condition."""
        codes = self.features["stop_condition"].cat.codes.to_numpy()
        return dict(
            zip(STOP_NAMES, np.bincount(codes, minlength=len(STOP_NAMES)).tolist(), strict=True)
        )


def _made_with(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: metadata.get(name, {}) for name in ("settings", "maps", "map_names")}


def arguments(
    fits: SpotFits, face: str, colormap: str, maps: LayerMaps = NO_MAPS
) -> dict[str, Any]:
    """Return what a layer is made of that shows one pick.

    The size of its ROI and the camera offset are features here: from pick to pick they
    may differ.

    Parameters
    ----------
    fits : SpotFits
        One fit.
    face, colormap : str
        The column that colours the faces, σ if the fit has no such column, and the
        colour map.
    maps : LayerMaps
        The layers with what was known of the pixels.
    """
    face = face if face in fits.columns else default_face(fits)
    made = points_arguments(fits, face, colormap, maps)
    if fits.settings is not None:
        rows, columns = fits.settings.roi_shape
        # Of one that is not square the layer's settings tell both sides.
        made["features"]["roi_size"] = float(rows) if rows == columns else np.nan
        made["features"]["offset"] = float(fits.settings.offset)
        made["metadata"]["units"] |= {"roi_size": "px", "offset": "counts"}
    return made


def put(picked: Picked, new: dict[str, Any]) -> Picked:
    """Return the spots with a new one, which replaces the same spot's earlier fit.

    Parameters
    ----------
    picked : Picked
        The spots as they were.
    new : dict
        From :func:`arguments`.
    """
    one, place = new["features"], new["data"][0]
    gain = new["metadata"].get("settings", {}).get("gain") or 1.0
    row = _same_spot(picked, place, float(mean_sigma(one, gain)[0]), gain)
    data = picked.data.copy()
    if row is None:
        row = len(data)
        data = np.vstack([data, place])
    else:
        data[row] = place
    features = _with_row(picked.features, row, one)
    return Picked(data, features, frozenset({row}), _made_with(new["metadata"]))


def _with_row(features: pd.DataFrame, row: int, one: pd.DataFrame) -> pd.DataFrame:
    """Return features of which a row, or the next, is that of a new fit.

    Where the new fit lacks a column, as those of the errors, there is no value: an
    earlier fit's would be wrong.
    """
    import pandas as pd

    # Column by column: pandas takes longer to add a row than a fit does.
    old = {name: column.to_numpy() for name, column in features.items()}
    new = {name: column.to_numpy()[0] for name, column in one.items()}
    columns: dict[Any, NDArray[Any]] = {}
    for name in dict.fromkeys([*old, *new]):
        known = old.get(name, np.full(len(features), np.nan))
        kind = np.result_type(known.dtype, np.float32)  # that of whole numbers has no NaN
        values = np.full(max(len(features), row + 1), np.nan, kind)
        values[: len(known)] = known
        values[row] = new.get(name, np.nan)
        columns[name] = values
    columns["stop_condition"] = pd.Categorical(columns["stop_condition"], categories=STOP_NAMES)
    return pd.DataFrame(columns)


def _same_spot(picked: Picked, place: NDArray[np.float64], sigma: float, gain: float) -> int | None:
    """Return the row of the spot within σ, and at least a pixel, of a place in its frame."""
    if not len(picked.data):
        return None
    distance = np.hypot(*(picked.data[:, -2:] - place[-2:]).T)
    distance[np.any(picked.data[:, :-2] != place[:-2], axis=1)] = np.inf
    row = int(np.argmin(distance))
    # The lesser σ, so that a bad fit, which is often wide, replaces no good one beside it.
    reach = np.fmax(np.fmin(mean_sigma(picked.features, gain)[row], sigma), 1.0)
    return row if distance[row] <= reach else None
