"""The table of spots on the screen, in step with the points; only cells in sight are formatted."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QItemSelectionModel,
    QItemSelectionRange,
    QModelIndex,
    QObject,
    QSignalBlocker,
    Qt,
    Signal,
)
from qtpy.QtGui import QColor, QKeyEvent, QKeySequence
from qtpy.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QTableView,
    QWidget,
)

from ...models.columns import STOP
from ...results.formatting import MISSING, Units, decimals_for, number_text
from ..layers.appearance import STOP_COLORS
from ..layers.selection import go_to
from ..parts.layout import add_action, explain, show_whole_rows
from ..parts.messages import number
from .features import Feature, feature_of
from .shown_spots import MOST_SELECTED, ShownSpots

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from napari import Viewer
    from qtpy.QtWidgets import QStyleOptionViewItem

_NOWHERE = QModelIndex()
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
#: Decimal places of a position in pixels: a thousandth is below any standard error.
_POSITION = 3
_FLAG = QItemSelectionModel.SelectionFlag
_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
#: Height of a row in pixels.
_ROW = 22
#: Room for the colour of a stop condition and around its name.
_SWATCH = 36
#: Apart enough that a heading on the left does not touch one on the right.
_APART = "QHeaderView::section { padding: 2px 5px }"
#: Qt takes long for a selection of more pieces; the rows are still drawn as selected.
_MOST_PIECES = 5000
#: No column is wider in pixels at first.
_WIDEST = 260
#: Number of rows from which a column's initial width is computed.
_LOOKED_AT = 20
_TIP = (
    "<p>Click a heading to sort, a row to select its spot in the viewer; with Ctrl or Shift, "
    "several. Double-click or Enter goes to its frame, and shows it in Inspect. Ctrl+C copies "
    "the selected rows. Points that are selected in the viewer are selected here.</p>"
)


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
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
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

    def show_frame(self, table: pd.DataFrame, units: Units | None = None) -> None:
        """Show a table."""
        columns = {str(name): feature_of(str(name), values) for name, values in table.items()}
        self.show_numbers(columns, units)


def _decimals(column: Feature, factor: float) -> int:
    """Return how many decimal places a column's numbers deserve."""
    if not column.is_number or (factor == 1 and column.whole):
        return 0
    if column.name in ("y", "x"):
        return max(_POSITION - math.floor(math.log10(factor)), 0)
    size = column.usual * factor
    return decimals_for(size) if size else _POSITION


