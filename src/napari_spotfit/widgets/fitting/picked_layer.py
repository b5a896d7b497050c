"""The Points layers of picked spots, one per image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ...engine.verdicts import mean_sigma
from ...models.columns import GROUP
from ...models.estimators import STOP_NAMES
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers import points
from ..layers.appearance import Look, color_faces, draw_marks, is_marked, show_all
from ..layers.history import History
from ..layers.maps import LayerMaps
from ..layers.result_layers import show_depth
from ..layers.state import LayerState, fit_limits
from ..napari_compat import refreshed_once, select_points, set_points, unlisted
from .pick import TOGETHER, Pick

if TYPE_CHECKING:
    import pandas as pd
    from napari import Viewer
    from napari.layers import Image, Points


_STOP = "stop_condition"


class PickedLayers(QObject):
    """Keeps the picked spots of each image in a small layer of their own.

    A layer stays that of its image whatever it is renamed to, until it is deleted.
    What the user moves in it can be undone as the picks can.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    history : History
        Where changes are recorded.
    parent : QObject
        Qt parent.
    """

    #: The layer that shows other spots now; its thumbnail is not yet drawn.
    shown = Signal(object)

    def __init__(self, viewer: Viewer, history: History, parent: QObject):
        super().__init__(parent)
        self._viewer, self._history = viewer, history
        self._made: WeakKeyDictionary[Image, ref[Points]] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[Points, LayerState] = WeakKeyDictionary()
        history.shown.connect(self._on_put_back)

    def bind(self) -> None:
        """Follow the layers again that were made before."""
        self._viewer.layers.events.removed.connect(self._on_removed)
        for image in list(self._made):
            if (layer := self.layer_of(image)) is not None:
                self._follow(layer)

    def unbind(self) -> None:
        """Stop following them."""
        self._viewer.layers.events.removed.disconnect(self._on_removed)
        for layer in list(self._known):
            self._leave(layer)

    def layer_of(self, image: Image) -> Points | None:
        """Return the layer with an image's picked spots, if there is one."""
        made = self._made.get(image)
        layer = None if made is None else made()
        if layer is None or layer not in self._viewer.layers or not points.is_result(layer):
            return None
        return layer if layer.ndim == image.ndim else None

    def leave_other_model(self, image: Image, settings: Settings) -> None:
        """Let a new layer be made if the present one's spots were fitted with another model."""
        layer = self.layer_of(image)
        model = settings.to_dict()["model"]
        if layer is not None and layer.metadata.get("settings", {}).get("model") != model:
            del self._made[image]

    def begin(self, image: Image) -> LayerState | None:
        """Return an image's picked spots as a press of the mouse finds them, and select none.

        So a spot that was selected before is selected again, with an event. An active result
        loses its selection, too, which Delete would remove instead. Without a layer it is None.
        """
        layer, active = self.layer_of(image), self._viewer.layers.selection.active
        if active is not layer and points.is_result(active):
            select_points(active, set())
        if layer is None:
            return None
        before = LayerState.of(layer)
        layer.selected_data.replace_selection(set())  # drawn with the new spot
        return before

    def put(self, image: Image, before: LayerState | None, new: dict[str, Any]) -> Points:
        """Show picked spots together with those that were there before.

        Parameters
        ----------
        image : napari.layers.Image
            The image that was fitted.
        before : LayerState or None
            From ``begin``; what the spots are added to, so that those on a drag's way do not
            stay.
        new : dict
            The spot and its group, from
            :func:`~napari_spotfit.widgets.fitting.picked_layer.arguments`.
        """
        layer = self.layer_of(image)
        if layer is None:
            layer = self._add(image, new)
        else:
            points.align(layer, image)
            self._show(layer, *with_spots(before, new), new["metadata"], image)
        return layer

    def _add(self, image: Image, new: dict[str, Any]) -> Points:
        """Add a new layer; the selected layers stay as they were."""
        layer = points.make_points_layer(new, image, f"{image.name} (picked)")
        selected = set(self._viewer.layers.selection)
        self._viewer.add_layer(layer)
        show_depth(self._viewer, layer)
        self._viewer.layers.selection = selected
        select_points(layer, {0})
        self._made[image] = ref(layer)
        self._follow(layer)
        self.shown.emit(layer)
        return layer

    def _show(
        self,
        layer: Points,
        data: NDArray[np.float64],
        features: pd.DataFrame,
        row: int,
        made_with: dict[str, Any],
        image: Image,
    ) -> None:
        """Show other spots in a layer, one of them selected, with few events of napari."""
        low, high = image.extent.data
        both = np.vstack([layer.data, data])
        stops = features[_STOP].cat.codes.to_numpy()
        counts = np.bincount(stops, minlength=len(STOP_NAMES)).tolist()
        inside = bool(np.all((both >= low) & (both <= high)))
        with self._history.pause(), unlisted(self._viewer, layer, inside=inside):
            layer.metadata = {
                **layer.metadata,
                **{name: made_with.get(name, {}) for name in ("settings", "maps", "map_names")},
                "units": {**layer.metadata.get("units", {}), **made_with["units"]},
                "stop_counts": dict(zip(STOP_NAMES, counts, strict=True)),
            }
            was_empty = not len(layer.data)
            if len(data) < len(layer.data):
                select_points(layer, set())
            with refreshed_once(layer, thumbnail=False):
                fit_limits(layer, features)
                set_points(layer, data, features)
                show_all(layer)
                if is_marked(layer):
                    draw_marks(layer)
                select_points(layer, {row})
            face = layer.metadata.get("face", "")
            if was_empty and face in features:  # napari has forgotten what colours it
                color_faces(layer, face, limits=layer.metadata.get("face_limits"))
        self._known[layer] = LayerState.of(layer)
        self.shown.emit(layer)

    def _follow(self, layer: Points) -> None:
        self._known[layer] = LayerState.of(layer)
        layer.events.data.connect(self._on_data)
        layer.events.features.connect(self._on_features)

    def _leave(self, layer: Points) -> None:
        del self._known[layer]
        layer.events.data.disconnect(self._on_data)
        layer.events.features.disconnect(self._on_features)

    def _on_data(self, event: Any) -> None:
        """Remember what the spots were before the user moved some."""
        layer = event.source
        if self._history.paused or layer not in self._known or not points.is_result(layer):
            return
        known = self._known[layer]
        now = self._known[layer] = LayerState.of(layer)
        if len(known.data) == len(now.data) and not np.array_equal(known.data, now.data):
            self._history.record(layer, known, "the move")
            self.shown.emit(layer)

    def _on_features(self, event: Any) -> None:
        """Remember the features, unless this is a move that has not ended yet."""
        layer = event.source
        if self._history.paused or layer not in self._known or not points.is_result(layer):
            return
        if np.array_equal(self._known[layer].data, layer.data):
            self._known[layer] = LayerState.of(layer)

    def _on_put_back(self, layer: Points) -> None:
        """Remember the spots that the history has put back."""
        if layer in self._known:
            self._known[layer] = LayerState.of(layer)
        elif any(self.layer_of(image) is layer for image in list(self._made)):
            self._follow(layer)

    def _on_removed(self, event: Any) -> None:
        if event.value in self._known:
            self._leave(event.value)


