"""The Points layers of picked spots, one per image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from qtpy.QtCore import QObject, Signal

from ...settings.settings import Settings
from ..layers.appearance import color_faces, draw_marks, is_marked, show_all
from ..layers.history import History
from ..layers.points import align, is_result, make_points_layer
from ..layers.state import LayerState, fit_limits, set_data
from ..napari_compat import refreshed_once, select_points
from .table import Picked, put

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points


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
        if layer is None or layer not in self._viewer.layers or not is_result(layer):
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

        So those who follow the selection are told of the spot even if it was selected
        before. Nor is a spot of a result selected that is active, which Delete would remove
        instead. Without a layer it is None.
        """
        layer, active = self.layer_of(image), self._viewer.layers.selection.active
        if active is not layer and is_result(active):
            select_points(active, set())
        if layer is None:
            return None
        before = LayerState.of(layer)
        select_points(layer, set())
        return before

    def put(self, image: Image, before: LayerState | None, new: dict[str, Any]) -> Points:
        """Show a picked spot together with those that were there before.

        Parameters
        ----------
        image : napari.layers.Image
            The image that was fitted.
        before : LayerState or None
            From ``begin``; what the spot is added to, so that the spots on a drag's way
            do not stay.
        new : dict
            One fit, from :func:`~napari_spotfit.widgets.picking.table.arguments`.
        """
        layer = self.layer_of(image)
        if layer is None:
            layer = self._add(image, new)
        else:
            align(layer, image)
            picked = _none_of(new) if before is None else Picked.of(before)
            self._show(layer, put(picked, new), new["metadata"]["units"])
        return layer

    def remove_selected(self, image: Image) -> None:
        """Remove the selected ones of an image's picked spots."""
        layer = self.layer_of(image)
        if layer is not None:
            layer.remove_selected()

    def _add(self, image: Image, new: dict[str, Any]) -> Points:
        """Add a new layer; the selected layers stay as they were."""
        layer = make_points_layer(new, image, f"{image.name} (picked)")
        selected = set(self._viewer.layers.selection)
        self._viewer.add_layer(layer)
        self._viewer.layers.selection = selected
        select_points(layer, {0})
        self._made[image] = ref(layer)
        self._follow(layer)
        self.shown.emit(layer)
        return layer

    def _show(self, layer: Points, picked: Picked, units: dict[str, str]) -> None:
        """Show other spots in a layer, with as few events as napari needs."""
        with self._history.pause():
            layer.metadata = {
                **layer.metadata,
                "units": {**layer.metadata.get("units", {}), **units},
                **picked.made_with,
                "stop_counts": picked.stop_counts(),
            }
            was_empty = not len(layer.data)
            if len(picked.data) < len(layer.data):
                select_points(layer, set())
            with refreshed_once(layer, thumbnail=False):
                set_data(layer, picked.data)
                show_all(layer)
                fit_limits(layer, picked.features)
                layer.features = picked.features
                if is_marked(layer):
                    draw_marks(layer)
            face = layer.metadata.get("face", "")
            if was_empty and face in picked.features:  # napari has forgotten what colours it
                color_faces(layer, face, limits=layer.metadata.get("face_limits"))
            select_points(layer, set(picked.selected))
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
        if self._history.paused or layer not in self._known or not is_result(layer):
            return
        known = self._known[layer]
        now = self._known[layer] = LayerState.of(layer)
        if len(known.data) == len(now.data) and not np.array_equal(known.data, now.data):
            self._history.record(layer, known, "the move")
            self.shown.emit(layer)

    def _on_features(self, event: Any) -> None:
        """Remember the features, unless this is a move that has not ended yet."""
        layer = event.source
        if self._history.paused or layer not in self._known or not is_result(layer):
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


def _none_of(new: dict[str, Any]) -> Picked:
    """Return no spots, with the columns of a new one."""
    return Picked(new["data"][:0], new["features"].iloc[:0], frozenset(), {})
