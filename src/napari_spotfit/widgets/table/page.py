"""A page about a layer's spots that works only while it is on top."""

from __future__ import annotations

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QWidget

from .shown_spots import ShownSpots


class Page(QWidget):
    """Says when it is to be drawn: when its spots change, or later, when it comes on top.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

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

    def set_on_top(self, on_top: bool) -> None:
        """Say whether the user sees the page."""
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
