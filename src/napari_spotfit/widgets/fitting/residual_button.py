"""The button "Show residual": a layer of what the fits of a result do not explain."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from qtpy.QtCore import QSignalBlocker, QTimer, Signal
from qtpy.QtWidgets import QHBoxLayout, QWidget

from ..layers.points import is_preview
from ..layers.residual_layer import ResidualLayer, residual_layer
from ..parts.layout import button, fill
from ..parts.work import delayed

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

_SHOW = "Show residual"
_TIP = (
    "<p>Show the image without the light of the spots that are shown and without the background "
    "around them, as a layer: red where light is left, as of a spot that was missed, blue where "
    "the fits have more light than the image. It is of the frame that the viewer shows, and "
    "follows the slider and the filters. Pressed again, the layer goes, or its work is "
    "cancelled.</p><p>In a script: <code>fits.residual_image(image)</code>, of all frames.</p>"
)
#: Milliseconds after which the button shows how far the work is.
_PATIENCE = 300


class ResidualButton(QWidget):
    """Shows the residual of a layer of spots, or removes it.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    """

    #: Why there is no residual, an exception.
    failed = Signal(object)

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._layer: Points | None = None
        self._residuals: dict[Points, ResidualLayer] = {}
        self.button = button(_SHOW, _TIP, checkable=True)
        self.button.toggled.connect(self._on_toggled)
        self._patience = delayed(self._wait, _PATIENCE, self)
        self._waits, self._share = False, 0
        fill(QHBoxLayout(self), self.button)

    @property
    def residual(self) -> ResidualLayer | None:
        """The residual of the layer of spots, if it is shown or being made."""
        return None if self._layer is None else self._residuals.get(self._layer)

    def show_layer(self, layer: Points | None) -> None:
        """Offer the residual of a layer of spots."""
        if layer is self._layer:
            return
        self._layer = layer
        there = layer is not None and residual_layer(layer, self._viewer.layers) is not None
        if there and self.residual is None:
            self._begin()
        self._show_state()

    def unbind(self) -> None:
        """Follow no layers; what is shown stays."""
        for layer in list(self._residuals):
            self._forget(layer)
        self._layer = None
        self._show_state()

    def _on_toggled(self, checked: bool) -> None:
        if self._layer is None:
            return
        if checked:
            self._begin()
            self._patience.start()
            return
        if (residual := self.residual) is not None:
            residual.remove()
            self._forget(self._layer)
        self._show_state()

    def _begin(self) -> None:
        layer = self._layer
        if layer is None:
            return
        made = self._residuals[layer] = ResidualLayer(self._viewer, layer, self)
        made.progressed.connect(partial(self._on_progress, layer))
        made.drawn.connect(partial(self._on_drawn, layer))
        made.failed.connect(partial(self._on_failed, layer))
        made.gone.connect(partial(self._on_gone, layer))
        made.draw()

    def _wait(self) -> None:
        self._waits = True
        self.button.setText(f"Cancel ({self._share}\N{NARROW NO-BREAK SPACE}%)")

    def _on_progress(self, layer: Points, done: int, total: int) -> None:
        if layer is self._layer:
            self._share = 100 * done // max(total, 1)
            if self._waits:
                self._wait()

    def _on_drawn(self, layer: Points) -> None:
        if layer is self._layer:
            self._show_state()

    def _on_failed(self, layer: Points, error: Exception) -> None:
        if (residual := self._residuals.get(layer)) is not None:
            residual.remove()
            self._forget(layer)
        self._show_state()
        self.failed.emit(error)

    def _on_gone(self, layer: Points) -> None:
        residual, layers = self._residuals.get(layer), self._viewer.layers
        if residual is not None and is_preview(layer) and (shown := residual.layer) is not None:
            # napari may be in the middle of removing layers.
            QTimer.singleShot(0, lambda: layers.remove(shown) if shown in layers else None)
        self._forget(layer)
        self._show_state()

    def _forget(self, layer: Points) -> None:
        residual = self._residuals.pop(layer, None)
        if residual is not None:
            residual.stop()
            residual.deleteLater()

    def _show_state(self) -> None:
        self._patience.stop()
        self._waits, self._share = False, 0
        self.button.setText(_SHOW)
        with QSignalBlocker(self.button):
            self.button.setChecked(self.residual is not None)
