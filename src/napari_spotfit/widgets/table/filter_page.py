"""The page that decides which spots are shown."""

from __future__ import annotations

from qtpy.QtCore import QEvent, QObject
from qtpy.QtGui import QResizeEvent
from qtpy.QtWidgets import QBoxLayout, QScrollArea, QVBoxLayout, QWidget

from ..parts.layout import Scrolled, fill, scroll_upright
from .filter_list import FilterList
from .histogram import Histogram
from .legend import Legend
from .page import Page
from .shown_spots import ShownSpots

#: Below this width in pixels, or that which they need, the parts stand one below the other.
_WIDE = 460
#: Height of the legend in any case, if it is that high.
_LEAST = 60
#: Height of the list there.
_LIST = 110


class FilterPage(Page):
    """Histogram, legend and the list of filters.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots)
        self.histogram = Histogram(spots)
        self.legend, self.list = Legend(spots), FilterList(spots)
        self._words, self._area = QWidget(), QScrollArea()
        words, inner = self._words, QWidget()
        fill(QVBoxLayout(words), Scrolled(self.legend, _LEAST), (self.list, 1), spacing=4)
        self._box = fill(
            QBoxLayout(QBoxLayout.Direction.LeftToRight, inner),
            (self.histogram, 3),
            (words, 2),
            margins=(4, 4, 4, 4),
        )
        scroll_upright(self._area, inner)
        fill(QVBoxLayout(self), self._area)
        words.installEventFilter(self)
        self.table_due.connect(self.show_table)
        self.rows_due.connect(self.show_rows)

    def show_table(self) -> None:
        """Follow another table or other units."""
        self.histogram.show_table()
        self.legend.show_table()

    def show_rows(self) -> None:
        """Follow the filters."""
        self.histogram.show_rows()
        self.legend.show_rows()
        self.list.show_rows()

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        """Put the parts beside each other where there is room."""
        super().resizeEvent(event)
        self._turn()

    def eventFilter(self, watched: QObject | None, event: QEvent | None) -> bool:
        """Look again whether there is room when the legend's lines have become longer."""
        if event is not None and event.type() == QEvent.Type.LayoutRequest:
            self._turn()
        return bool(super().eventFilter(watched, event))

    def _turn(self) -> None:
        direction = QBoxLayout.Direction
        wide = self.width() >= max(_WIDE, self._width_side_by_side())
        self._box.setDirection(direction.LeftToRight if wide else direction.TopToBottom)
        self.list.setMinimumHeight(0 if wide else _LIST)

    def _width_side_by_side(self) -> int:
        """Return the least width of the parts beside each other, and of a scroll bar."""
        margins, bar = self._box.contentsMargins(), self._area.verticalScrollBar()
        items = (self._box.itemAt(place) for place in range(self._box.count()))
        parts = sum(item.minimumSize().width() for item in items if item is not None)
        around = margins.left() + margins.right() + self._box.spacing()
        return parts + around + (0 if bar is None else bar.sizeHint().width())
