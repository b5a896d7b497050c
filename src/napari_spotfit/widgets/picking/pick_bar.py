"""The controls for fitting a spot with a click."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QPushButton, QWidget

from ..parts.layout import fill
from .delete_key import DeleteKey
from .mouse import PickMouse, Press
from .picker import Picker, Source

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image

    from ...settings.settings import Settings
    from ..layers.history import History
    from ..layers.maps import LayerMaps
    from ..preview.image_noise import ImageNoise

_CLICK_TIP = (
    "<p>While this is pressed, a click on the image fits the spot there, in the frame shown "
    "and with the settings above. Drag, and the fit follows the mouse.</p>"
    "<p>Shift-click does the same at any time. The spots come into a layer of their own; a "
    "second click on a spot fits it again, and Delete removes the selected ones. Where there is "
    "no spot nothing is added, unless you click with Ctrl and Shift.</p>"
)
_SNAP_TIP = (
    "<p>Fit the brightest spot within half a ROI of the click, on the pixel where the "
    "detection finds it. Without, the ROI lies around the pixel that was clicked.</p>"
)
_UNDO_TIP = (
    "<p>Take back {} (Ctrl+Z over the image, without this widget, too).</p><p>Fits, clicks, what "
    "was deleted in a layer of spots, and its filters, colours and marks can be taken back, one "
    "after the other.</p>"
)
_REDO_TIP = "<p>Do {} again, which was taken back (Ctrl+Shift+Z over the image).</p>"


class PickBar(QWidget):
    """A row of controls, and the mouse and keys on the canvas that go with them.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose canvas is clicked.
    image : callable
        Returns the image that is picked from, or raises a ValueError if there is none.
    settings : callable
        Returns the settings of the fits, or raises a ValueError that says why there are none.
    maps : callable
        Returns what layers say of the pixels of an image, or raises a ValueError.
    noise : ImageNoise
        The image's noise, measured while the first click is still to come.
    colors : callable
        Returns the names of the column that colours the faces of new layers and of the
        colour map.
    history : History
        What is undone and done again.
    """

    def __init__(
        self,
        viewer: Viewer,
        image: Callable[[], Image],
        settings: Callable[[], Settings],
        maps: Callable[[Image], LayerMaps],
        noise: ImageNoise,
        colors: Callable[[], tuple[str, str]],
        history: History,
    ):
        super().__init__()
        self._image, self._settings, self._maps, self._colors = image, settings, maps, colors
        self._noise = noise
        self.click, self.snap = QPushButton("Fit on click"), QCheckBox("Snap")
        self.undo, self.redo = QPushButton("Undo"), QPushButton("Redo")
        self._history = history
        self.picker = Picker(viewer, history, self)
        self._mouse = PickMouse(viewer, self.click.isChecked, self._begin, self.picker.missed.emit)
        self._keys = DeleteKey(viewer, self._remove_selected)
        self._lay_out()
        self.click.toggled.connect(self._on_click)
        self.undo.clicked.connect(history.undo)
        self.redo.clicked.connect(history.redo)
        history.changed.connect(self._on_changed)
        self._on_changed()

    def bind(self) -> None:
        """Take the clicks and keys that are for picking."""
        self.picker.bind()
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
            snap = self.snap.isChecked()
            image = self._image()
            maps = self._maps(image)
            source = Source(image, self._settings(), maps, self._noise.get(), snap, *self._colors())
            return self.picker.begin(source, position, insist=insist)
        except (TypeError, ValueError) as error:
            self.picker.failed.emit(error)
            return None

    def _remove_selected(self) -> None:
        try:
            image = self._image()
        except ValueError:
            return
        self.picker.remove_selected(image)

    def _on_click(self, pressed: bool) -> None:
        if pressed:
            self._noise.prepare()

    def _on_changed(self) -> None:
        last, following = self._history.last, self._history.next
        for button, tip, what, none in (
            (self.undo, _UNDO_TIP, last, "the last change"),
            (self.redo, _REDO_TIP, following, "it"),
        ):
            button.setEnabled(bool(what))
            button.setToolTip(tip.format(what or none))

    def _lay_out(self) -> None:
        self.click.setCheckable(True)
        self.snap.setChecked(True)
        self.click.setToolTip(_CLICK_TIP)
        self.snap.setToolTip(_SNAP_TIP)
        for control, name in (
            (self.click, "Fit on click"),
            (self.snap, "Snap to the brightest spot"),
            (self.undo, "Undo"),
            (self.redo, "Redo"),
        ):
            control.setAccessibleName(name)
        fill(QHBoxLayout(self), (self.click, 1), self.snap, self.undo, self.redo)
