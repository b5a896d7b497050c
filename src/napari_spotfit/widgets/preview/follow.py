"""Follow some events of some layers, then of other ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from napari.layers import Layer


class Follower:
    """Calls a method on some events of the layers that are followed.

    Parameters
    ----------
    names : tuple of str
        The events; those that a kind of layer does not have are left out.
    method : callable
        A bound method that takes the event.
    """

    def __init__(self, names: tuple[str, ...], method: Callable[[Any], None]):
        self._names, self._method = names, method
        self._layers: tuple[Layer, ...] = ()

    def follow(self, *layers: Layer | None) -> None:
        """Follow other layers, each once, or none."""
        for event in self._events():
            event.disconnect(self._method)
        self._layers = tuple(dict.fromkeys(layer for layer in layers if layer is not None))
        for event in self._events():
            event.connect(self._method)

    def _events(self) -> list[Any]:
        events = (
            getattr(layer.events, name, None) for layer in self._layers for name in self._names
        )
        return [event for event in events if event is not None]
