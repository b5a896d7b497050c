"""Follow some events of one layer, then of another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from napari.layers import Layer


class Follower:
    """Calls a method on some events of one layer at a time.

    Parameters
    ----------
    names : tuple of str
        The events; those that a kind of layer does not have are left out.
    method : callable
        A bound method that takes the event.
    """

    def __init__(self, names: tuple[str, ...], method: Callable[[Any], None]):
        self._names, self._method = names, method
        self._layer: Layer | None = None

    def follow(self, layer: Layer | None) -> None:
        """Follow another layer, or none."""
        for event in self._events():
            event.disconnect(self._method)
        self._layer = layer
        for event in self._events():
            event.connect(self._method)

    def _events(self) -> list[Any]:
        if self._layer is None:
            return []
        events = (getattr(self._layer.events, name, None) for name in self._names)
        return [event for event in events if event is not None]
