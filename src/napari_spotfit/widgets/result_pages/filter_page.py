"""The page that decides which spots are shown: histogram, legend, and the filters in words."""

from __future__ import annotations

import html
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QMenu,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from ...analysis.filters import Filters, read_filters, write_filters
from ...models.columns import STOP
from ..parts.layout import (
    Label,
    Scrolled,
    TwoParts,
    add_action,
    ask_to_save,
    button,
    explain,
    fill,
    scroll_upright,
)
from ..parts.messages import number
from .histogram import Histogram
from .legend import Legend
from .shown_spots import Page, ShownSpots

if TYPE_CHECKING:
    from napari.layers import Points

_KIND = "Filters of spots (*.json)"
_NONE = "No filter"
#: Height of the legend in any case, if it is that high.
_LEAST = 60
#: Height of one of the filters in the list, and how many are seen in any case.
_ROW, _SEEN = 24, 2


class FilterList(QWidget):
    """Lists the filters of a layer.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    #: A message, and an error message.
    said, failed = Signal(str), Signal(str)

    def __init__(self, spots: ShownSpots):
        super().__init__()
        self._spots = spots
        #: The sentences with their buttons, from top to bottom.
        self.rows: list[tuple[QLabel, QToolButton]] = []
        self._listed: list[str] | None = None
        self.clear = button(
            "Clear", "Remove all filters: all spots are shown again.",
            lambda: spots.set_filters(Filters()),
        )  # fmt: skip
        self.save = button("Save…", "Save these filters as a JSON file.", self._on_save)
        tip = "Replace these filters by those of a JSON file that was saved here."
        self.load = button("Load…", tip, self._on_load)
        self.others = button(
            "Apply to",
            "Show the spots of another layer that pass these filters, too. They replace the "
            "filters that it has.",
        )
        self._menu = QMenu(self)
        self._menu.aboutToShow.connect(self._list_others)
        self.others.setMenu(self._menu)
        self._lay_out()

    def show_rows(self) -> None:
        """List the filters."""
        filters, units = self._spots.filters, self._spots.units
        words = filters.words(units)
        self.clear.setEnabled(bool(filters))
        self.save.setEnabled(bool(filters))
        self.others.setEnabled(self._spots.layer is not None)
        self.load.setEnabled(self._spots.layer is not None)
        if words == self._listed:
            return
        self._listed = words
        if len(words) != len(self.rows) or not words:
            self._make_rows(len(words))
        for (label, _), sentence in zip(self.rows, words, strict=True):
            label.setText(sentence)
            label.setToolTip(f"<p>{html.escape(sentence)}</p>")

    def save_to(self, path: Path) -> None:
        """Save the filters as a file."""
        try:
            write_filters(path, self._spots.filters)
        except OSError as error:
            self.failed.emit(f"The filters were not saved: {error}. Choose another place.")
            return
        self.said.emit(f"The filters were saved as {path.name}.")

    def load_from(self, path: Path) -> None:
        """Replace the filters by those of a file, as far as the layer has their features."""
        try:
            filters = read_filters(path)
        except (OSError, ValueError) as error:
            self.failed.emit(f"The filters stay as they are: {error}")
            return
        columns = self._spots.columns
        numbers = [name for name, column in columns.items() if column.is_number]
        known = filters.limited_to([*numbers, STOP])
        self._spots.set_filters(known)
        self._say_lost(f"The filters of {path.name} were loaded", filters.without(known))

    def apply_to(self, layer: Points) -> None:
        """Give another layer the same filters."""
        lost = self._spots.give_filters(layer)
        count = f"{number(int(np.count_nonzero(layer.shown)))} of {number(len(layer.data))}"
        self._say_lost(f"“{layer.name}” has these filters, too, and shows {count} spots", lost)

    def _say_lost(self, text: str, lost: Filters) -> None:
        words = "; ".join(lost.words())
        left_out = f", but not “{words}”: the layer has no such feature" if words else ""
        self.said.emit(f"{text}{left_out}.")

    def _list_others(self) -> None:
        """List the layers that can have the same filters."""
        self._menu.clear()
        for layer in self._spots.others():
            add_action(self._menu, layer.name, partial(self.apply_to, layer))
        if self._menu.isEmpty():
            add_action(self._menu, "no other layer of fitted spots", lambda: None)
            self._menu.actions()[0].setEnabled(False)

    def _on_save(self) -> None:
        if chosen := ask_to_save(self, "Save filters", "filters", ".json", _KIND):
            self.save_to(chosen[0])

    def _on_load(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Load filters", "", _KIND)
        if path:
            self.load_from(Path(path))

    def _remove(self, place: int) -> None:
        filters = self._spots.filters
        self._spots.set_filters(filters.without(filters.parts()[place]))

    def _make_rows(self, count: int) -> None:
        inner = QWidget()
        column = fill(QVBoxLayout(inner), spacing=0)
        self.rows = []
        for place in range(count):
            label, cross = Label(), QToolButton()
            cross.setText("×")
            cross.setAutoRaise(True)
            explain(cross, "Remove this filter", "<p>Remove this filter.</p>")
            cross.clicked.connect(lambda checked=False, place=place: self._remove(place))
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
            column.addLayout(fill(QHBoxLayout(), (label, 1), cross))
            self.rows.append((label, cross))
        if not count:
            column.addWidget(Label(_NONE))
        self._area.setMinimumHeight(_ROW * min(max(count, 1), _SEEN))
        column.addStretch()
        self._area.setWidget(inner)

    def _lay_out(self) -> None:
        self._area = QScrollArea()
        self._area.setWidgetResizable(True)
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        # The room beside the legend, not that of the longest sentence.
        self._area.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Ignored)
        buttons = fill(QHBoxLayout(), self.clear, self.others, self.save, self.load, spacing=4)
        fill(QVBoxLayout(self), (self._area, 1), buttons, spacing=2)


class FilterPage(Page):
    """Histogram, legend and the list of filters.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots)
        self.histogram = Histogram(spots)
        self.legend, self.list = Legend(spots), FilterList(spots)
        words, inner, area = QWidget(), QWidget(), QScrollArea()
        fill(QVBoxLayout(words), (Scrolled(self.legend, _LEAST), 3), (self.list, 1), spacing=4)
        TwoParts(inner, (self.histogram,), words, (3, 2))
        scroll_upright(area, inner)
        fill(QVBoxLayout(self), area)
        self.list.said.connect(self.said)
        self.list.failed.connect(self.failed)

    def show_table(self) -> None:
        """Follow another table or other units."""
        self.histogram.show_table()
        self.legend.show_table()

    def show_rows(self) -> None:
        """Follow the filters."""
        self.histogram.show_rows()
        self.legend.show_rows()
        self.list.show_rows()
