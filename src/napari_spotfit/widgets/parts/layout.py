"""Lay out widgets: rows and columns, scroll areas, tooltips, and the mouse wheel."""

from __future__ import annotations

from typing import TypeVar

from qtpy.QtCore import QEvent, QObject, QSize, Qt
from qtpy.QtWidgets import QBoxLayout, QFrame, QLabel, QLayout, QScrollArea, QSizePolicy, QWidget

_Box = TypeVar("_Box", bound=QBoxLayout)
_Part = QWidget | QLayout | int | tuple[QWidget | QLayout, int]
#: Height in pixels of the frame that the viewer's theme draws around what scrolls.
_FRAME = 2
#: Higher than any screen.
_UNLIMITED = 100_000


def fill(
    box: _Box,
    *parts: _Part,
    margins: tuple[int, int, int, int] = (0, 0, 0, 0),
    spacing: int | None = None,
) -> _Box:
    """Put parts into a row or a column.

    Parameters
    ----------
    box : QBoxLayout
        The row or column.
    *parts : QWidget, QLayout or int
        What it gets, in a tuple with how much of the spare room; a number is empty room.
    margins : tuple of int
        Left, above, right and below, in pixels.
    spacing : int, optional
        Between the parts, in pixels; by default as the style has it.
    """
    box.setContentsMargins(*margins)
    if spacing is not None:
        box.setSpacing(spacing)
    for part in parts:
        one, stretch = part if isinstance(part, tuple) else (part, 0)
        if isinstance(one, int):
            box.addStretch(one)
        elif isinstance(one, QWidget):
            box.addWidget(one, stretch)
        else:
            box.addLayout(one, stretch)
    return box


def sentence(label: QLabel | None = None) -> QLabel:
    """Return a label for words that may need several lines and can be copied."""
    label = QLabel() if label is None else label
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


def explain(widget: QWidget, name: str, tip: str) -> None:
    """Name a widget for those who do not see it, and say what it is for."""
    widget.setAccessibleName(name)
    widget.setToolTip(tip)


class _WheelGuard(QObject):
    def eventFilter(self, watched: QObject | None, event: QEvent | None) -> bool:
        if event is not None and event.type() == QEvent.Type.Wheel:
            assert isinstance(watched, QWidget)
            if not watched.hasFocus():
                event.ignore()
                return True
        return False


def guard_wheel(widget: QWidget) -> None:
    """Let the wheel change a control only after the control was clicked."""
    widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    widget.installEventFilter(_WheelGuard(widget))


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
