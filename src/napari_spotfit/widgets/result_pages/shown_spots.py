"""The spots of a layer that are shown, and the base class of the pages about them."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Qt, Signal
from qtpy.QtWidgets import QVBoxLayout, QWidget

from ...analysis.filters import Filters
from ...models.columns import STOP
from ...results.formatting import Units
from ..layers.appearance import number_names, show_only
from ..layers.history import history_of
from ..layers.points import is_result
from ..layers.selection import select
from ..parts.boxes import Choice
from ..parts.docking import Follower
from ..parts.layout import LayoutPart, fill
from ..parts.work import delayed
from .features import Feature, read_columns, read_units

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

Rows = NDArray[np.intp]
#: napari draws a mark around every selected point, and stalls beyond this many.
MOST_SELECTED = 100_000


class ShownSpots(QObject):
    """Follows a layer of fitted spots and filters it.

    Filters are applied a moment after they were set: of several in a row, as a moved
    handle gives them, the last one counts.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layer.
    parent : QObject
        Qt parent.
    """

    #: Another layer, another table or other units: everything is new.
    replaced = Signal()
    #: Other spots are shown, or the filters are others.
    changed = Signal()
    #: Other spots are selected.
    selected = Signal()
    #: A message for the user.
    said = Signal(str)

    def __init__(self, viewer: Viewer, parent: QObject):
        super().__init__(parent)
        self.viewer, self.history = viewer, history_of(viewer)
        self.layer: Points | None = None
        self.columns: dict[str, Feature] = {}
        self.units = Units()
        self.filters = Filters()
        self.shown: NDArray[np.bool_] = np.zeros(0, bool)
        self._physical = self._applying = False
        self._apply_soon = delayed(self._apply, 0, self)
        self._read_soon = delayed(lambda: self._read(apply=True), 0, self)
        slots = self._on_table, self._on_drawn, self._on_selected, self._on_ndisplay
        self._followers = [Follower(slot) for slot in slots]

    def show_layer(self, layer: Points | None) -> None:
        """Follow a layer, or none."""
        self.read_now()
        if layer is self.layer:
            return
        self.layer = layer
        self._follow(layer)
        # A fit while no filter followed the layer has shown all spots, the filtered ones too.
        self._read(apply=layer is not None and bool(np.all(layer.shown)))

    def set_filters(self, filters: Filters) -> None:
        """Show the spots that pass other filters."""
        if self.layer is not None and filters != self.filters:
            if not self._apply_soon.isActive():
                what, merge = self.filters.difference(filters)
                self.history.record_view(self.layer, what, merge=merge)
            self.filters = filters
            self._apply_soon.start()
            self.layer.metadata = {**self.layer.metadata, "filters": filters.to_dict()}

    def apply_to(self, layer: Points, filters: Filters) -> None:
        """Show the spots of any layer that pass filters, whose features it has, and keep them."""
        layer.metadata = {**layer.metadata, "filters": filters.to_dict()}
        show_only(layer, filters.mask(layer.features), self.viewer.dims.ndisplay)

    def others(self) -> list[Points]:
        """Return the viewer's other layers of fitted spots, the topmost first."""
        layers = reversed(self.viewer.layers)
        return [layer for layer in layers if is_result(layer) and layer is not self.layer]

    def give_filters(self, layer: Points) -> Filters:
        """Show the spots of another layer that pass these filters, instead of its own.

        Returns
        -------
        Filters
            Those that are left out, as the layer has no such feature.
        """
        known = self.filters.limited_to([*number_names(layer.features), STOP])
        self.history.record_view(layer, "the filters")
        self.apply_to(layer, known)
        return self.filters.without(known)

    def set_physical(self, physical: bool) -> None:
        """Show pixels in the layer's physical unit, where it has one, or as pixels."""
        if physical != self._physical:
            self._physical = physical
            if self.layer is not None:
                self.units = read_units(self.layer, physical=physical)
                self.replaced.emit()

    def passing(self, filters: Filters) -> NDArray[np.bool_]:
        """Return which spots pass some filters."""
        if self.layer is None or len(self.layer.features) != len(self.shown):
            return np.zeros(len(self.shown), bool)
        return filters.mask(self.layer.features)

    def selection(self) -> Rows:
        """Return the rows of the selected spots."""
        if self.layer is None:
            return np.zeros(0, np.intp)
        rows = np.fromiter(self.layer.selected_data, np.intp, len(self.layer.selected_data))
        return np.sort(rows[rows < len(self.shown)])

    def select(self, rows: Rows) -> bool:
        """Select spots in the viewer; return whether there were not too many."""
        if self.layer is None or len(rows) > MOST_SELECTED:
            return False
        select(self.layer, rows.tolist())
        return True

    def put_off(self, milliseconds: int) -> None:
        """Read a table that has changed so much later, with all that changes until then."""
        if self._read_soon.isActive() and not self._read_soon.interval():
            self._read_soon.start(milliseconds)

    def read_now(self) -> None:
        """Read a table that has changed, or apply filters that wait, at once."""
        if self._read_soon.isActive():
            self._read(apply=True)
        elif self._apply_soon.isActive():
            self._apply()

    def _follow(self, layer: Points | None) -> None:
        for follower in self._followers:
            follower.follow()
        if layer is not None:
            table, drawn, selected, turned = self._followers
            events = layer.events
            table.follow(events.features, events.data, events.scale, events.units)
            drawn.follow(events.set_data, events.metadata)
            selected.follow(layer.selected_data.events.items_changed)
            turned.follow(self.viewer.dims.events.ndisplay)

    def _on_ndisplay(self, event: Any) -> None:
        if self.filters:
            self._apply_soon.start()

    def _on_table(self, event: Any = None) -> None:
        # A refit changes points, table and colours one after the other: look afterwards.
        if not self._read_soon.isActive():
            self._read_soon.start(0)

    def _read(self, *, apply: bool) -> None:
        layer = self.layer
        self._apply_soon.stop()
        self._read_soon.stop()
        self.columns = {} if layer is None else read_columns(layer)
        self.units = Units() if layer is None else read_units(layer, physical=self._physical)
        self.filters = Filters() if layer is None else self._kept(layer)
        if layer is not None and apply and self.filters:
            self._put(layer)
        self.shown = np.zeros(0, bool) if layer is None else np.array(layer.shown)
        self.replaced.emit()

    def _kept(self, layer: Points) -> Filters:
        """Return the filters that a layer keeps, without those that have lost their feature."""
        try:
            kept = Filters.from_dict(layer.metadata.get("filters", {}))
        except ValueError as error:
            self.said.emit(f"The layer's filters cannot be read and are left out: {error}")
            return Filters()
        numbers = [name for name, column in self.columns.items() if column.is_number]
        known = kept.limited_to([*numbers, STOP])
        for words in kept.without(known).words():
            self.said.emit(f"The filter “{words}” is dropped: its feature is gone.")
        return known

    def _apply(self) -> None:
        self._apply_soon.stop()
        if self.layer is not None and len(self.layer.features) == len(self.layer.shown):
            self._put(self.layer)
            self.shown = np.array(self.layer.shown)
            self.changed.emit()

    def _put(self, layer: Points) -> None:
        self._applying = True
        try:
            self.apply_to(layer, self.filters)
        finally:
            self._applying = False

    def _on_drawn(self, event: Any = None) -> None:
        """Update after other code has shown other spots, or set other filters."""
        waiting = self._apply_soon.isActive() or self._read_soon.isActive()
        if self._applying or waiting or self.layer is None:
            return
        if len(self.layer.shown) != len(self.shown):
            self._on_table()
            return
        kept = self.layer.metadata.get("filters", self.filters.to_dict())
        others = kept != self.filters.to_dict()
        if others:
            self.filters = self._kept(self.layer)
        if others or not np.array_equal(self.layer.shown, self.shown):
            self.shown = np.array(self.layer.shown)
            self.changed.emit()

    def _on_selected(self, *event: Any) -> None:
        if not self._read_soon.isActive():
            self.selected.emit()


