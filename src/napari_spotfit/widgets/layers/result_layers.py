"""Layers of results: made and updated by fits, changed by a refit or by a drift, undoably."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...analysis.drift import Drift
from ...analysis.linking import NO_TRACK
from ...models.columns import DISTANCE, EVIDENCE, GROUP, GROUP_SIZE, REFIT, TRACK
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..napari_compat import show_across
from . import points
from .cells import LABEL, LABELS, with_unknown_labels
from .history import history_of
from .images import transform_arguments
from .state import LayerState, fit_limits, put_points

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pandas as pd
    from napari import Viewer
    from napari.layers import Image, Points

    from .history import History

#: In the metadata, a checksum of the layer as a fit has made it.
_MADE = "as_fitted"
#: In the metadata, the settings of refits.
REFITS = "refits"
#: How many σz away from their own plane spots of a volume are drawn.
_SEEN = 2.0
_STOP = "stop_condition"
#: The columns that say with which others a spot was fitted.
_OF_GROUP = frozenset({GROUP, GROUP_SIZE})


def unchanged_result(viewer: Viewer, image: Image) -> Points | None:
    """Return the layer that the last fit of an image made, if the user has not changed it since.

    A layer that was renamed, or whose points or features were changed, is the user's: it is left
    alone, and the next fit gets a layer of its own.
    """
    made = (
        layer
        for layer in reversed(viewer.layers)
        if _MADE in layer.metadata
        and layer.metadata.get("image") == image.unique_id
        and points.is_result(layer)
        and layer.metadata[_MADE] == _fingerprint(layer)
    )
    return next(made, None)


def show_result(
    viewer: Viewer,
    image: Image,
    arguments: dict[str, Any],
    layer: Points | None,
    what: str,
    run: object = None,
) -> Iterator[Points]:
    """Show the fits of an image, undoably, in steps that each return the layer.

    napari is slow in each of them; between them the viewer can draw and respond.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    image : napari.layers.Image
        The image that was fitted.
    arguments : dict
        From :func:`~napari_spotfit.widgets.layers.points.points_arguments`.
    layer : napari.layers.Points or None
        The layer of an earlier fit, whose other settings stay; None for a new layer.
    what : str
        What is done, as in “take back …”.
    run : object, optional
        What it is a part of: all of the same one are taken back together.
    """
    history, before = history_of(viewer), None
    if layer is None:
        layer = points.make_points_layer(arguments, image, points.layer_name(image))
        layer.visible = False
    else:
        before = LayerState.of(layer)
        with history.pause():
            points.update_points_layer(layer, with_unknown_labels(arguments, layer), image)
    yield layer
    if layer in viewer.layers:
        points.color_points_layer(layer)
    else:
        viewer.add_layer(layer)
    show_depth(viewer, layer)
    layer.metadata = {**layer.metadata, _MADE: _fingerprint(layer)}
    history.record(layer, before, what, run)
    yield layer
    layer.visible = True
    yield layer


def show_depth(viewer: Viewer, layer: Points) -> None:
    """Draw the spots of a volume in the planes beside their own, too."""
    settings = points.settings_of_layer(layer.metadata)
    if settings is not None and settings.dimensions > 2:
        show_across(viewer, layer, layer.ndim - 3, _SEEN * settings.known_sigma_z)


def _fingerprint(layer: Points) -> Hashable:
    """Return a value that changes when the layer is renamed or its points are edited."""
    checksum = zlib.crc32(layer.data.tobytes())
    # The spots' labels follow from a Labels layer: they are no edit of the user's.
    names = [name for name in layer.features if name != LABEL or LABELS not in layer.metadata]
    for name in names:
        column = layer.features[name]
        values = column.cat.codes if column.dtype == "category" else column
        values = values.to_numpy()
        if values.dtype == object:
            values = np.array([repr(value) for value in values])
        checksum = zlib.crc32(values.tobytes(), checksum)
    return layer.name, layer.data.shape, tuple(names), checksum


class Row(NamedTuple):
    """One spot of a layer, with all its values."""

    #: Indices along the leading axes, y and x.
    point: NDArray[np.float64]
    cells: dict[str, Any]
    units: dict[str, str]
    #: The settings of its fit, as plain values.
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

        Columns that are not of a fit stay: the score, and those the user has added. Columns of the
        earlier fit alone become NaN. It stays in its group if it was fitted together with others.

        Parameters
        ----------
        new : mapping
            Its fit, and those of its group, from
            :func:`~napari_spotfit.widgets.fitting.picked_layer.arguments`.
        """
        values = {str(name): column.iloc[0] for name, column in new["features"].items()}
        for name in ("roi_size", "offset"):  # only if the layer has them for each spot
            if name not in self.cells:
                values.pop(name, None)
        shape = [one.name for one in Settings(**self.settings).profile.shape]
        gone = {name for one in shape for name in (one, f"{one}_stderr")}
        group = self.cells.get(GROUP, np.nan)
        if values.get(GROUP_SIZE, 1) > 1 and math.isfinite(group):
            values[GROUP] = group  # that of this layer
        else:
            values = {name: one for name, one in values.items() if name not in _OF_GROUP}
        gone = (gone | {*_OF_GROUP, DISTANCE, EVIDENCE}) - set(values)
        cells = {name: np.nan if name in gone else value for name, value in self.cells.items()}
        metadata = new["metadata"]
        units = {**self.units, **metadata["units"]}
        return Row(new["data"][0], cells | values, units, metadata["settings"])

    def is_in(self, layer: Points, row: int) -> bool:
        """Whether a layer has this spot in a row, fitted like this."""
        if row >= len(layer.data) or not np.array_equal(layer.data[row], self.point):
            return False
        present = layer.features.iloc[row].to_dict()
        return all(
            one == (other := present.get(name, np.nan)) or (one != one and other != other)
            for name, one in self.cells.items()
            if name not in (REFIT, LABEL)
        )


