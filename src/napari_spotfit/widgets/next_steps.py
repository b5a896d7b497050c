"""What comes after a fit: its table, the counts in cells, its doubtful spots."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from .inspecting.panel import doubtful_shown
from .layers.points import fitted_layers
from .napari_compat import is_labels
from .parts.docking import Follower, show_result
from .parts.layout import fill

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

_TIPS = {
    "": "Show the table of these spots in Results, to filter, summarise and save them.",
    "Cells": "Count these spots in the labels of the Labels layer; those of several images beside "
    "each other, with their pairs.",
    "Inspect": "Go to the first doubtful spot: its data, model and residual, and what to try.",
}


class NextSteps(QWidget):
    """A button for each step that suits a result; hidden without one.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._layer: Points | None = None
        self.table, self.cells = QPushButton("Table"), QPushButton("Count in cells")
        self.doubtful = QPushButton("Inspect the doubtful ones")
        self._follower = Follower(self._look)
        buttons = (self.table, self.cells, self.doubtful)
        for button, (page, tip) in zip(buttons, _TIPS.items(), strict=True):
            button.setToolTip(f"<p>{tip}</p>")
            button.clicked.connect(partial(self._show, page))
        # On two lines: the form is narrow.
        first = fill(QHBoxLayout(), (self.table, 1), (self.cells, 1), spacing=4)
        fill(QVBoxLayout(self), first, self.doubtful, spacing=4)
        self.hide()

    def show_layer(self, layer: Points | None) -> None:
        """Offer what suits a layer of spots, or nothing."""
        self._layer, layers = layer, self._viewer.layers.events
        own = () if layer is None else (layer.events.features, layers.inserted, layers.removed)
        self._follower.follow(*own)
        self._look()

    def _look(self, event: Any = None) -> None:
        layer, layers = self._layer, self._viewer.layers
        self.setVisible(layer is not None)
        if layer is not None:
            cells = any(is_labels(one) for one in layers)
            self.cells.setText("Count in cells" if cells else "Find pairs")
            self.cells.setVisible(cells or len(fitted_layers(layers)) > 1)
            self.doubtful.setVisible(len(doubtful_shown(layer)) > 0)

    def _show(self, page: str, checked: bool = False) -> None:
        layer = self._layer
        if layer is None:
            return
        rows = doubtful_shown(layer).tolist() if page == "Inspect" else []
        if page == "Cells" and len(fitted_layers(self._viewer.layers)) > 1:
            page = "Channels"
        show_result(self._viewer, layer, page, next(iter(rows), None))