def arguments(fits: SpotFits, look: Look, maps: LayerMaps) -> dict[str, Any]:
    """Return the arguments of a layer that shows one pick.

    The size of its ROI and the camera offset are features here, as picks may differ in them.

    Parameters
    ----------
    fits : SpotFits
        One fit, or those of a group.
    look : Look
        What colours its face.
    maps : LayerMaps
        The maps of the pixels.
    """
    made = points.points_arguments(fits, look.face, look.colormap, maps)
    if GROUP in made["features"]:  # numbers are those of one result
        made["features"][GROUP] = 0
    if fits.settings is not None:
        side, *others = {*fits.settings.roi_shape}
        # A ROI that is not square stands in the layer's settings.
        made["features"]["roi_size"] = np.nan if others else float(side)
        made["features"]["offset"] = float(fits.settings.offset)
        made["metadata"]["units"] |= {"roi_size": "px", "offset": "counts"}
    return made


def fitted(pick: Pick, place: NDArray[np.float64], look: Look) -> tuple[SpotFits, dict[str, Any]]:
    """Fit the spot at a place, and its group; return also the arguments of a layer of them."""
    fits = pick.fit(place)
    return fits, arguments(fits, look, pick.maps)


def with_spots(
    before: LayerState | None, new: dict[str, Any]
) -> tuple[NDArray[np.float64], pd.DataFrame, int]:
    """Return points and features with the spots of a pick, and the row of its first one.

    They replace their earlier fits; what else had been fitted together with these, and is near,
    goes.

    Parameters
    ----------
    before : LayerState or None
        The spots as they were, if there were any.
    new : dict
        From :func:`arguments`.
    """
    if before is None or not len(before.data):
        return new["data"], new["features"], 0
    data, features = before.data, before.features.reset_index(drop=True)
    rows, number = [], len(data)
    for place in range(len(new["data"])):
        row = _same_spot(before, new, place)
        if row is None or row in rows:
            row, number = number, number + 1
        rows.append(row)
    goes, group = _replaced_groups(before, new, rows)
    table = _with_rows(features, rows, new["features"].assign(**group))
    data = np.vstack([data, np.empty((number - len(data), data.shape[1]))])
    data[rows] = new["data"]
    stays = np.append(~goes, np.ones(number - len(goes), bool))
    return data[stays], table[stays].reset_index(drop=True), int(stays[: rows[0]].sum())


