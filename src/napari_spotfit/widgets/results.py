"""The widget "Results": one result's table, and beside it pages about its spots."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from qtpy.QtCore import QSignalBlocker
from qtpy.QtGui import QShowEvent
from qtpy.QtWidgets import QHBoxLayout, QSizePolicy, QTabWidget, QWidget

from .import_localisations import import_localisations
from .inspecting.page import InspectPage
from .inspecting.panel import BACK_KEY, ON_KEY
from .inspecting.spot import SpotClick
from .layers.images import pixel_size
from .layers.points import is_result
from .layers.selection import SpotSelection, select
from .parts.boxes import Choice, LayerChoice
from .parts.docking import RESULTS, Docked, Keys
from .parts.layout import Label, TwoParts, button, explain, fill
from .parts.messages import StatusLine, number
from .result_pages.after_page import AfterPage
from .result_pages.cells_page import CellsPage
from .result_pages.channels_page import ChannelsPage
from .result_pages.drift_page import DriftPage
from .result_pages.export import ExportBar
from .result_pages.filter_page import FilterPage
from .result_pages.groups_page import GroupsPage
from .result_pages.plot_pages import ScatterPage, SubpixelPage
from .result_pages.shown_spots import Page, ShownSpots
from .result_pages.summary_page import SummaryPage
from .result_pages.tables import SpotsTable
from .result_pages.traces_page import TracesPage

if TYPE_CHECKING:
    import napari
    from napari.layers import Points

#: The shares of the table and of what stands beside it.
_SHARES = (1, 3)
_LAYER_TIP = (
    "<p>The result that is shown: a layer that a fit has made, or an imported table. Selecting "
    "such a layer in the layer list, or a spot in it, chooses it here.</p>"
)
_UNITS_TIP = (
    "<p>Show positions and widths in pixels or in the layer's unit, in the table, the plots, the "
    "filters and what is copied or saved. The unit comes from the image's scale.</p>"
)
_IMPORT_TIP = (
    "<p>Import a table of localisations of another program, whatever its name. Those named as "
    "these programs do, and saved results, open with File ▸ Open.</p>"
)
#: The names of the pages by their titles.
_PAGES: dict[str, str] = {}
_AnyPage = TypeVar("_AnyPage", bound=Page)


class _Tab(cached_property[_AnyPage]):
    """A page of the widget, made when it is asked for.

    Parameters
    ----------
    title : str
        The text of its tab.
    make : callable
        Makes it for a widget.
    """

    def __init__(self, title: str, make: Callable[[Results], _AnyPage]):
        super().__init__(lambda results: results.placed(make(results), title))
        self._title = title

    def __set_name__(self, owner: type[Results], name: str) -> None:
        super().__set_name__(owner, name)
        _PAGES[self._title] = name


class Results(Docked):
    """The spots of a layer: their table, and beside it pages on one of them or on all.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers; napari passes it in.
    """

    title = RESULTS

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer, below=True)
        viewer = self._viewer
        self.spots, self.selection = ShownSpots(viewer, self), SpotSelection(viewer, self)
        self.layer = LayerChoice(viewer.layers, is_result, nothing="no fitted spots")
        self.units = Choice("Unit of lengths", _UNITS_TIP, ("px", ""))
        self.count, self.status = Label(), StatusLine(hides=True)
        load = partial(import_localisations, viewer)
        self.import_button = button("Import…", _IMPORT_TIP, load)
        self.table = SpotsTable(viewer, self.spots)
        self.export = ExportBar(viewer, self.spots, self.table)
        self.tabs = QTabWidget()
        self._click = SpotClick(viewer, self._on_click)
        self._keys = Keys(viewer, {BACK_KEY: lambda: self._step(-1), ON_KEY: lambda: self._step(1)})
        self._lay_out()
        self._connect()
        self.bind()

    # The pages, as tabs from left to right.
    inspect = _Tab("Inspect", lambda one: InspectPage(one.spots, one.selection))
    filters = _Tab("Filter", lambda one: FilterPage(one.spots))
    scatter = _Tab("Scatter", lambda one: ScatterPage(one.spots))
    subpixel = _Tab("Sub-pixel", lambda one: SubpixelPage(one.spots))
    summary = _Tab("Summary", lambda one: SummaryPage(one.spots))
    cells = _Tab("Cells", lambda one: CellsPage(one.spots))
    groups = _Tab("Groups", lambda one: GroupsPage(one.spots))
    channels = _Tab("Channels", lambda one: ChannelsPage(one.spots))
    drift = _Tab("Drift", lambda one: DriftPage(one.spots))
    traces = _Tab("Traces", lambda one: TracesPage(one.spots))
    after = _Tab("After the fit", lambda one: AfterPage(one.spots))

    def follow_viewer(self) -> None:
        """Connect to the viewer and show its state."""
        self.spots.history.join(self)
        self._click.bind()
        self._keys.bind()
        self._viewer.layers.selection.events.active.connect(self._on_active)
        self.layer.bind()
        self.selection.bind()
        self._on_active()
        self._on_layer()
        for page in self._made():
            page.bind()

    def leave_viewer(self) -> None:
        """Stop all work and leave no callback behind."""
        self.spots.history.leave(self)
        self.export.unbind()
        for page in self._made():
            page.unbind()
        self.spots.show_layer(None)
        self.selection.unbind()
        self.layer.unbind()
        self._viewer.layers.selection.events.active.disconnect(self._on_active)
        self._keys.unbind()
        self._click.unbind()

    def go_to(self, layer: Points, row: int | None = None, page: str = "") -> None:
        """Show a layer's spots, and select one, whose row is brought into sight.

        Parameters
        ----------
        layer : napari.layers.Points
            A layer of fitted spots.
        row : int, optional
            The spot. Where filters hide it, a message names them, and nothing is selected.
        page : str
            The title of a page to bring to the front. *Inspect* shows the spot in the viewer,
            too; without a row, the selected one, or the first doubtful one.
        """
        self.layer.layer = layer
        if page:
            self.tabs.setCurrentIndex(list(_PAGES).index(page))
        if self.spots.layer is not layer:
            return
        if page == "Cells":
            self.cells.choose_cells()
        if page == "Inspect":
            self.inspect.go_to(row)
        elif row is not None and row < len(self.spots.shown):
            hidden = not self.spots.shown[row]
            self.status.fail(self._why_hidden(layer, row)) if hidden else self.status.say("")
            self.table.clearSelection()
            if not hidden:
                self.spots.select(np.array([row]))

    def _made(self) -> list[Page]:
        return [vars(self)[name] for name in _PAGES.values() if name in vars(self)]

    def placed(self, page: _AnyPage, title: str) -> _AnyPage:
        """Put a page in the place of the tab that stands for it."""
        place, on_top = list(_PAGES).index(title), self.tabs.currentIndex()
        stands_for_it = self.tabs.widget(place)
        with QSignalBlocker(self.tabs):
            self.tabs.removeTab(place)
            self.tabs.insertTab(place, page, title)
            self.tabs.setCurrentIndex(on_top)
        if stands_for_it is not None:
            stands_for_it.deleteLater()
        self.status.listen(page)
        if self.bound:
            page.bind()
        page.set_on_top(place == on_top)
        return page

    def _on_active(self, event: Any = None) -> None:
        active = self._viewer.layers.selection.active
        if is_result(active):
            self.layer.layer = active

    def _on_layer(self) -> None:
        self.status.say("")
        self.spots.show_layer(self.layer.layer)

    def _on_selection(self) -> None:
        if self.selection.layer is not None:
            self.layer.layer = self.selection.layer

    def _on_replaced(self) -> None:
        layer = self.spots.layer
        pixel = None if layer is None else pixel_size(layer)
        self.units.setVisible(pixel is not None)
        self.units.setItemText(1, "" if pixel is None else pixel.unit)
        self._on_changed()

    def _on_changed(self) -> None:
        shown, total = len(self.table.spots_model.rows), len(self.spots.shown)
        self.count.setText(f"{number(shown)} of {number(total)} shown" if total else "")
        self.export.show_rows()

    def showEvent(self, event: QShowEvent | None) -> None:
        """Make the page on top, unless another one has come to the front before."""
        super().showEvent(event)
        self._on_tab()

    def _on_tab(self) -> None:
        on_top = getattr(self, list(_PAGES.values())[self.tabs.currentIndex()])
        for page in self._made():
            page.set_on_top(page is on_top)

    def _on_click(self, layer: Points, row: int) -> None:
        """Choose the spot that was clicked in the viewer."""
        self.layer.layer = layer
        select(layer, {row})

    def _step(self, step: int) -> None:
        """Go to the next doubtful spot, 1, or to the previous one, -1."""
        if self.spots.layer is not None:
            self.tabs.setCurrentIndex(0)
            self.inspect.step(step)

    def _inspect(self, row: int) -> None:
        if self.spots.layer is not None:
            self.go_to(self.spots.layer, row, "Inspect")

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

    def _connect(self) -> None:
        # The table and the pages come first: they follow the same signals.
        self.spots.replaced.connect(self._on_replaced)
        self.spots.changed.connect(self._on_changed)
        self.spots.said.connect(self.status.fail)
        self.table.said.connect(self.status.fail)
        self.table.copy_asked.connect(self.export.copy)
        self.table.inspect_asked.connect(self._inspect)
        self.layer.changed.connect(self._on_layer)
        self.selection.changed.connect(self._on_selection)
        self.units.currentIndexChanged.connect(lambda row: self.spots.set_physical(row == 1))
        self.status.listen(self.export)
        self.tabs.currentChanged.connect(self._on_tab)

    def _lay_out(self) -> None:
        explain(self.layer, "Result", _LAYER_TIP)
        self.units.setSizeAdjustPolicy(Choice.SizeAdjustPolicy.AdjustToContents)
        self.count.setToolTip("<p>How many spots pass all filters, of how many.</p>")
        self.export.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.table.setMinimumSize(120, 70)
        choice = fill(QHBoxLayout(), (self.layer, 1), self.units, self.import_button, spacing=4)
        counting = fill(QHBoxLayout(), (self.count, 1), self.export)
        for title in _PAGES:
            self.tabs.addTab(QWidget(), title)
        self.tabs.setMinimumSize(240, 140)
        self.tabs.setDocumentMode(True)
        if (bar := self.tabs.tabBar()) is not None:
            bar.setDrawBase(False)
        left = (choice, counting, (self.table, 1), self.status)
        self.splitter = TwoParts(self, left, self.tabs, _SHARES)
