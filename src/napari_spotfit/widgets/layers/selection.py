"""Follow which spot is selected in any layer of fitted spots, and go to a spot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ..napari_compat import camera_of, select_points
from ..parts.docking import Follower
from .points import is_result

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from napari import Viewer
    from napari.layers import Layer, Points
    from qtpy.QtWidgets import QWidget

#: The part of the canvas, along each side, in which a spot is in sight.
_IN_SIGHT = 0.9


def select(layer: Points, rows: Collection[int]) -> None:
    """Select spots of a layer, and no others."""
    wanted = set(rows)
    if wanted != set(layer.selected_data):
        select_points(layer, wanted)


def add_unselected(viewer: Viewer, layer: Layer, place: int | None = None) -> None:
    """Add a layer, on top or at a place; what was selected stays so."""
    selection = viewer.layers.selection
    active, selected = selection.active, set(selection)
    viewer.layers.insert(len(viewer.layers) if place is None else place, layer)
    selection.clear()
    selection.update(selected)
    selection.active = active


class SpotSelection(QObject):
    """Follows the selected points of all layers of fitted spots.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose layers are followed.
    parent : QObject
        Qt parent.
    """

    #: Another spot is the current one, or none, or its layer's spots have changed.
    changed = Signal()

    def __init__(self, viewer: Viewer, parent: QObject):
        super().__init__(parent)
        self._viewer = viewer
        self.layer: Points | None = None
        #: Row of the current spot in the layer.
        self.row: int | None = None
        self._layers, self._active = Follower(self._on_layers), Follower(self._on_active)
        self._followed: dict[Points, Callable[[Collection[int]], None]] = {}

    def bind(self) -> None:
        """Follow the viewer's layers."""
        layers = self._viewer.layers
        self._layers.follow(layers.events.inserted, layers.events.removed)
        self._active.follow(layers.selection.events.active)
        self._on_layers()
        self._on_active()

    def unbind(self) -> None:
        """Stop following them."""
        self._layers.follow()
        self._active.follow()
        for layer in list(self._followed):
            self._leave(layer)
        self.layer = self.row = None

    def _on_layers(self, event: Any = None) -> None:
        layers = [layer for layer in self._viewer.layers if is_result(layer)]
        for layer in [layer for layer in self._followed if layer not in layers]:
            self._leave(layer)
            if layer is self.layer:
                self.layer = self.row = None
                self.changed.emit()
        for layer in layers:
            if layer not in self._followed:
                self._follow(layer)

    def _follow(self, layer: Points) -> None:
        def on_selected(added: Collection[int]) -> None:
            self._on_selected(layer, added)

        self._followed[layer] = on_selected
        layer.selected_data.events.items_changed.connect(on_selected)
        layer.events.features.connect(self._on_features)

    def _leave(self, layer: Points) -> None:
        layer.selected_data.events.items_changed.disconnect(self._followed.pop(layer))
        layer.events.features.disconnect(self._on_features)

    def _on_active(self, event: Any = None) -> None:
        layer = self._viewer.layers.selection.active
        if layer is not self.layer and layer in self._followed and len(layer.selected_data):
            self._on_selected(layer)

    def _on_selected(self, layer: Points, added: Collection[int] = ()) -> None:
        selected = layer.selected_data
        if len(selected):
            if added or layer is not self.layer or self.row not in selected:
                self.layer, self.row = layer, int(max(added or selected))
        elif layer is self.layer:
            self.layer = self.row = None
        else:
            return
        self.changed.emit()

    def _on_features(self, event: Any) -> None:
        if self.layer is not None and event.source is self.layer:
            if self.row is not None and self.row >= len(self.layer.data):
                self.layer = self.row = None
            self.changed.emit()


def go_to(viewer: Viewer, layer: Points, row: int, canvas: QWidget | None = None) -> None:
    """Move the sliders to a spot's frame, and the camera to the spot if it is out of sight.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer, in 2-D or 3-D.
    layer : napari.layers.Points
        A layer of spots, whatever its transform.
    row : int
        The spot.
    canvas : QWidget, optional
        The canvas; where it is not given, or in 3-D, the spot counts as out of sight.
    """
    _show_frame(viewer, layer, row)
    camera, center = camera_of(viewer), _centre(viewer, layer, row)
    if canvas is not None and viewer.dims.ndisplay == 2:
        away = np.abs(np.subtract(center[-2:], camera.center[-2:])) * camera.zoom
        if np.all(away <= _IN_SIGHT / 2 * np.array([canvas.height(), canvas.width()])):
            return
    camera.center = center


def _show_frame(viewer: Viewer, layer: Points, row: int) -> None:
    dims, place = viewer.dims, _world(layer, row)
    first = dims.ndim - len(place)
    for axis in dims.not_displayed:
        if axis >= first:
            dims.set_point(axis, float(place[axis - first]))


def _centre(viewer: Viewer, layer: Points, row: int) -> tuple[float, ...]:
    """Return the camera's centre if it looks at a spot."""
    dims, place = viewer.dims, _world(layer, row)
    first, center = dims.ndim - len(place), list(camera_of(viewer).center)
    for position, axis in enumerate(reversed(dims.displayed), 1):
        if axis >= first:
            center[-position] = float(place[axis - first])
    return tuple(center)


def _world(layer: Points, row: int) -> NDArray[np.float64]:
    """Return where a spot is; a layer with fewer axes than the viewer has its last ones."""
    return np.asarray(layer.data_to_world(layer.data[row]), float)


def bring_into_sight(viewer: Viewer, layer: Points) -> None:
    """Show a frame with spots of a layer, and the whole canvas on which they lie."""
    if len(layer.data):
        _show_frame(viewer, layer, 0)
        viewer.reset_view()
