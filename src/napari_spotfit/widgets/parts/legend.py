"""The legend of stop conditions: border colour, name and number of fits."""

from __future__ import annotations

import html

from qtpy.QtCore import QRectF, Qt
from qtpy.QtGui import QColor, QPainter, QPaintEvent, QPen
from qtpy.QtWidgets import QGridLayout, QLabel, QWidget

from ...models.stopping import StopCondition
from ..layers.colors import STOP_COLORS
from .status import number

#: The conditions in the order in which they are listed: good ones first.
_ORDER = (
    StopCondition.MIN_DELTA,
    StopCondition.MIN_STEP,
    StopCondition.MAX_ERROR,
    StopCondition.NO_DECREASE,
    StopCondition.MAX_ITERATIONS,
    StopCondition.INVALID,
)


class Ring(QWidget):
    """A ring in a stop condition's colour, as it is drawn in the viewer."""

    def __init__(self, color: str, parent: QWidget | None = None):
        super().__init__(parent)
        self._color = QColor(color)
        self.setFixedSize(16, 16)

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the ring, with a grey edge so that white shows on white."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for color, width in ((QColor(128, 128, 128), 5.0), (self._color, 3.0)):
            painter.setPen(QPen(color, width))
            painter.drawEllipse(QRectF(4, 4, 8, 8))


class Legend(QWidget):
    """One row per stop condition, with explanations as tooltips.

    Parameters
    ----------
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        self.counts: dict[str, QLabel] = {}
        grid = QGridLayout(self)
        # Level with the label beside it, which the theme pads.
        grid.setContentsMargins(0, 6, 0, 0)
        grid.setVerticalSpacing(2)
        grid.setColumnStretch(1, 1)
        for row, condition in enumerate(_ORDER):
            drawn = condition.name in STOP_COLORS
            name = QLabel(condition.name if drawn else f"{condition.name} (not drawn)")
            count = QLabel()
            count.setAlignment(Qt.AlignmentFlag.AlignRight)
            self.counts[condition.name] = count
            cells: list[QWidget] = [name, count]
            if drawn:
                ring = Ring(STOP_COLORS[condition.name])
                grid.addWidget(ring, row, 0)
                cells.append(ring)
            grid.addWidget(name, row, 1)
            grid.addWidget(count, row, 2)
            kind = "Converged. " if condition.converged else ""
            for cell in cells:
                cell.setToolTip(f"<p>{html.escape(kind + condition.explanation)}</p>")

    def show_counts(self, counts: dict[str, int]) -> None:
        """Show how many fits ended under each condition."""
        for name, label in self.counts.items():
            label.setText(number(counts.get(name, 0)))
