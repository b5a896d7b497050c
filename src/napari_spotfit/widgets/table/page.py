"""Base class of pages about a layer's spots, drawn when needed, and a choice of a feature."""

from __future__ import annotations

import html

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox, QWidget

from ..parts.layout import guard_wheel
from .features import Feature
from .shown_spots import ShownSpots


class Page(QWidget):
    """Signals when it must be drawn: when its spots change, or later, when it comes on top.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    #: A message, and an error message.
    said, failed = Signal(str), Signal(str)
    #: There is another table, or other units; ``rows_due`` comes next.
    table_due = Signal()
    #: Other spots are shown.
    rows_due = Signal()

    def __init__(self, spots: ShownSpots):
        super().__init__()
        self._spots = spots
        self._on_top = False
        self._new_table = self._new_rows = True
        spots.replaced.connect(self._on_replaced)
        spots.changed.connect(self._on_changed)

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
                self.table_due.emit()
            self.rows_due.emit()


class FeatureChoice(QComboBox):
    """A list of the features that are numbers, with their units.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    first : str
        The feature that is chosen at first, if the spots have it.
    """

    #: The user has chosen another feature.
    chosen = Signal()

    def __init__(self, spots: ShownSpots, first: str):
        super().__init__()
        self._spots, self._wanted = spots, first
        self.setSizeAdjustPolicy(self.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(9)
        guard_wheel(self)
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
