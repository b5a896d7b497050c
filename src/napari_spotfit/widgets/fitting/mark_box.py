"""The choice of what marks fitted spots, and the key that shows the image without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qtpy.QtCore import QSignalBlocker, Signal
from qtpy.QtWidgets import QComboBox

from ..layers.history import history_of
from ..layers.marks import MARK, MARKS, PREVIEW, choose_mark
from ..layers.points import is_result
from ..parts.layout import explain
from ..parts.wheel import guard_wheel

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

#: While it is held down over the canvas, no spots are drawn.
KEY = "."
OFF = "off"
MARK_TIP = (
    "<p>What marks good fits: a <i>ring</i> through which the spot is seen, a <i>dot</i> or a "
    "<i>cross</i>; doubtful ones are an × whatever is chosen. A preview is a <i>halo</i>. "
    "<i>off</i> hides the layer.</p>"
    f"<p>Hold the key <b>{KEY}</b> down over the canvas to see the image without any marks.</p>"
)


class MarkBox(QComboBox):
    """Chooses what marks the good fits of a layer, or that nothing does.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layer.
    """

    #: What shall mark the spots of the next fit, too.
    chosen = Signal(str)

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._layer: Points | None = None
        self.setObjectName("Marks")
        explain(self, "Marks", MARK_TIP)
        guard_wheel(self)
        self.activated.connect(self._on_activated)

    def show_layer(self, layer: Points | None) -> None:
        """Show what marks the spots of a layer."""
        self._layer = layer
        self.look()

    def look(self) -> None:
        """Show what marks them now, should it have been changed elsewhere."""
        if self._layer is None:
            return
        mark = self._layer.metadata.get(MARK, "ring")
        names = [*((PREVIEW,) if mark == PREVIEW else MARKS), OFF]
        with QSignalBlocker(self):
            if names != [self.itemText(row) for row in range(self.count())]:
                self.clear()
                self.addItems(names)
            self.setCurrentText(mark if self._layer.visible else OFF)

    def _on_activated(self) -> None:
        layer, mark = self._layer, self.currentText()
        if layer is None:
            return
        if mark != OFF:
            if mark != layer.metadata.get(MARK):
                history_of(self._viewer).record_view(layer, "the marks")
            choose_mark(layer, mark)
            if mark in MARKS:
                self.chosen.emit(mark)
        layer.visible = mark != OFF


class ImageKey:
    """A key of the viewer that hides all fitted spots while it is held down.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer
        self._bound = False

    def bind(self) -> None:
        """Bind the key, unless the viewer uses it otherwise."""
        try:
            self._viewer.bind_key(KEY, _hide_spots, overwrite=False)
        except ValueError:  # someone else's already, or another widget's of this kind
            return
        self._bound = True

    def unbind(self) -> None:
        """Free it."""
        if self._bound:
            self._viewer.bind_key(KEY, None)
        self._bound = False


def _hide_spots(viewer: Viewer) -> Iterator[None]:
    """Hide the spots; napari goes on with this when the key is released."""
    hidden = [layer for layer in viewer.layers if layer.visible and is_result(layer)]
    for layer in hidden:
        layer.visible = False
    try:
        yield
    finally:
        for layer in hidden:
            layer.visible = True
