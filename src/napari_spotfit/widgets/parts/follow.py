"""Follow some events of layers that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from napari.layers import Layer

_TRANSFORM = ("scale", "translate", "rotate", "shear", "affine")
#: Where a layer lies, and what changes the pixels of a layer that says something of an image.
PLACE = (*_TRANSFORM, "units")
CONTENTS = ("data", "paint", "set_data", *_TRANSFORM)


class Follower:
    """Calls a method on the events that matter now, and on no others.

    Parameters
    ----------
    method : callable
        A bound method that takes the event.
    """

    def __init__(self, method: Callable[[Any], None]):
        self._method = method
        self._events: tuple[Any, ...] = ()

    def follow(self, *events: Any) -> bool:
        """Follow these events and leave the earlier ones; return whether they are others."""
        if [id(event) for event in events] == [id(event) for event in self._events]:
            return False
        for event in self._events:
            event.disconnect(self._method)
        for event in events:
            event.connect(self._method)
        self._events = events
        return True


def events_of(names: Iterable[str], *layers: Layer | None) -> list[Any]:
    """Return the events of layers by name, each once, those that the kind of a layer has."""
    known = dict.fromkeys(layer for layer in layers if layer is not None)
    events = (getattr(layer.events, name, None) for layer in known for name in names)
    return [event for event in events if event is not None]
