"""The files of a batch as a table: how far each is, what it has, how fast it goes."""

from __future__ import annotations

import html
from collections.abc import Sequence

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem

from ...batch.outcome import FAILED, RUNNING, Outcome
from ..parts.layout import explain
from ..parts.messages import number

_TIP = (
    "<p>A row for each image: how far it is, how many spots it has, and how fast it goes. A row "
    "tells more under the mouse. A double click, or Enter, opens the first frames of an image with "
    "its spots.</p>"
)
#: The columns and what they mean.
_COLUMNS = {
    "file": "The image.",
    "state": "How far it is. What is kept was complete before, and made of the same.",
    "spots": "How many spots were found.",
    "good": "How many of them nothing speaks against.",
    "frames": "How many frames are done.",
    "frames/s": "Frames per second, reading and writing included.",
}


class FilesTable(QTableWidget):
    """A row for each file of a batch."""

    #: A file, to be opened.
    asked = Signal(object)

    def __init__(self) -> None:
        super().__init__(0, len(_COLUMNS))
        self._outcomes: list[Outcome] = []
        self._rows: dict[str, int] = {}
        self.setHorizontalHeaderLabels(list(_COLUMNS))
        for place, meaning in enumerate(_COLUMNS.values()):
            item = self.horizontalHeaderItem(place)
            assert item is not None
            item.setToolTip(meaning)
        explain(self, "Files", _TIP)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setWordWrap(False)
        below, beside = self.horizontalHeader(), self.verticalHeader()
        assert below is not None
        assert beside is not None
        beside.hide()
        beside.setDefaultSectionSize(22)
        below.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        below.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.activated.connect(lambda index: self.asked.emit(self._outcomes[index.row()]))

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of each file up to now."""
        return list(self._outcomes)

    def show_files(self, outcomes: Sequence[Outcome]) -> None:
        """List files."""
        self._outcomes, self._rows = list(outcomes), {}
        self.setRowCount(len(outcomes))
        for row, outcome in enumerate(outcomes):
            self._rows[outcome.file] = row
            self._fill(row, outcome)

    def put(self, outcome: Outcome) -> None:
        """Show what is new of a file."""
        if (row := self._rows.get(outcome.file)) is not None:
            self._outcomes[row] = outcome
            self._fill(row, outcome)

    def _fill(self, row: int, outcome: Outcome) -> None:
        tip = _tooltip(outcome)
        for column, text in enumerate(_texts(outcome)):
            item = self.item(row, column)
            if item is None:
                item = QTableWidgetItem()
                if column > 1:
                    item.setTextAlignment(
                        Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
                    )
                self.setItem(row, column, item)
            item.setText(text)
            item.setToolTip(tip)


def _texts(outcome: Outcome) -> tuple[str, ...]:
    """Return what stands in a row."""
    state = outcome.state
    if state == RUNNING and outcome.frames_in_all:
        state = f"{outcome.frames / outcome.frames_in_all:.0%}"
    elif state == FAILED:
        state = "⚠ failed"
    elif outcome.warnings:
        state = f"{state} ⚠"
    name = outcome.file.rpartition("/")[2]
    if not outcome.frames:
        return name, state, "", "", "", ""
    counts = map(number, (outcome.spots, outcome.good, outcome.frames))
    return (name, state, *counts, number(round(outcome.rate)))


def _tooltip(outcome: Outcome) -> str:
    """Say all about a file."""
    said = [outcome.file, outcome.error, *outcome.warnings]
    if outcome.output:
        said.append(f"Spots: {outcome.output}")
    if outcome.cells:
        said.append(f"Cells: {outcome.cells}")
    if outcome.sigma is not None:
        said.append(f"σ {outcome.sigma:.4g} px, ROI {outcome.roi_size} px, {outcome.backend}")
    return "".join(f"<p>{html.escape(one)}</p>" for one in said if one)
