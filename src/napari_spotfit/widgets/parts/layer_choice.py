"""A combo box that always lists the viewer's layers of some kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox

from .wheel import guard_wheel

if TYPE_CHECKING:
    from napari.components import LayerList
    from napari.layers import Layer
    from napari.utils.events import EventEmitter


class LayerChoice(QComboBox):
    """Choose one of the viewer's layers.

    Parameters
    ----------
    layers : napari.components.LayerList
        The viewer's layers.
    accepts : callable
        Says of a layer whether it is listed.
    nothing : str
        What the list says if no layer is chosen.
    optional : bool
        Whether no layer may be chosen although there are some.
    """

    changed = Signal()

    def __init__(
        self,
        layers: LayerList,
        accepts: Callable[[Layer], bool],
        *,
        nothing: str,
        optional: bool = False,
    ):
        super().__init__()
        self._layers, self._accepts = layers, accepts
        self._nothing, self._optional = nothing, optional
        self._shown: Layer | None = None
        # A long name does not widen the panel.
        self.setSizeAdjustPolicy(self.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(8)
        guard_wheel(self)
        self.currentIndexChanged.connect(self._on_index)

    @property
    def layer(self) -> Layer | None:
        """The chosen layer."""
        return self.currentData()

    @layer.setter
    def layer(self, layer: Layer | None) -> None:
        listed = [self.itemData(row) for row in range(self.count())]
        if any(item is layer for item in listed):
            self.setCurrentIndex(next(i for i, item in enumerate(listed) if item is layer))

    def bind(self) -> None:
        """Follow the viewer's layers."""
        for event in self._events():
            event.connect(self._refresh)
        self._refresh()

    def unbind(self) -> None:
        """Stop following them."""
        for event in self._events():
            event.disconnect(self._refresh)

    def _events(self) -> tuple[EventEmitter, ...]:
        events = self._layers.events
        return events.inserted, events.removed, events.reordered, events.renamed

    def _refresh(self, event: object = None) -> None:
        layers = [layer for layer in reversed(self._layers) if self._accepts(layer)]
        self.blockSignals(True)
        self.clear()
        if self._optional or not layers:
            self.addItem(self._nothing, None)
        for layer in layers:
            self.addItem(layer.name, layer)
        there = any(layer is self._shown for layer in layers)
        self.layer = self._shown if there or self._optional else self._first()
        self.blockSignals(False)
        self._on_index()

    def _first(self) -> Layer | None:
        """Return what is chosen where what was chosen is gone; by default the topmost."""
        return next((layer for layer in reversed(self._layers) if self._accepts(layer)), None)

    def _on_index(self) -> None:
        if self.layer is not self._shown:
            self._shown = self.layer
            self.changed.emit()
