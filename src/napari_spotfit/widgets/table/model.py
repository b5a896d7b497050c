"""Qt's model of the table of spots; only cells that are seen are formatted."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QAbstractTableModel, QModelIndex, QObject, Qt
from qtpy.QtGui import QColor
from qtpy.QtWidgets import QTableView

from ...models.columns import STOP
from ...results.numbers import MISSING, Units, decimals_for, number_text
from ..layers.appearance import STOP_COLORS
from ..parts.layout import explain, show_whole_rows
from .features import Feature

_NOWHERE = QModelIndex()
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
#: Decimal places of a position in pixels: a thousandth is below any standard error.
_POSITION = 3


class SpotsModel(QAbstractTableModel):
    """Shown spots of a layer as rows, in the order in which they are sorted.

    Parameters
    ----------
    parent : QObject
        Qt parent.
    """

    def __init__(self, parent: QObject):
        super().__init__(parent)
        self.columns: list[Feature] = []
        #: The layer's row in every row of the table.
        self.rows: NDArray[np.intp] = np.zeros(0, np.intp)
        self.units = Units()
        self._shown: NDArray[np.bool_] = np.zeros(0, bool)
        self._order: NDArray[np.intp] | None = None
        self._sorted_by: tuple[str, bool] | None = None

    def show_table(
        self, columns: Mapping[str, Feature], units: Units, shown: NDArray[np.bool_]
    ) -> None:
        """Show another table; it stays sorted by the same column if it has that."""
        self.beginResetModel()
        self.columns, self.units, self._shown = list(columns.values()), units, shown
        self._decimals = [_decimals(column, units.factor(column.name)) for column in self.columns]
        self._sort()
        self.endResetModel()

    def show_rows(self, shown: NDArray[np.bool_]) -> None:
        """Show other spots of the same table."""
        self.beginResetModel()
        self._shown = shown
        self._choose()
        self.endResetModel()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column, or not at all; equal spots stay in the layer's order."""
        down = order == Qt.SortOrder.DescendingOrder
        named = 0 <= column < len(self.columns)
        self.beginResetModel()
        self._sorted_by = (self.columns[column].name, down) if named else None
        self._sort()
        self.endResetModel()

    def sorted_column(self) -> int:
        """Return the number of the column by which the table is sorted, or -1."""
        if self._sorted_by is None:
            return -1
        names = [column.name for column in self.columns]
        return names.index(self._sorted_by[0]) if self._sorted_by[0] in names else -1

    def places(self, spots: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the rows of the table, in order, in which some of the layer's spots stand."""
        wanted = np.zeros(len(self._shown), bool)
        wanted[spots] = True
        return np.flatnonzero(wanted[self.rows])

    def rowCount(self, parent: QModelIndex = _NOWHERE) -> int:
        """Return the number of spots that are shown."""
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: QModelIndex = _NOWHERE) -> int:
        """Return the number of features."""
        return 0 if parent.isValid() else len(self.columns)

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, alignment and colour."""
        if not index.isValid():
            return None
        column = self.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(index.column(), column.values[self.rows[index.row()]])
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _RIGHT if column.is_number else _LEFT
        if role == Qt.ItemDataRole.DecorationRole and column.name == STOP:
            name = column.word(self.rows[index.row()])
            return QColor(STOP_COLORS[name]) if name in STOP_COLORS else None
        if role == Qt.ItemDataRole.ToolTipRole and column.name == STOP:
            return column.word(self.rows[index.row()]) or None
        return None

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:
        """Return a column's name with its unit, and what it means."""
        if orientation != Qt.Orientation.Horizontal or section >= len(self.columns):
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return self.units.title(column.name)
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"<p>{html.escape(column.meaning)}</p><p>Click to sort.</p>"
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _RIGHT if column.is_number else _LEFT
        return None

    def _text(self, column: int, value: Any) -> str:
        words = self.columns[column].shown_words
        if words:
            return words[value] if value >= 0 else MISSING
        return number_text(
            float(value) * self.units.factor(self.columns[column].name), self._decimals[column]
        )

    def _sort(self) -> None:
        self._order, column = None, self.sorted_column()
        if column >= 0 and self._sorted_by is not None:
            values, down = self.columns[column].values, self._sorted_by[1]
            if down:
                # NaN comes last in both directions.
                values = -values.astype(float)
            self._order = np.argsort(values, kind="stable")
        self._choose()

    def _choose(self) -> None:
        if self._order is None:
            self.rows = np.flatnonzero(self._shown)
        else:
            self.rows = self._order[self._shown[self._order]]


class NumbersTable(QTableView):
    """A small table of numbers with whole rows, sorted by a click on a heading.

    Parameters
    ----------
    name, tip : str
        Its name for screen readers, and its tooltip.
    """

    def __init__(self, name: str, tip: str):
        super().__init__()
        self.numbers = SpotsModel(self)
        self.setModel(self.numbers)
        explain(self, name, tip)
        self.setSortingEnabled(True)
        self.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        show_whole_rows(self, self.fontMetrics().height() + 6)
        self.setMinimumSize(120, 40)

    def show_numbers(self, columns: Mapping[str, Feature], units: Units | None = None) -> None:
        """Show all rows of some columns; without columns nothing."""
        count = len(next(iter(columns.values())).values) if columns else 0
        self.numbers.show_table(columns, units or Units(), np.ones(count, bool))
        self.resizeColumnsToContents()


def _decimals(column: Feature, factor: float) -> int:
    """Return how many decimal places a column's numbers deserve."""
    if not column.is_number or (factor == 1 and column.whole):
        return 0
    if column.name in ("y", "x"):
        return max(_POSITION - math.floor(math.log10(factor)), 0)
    size = column.usual * factor
    return decimals_for(size) if size else _POSITION
