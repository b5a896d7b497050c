"""The page that decides which spots are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Qt
from qtpy.QtGui import QResizeEvent
from qtpy.QtWidgets import QBoxLayout, QFrame, QScrollArea, QVBoxLayout, QWidget

from ..parts.scrolled import Scrolled
from .filter_list import FilterList
from .histogram import Histogram
from .legend import Legend
from .page import Page
from .shown_spots import ShownSpots

if TYPE_CHECKING:
    from napari import Viewer

#: Below this width in pixels the parts stand one below the other.
_WIDE = 460
#: Height of the legend in any case, if it is that high.
_LEAST = 60
#: Height of the list there.
_LIST = 110


class FilterPage(Page):
    """Histogram, legend and the list of filters.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose theme counts.
    spots : ShownSpots
        The spots.
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, viewer: Viewer, spots: ShownSpots, parent: QWidget | None = None):
        super().__init__(spots, parent)
        self.histogram = Histogram(viewer, spots)
        self.legend, self.list = Legend(spots), FilterList(spots)
        words = QWidget()
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(Scrolled(self.legend, _LEAST))
        column.addWidget(self.list, 1)
        inner, area = QWidget(), QScrollArea()
        self._box = QBoxLayout(QBoxLayout.Direction.LeftToRight, inner)
        self._box.setContentsMargins(4, 4, 4, 4)
        self._box.addWidget(self.histogram, 3)
        self._box.addWidget(words, 2)
        area.setWidget(inner)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(area)
        self.table_due.connect(self.show_table)
        self.rows_due.connect(self.show_rows)

    def bind(self) -> None:
        """Follow the viewer's theme."""
        self.histogram.plot.bind()

    def unbind(self) -> None:
        """Stop following it."""
        self.histogram.plot.unbind()

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
        direction = QBoxLayout.Direction
        wide = self.width() >= _WIDE
        self._box.setDirection(direction.LeftToRight if wide else direction.TopToBottom)
        self.list.setMinimumHeight(0 if wide else _LIST)
