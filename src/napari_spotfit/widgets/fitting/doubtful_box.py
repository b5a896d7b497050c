"""The check box that hides the fits that something speaks against."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np
from qtpy.QtCore import QSignalBlocker
from qtpy.QtWidgets import QCheckBox

from ...results.flags import reasons_in_words
from ..layers.colors import good_rows
from ..layers.hiding import show_only
from ..parts.status import number
from ..table.filters import Filters

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

_TIP = (
    "Each doubtful fit is drawn as a large ×. Tick to hide them; nothing is deleted. Inspect spot "
    "says what is wrong with each, and what to try."
)


class DoubtfulBox(QCheckBox):
    """Says how many fits of a layer are doubtful and why, and hides or shows them.

    It is one of the layer's filters, which the widget Spots lists.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layer.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._layer: Points | None = None
        self.setAccessibleName("Hide doubtful fits")
        self.toggled.connect(self._on_toggled)

    def show_layer(self, layer: Points | None) -> None:
        """Count a layer's doubtful fits, and hide those that a refit has shown again."""
        self._layer = layer
        count = 0
        if layer is not None:
            doubtful = ~good_rows(layer.features)
            count = int(doubtful.sum())
            self.setToolTip(f"<p>{html.escape(_reasons(layer))}{_TIP}</p>")
            filters = _filters(layer)
            hides = filters.good_only and len(doubtful) == len(layer.shown)
            if hides and np.any(np.asarray(layer.shown) & doubtful):
                show_only(layer, filters.mask(layer.features), self._viewer.dims.ndisplay)
        self.setText(f"Hide {number(count)} doubtful")
        self.look()

    def look(self) -> None:
        """Tick the box where the layer's filters say so."""
        hides = self._layer is not None and _filters(self._layer).good_only
        with QSignalBlocker(self):
            self.setChecked(hides)

    def _on_toggled(self, hide: bool) -> None:
        layer = self._layer
        if layer is None:
            return
        filters = _filters(layer).with_good_only(hide)
        # First what is shown: whoever reads the filters looks whether it is so.
        show_only(layer, filters.mask(layer.features), self._viewer.dims.ndisplay)
        layer.metadata = {**layer.metadata, "filters": filters.to_dict()}


def _filters(layer: Points) -> Filters:
    """Return a layer's filters, as far as it has their features."""
    try:
        filters = Filters.from_dict(layer.metadata.get("filters", {}))
    except ValueError:
        return Filters()
    return filters.limited_to(layer.features)


def _reasons(layer: Points) -> str:
    if "flags" not in layer.features:
        return ""
    flags = np.nan_to_num(layer.features["flags"].to_numpy()).astype(np.uint32)
    return f"{reasons_in_words(flags)}. "
