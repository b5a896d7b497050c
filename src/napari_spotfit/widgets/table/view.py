"""The table on the screen, in step with the points in the viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import (
    QItemSelection,
    QItemSelectionModel,
    QItemSelectionRange,
    QModelIndex,
    Qt,
    Signal,
)
from qtpy.QtGui import QAction, QKeyEvent, QKeySequence
from qtpy.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QTableView,
    QWidget,
)

from ..layers.selection import go_to
from ..parts.layout import explain, show_whole_rows
from ..parts.messages import number
from .model import SpotsModel
from .shown_spots import MOST_SELECTED, ShownSpots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from napari import Viewer
    from qtpy.QtWidgets import QStyleOptionViewItem

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
        self._heading.sortIndicatorChanged.connect(self._on_sorted)
        self._offer_actions()
        spots.replaced.connect(self._on_replaced)
        spots.changed.connect(self._on_changed)
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
            self._mark_unsorted()
        self._follow_selection()

    def _on_changed(self) -> None:
        self.spots_model.show_rows(self._spots.shown)
        self._follow_selection()

    def _on_sorted(self, column: int, order: Qt.SortOrder) -> None:
        self.spots_model.sort(column, order)
        self._follow_selection()

    def _mark_unsorted(self) -> None:
        header = self._heading
        header.blockSignals(True)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        header.blockSignals(False)

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
        row = self._row(index)
        if row is not None:
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
        for text, slot in (
            ("Inspect", self.inspect),
            ("Centre in the viewer", self._centre),
            ("Copy", self.copy_asked.emit),
        ):
            action = QAction(text, self)
            action.triggered.connect(lambda checked=False, slot=slot: slot())
            self.addAction(action)
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
        header.setSectionsClickable(True)
        header.setSortIndicatorShown(True)
        header.setHighlightSections(False)
        if hasattr(header, "setSortIndicatorClearable"):  # Qt 6.1
            header.setSortIndicatorClearable(True)
        self._mark_unsorted()


class _Selected(QStyledItemDelegate):
    """Draws as selected what is selected in the viewer, however many pieces that has."""

    def initStyleOption(self, option: QStyleOptionViewItem | None, index: QModelIndex) -> None:
        """Take the selection from the layer."""
        super().initStyleOption(option, index)
        table: Any = self.parent()
        state, selected = QStyle.StateFlag.State_Selected, table.is_selected(index.row())
        if option is not None:
            option.state = option.state | state if selected else option.state & ~state