class SpotsTable(QTableView):
    """The shown spots of a layer, one per row.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer in which a spot is centred.
    spots : ShownSpots
        The spots.
    """

    #: The user wants what is selected on the clipboard.
    copy_asked = Signal()
    #: A message for the user.
    said = Signal(str)
    #: The spot of this row of the layer is to be inspected.
    inspect_asked = Signal(int)

    def __init__(self, viewer: Viewer, spots: ShownSpots):
        super().__init__()
        self._viewer, self._spots = viewer, spots
        self._titles: list[str] = []
        self._following = False
        self.spots_model = SpotsModel(self)
        self.setModel(self.spots_model)
        self.setItemDelegate(_Selected(self))
        # Qt's types say that these might be missing.
        self._picked = cast(QItemSelectionModel, self.selectionModel())
        self._heading = cast(QHeaderView, self.horizontalHeader())
        self._set_up()
        self._picked.selectionChanged.connect(self._on_selected)
        self._offer_actions()
        self.spots_model.modelReset.connect(self._follow_selection)
        spots.replaced.connect(self._on_replaced)
        spots.changed.connect(lambda: self.spots_model.show_rows(spots.shown))
        spots.selected.connect(self._follow_selection)
        self.doubleClicked.connect(self._inspect)

    def selected_rows(self) -> NDArray[np.intp]:
        """Return the layer's rows of the selected spots that are shown, in the table's order."""
        model = self.spots_model
        return model.rows[model.places(self._spots.selection())]

    def keyPressEvent(self, event: QKeyEvent | None) -> None:
        """Copy with Ctrl+C, inspect the current spot with Enter."""
        if event is not None and event.matches(QKeySequence.StandardKey.Copy):
            self.copy_asked.emit()
        elif event is not None and event.key() in _ENTER:
            self.inspect()
        else:
            super().keyPressEvent(event)

    def inspect(self) -> None:
        """Ask for the current spot to be inspected, or for the one that is selected."""
        index, selected = self.currentIndex(), self.selected_rows()
        if index.isValid() and not (len(selected) and not self.is_selected(index.row())):
            self._inspect(index)
        elif len(selected):
            self.inspect_asked.emit(int(selected[0]))
        else:
            self.said.emit("Select the row of a spot first, then it can be inspected.")

    def is_selected(self, row: int) -> bool:
        """Whether the spot in a row of the table is selected in the viewer."""
        layer = self._spots.layer
        return layer is not None and int(self.spots_model.rows[row]) in layer.selected_data

    def _on_replaced(self) -> None:
        spots, model = self._spots, self.spots_model
        model.show_table(spots.columns, spots.units, spots.shown)
        titles = [spots.units.title(name) for name in spots.columns]
        if titles != self._titles:
            self._titles = titles
            self._fit_columns()
        if model.sorted_column() < 0:
            with QSignalBlocker(self._heading):
                self._heading.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)

    def _follow_selection(self) -> None:
        """Select the rows of the spots that are selected in the viewer."""
        cast(QWidget, self.viewport()).update()
        if self._following:
            return
        model, selection = self.spots_model, self._picked
        places = model.places(self._spots.selection())
        starts = places[np.diff(places, prepend=-2) > 1]
        ends = places[np.diff(places, append=-2) != 1]
        # A reset emits nothing and is quick: Qt need not compare two selections.
        selection.reset()
        if not len(places):
            return
        self._following = True
        if len(starts) <= _MOST_PIECES:
            last = len(model.columns) - 1
            pieces = QItemSelection()
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                pieces.append(QItemSelectionRange(model.index(start, 0), model.index(end, last)))
            selection.select(pieces, _FLAG.Select)
        first = model.index(int(places[0]), max(self.columnAt(0), 0))
        if len(places) == 1:
            selection.setCurrentIndex(first, _FLAG.NoUpdate)
        self.scrollTo(first)
        self._following = False

    def _on_selected(self, *change: QItemSelection) -> None:
        """Select in the viewer what the user has selected here."""
        if self._following:
            return
        rows = [
            self.spots_model.rows[piece.top() : piece.bottom() + 1]
            for piece in list(cast("Iterable[QItemSelectionRange]", self._picked.selection()))
        ]
        self._following = True
        done = self._spots.select(np.concatenate(rows) if rows else np.zeros(0, np.intp))
        self._following = False
        if not done:
            self.said.emit(
                f"No more than {number(MOST_SELECTED)} spots can be selected at once; filter the "
                "spots, or save what is shown."
            )
            self._follow_selection()

    def _centre(self) -> None:
        row = self._row(self.currentIndex())
        if row is not None and self._spots.layer is not None:
            go_to(self._viewer, self._spots.layer, row)

    def _inspect(self, index: QModelIndex) -> None:
        if (row := self._row(index)) is not None:
            self.inspect_asked.emit(row)

    def _row(self, index: QModelIndex) -> int | None:
        """Return the layer's row of a row here, if there is still one."""
        layer = self._spots.layer
        if not index.isValid() or layer is None:
            return None
        row = int(self.spots_model.rows[index.row()])
        return row if row < len(layer.data) else None

    def _fit_columns(self) -> None:
        self.resizeColumnsToContents()
        metrics = self.fontMetrics()
        for place, column in enumerate(self._spots.columns.values()):
            # The first rows need not have the longest word.
            words = (
                max(map(metrics.horizontalAdvance, column.shown_words), default=-_SWATCH) + _SWATCH
            )
            self.setColumnWidth(place, min(max(self.columnWidth(place), words), _WIDEST))

    def _offer_actions(self) -> None:
        """Offer in the context menu what the keys do."""
        add_action(self, "Inspect", self.inspect)
        add_action(self, "Centre in the viewer", self._centre)
        add_action(self, "Copy", self.copy_asked.emit)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)

    def _set_up(self) -> None:
        explain(self, "Spots", _TIP)
        show_whole_rows(self, _ROW)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        rows, header = cast(QHeaderView, self.verticalHeader()), self._heading
        rows.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setStyleSheet(_APART)
        header.setResizeContentsPrecision(_LOOKED_AT)
        header.setHighlightSections(False)
        if hasattr(header, "setSortIndicatorClearable"):  # Qt 6.1
            header.setSortIndicatorClearable(True)
        self.setSortingEnabled(True)
        self.sortByColumn(-1, Qt.SortOrder.AscendingOrder)


class _Selected(QStyledItemDelegate):
    """Draws as selected what is selected in the viewer, however many pieces that has."""

    def initStyleOption(self, option: QStyleOptionViewItem | None, index: QModelIndex) -> None:
        """Take the selection from the layer."""
        super().initStyleOption(option, index)
        table: Any = self.parent()
        state, selected = QStyle.StateFlag.State_Selected, table.is_selected(index.row())
        if option is not None:
            option.state = option.state | state if selected else option.state & ~state
