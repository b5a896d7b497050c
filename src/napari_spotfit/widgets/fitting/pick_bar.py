"""The controls, mouse clicks and keys for fitting single spots."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QObject
from qtpy.QtWidgets import QCheckBox

from ..layers import images
from ..layers.appearance import Look
from ..layers.maps import layer_maps
from ..layers.points import is_result
from ..napari_compat import camera_of
from ..parts.docking import Keys
from ..parts.layout import button, explain
from .pick import Pick
from .picker import Picker, Press

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

    from ..layers.history import History
    from .estimates import ImageNoise
    from .settings_panel import SettingsPanel

_CLICK_TIP = (
    "<p>While this is pressed, a click on the image fits the spot there, in the frame shown "
    "and with the settings above. Drag, and the fit follows the mouse.</p>"
    "<p>Shift-click does the same at any time. The spots come into a layer of their own; a "
    "second click on a spot fits it again, and Delete removes the selected ones. Where there is "
    "no spot nothing is added, unless you click with Ctrl and Shift.</p>"
    "<p>Where spots overlap and neighbours are fitted together (auto or joint), a click adds the "
    "spots of the group that are near.</p>"
)
_SNAP_TIP = (
    "<p>Fit the brightest spot within half a ROI of the click, on the pixel where the "
    "detection finds it; where neighbours are fitted together (auto or joint), the nearest one. "
    "Without, the ROI lies around the pixel that was clicked.</p>"
)
_UNDO_TIP = (
    "<p>Take back {} (Ctrl+Z over the image, without this widget, too).</p><p>Fits, clicks, what "
    "was deleted in a layer of spots, and its filters, colours and marks can be taken back, one "
    "after the other.</p>"
)
_REDO_TIP = "<p>Do {} again, which was taken back (Ctrl+Shift+Z over the image).</p>"
_LEFT = 1
#: The keys of a click that adds its fit in any case.
_INSISTING = {"Control", "Shift"}
_DELETE_KEYS = ("Delete", "Backspace")


class PickControls(QObject):
    """Controls of single fits, and the mouse and keys on the canvas that go with them.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose canvas is clicked.
    settings : SettingsPanel
        The image that is picked from, the maps of its pixels and the settings of the fits.
    noise : ImageNoise
        The image's noise, measured while the first click is still to come.
    history : History
        What is undone and done again.
    parent : QObject
        Qt parent.
    """

    def __init__(
        self,
        viewer: Viewer,
        settings: SettingsPanel,
        noise: ImageNoise,
        history: History,
        parent: QObject,
    ):
        super().__init__(parent)
        self._viewer, self._settings, self._noise, self._history = viewer, settings, noise, history
        #: How the spots of new layers are drawn.
        self.look = Look()
        self.click = button("Fit on click", _CLICK_TIP, name="Fit on click", checkable=True)
        self.snap = QCheckBox("Snap")
        self.snap.setChecked(True)
        explain(self.snap, "Snap to the brightest spot", _SNAP_TIP)
        self.undo = button("Undo", slot=history.undo, name="Undo")
        self.redo = button("Redo", slot=history.redo, name="Redo")
        self.picker = Picker(viewer, history, self)
        self._mouse = PickMouse(viewer, self.click.isChecked, self._begin, self.picker.missed.emit)
        self._keys = DeleteKey(viewer, self._remove_selected)
        self.click.toggled.connect(self._on_click)
        history.changed.connect(self._on_changed)
        self._on_changed()

    def bind(self) -> None:
        """Take the clicks and keys that are for picking."""
        self.picker.layers.bind()
        self._mouse.bind()
        self._keys.bind()

    def unbind(self) -> None:
        """Leave all of them to others."""
        self.click.setChecked(False)
        self._keys.unbind()
        self._mouse.unbind()
        self.picker.unbind()

    def _begin(self, position: Any, insist: bool) -> Press | None:
        try:
            image = self._settings.current_image()
            pick = Pick(
                image=images.full_resolution(image),
                index=images.current_frame(self._viewer, image),
                settings=self._settings.settings(),
                maps=layer_maps(image, self._settings.layers()),
                snap=self.snap.isChecked(),
                noise=self._noise.get(),
                spots=self.picker.spots,
            )
        except (TypeError, ValueError) as error:
            self.picker.failed.emit(error)
            return None
        return self.picker.begin(image, pick, self.look, position, insist=insist)

    def _remove_selected(self) -> None:
        if (image := self._settings.image.layer) is not None:
            self.picker.remove_selected(image)

    def _on_click(self, pressed: bool) -> None:
        if pressed:
            self._noise.prepare()

    def _on_changed(self) -> None:
        last, following = self._history.last, self._history.next
        for step, tip, what, none in (
            (self.undo, _UNDO_TIP, last, "the last change"),
            (self.redo, _REDO_TIP, following, "it"),
        ):
            step.setEnabled(bool(what))
            step.setVisible(bool(what))
            step.setToolTip(tip.format(html.escape(what) or none))


class PickMouse:
    """Takes the presses that pick a spot; all others stay napari's.

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
        insists; returns the press, or None.
    refuse : callable
        Called with a sentence where a click cannot pick.
    """

    def __init__(
        self,
        viewer: Viewer,
        switched_on: Callable[[], bool],
        begin: Callable[[Any, bool], Press | None],
        refuse: Callable[[str], None],
    ):
        self._viewer = viewer
        self._switched_on, self._begin, self._refuse = switched_on, begin, refuse
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
        """Undo napari's zoom after a click that picked."""
        if self._view is not None:
            camera = camera_of(viewer)
            camera.center, camera.zoom = self._view
            self._view = None

    def _press(self, event: Any) -> Press | None:
        """Begin a pick if this press is one."""
        keys = {str(key.name) for key in event.modifiers}
        shift, insists = "Shift" in keys and keys <= _INSISTING, keys == _INSISTING
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
                self._refuse(
                    f"The click went to “{active.name}”, which is in its mode “{mode}”; "
                    "switch it to pan and zoom to fit on click."
                )
            return None
        dims = self._viewer.dims
        if dims.ndisplay != 2 or set(dims.displayed) != {dims.ndim - 2, dims.ndim - 1}:
            self._refuse(
                "A click fits a spot only in the 2-D view of the image's last two axes; "
                "switch back to it with the buttons below the layer list."
            )
            return None
        return self._begin(np.asarray(event.position), insists)


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
        self._of_viewer = Keys(viewer, dict.fromkeys(_DELETE_KEYS, remove))
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
            self._of_layer = Keys(layer, dict.fromkeys(_DELETE_KEYS, lambda: self._on_key(layer)))
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
