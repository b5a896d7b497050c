"""Keys on the canvas, bound where they are free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Layer


class Keys:
    """Keys of a viewer, or of a layer while it is active, that do something while they are bound.

    The keys of the active layer come first: where it has Delete of its own, that counts, and
    those that are bound to the layer itself come before those that all of its kind have.

    Parameters
    ----------
    owner : napari.Viewer or napari.layers.Layer
        The viewer, or the layer.
    actions : mapping
        What to do, by the key in napari's words.
    """

    def __init__(self, owner: Viewer | Layer, actions: Mapping[str, Callable[[], object]]):
        self._owner, self._actions = owner, actions
        self._bound: list[str] = []

    def bind(self) -> None:
        """Bind the keys that the viewer does not use otherwise."""
        for key, action in self._actions.items():
            try:
                self._owner.bind_key(key, _ignoring_owner(action), overwrite=False)
            except ValueError:  # someone else's already
                continue
            self._bound.append(key)

    def unbind(self) -> None:
        """Free them."""
        for key in self._bound:
            self._owner.bind_key(key, None)
        self._bound.clear()


def _ignoring_owner(action: Callable[[], object]) -> Callable[[Viewer | Layer], None]:
    def on_key(owner: Viewer | Layer) -> None:
        action()

    return on_key
