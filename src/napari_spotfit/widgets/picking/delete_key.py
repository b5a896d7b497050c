"""Delete and Backspace over the canvas, which remove the selected ones of the picked spots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..layers.points import is_result
from ..parts.docking import Keys

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

_KEYS = ("Delete", "Backspace")


class DeleteKey:
    """Removes the picked spots that are selected, whichever layer of spots is active.

    After a fit its layer is, whose own Delete would come before that of the viewer. It still
    removes the spots that are selected in it; where none is, the picked ones are meant.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    remove : callable
        Removes the selected picked spots.
    """

    def __init__(self, viewer: Viewer, remove: Callable[[], None]):
        self._viewer, self._remove = viewer, remove
        self._of_viewer = Keys(viewer, dict.fromkeys(_KEYS, remove))
        self._of_layer: Keys | None = None

    def bind(self) -> None:
        """Take the keys."""
        self._of_viewer.bind()
        self._viewer.layers.selection.events.active.connect(self._on_active)
        self._on_active()

    def unbind(self) -> None:
        """Free them."""
        self._viewer.layers.selection.events.active.disconnect(self._on_active)
        self._leave()
        self._of_viewer.unbind()

    def _on_active(self, event: Any = None) -> None:
        self._leave()
        layer = self._viewer.layers.selection.active
        if is_result(layer):
            self._of_layer = Keys(layer, dict.fromkeys(_KEYS, lambda: self._on_key(layer)))
            self._of_layer.bind()

    def _leave(self) -> None:
        if self._of_layer is not None:
            self._of_layer.unbind()
            self._of_layer = None

    def _on_key(self, layer: Points) -> None:
        if len(layer.selected_data):
            layer.remove_selected()
        else:
            self._remove()
