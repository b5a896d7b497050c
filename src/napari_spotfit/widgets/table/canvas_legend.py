"""The legend on the canvas: a line that says what is shown, and unfolds into the filter."""

from __future__ import annotations

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFrame, QPushButton, QVBoxLayout, QWidget

from ..parts.layout import Scrolled, fill
from ..parts.messages import number
from .legend import Legend
from .shown_spots import ShownSpots

#: Width in pixels of the folded line, whatever the filter's words are, and what frames them.
_WIDTH, _PADDING = 170, 12
#: Height that the unfolded legend asks for in any case.
_LEAST = 60
_TIP = "<p>{}</p><p>Click to {} the legend, which is the filter.</p>"


class CanvasLegend(QFrame):
    """Says on the canvas which spots are shown; unfolded, it is the legend that filters them.

    It is folded at first, so as not to cover the image.

    Parameters
    ----------
    canvas : QWidget
        What it lies on.
    spots : ShownSpots
        The spots.
    """

    def __init__(self, canvas: QWidget, spots: ShownSpots):
        super().__init__(canvas)
        self._spots = spots
        self.line, self.legend = QPushButton(), Legend(spots)
        self._scrolled = Scrolled(self.legend, _LEAST)
        # What is clicked here is no click on the image, and keys stay with the canvas.
        self.setAttribute(Qt.WidgetAttribute.WA_NoMousePropagation)
        for control in self.findChildren(QWidget):
            control.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.line.setCheckable(True)
        # A heading, pressed or not.
        self.line.setStyleSheet("text-align: left; padding: 2px 4px; background: transparent")
        self.line.setAccessibleName("Legend of the spots on the canvas")
        self.line.setMinimumWidth(_WIDTH)
        self.setAutoFillBackground(True)
        fill(QVBoxLayout(self), self.line, self._scrolled, margins=(2, 2, 2, 2), spacing=2)
        self.line.toggled.connect(self._on_toggled)
        spots.replaced.connect(self._on_table)
        spots.changed.connect(self._on_shown)
        self._on_toggled(False)

    def _on_toggled(self, unfolded: bool) -> None:
        self._scrolled.setVisible(unfolded)
        self._on_table()

    def _on_table(self) -> None:
        if self.line.isChecked():
            self.legend.show_table()
        self._on_shown()

    def _on_shown(self) -> None:
        unfolded = self.line.isChecked()
        if unfolded:
            self.legend.show_rows()
        shown, filters = self._spots.shown, self._spots.filters
        words = f"{number(int(shown.sum()))} of {number(len(shown))}"
        words += f": {filters.in_words(self._spots.units)}" if filters else " shown"
        self.line.setToolTip(_TIP.format(words, "fold" if unfolded else "unfold"))
        width = max(_WIDTH, self._scrolled.sizeHint().width() if unfolded else 0) - _PADDING
        text = f"{'▾' if unfolded else '▸'} {words}"
        self.line.setText(self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, width))