def settings_of_row(layer: Points, row: int) -> Mapping[str, Any]:
    """Return the settings of a spot's fit as plain values; empty if unknown."""
    settings: Mapping[str, Any] = layer.metadata.get("settings", {})
    if REFIT not in layer.features:
        return settings
    number, known = layer.features[REFIT].to_numpy()[row], layer.metadata.get(REFITS, [])
    return known[int(number) - 1] if 1 <= number <= len(known) else settings


def count_refits(features: pd.DataFrame) -> int:
    """Return how many spots were fitted again with settings of their own."""
    return int((features[REFIT].to_numpy() > 0).sum()) if REFIT in features else 0


def put_row(layer: Points, row: int, new: Row, history: History) -> None:
    """Replace a row of a layer by another fit of its spot, undoably.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer.
    row : int
        Which row.
    new : Row
        The other fit.
    history : History
        Where it is recorded.
    """
    number, refits = _numbered(layer, new.settings)
    cells = {**new.cells, REFIT: float(number)}
    metadata, old = layer.metadata, layer.features[_STOP].iloc[row]
    if LABELS in metadata and not np.array_equal(np.rint(layer.data[row]), np.rint(new.point)):
        cells[LABEL] = np.nan  # until it is looked up
    counts = dict(metadata.get("stop_counts", {}))
    if old in counts:
        counts[old] -= 1
        counts[cells[_STOP]] = counts.get(cells[_STOP], 0) + 1
    units = {**new.units, **metadata.get("units", {})}
    features, data = _with_cells(layer.features, row, cells), layer.data.copy()
    data[row] = new.point
    with history.change(layer, "the refit of a spot"):
        layer.metadata = {**metadata, "stop_counts": counts, "units": units, REFITS: refits}
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
    """Return features with other values in one row; new columns are NaN elsewhere."""
    changed = features.copy()
    for name, value in cells.items():
        if name not in changed:
            changed[name] = 0.0 if name == REFIT else np.nan
        column = changed.columns.get_loc(name)
        kind = changed.dtypes.iloc[column]
        changed.iloc[row, column] = kind.type(value) if kind.kind == "f" else value
    return changed


def put_fits(layer: Points, arguments: dict[str, Any], history: History, what: str) -> None:
    """Replace the spots of a layer by what a step of analysis made of those shown, undoably.

    Filters go, as they were of the spots before: events have the light of all their spots.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer.
    arguments : dict
        From :func:`~napari_spotfit.widgets.layers.points.points_arguments`.
    history : History
        Where it is recorded.
    what : str
        What was done, as in “take back …”.
    """
    # Undo restores what the metadata had; a key that was missing would stay.
    layer.metadata = {points.HISTORY: [], **layer.metadata}
    run = object()
    history.record_view(layer, what, run=run)
    before = LayerState.of(layer)
    with history.pause():
        layer.metadata = {**layer.metadata, "filters": {}}
        points.update_points_layer(layer, with_unknown_labels(arguments, layer), None)
        points.color_points_layer(layer)
    history.record(layer, before, what, run)
    history.shown.emit(layer)


def can_be_subtracted(layer: Points) -> str:
    """Return why no drift can be subtracted from a layer; nothing if it can."""
    if layer.ndim != 3 or "frame" not in layer.features:
        return "Drift is over the frames of a movie: these spots have another number of axes."
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
        The file of the drift, where a layer has spots of several files; other spots stay.

    Raises
    ------
    ValueError
        If the drift does not cover all frames; then no spot is moved.
    """
    frame = np.rint(layer.data[:, 0]).astype(np.int64)
    inside = np.ones(len(frame), bool)
    if file is not None:
        inside = (layer.features["file"] == file).to_numpy()
    unknown = frame[inside & ((frame < 0) | (frame >= len(drift)))]
    if len(unknown):
        raise ValueError(
            f"Nothing was subtracted: the drift is of {len(drift)} frames, from 0 on, and there "
            f"are spots in frame {unknown.max()}. Find the drift of all frames."
        )
    data, features = layer.data.copy(), layer.features.copy()
    for axis, name in ((1, "y"), (2, "x")):
        shift = np.zeros(len(data))
        shift[inside] = getattr(drift, name)[frame[inside]]
        data[:, axis] -= shift
        if name in features:
            features[name] = features[name].to_numpy() - shift
    if drift.z is not None and "z" in features:  # in nm, as the drift's, in a layer of planes
        rise = np.zeros(len(data))
        rise[inside] = drift.z[frame[inside]]
        features["z"] = features["z"].to_numpy() - rise
    # Undo restores what the metadata had; a key that was missing would stay.
    layer.metadata = {points.HISTORY: [], **layer.metadata}
    with history.change(layer, "the subtraction of the drift"):
        put_points(layer, data, features)
        done = [*layer.metadata[points.HISTORY], drift.step.plain()]
        layer.metadata = {**layer.metadata, points.HISTORY: done}


def put_tracks(viewer: Viewer, layer: Points, linked: SpotFits) -> None:
    """Add a Tracks layer with linked spots where a layer of spots lies."""
    tracks = linked[linked.track != NO_TRACK]
    names = (TRACK, "frame", *tracks.axes)
    rows = np.column_stack([tracks.columns[name] for name in names]).astype(float)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    viewer.add_tracks(rows, name=f"{layer.name} tracks", **transform_arguments(layer))
