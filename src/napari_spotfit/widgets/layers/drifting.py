"""Spots of a layer moved back by a drift, and tracks beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...analysis.drift import Drift
from ...analysis.tracks import NO_TRACK
from ...results.spot_fits import SpotFits
from .images import transform_arguments
from .state import LayerState, put_points

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

    from .history import History

_WHAT = "the subtraction of the drift"


def can_be_subtracted(layer: Points) -> str:
    """Say why a layer's spots have no drift; nothing if they may have one."""
    if layer.ndim != 3 or "frame" not in layer.features:
        return "Drift is told over the frames of a movie: these spots have another number of axes."
    if "y_stderr" not in layer.features:
        return "These spots have no standard errors: fit again with standard errors."
    return ""


def subtract(layer: Points, drift: Drift, history: History, file: str | None = None) -> None:
    """Move the spots of a layer back, undoably.

    Parameters
    ----------
    layer : napari.layers.Points
        A layer of fitted spots of a movie.
    drift : Drift
        The drift.
    history : History
        Where it is recorded.
    file : str, optional
        Whose drift it is, where a layer has spots of several files: those of others stay.

    Raises
    ------
    ValueError
        If the drift does not know all frames: then none of the spots moves.
    """
    before = LayerState.of(layer)
    frame = np.rint(layer.data[:, 0]).astype(np.int64)
    inside = np.ones(len(frame), bool)
    if file is not None:
        inside = (layer.features["file"] == file).to_numpy()
    _refuse_unknown(frame[inside], len(drift))
    data, features = layer.data.copy(), layer.features.copy()
    for axis, name in ((1, "y"), (2, "x")):
        shift = np.zeros(len(data))
        shift[inside] = getattr(drift, name)[frame[inside]]
        data[:, axis] -= shift
        if name in features:
            features[name] = features[name].to_numpy() - shift
    with history.pause():
        put_points(layer, data, features)
    history.record(layer, before, _WHAT)
    history.shown.emit(layer)


def _refuse_unknown(frame: NDArray[np.int64], known: int) -> None:
    """Raise ValueError if a drift does not know all frames that have spots."""
    unknown = frame[(frame < 0) | (frame >= known)]
    if len(unknown):
        raise ValueError(
            f"Nothing was subtracted: the drift is of {known} frames, from 0 on, and there are "
            f"spots in frame {unknown.max()}. Find the drift of all frames."
        )


def put_tracks(viewer: Viewer, layer: Points, linked: SpotFits) -> None:
    """Add a Tracks layer with linked spots where a layer of spots lies."""
    tracks = linked[linked.track != NO_TRACK]
    rows = np.column_stack([tracks.track, tracks.frame, tracks.y, tracks.x]).astype(float)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    viewer.add_tracks(rows, name=f"{layer.name} tracks", **transform_arguments(layer))
