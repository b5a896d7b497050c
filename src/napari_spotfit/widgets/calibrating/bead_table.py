"""The beads of a calibration as a table, in which each can be unticked."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QTableWidget, QTableWidgetItem

from ...models.astigmatism import Bead
from ...results.numbers import MISSING
from ..parts.layout import show_whole_rows

_TITLES = ("bead", "z [nm]", "photons", "residual [px]", "")
_ROW = 22
_UNTICKED = "unticked"
#: Pixels within which a bead is the same one.
_SAME = 2.0


class BeadTable(QTableWidget):
    """Beads, each with a tick; one that is not used says why."""

    def __init__(self) -> None:
        super().__init__(0, len(_TITLES))
        self.setHorizontalHeaderLabels(_TITLES)
        show_whole_rows(self, _ROW)
        header = self.horizontalHeader()
        assert header is not None
        header.setStretchLastSection(True)
        self._beads: list[Bead] = []

    @property
    def places(self) -> NDArray[np.float64]:
        """Y and x of all beads, in pixels."""
        return np.array([(bead.y, bead.x) for bead in self._beads], float).reshape(-1, 2)

    @property
    def ticked(self) -> NDArray[np.bool_]:
        """Which beads are ticked."""
        items = [self.item(row, 0) for row in range(self.rowCount())]
        return np.array(
            [item is not None and item.checkState() == Qt.CheckState.Checked for item in items],
            bool,
        )

    def show_beads(self, beads: tuple[Bead, ...], *, keep: bool = False) -> None:
        """Show the beads of a calibration; with ``keep`` those that were unticked before, too."""
        kept = []
        if keep:
            there = np.array([(one.y, one.x) for one in beads], float).reshape(-1, 2)
            for bead, place in zip(self._beads, self.places, strict=True):
                if not (np.hypot(*(there - place).T) < _SAME).any():
                    reason = _UNTICKED if bead.used else bead.reason
                    kept.append(bead._replace(used=False, reason=reason))
        self._beads = sorted([*beads, *kept])
        self.setRowCount(len(self._beads))
        for row, bead in enumerate(self._beads):
            texts = (
                f"{bead.y:.0f}, {bead.x:.0f}", _text(bead.z, 0), _text(bead.photons, 0),
                _text(bead.residual, 3), "" if bead.used else bead.reason,
            )  # fmt: skip
            for column, text in enumerate(texts):
                item = QTableWidgetItem(text)
                item.setToolTip(text)
                if not column:
                    state = Qt.CheckState.Checked if bead.used else Qt.CheckState.Unchecked
                    item.setFlags(item.flags() | Qt.ItemFlag.ItemIsUserCheckable)
                    item.setCheckState(state)
                self.setItem(row, column, item)
        self.resizeColumnsToContents()


def _text(number: float, digits: int) -> str:
    return f"{number:.{digits}f}" if math.isfinite(number) and number else MISSING
