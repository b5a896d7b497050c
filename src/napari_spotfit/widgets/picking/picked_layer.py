"""The Points layers of picked spots, one per image, and how to undo what changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ...settings.settings import Settings
from ..layers.colors import color_faces, face_limits, good_rows
from ..layers.hiding import show_all
from ..layers.marks import draw_marks, is_marked
from ..layers.points import align, is_result, make_points_layer
from .table import Picked, put

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

#: So many changes can be undone.
_UNDOABLE = 100


class _Change(NamedTuple):
    """A change that can be undone."""

    layer: ref[Points]
    #: None if the layer was not there yet.
    before: Picked | None


class PickedLayers(QObject):
    """Keeps the picked spots of each image in a small layer of their own.

    A layer stays that of its image whatever it is renamed to, until it is deleted.
    What the user deletes or moves in it can be undone as the picks can.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    parent : QObject
        Qt parent.
    """

    #: The layer that shows other spots now.
    shown = Signal(object)
    #: Whether there is something to undo may have changed.
    changed = Signal()

    def __init__(self, viewer: Viewer, parent: QObject):
        super().__init__(parent)
        self._viewer = viewer
        self._made: WeakKeyDictionary[Image, ref[Points]] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[Points, Picked] = WeakKeyDictionary()
        self._changes: list[_Change] = []
        self._applying = False

    @property
    def can_undo(self) -> bool:
        """Whether there is a change that can be undone."""
        return bool(self._changes)

    def bind(self) -> None:
        """Follow the layers again that were made before."""
        self._viewer.layers.events.removed.connect(self._on_removed)
        for image in list(self._made):
            if (layer := self.layer_of(image)) is not None:
                self._follow(layer)

    def unbind(self) -> None:
        """Stop following them; what was done can no longer be undone."""
        self._viewer.layers.events.removed.disconnect(self._on_removed)
        for layer in list(self._known):
            self._leave(layer)
        self._changes.clear()
        self.changed.emit()

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

    def begin(self, image: Image) -> Picked | None:
        """Return an image's picked spots as a press of the mouse finds them, and select none.

        So those who follow the selection are told of the spot even if it was selected
        before. Without a layer it is None.
        """
        layer = self.layer_of(image)
        if layer is None:
            return None
        before = Picked.of(layer)
        layer.selected_data = set()
        return before

    def put(self, image: Image, before: Picked | None, new: dict[str, Any]) -> Points:
        """Show a picked spot together with those that were there before.

        Parameters
        ----------
        image : napari.layers.Image
            The image that was fitted.
        before : Picked or None
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
            self._show(layer, put(before or _none_of(new), new), new["metadata"]["units"])
        return layer

    def record(self, layer: Points, before: Picked | None) -> None:
        """Let what was done to a layer be undone."""
        self._changes.append(_Change(ref(layer), before))
        del self._changes[:-_UNDOABLE]
        self.changed.emit()

    def undo(self) -> None:
        """Undo the last change, if there is one."""
        if not self._changes:
            return
        change = self._changes.pop()
        layer = change.layer()
        if layer is not None and layer in self._viewer.layers:
            if change.before is None:
                self._viewer.layers.remove(layer)
            else:
                self._show(layer, change.before)
        self.changed.emit()

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
        layer.selected_data = {0}
        self._made[image] = ref(layer)
        self._follow(layer)
        self.shown.emit(layer)
        return layer

    def _show(self, layer: Points, picked: Picked, units: dict[str, str] | None = None) -> None:
        """Show other spots in a layer, with as few events as napari needs."""
        self._applying = True
        try:
            layer.metadata = {
                **layer.metadata,
                "units": {**layer.metadata.get("units", {}), **(units or {})},
                **picked.made_with,
                "stop_counts": picked.stop_counts(),
            }
            was_empty = not len(layer.data)
            if len(picked.data) < len(layer.data):
                layer.selected_data = set()
            _set_data(layer, picked.data)
            show_all(layer)
            self._fit_limits(layer, picked)
            layer.features = picked.features
            if is_marked(layer):
                draw_marks(layer)
            face, limits = _face(layer)
            if was_empty and face in picked.features:  # napari has forgotten what colours it
                color_faces(layer, face, limits=limits)
            layer.selected_data = set(picked.selected)
        finally:
            self._applying = False
        self._known[layer] = Picked.of(layer)
        self.shown.emit(layer)

    def _fit_limits(self, layer: Points, picked: Picked) -> None:
        """Let the colours run over the spots, unless the user has said where they run."""
        face, chosen = _face(layer)
        if layer.face_color_mode == "colormap" and face in picked.features and chosen is None:
            values = picked.features[face].to_numpy()
            layer.face_contrast_limits = face_limits(values, good_rows(picked.features))

    def _follow(self, layer: Points) -> None:
        self._known[layer] = Picked.of(layer)
        layer.events.data.connect(self._on_data)
        layer.events.features.connect(self._on_features)

    def _leave(self, layer: Points) -> None:
        del self._known[layer]
        layer.events.data.disconnect(self._on_data)
        layer.events.features.disconnect(self._on_features)

    def _on_data(self, event: Any) -> None:
        """Remember what the spots were before the user deleted or moved some."""
        layer = event.source
        if self._applying or layer not in self._known or not is_result(layer):
            return
        known = self._known[layer]
        if np.array_equal(known.data, layer.data):
            self._known[layer] = Picked.of(layer)
            return
        now = self._known[layer] = Picked.of(layer)
        layer.metadata = {**layer.metadata, "stop_counts": now.stop_counts()}
        self.record(layer, known)
        self.shown.emit(layer)

    def _on_features(self, event: Any) -> None:
        """Remember the features, unless this is a move that has not ended yet."""
        layer = event.source
        if self._applying or layer not in self._known or not is_result(layer):
            return
        if np.array_equal(self._known[layer].data, layer.data):
            self._known[layer] = Picked.of(layer)

    def _on_removed(self, event: Any) -> None:
        if event.value in self._known:
            self._leave(event.value)
        self._changes = [change for change in self._changes if change.layer() is not event.value]
        self.changed.emit()


def _none_of(new: dict[str, Any]) -> Picked:
    """Return no spots, with the columns of a new one."""
    return Picked(new["data"][:0], new["features"].iloc[:0], frozenset(), {})


def _set_data(layer: Points, data: NDArray[np.float64]) -> None:
    """Set a layer's points with one event, at the end; that of the features is to follow.

    With each event of the data, and there would be two, the viewer works out the extents
    of all layers.
    """
    with layer.events.features.blocker(), layer.events.data.blocker():
        layer.data = data
    rows = tuple(range(len(data)))
    layer.events.data(value=layer.data, action="changed", data_indices=rows, vertex_indices=((),))


def _face(layer: Points) -> tuple[str, tuple[float, float] | None]:
    """Return what colours a layer's faces, and the limits that the user has set."""
    return layer.metadata.get("face", ""), layer.metadata.get("face_limits")