def _replaced_groups(
    before: LayerState, new: dict[str, Any], rows: list[int]
) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Return which spots of earlier fits go, and the number of the new group, if it is one."""
    goes = np.zeros(len(before.data), bool)
    known, number = before.features.get(GROUP), 0
    if known is not None:
        group = known.to_numpy(float)
        own = [row for row in rows if row < len(group)]
        others = np.isin(group, group[own][np.isfinite(group[own])])
        others[own] = False
        settings = points.settings_of_layer(new["metadata"])
        axes = points.axes_of(settings)
        away = np.abs(before.data[:, -axes:] - new["data"][0, -axes:])
        sides = (9,) * axes if settings is None else settings.roi_shape
        goes = others & (away <= TOGETHER * np.array(sides)).all(axis=1)
        number = int(np.nanmax(group, initial=-1)) + 1
    return goes, {GROUP: number} if GROUP in new["features"] else {}


def _with_rows(features: pd.DataFrame, rows: list[int], fitted: pd.DataFrame) -> pd.DataFrame:
    """Return features with some rows replaced by new fits, or with these as further rows.

    Where the new fits lack a column, as those of the errors, the value is missing: an
    earlier fit's would be wrong.
    """
    import pandas as pd

    stops = pd.Index(STOP_NAMES)
    # Column by column: pandas takes longer to add a row than a fit does.
    old, new = (
        {
            name: pd.Categorical(column, stops).codes if name == _STOP else column.to_numpy()
            for name, column in table.items()
        }
        for table in (features, fitted)
    )
    columns: dict[Any, Any] = {}
    for name in dict.fromkeys([*old, *new]):
        known = old.get(name, np.full(len(features), np.nan))
        kind = np.result_type(known.dtype, np.float32)  # that of whole numbers has no NaN
        values = np.full(max(len(features), max(rows) + 1), np.nan, kind)
        values[: len(known)] = known
        values[rows] = new.get(name, np.nan)
        columns[name] = values
    codes = np.nan_to_num(columns[_STOP], nan=-1).astype(np.int8)
    columns[_STOP] = pd.Categorical.from_codes(codes, stops)
    return pd.DataFrame(columns)


def _same_spot(before: LayerState, new: dict[str, Any], which: int) -> int | None:
    """Return the row of the spot within σ, and at least a pixel, of a new one in its frame."""
    place, gain = new["data"][which], new["metadata"].get("settings", {}).get("gain") or 1.0
    axes = points.axes_of(points.settings_of_layer(before.metadata))
    distance = np.linalg.norm(before.data[:, -axes:] - place[-axes:], axis=1)
    distance[np.any(before.data[:, :-axes] != place[:-axes], axis=1)] = np.inf
    row = int(np.argmin(distance))
    # The lesser σ, so that a bad fit, which is often wide, replaces no good one beside it.
    old, own = mean_sigma(before.features, gain)[row], mean_sigma(new["features"], gain)[which]
    return row if distance[row] <= np.fmax(np.fmin(old, own), 1.0) else None
