"""The first localisations of a table, in the columns that a layer will have."""

from __future__ import annotations

from qtpy.QtWidgets import QAbstractItemView, QTableWidget, QTableWidgetItem

from ...results.spot_fits import SpotFits
from ..parts.layout import explain

_TIP = (
    "<p>The first localisations as they will come: in pixels from the centre of the first one, "
    "frames from 0.</p>"
)
_ROWS = 50


class FirstRows(QTableWidget):
    """A table of the first rows."""

    def __init__(self) -> None:
        super().__init__()
        explain(self, "First localisations", _TIP)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        if (beside := self.verticalHeader()) is not None:
            beside.hide()
            beside.setDefaultSectionSize(22)

    def show_fits(self, fits: SpotFits | None) -> None:
        """Show the first rows of fits, or nothing."""
        if fits is None:
            self.setRowCount(0)
            self.setColumnCount(0)
            return
        table = fits[:_ROWS].to_dataframe().drop(columns="good", errors="ignore")
        self.setRowCount(len(table))
        self.setColumnCount(table.shape[1])
        units = fits.units
        titles = [
            f"{name}, {units[name]}" if units.get(name) not in (None, "", name) else name
            for name in table
        ]
        self.setHorizontalHeaderLabels(titles)
        for column, name in enumerate(table):
            for row, value in enumerate(table[name]):
                text = f"{value:.6g}" if isinstance(value, float) else str(value)
                self.setItem(row, column, QTableWidgetItem(text))
        self.resizeColumnsToContents()
