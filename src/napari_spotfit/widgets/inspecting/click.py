"""A click on a ring in the canvas: which spot it means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layers.points import is_result
from .spot import nearest_spot

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

#: A mouse that moves no further than so many pixels of the screen has clicked.
_STILL = 4.0


class SpotClick:
    """Says which spot was clicked with the left button, without moving the mouse.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer in whose canvas spots are clicked.
    clicked : callable
        Called with the layer and the row.
    """

    def __init__(self, viewer: Viewer, clicked: Callable[[Points, int], None]):
        self._viewer, self._clicked = viewer, clicked

    def bind(self) -> None:
        """Listen to the mouse."""
        self._viewer.mouse_drag_callbacks.append(self._on_press)

    def unbind(self) -> None:
        """Stop listening."""
        if self._on_press in self._viewer.mouse_drag_callbacks:
            self._viewer.mouse_drag_callbacks.remove(self._on_press)

    def _on_press(self, viewer: Viewer, event: Any) -> Iterator[None]:
        active = viewer.layers.selection.active
        if (
            event.button != 1
            or event.modifiers
            or viewer.dims.ndisplay != 2
            or (active is not None and str(active.mode) != "pan_zoom")
        ):
            return
        start = np.array(event.pos, float)
        yield
        while event.type == "mouse_move":
            if math.dist(start, event.pos) > _STILL:
                return
            yield
        # The way there may have been too fast for any move to be told.
        if math.dist(start, event.pos) > _STILL:
            return
        found = spot_at(viewer, event)
        if found is not None:
            self._clicked(*found)


def spot_at(viewer: Viewer, event: Any) -> tuple[Points, int] | None:
    """Return the topmost visible layer of fitted spots below the mouse, and the spot's row."""
    for layer in reversed(viewer.layers):
        if not (is_result(layer) and layer.visible):
            continue
        row = layer.get_value(
            event.position,
            view_direction=event.view_direction,
            dims_displayed=list(event.dims_displayed),
            world=True,
        )
        if row is not None and np.broadcast_to(layer.shown, len(layer.data))[row]:
            return layer, _nearest(layer, int(row), event.position)
    return None


def _nearest(layer: Points, row: int, position: tuple[float, ...]) -> int:
    """Return the spot with the nearest centre: of rings that overlap, napari names the last."""
    place = np.asarray(layer.world_to_data(position))[-2:]
    point = layer.data[row]
    reach = np.abs(point[-2:] - place)
    distance = float(np.hypot(*reach))
    index = tuple(int(i) for i in np.rint(point[:-2]))
    nearest = nearest_spot(layer, index, place, (distance, distance))
    return row if nearest is None else nearest
