"""A part that is as high as its contents where there is room, and scrolls where there is not."""

from __future__ import annotations

from qtpy.QtCore import QEvent, QObject, QSize, Qt
from qtpy.QtWidgets import QFrame, QScrollArea, QSizePolicy, QWidget

#: Height in pixels of the frame that the viewer's theme draws around what scrolls.
_FRAME = 2
#: Higher than any screen.
_UNLIMITED = 100_000


def scroll_upright(area: QScrollArea, content: QWidget) -> None:
    """Let an area without a frame scroll something as wide as itself up and down."""
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidgetResizable(True)
    area.setWidget(content)


class Scrolled(QScrollArea):
    """Scrolls something up and down.

    Parameters
    ----------
    content : QWidget
        What is scrolled.
    least : int
        Height in pixels that is asked for in any case, if the contents are that high.
    """

    def __init__(self, content: QWidget, least: int):
        super().__init__()
        self._least, self._most = least, _UNLIMITED
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        scroll_upright(self, content)

    def sizeHint(self) -> QSize:
        """Ask for all of the contents."""
        return QSize(self._width(), min(self._height(), self._most))

    def minimumSizeHint(self) -> QSize:
        """Ask for some of the contents."""
        return QSize(self._width(), min(self._height(), self._least))

    def shorten(self, missing: int) -> None:
        """Ask for less than the contents need, down to the least, as so many pixels are missing.

        Parameters
        ----------
        missing : int
            By how many pixels what is around is lower than it asks to be; negative if there is
            room.
        """
        most = max(self.sizeHint().height() - missing, self._least)
        if most != self._most:
            self._most = most
            self.updateGeometry()

    def eventFilter(self, watched: QObject | None, event: QEvent | None) -> bool:
        """Ask anew when the contents ask for another height."""
        if event is not None and event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return bool(super().eventFilter(watched, event))

    def _height(self) -> int:
        content = self.widget()
        return 0 if content is None else content.sizeHint().height() + _FRAME

    def _width(self) -> int:
        content = self.widget()
        bar = self.verticalScrollBar()
        wide = 0 if bar is None else bar.sizeHint().width()
        return wide if content is None else content.minimumSizeHint().width() + wide
