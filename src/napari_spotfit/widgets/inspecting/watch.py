"""Callbacks on events of layers that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from napari.utils.events import EventEmitter


class Watch:
    """Connects one callback to the events that matter now, and to no others.

    Parameters
    ----------
    callback : callable
        Called with the event.
    """

    def __init__(self, callback: Callable[[Any], None]):
        self._callback = callback
        self._emitters: tuple[EventEmitter, ...] = ()

    def follow(self, *emitters: EventEmitter) -> None:
        """Follow these events and leave the earlier ones."""
        if [id(emitter) for emitter in emitters] == [id(emitter) for emitter in self._emitters]:
            return
        for emitter in self._emitters:
            emitter.disconnect(self._callback)
        for emitter in emitters:
            emitter.connect(self._callback)
        self._emitters = emitters
