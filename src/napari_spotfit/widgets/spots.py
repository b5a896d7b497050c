"""The widget "Spots": the table of fitted spots, and which of them are shown."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from qtpy.QtCore import QSignalBlocker, Qt
from qtpy.QtGui import QResizeEvent
from qtpy.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QSplitter,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from .layers.history import history_of
from .layers.images import pixel_size
from .layers.points import is_result
from .parts.boxes import LayerChoice
from .parts.docking import SPOTS, Docked, inspect_spot
from .parts.layout import Label, explain, fill, guard_wheel
from .parts.messages import StatusLine, number
from .table.cells_page import CellsPage
from .table.drift_page import DriftPage
from .table.export import ExportBar
from .table.filter_page import FilterPage
from .table.page import Page
from .table.plots import ScatterPage, SubpixelPage
from .table.shown_spots import ShownSpots
from .table.summary_page import SummaryPage
from .table.view import SpotsTable

if TYPE_CHECKING:
    import napari
    from napari.layers import Points

#: From this width in pixels on the plots stand beside the table.
_WIDE = 640
#: Below this height they stand beside it in any case.
_TALL = 330
#: High enough for the buttons beside the tabs.
_HIGH_TABS = "QTabBar::tab { padding: 5px 8px }"
#: From this width on the spots are counted and saved beside the tabs, which saves height.
_ROOMY = 1400
#: The smallest width and height. Not what the layout asks for: that depends on how wide it is.
_SMALLEST = (280, 155)
_LAYER_TIP = (
    "<p>The layer whose spots are listed: one that a fit has made. Selecting such a layer in the "
    "layer list chooses it here.</p>"
)
_UNITS_TIP = (
    "<p>Show positions and widths in pixels or in the layer's unit, in the table, the plots, the "
    "filters and what is copied or saved. The unit comes from the image's scale.</p>"
)

_INSPECT_TIP = (
    "<p>Go to the selected spot in the viewer and show its data, model and residual in <i>Inspect "
    "spot</i> (double-click a row, or press Enter).</p>"
)


#: The pages by their titles.
_PAGES = {
    "Filter": "filters",
    "Scatter": "scatter",
    "Sub-pixel": "subpixel",
    "Summary": "summary",
    "Cells": "cells",
    "Drift": "drift",
}
_AnyPage = TypeVar("_AnyPage", bound=Page)


class Spots(Docked):
    """The spots of a layer as a table, filtered by their features.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers; napari passes it in.
    """

    title = SPOTS

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer, below=_SMALLEST)
        viewer = self._viewer
        self._history = history_of(viewer)
        self.spots = ShownSpots(viewer, self)
        self.layer = LayerChoice(viewer.layers, is_result, nothing="no fitted spots")
        self.units, self.count, self.status = QComboBox(), Label(), StatusLine(hides=True)
        self.table = SpotsTable(viewer, self.spots)
        self.inspect_button = QPushButton("Inspect")
        self.export = ExportBar(self.spots, self.table)
        self.filters = FilterPage(self.spots)
        self.tabs, self.splitter = QTabWidget(), QSplitter(Qt.Orientation.Vertical)
        self._left, self._counting = QVBoxLayout(), QWidget()
        self._lay_out()
        self._connect()
        self.bind()

    @cached_property
    def scatter(self) -> ScatterPage:
        """The scatter plot; like all pages but the first it is made when it is asked for."""
        return self._placed(ScatterPage(self.spots), "Scatter")

    @cached_property
    def subpixel(self) -> SubpixelPage:
        """The histograms of sub-pixel positions."""
        return self._placed(SubpixelPage(self.spots), "Sub-pixel")

    @cached_property
    def summary(self) -> SummaryPage:
        """Medians, spreads and the plot over frames."""
        page = self._placed(SummaryPage(self.spots), "Summary")
        self.status.listen(page.export)
        return page

    @cached_property
    def cells(self) -> CellsPage:
        """The table of cells."""
        page = self._placed(CellsPage(self._viewer, self.spots), "Cells")
        self.status.listen(page.export)
        if self.bound:
            page.bind()
        return page

    @cached_property
    def drift(self) -> DriftPage:
        """The drift, estimated from fiducials."""
        page = self._placed(DriftPage(self._viewer, self.spots, self._history), "Drift")
        self.status.listen(page)
        return page

    def follow_viewer(self) -> None:
        """Connect to the viewer and show its state."""
        self._history.join(self)
        if "cells" in vars(self):
            self.cells.bind()
        self._viewer.layers.selection.events.active.connect(self._on_active)
        self.layer.bind()
        self._on_active()
        self._on_layer()

    def leave_viewer(self) -> None:
        """Stop all work and leave no callback behind."""
        self._history.leave(self)
        self.export.unbind()
        self.spots.show_layer(None)
        self.layer.unbind()
        self._viewer.layers.selection.events.active.disconnect(self._on_active)
        for name in ("summary", "cells", "drift"):
            if name in vars(self):
                getattr(self, name).unbind()

    def go_to(self, layer: Points, row: int | None = None) -> None:
        """List a layer's spots, and select one, whose row is brought into sight.

        Where filters hide it, a message names them, and nothing is selected.
        """
        self.layer.layer = layer
        if row is None or self.spots.layer is not layer or row >= len(self.spots.shown):
            return
        if not self.spots.shown[row]:
            self.status.fail(self._why_hidden(layer, row))
            return
        self.status.say("")
        self.table.clearSelection()
        self.spots.select(np.array([row]))

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        """Put the plots beside the table where there is room, else below it."""
        super().resizeEvent(event)
        wide = self.width() >= _WIDE and self.width() > self.height()
        self._orient(wide or self.height() < _TALL)
        self._place_counting(beside_tabs=wide and self.width() >= _ROOMY)

    def _placed(self, page: _AnyPage, title: str) -> _AnyPage:
        """Put a page in the place of the tab that stands for it."""
        place, on_top = list(_PAGES).index(title), self.tabs.currentIndex()
        stands_for_it = self.tabs.widget(place)
        with QSignalBlocker(self.tabs):
            self.tabs.removeTab(place)
            self.tabs.insertTab(place, page, title)
            self.tabs.setCurrentIndex(on_top)
        if stands_for_it is not None:
            stands_for_it.deleteLater()
        return page

    def _on_active(self, event: Any = None) -> None:
        active = self._viewer.layers.selection.active
        if is_result(active):
            self.layer.layer = active

    def _on_layer(self) -> None:
        self.status.say("")
        self.spots.show_layer(self.layer.layer)

    def _on_replaced(self) -> None:
        layer = self.spots.layer
        pixel = None if layer is None else pixel_size(layer)
        self.units.setVisible(pixel is not None)
        self.units.setItemText(1, "" if pixel is None else pixel.unit)
        self._on_changed()

    def _on_changed(self) -> None:
        shown, total = len(self.table.spots_model.rows), len(self.spots.shown)
        self.count.setText(f"{number(shown)} of {number(total)} spots shown" if total else "")
        self.export.show_rows()

    def _on_tab(self) -> None:
        on_top = list(_PAGES.values())[self.tabs.currentIndex()]
        getattr(self, on_top)  # makes it, the first time
        for name in _PAGES.values():
            if name in vars(self):
                getattr(self, name).set_on_top(name == on_top)

    def _why_hidden(self, layer: Points, row: int) -> str:
        """Return which filters hide a spot."""
        features = layer.features.iloc[[row]]
        hiding = [part for part in self.spots.filters.parts() if not part.mask(features).all()]
        words = "; ".join(part.in_words(self.spots.units) for part in hiding)
        if not words:
            return f"Row {number(row)} is hidden in the viewer, so it is not listed."
        return (
            f"Row {number(row)} is not listed, as it is filtered out: {words}. Take this filter "
            "away to see it."
        )

    def _inspect(self, row: int) -> None:
        if self.spots.layer is not None:
            inspect_spot(self._viewer, self.spots.layer, row)

    def _connect(self) -> None:
        # The table and the pages come first: they follow the same signals.
        self.spots.replaced.connect(self._on_replaced)
        self.spots.changed.connect(self._on_changed)
        self.spots.said.connect(self.status.fail)
        self.table.said.connect(self.status.fail)
        self.table.copy_asked.connect(self.export.copy)
        self.table.inspect_asked.connect(self._inspect)
        self.inspect_button.clicked.connect(self.table.inspect)
        self.layer.changed.connect(self._on_layer)
        self.units.currentIndexChanged.connect(lambda row: self.spots.set_physical(row == 1))
        self.status.listen(self.export, self.filters.list)
        self.tabs.currentChanged.connect(self._on_tab)
        self._on_tab()

    def _orient(self, wide: bool) -> None:
        self.splitter.setOrientation(Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical)

    def _place_counting(self, *, beside_tabs: bool) -> None:
        """Count and save beside the tabs, or above the table."""
        if beside_tabs == (self.tabs.cornerWidget() is self._counting):
            return
        if beside_tabs:
            self._left.removeWidget(self._counting)
            self.tabs.setCornerWidget(self._counting)
        else:
            self.tabs.setCornerWidget(None)
            self._left.insertWidget(1, self._counting)
        self._counting.show()

    def _lay_out(self) -> None:
        explain(self.layer, "Layer of spots", _LAYER_TIP)
        self.units.addItems(["px", ""])
        explain(self.units, "Unit of lengths", _UNITS_TIP)
        self.units.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        guard_wheel(self.units)
        self.inspect_button.setToolTip(_INSPECT_TIP)
        self.count.setToolTip("<p>How many spots pass all filters, of how many.</p>")
        self.export.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        for title in _PAGES:
            self.tabs.addTab(self.filters if title == "Filter" else QWidget(), title)
        self._fill_left()
        self.splitter.addWidget(self.tabs)
        self.table.setMinimumSize(120, 70)
        self.tabs.setMinimumSize(240, 140)
        self.tabs.setStyleSheet(_HIGH_TABS)
        # Half each, whatever they ask for.
        self.splitter.setSizes([10_000, 10_000])
        self.splitter.setChildrenCollapsible(False)
        fill(QVBoxLayout(self), (self.splitter, 1), margins=(6, 4, 6, 4), spacing=4)

    def _fill_left(self) -> None:
        """Lay out the table, what is above it, and below it what happened."""
        left, counting = QWidget(), QHBoxLayout(self._counting)
        choice = fill(QHBoxLayout(), (self.layer, 1), self.units, self.inspect_button)
        fill(counting, (self.count, 1), self.export)
        fill(self._left, choice, self._counting, (self.table, 1), self.status, spacing=4)
        left.setLayout(self._left)
        self.splitter.addWidget(left)