class Page(QWidget):
    """Is drawn when its spots change, or later, when it comes on top.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    #: A message, and an error message.
    said, failed = Signal(str), Signal(str)

    def __init__(self, spots: ShownSpots):
        super().__init__()
        self._spots, self._viewer, self._history = spots, spots.viewer, spots.history
        self._on_top = False
        self._new_table = self._new_rows = True
        spots.replaced.connect(self._on_replaced)
        spots.changed.connect(self._on_changed)

    def fill(self, *parts: LayoutPart, spacing: int = 4) -> None:
        """Put parts one below the other, with a margin around all."""
        fill(QVBoxLayout(self), *parts, margins=(6, 6, 6, 6), spacing=spacing)

    def show_table(self) -> None:
        """Follow another table, or other units; :meth:`show_rows` comes next."""

    def show_rows(self) -> None:
        """Follow other spots that are shown, or other filters."""

    def bind(self) -> None:
        """Follow the viewer."""

    def unbind(self) -> None:
        """Stop all work, and stop following it."""

    def set_on_top(self, on_top: bool) -> None:
        """Set whether the page is on top."""
        self._on_top = on_top
        self._update()

    def _on_replaced(self) -> None:
        self._new_table = True
        self._update()

    def _on_changed(self) -> None:
        self._new_rows = True
        self._update()

    def _update(self) -> None:
        if self._on_top and (self._new_table or self._new_rows):
            table, self._new_table, self._new_rows = self._new_table, False, False
            if table:
                self.show_table()
            self.show_rows()


class FeatureChoice(Choice):
    """A list of the features that are numbers, with their units.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    first : str
        The feature that is chosen at first, if the spots have it.
    name, tip : str
        Its name for screen readers, and its tooltip.
    """

    #: The user has chosen another feature.
    chosen = Signal()

    def __init__(self, spots: ShownSpots, first: str, name: str, tip: str):
        super().__init__(name, tip, room=9)
        self._spots, self._wanted = spots, first
        self.activated.connect(self._on_activated)

    @property
    def column(self) -> Feature | None:
        """The chosen feature; None if there is none."""
        return self._spots.columns.get(self.currentData())

    @property
    def name(self) -> str:
        """Name of the chosen feature, or nothing."""
        return str(self.currentData() or "")

    def choose(self, name: str) -> None:
        """Choose a feature as the user would."""
        self.setCurrentIndex(self.findData(name))
        self._on_activated()

    def show_features(self) -> None:
        """List the features again; the choice stays where it can."""
        self.clear()
        for name, column in self._spots.columns.items():
            if column.is_number:
                self.addItem(self._spots.units.title(name), name)
                tip = f"<p>{html.escape(column.meaning)}</p>"
                self.setItemData(self.count() - 1, tip, Qt.ItemDataRole.ToolTipRole)
        self.setCurrentIndex(max(self.findData(self._wanted), 0 if self.count() else -1))

    def _on_activated(self) -> None:
        self._wanted = self.name
        self.chosen.emit()
