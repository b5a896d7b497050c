"""Presses of the mouse on the canvas that pick a spot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..napari_compat import camera_of

if TYPE_CHECKING:
    from napari import Viewer

_LEFT = 1
#: The keys of a click that insists.
_KEYS = {"Control", "Shift"}


class Press(Protocol):
    """What a press of the mouse has begun."""

    def move(self, position: Any) -> None:
        """Go on at another position in world coordinates."""

    def release(self) -> None:
        """End there."""


class PickMouse:
    """Tells the presses that pick from all others, which stay napari's.

    A plain click of the left button picks while the switch is on, a click with Shift always, and
    one with Ctrl and Shift insists on what it has fitted. All do so only while napari itself
    would pan, and in the 2-D view of the last two axes.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose canvas is watched.
    switched_on : callable
        Returns whether plain clicks pick.
    begin : callable
        Called with the position in world coordinates of a press that picks, and whether it
        insists; returns what the press has begun, or None.
    say : callable
        Called with a sentence where a click cannot pick.
    """

    def __init__(
        self,
        viewer: Viewer,
        switched_on: Callable[[], bool],
        begin: Callable[[Any, bool], Press | None],
        say: Callable[[str], None],
    ):
        self._viewer = viewer
        self._switched_on, self._begin, self._say = switched_on, begin, say
        self._view: tuple[Any, Any] | None = None

    def bind(self) -> None:
        """Watch the mouse."""
        self._viewer.mouse_drag_callbacks.append(self._on_drag)
        # One before napari's own zoom, and one after it.
        self._viewer.mouse_double_click_callbacks.insert(0, self._on_double_click)
        self._viewer.mouse_double_click_callbacks.append(self._after_double_click)

    def unbind(self) -> None:
        """Leave the mouse alone."""
        self._viewer.mouse_drag_callbacks.remove(self._on_drag)
        self._viewer.mouse_double_click_callbacks.remove(self._on_double_click)
        self._viewer.mouse_double_click_callbacks.remove(self._after_double_click)

    def _on_drag(self, viewer: Viewer, event: Any) -> Iterator[None]:
        """Follow one press to its end."""
        press = self._press(event)
        if press is None:
            return
        # What is handled does not reach the camera: the image stays where it is.
        event.handled = True
        yield
        while event.type == "mouse_move":
            event.handled = True
            press.move(event.position)
            yield
        event.handled = True
        # The canvas leaves out moves that come too quickly, so the last one is here.
        press.move(event.position)
        press.release()

    def _on_double_click(self, viewer: Viewer, event: Any) -> None:
        """Take the second of two quick clicks as a click, too."""
        press = self._press(event)
        if press is not None:
            event.handled = True
            press.release()
            camera = camera_of(viewer)
            self._view = camera.center, camera.zoom

    def _after_double_click(self, viewer: Viewer, event: Any) -> None:
        """Take back napari's zoom if the click was ours."""
        if self._view is not None:
            camera = camera_of(viewer)
            camera.center, camera.zoom = self._view
            self._view = None

    def _press(self, event: Any) -> Press | None:
        """Begin a pick if this press is one."""
        keys = {str(key.name) for key in event.modifiers}
        shift, insists = "Shift" in keys and keys <= _KEYS, keys == _KEYS
        if (
            event.handled
            or event.button != _LEFT
            or not (shift or (self._switched_on() and not event.modifiers))
        ):
            return None
        active = self._viewer.layers.selection.active
        mode = getattr(active, "mode", "pan_zoom")
        if mode != "pan_zoom":
            if not shift:
                self._say(
                    f"The click went to “{active.name}”, which is in its mode “{mode}”; "
                    "switch it to pan and zoom to fit on click."
                )
            return None
        dims = self._viewer.dims
        if dims.ndisplay != 2 or set(dims.displayed) != {dims.ndim - 2, dims.ndim - 1}:
            self._say(
                "A click fits a spot only in the 2-D view of the image's last two axes; "
                "switch back to it with the buttons below the layer list."
            )
            return None
        return self._begin(np.asarray(event.position), insists)
