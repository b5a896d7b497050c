"""The table of a spot's numbers."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from qtpy.QtCore import Qt
from qtpy.QtGui import QGuiApplication
from qtpy.QtWidgets import QGridLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from ..parts.layout import explain, fill
from .quantities import Quantity, as_table, quantities

if TYPE_CHECKING:
    from ..layers.images import PixelSize
    from .spot import Spot

_COPY_TIP = (
    "<p>Copy all numbers of this spot with all their digits, as a table for a spreadsheet.</p>"
)
#: So many rows are beside the button, which is in their corner.
_BESIDE = 2
_CORNER = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom


class Numbers(QWidget):
    """Names, values ± standard errors, and the same in a physical unit; all can be selected."""

    def __init__(self) -> None:
        super().__init__()
        self._table = ""
        self._rows: list[tuple[QLabel, QLabel, QLabel]] = []
        self.copy_button = QPushButton("Copy")
        explain(self.copy_button, "Copy the numbers", _COPY_TIP)
        self.copy_button.clicked.connect(self.copy)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(1)
        self._grid.setColumnStretch(2, 1)
        fill(QVBoxLayout(self), self._grid, 1)
        self._place_button(_BESIDE)

    def show_spot(self, spot: Spot, size: PixelSize | None) -> None:
        """Show a spot's numbers; the size of a pixel, where known, gives them in its unit."""
        rows = quantities(spot, size)
        self._table = as_table(rows, spot, size)
        while len(self._rows) < len(rows):
            self._add_row()
        if self._beside != len(rows):
            self._place_button(len(rows))
        for number, labels in enumerate(self._rows):
            shown = number < len(rows)
            if shown:
                _fill(labels, rows[number])
            for label in labels:
                label.setVisible(shown and (label is not labels[2] or bool(label.text())))

    def texts(self) -> dict[str, tuple[str, str]]:
        """Return what is shown, by the name of the quantity."""
        return {
            name.objectName(): (value.text(), physical.text())
            for name, value, physical in self._rows
            if not name.isHidden()
        }

    def copy(self) -> None:
        """Put the numbers on the clipboard."""
        clipboard = QGuiApplication.clipboard()
        if clipboard is not None:
            clipboard.setText(self._table)

    def _place_button(self, count: int) -> None:
        """Put the button beside the last rows, which have no other unit: it takes no height."""
        self._beside = count
        self._grid.addWidget(self.copy_button, max(count - _BESIDE, 0), 2, _BESIDE, 1, _CORNER)

    def _add_row(self) -> None:
        labels = QLabel(self), QLabel(self), QLabel(self)
        for column, label in enumerate(labels):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            self._grid.addWidget(label, len(self._rows), column)
        self._rows.append(labels)


def _fill(labels: tuple[QLabel, QLabel, QLabel], row: Quantity) -> None:
    labels[0].setObjectName(row.name)
    tip = f"<p>{html.escape(row.tip)}</p>"
    for label, text in zip(labels, (row.label, row.text, row.physical), strict=True):
        # Each change costs a new layout.
        if label.text() != text:
            label.setText(text)
            # It only grows, so that what is beside it stands still.
            label.setMinimumWidth(max(label.minimumWidth(), label.sizeHint().width()))
        if label.toolTip() != tip:
            label.setToolTip(tip)
