"""One check box per stop condition: show or hide the spots whose fit ended so."""

from __future__ import annotations

import html

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QCheckBox, QGridLayout, QLabel, QWidget

from ...models.stopping import StopCondition
from ..layers.colors import STOP_COLORS
from ..parts.legend import Ring
from ..parts.status import number
from .columns import STOP
from .shown_spots import ShownSpots


class StopBoxes(QWidget):
    """Ring, name and number of spots of every stop condition that is drawn.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, spots: ShownSpots, parent: QWidget | None = None):
        super().__init__(parent)
        self._spots = spots
        self.boxes: dict[str, QCheckBox] = {}
        self.counts: dict[str, QLabel] = {}
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(4)
        grid.setVerticalSpacing(0)
        grid.setColumnStretch(1, 1)
        for row, (name, color) in enumerate(STOP_COLORS.items()):
            box, count = QCheckBox(name), QLabel()
            count.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            count.setToolTip("<p>Spots of the layer whose fit ended so, shown or not.</p>")
            box.setChecked(True)
            box.setToolTip(_tip(StopCondition[name]))
            box.toggled.connect(lambda shown, name=name: self._on_toggled(name, shown))
            self.boxes[name], self.counts[name] = box, count
            for place, widget in enumerate((Ring(color), box, count)):
                grid.addWidget(widget, row, place)

    def show_table(self) -> None:
        """Count the spots."""
        column = self._spots.columns.get(STOP)
        counts: dict[str, int] = {}
        if column is not None:
            codes = column.values[column.values >= 0]
            per_word = np.bincount(codes, minlength=len(column.words)).tolist()
            counts = dict(zip(column.words, per_word, strict=True))
        for name, label in self.counts.items():
            label.setText(number(counts.get(name, 0)))

    def show_rows(self) -> None:
        """Tick what is not hidden."""
        for name, box in self.boxes.items():
            box.blockSignals(True)
            box.setChecked(name not in self._spots.filters.hidden)
            box.blockSignals(False)

    def _on_toggled(self, name: str, shown: bool) -> None:
        self._spots.set_filters(self._spots.filters.with_hidden(name, not shown))


def _tip(condition: StopCondition) -> str:
    kind = "Converged. " if condition.converged else ""
    return (
        f"<p>{html.escape(kind + condition.explanation)}</p>"
        "<p>Untick to hide these spots; nothing is deleted.</p>"
    )
