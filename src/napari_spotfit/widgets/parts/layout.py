"""Lay out widgets: rows and columns, scroll areas, tooltips, and the mouse wheel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from qtpy.QtCore import QEvent, QObject, QSize, Qt
from qtpy.QtGui import QAction, QResizeEvent
from qtpy.QtWidgets import (
    QBoxLayout,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QLayout,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QSplitter,
    QTableView,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)
from superqt import QFlowLayout

#: The style of a button that is the heading of what it unfolds, not the theme's filled one.
HEADING = (
    "QPushButton { text-align: left; font-weight: bold; padding: 4px 0; border: none; "
    "background: none } QPushButton:focus { border: 1px solid palette(highlight) }"
)
_Box = TypeVar("_Box", bound=QBoxLayout)
LayoutPart = QWidget | QLayout | int | tuple[QWidget | QLayout, int]
#: Height in pixels of the frame that the viewer's theme draws around what scrolls.
_FRAME = 2
#: From this width in pixels on two parts may stand side by side, and where there is less height
#: than this, from that width on they do.
_WIDE, _LOW, _NARROW = 640, 330, 520


def fill(
    box: _Box,
    *parts: LayoutPart,
    margins: tuple[int, int, int, int] = (0, 0, 0, 0),
    spacing: int | None = None,
) -> _Box:
    """Put parts into a row or a column.

    Parameters
    ----------
    box : QBoxLayout
        The row or column.
    *parts : QWidget, QLayout or int
        The parts, in a tuple with their share of the spare room; a number is empty room.
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


def flow(*groups: Iterable[QWidget]) -> QFlowLayout:
    """Return a row that is broken into lines where there is no room; groups stay together."""
    row = QFlowLayout()
    for group in groups:
        together = QWidget()
        fill(QHBoxLayout(together), *group, margins=(0, 0, 8, 0))
        row.addWidget(together)
    return row


def button(
    text: str,
    tip: str = "",
    slot: Callable[[], object] | None = None,
    name: str = "",
    *,
    checkable: bool = False,
) -> QPushButton:
    """Return a button with a tooltip, and a name for screen readers if its text says too little."""
    made = QPushButton(text)
    made.setToolTip(tip if tip.startswith("<") or not tip else f"<p>{tip}</p>")
    made.setAccessibleName(name)
    made.setCheckable(checkable)
    if slot is not None:
        made.clicked.connect(lambda: slot())
    return made


def ask_to_save(
    parent: QWidget, title: str, name: str, ending: str, kinds: str
) -> tuple[Path, str] | None:
    """Ask where to save a file.

    Returns
    -------
    (path, str) or None
        The path, with the ending if it has none, and the kind that was chosen; None if cancelled.
    """
    proposed = f"{name}{ending}".replace("/", "-")
    path, kind = QFileDialog.getSaveFileName(parent, title, proposed, kinds)
    if not path:
        return None
    return Path(path) if Path(path).suffix else Path(f"{path}{ending}"), kind


class TwoParts(QSplitter):
    """Two parts with a movable border: side by side where there is room, else one above the other.

    Parameters
    ----------
    parent : QWidget
        What they fill.
    first : iterable
        The parts of the first one, from top to bottom.
    second : QWidget
        The second one.
    shares : (int, int)
        Their shares of the room, whatever they ask for.
    """

    def __init__(
        self, parent: QWidget, first: Iterable[LayoutPart], second: QWidget, shares: tuple[int, int]
    ):
        super().__init__(Qt.Orientation.Vertical)
        column = QWidget()
        fill(QVBoxLayout(column), *first, spacing=4)
        for number, part in enumerate((column, second)):
            self.addWidget(part)
            self.setStretchFactor(number, shares[number])
        self.setSizes([1000 * share for share in shares])
        self.setChildrenCollapsible(False)
        # Else the spring that napari puts below what it docks on the right takes half of the room.
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        fill(QVBoxLayout(parent), (self, 1), margins=(6, 2, 6, 2))

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        """Turn where the room has become wide or narrow."""
        super().resizeEvent(event)
        self._turn()

    def event(self, event: QEvent | None) -> bool:
        """Turn where a part has come to need more width, or less."""
        if event is not None and event.type() == QEvent.Type.LayoutRequest:
            self._turn()
        return bool(super().event(event))

    def _turn(self) -> None:
        width, height = self.width(), self.height()
        parts = [cast(QWidget, self.widget(number)) for number in range(self.count())]
        needed = sum(part.minimumWidth() or part.minimumSizeHint().width() for part in parts)
        across = (width >= _WIDE and width > height) or (width >= _NARROW and height < _LOW)
        fits = width >= needed + self.handleWidth()
        turned = Qt.Orientation.Horizontal if across and fits else Qt.Orientation.Vertical
        if turned != self.orientation():
            self.setOrientation(turned)


class Label(QLabel):
    """A label that shows its text as it is: names of files and columns may look like HTML."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setTextFormat(Qt.TextFormat.PlainText)


def sentence(label: QLabel | None = None) -> QLabel:
    """Return a label for words that may need several lines and can be copied."""
    label = Label() if label is None else label
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


def show_text(widget: QLabel | QPushButton, text: str) -> None:
    """Show a text on a label or button; hide it without one."""
    widget.setText(text)
    widget.setVisible(bool(text))


def add_action(menu: QWidget, text: str, slot: Callable[[], object], tip: str = "") -> None:
    """Add an entry to a menu, or to a widget's context menu; an ampersand in its text is shown."""
    action = QAction(text.replace("&", "&&"), menu)
    menu.addAction(action)
    action.setToolTip(tip)
    action.triggered.connect(lambda checked=False: slot())


def explain(widget: QWidget, name: str, tip: str) -> None:
    """Set the name of a widget for screen readers, and its tooltip."""
    widget.setAccessibleName(name)
    widget.setToolTip(tip)


class _WheelGuard(QObject):
    def eventFilter(self, watched: Any, event: Any) -> bool:
        if event.type() != QEvent.Type.Wheel or watched.hasFocus():
            return False
        event.ignore()
        return True


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


def show_whole_rows(table: QTableView, height: int) -> None:
    """Let a table have rows of one height without numbers, selected as a whole, not edited."""
    table.setEditTriggers(QTableView.EditTrigger.NoEditTriggers)
    table.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
    rows = cast(QHeaderView, table.verticalHeader())
    rows.setDefaultSectionSize(height)
    rows.hide()


class TextTable(QTableWidget):
    """A table of texts.

    Parameters
    ----------
    titles : mapping of str to str
        What stands above the columns, with its tooltips.
    height : int
        Height of its rows in pixels.
    """

    def __init__(self, titles: Mapping[str, str], height: int = 22):
        super().__init__(0, len(titles))
        self.setHorizontalHeaderLabels(list(titles))
        for column, tip in enumerate(titles.values()):
            cast(QTableWidgetItem, self.horizontalHeaderItem(column)).setToolTip(tip)
        self.heading = cast(QHeaderView, self.horizontalHeader())
        show_whole_rows(self, height)

    def put_texts(self, row: int, texts: Iterable[str], *, left: int = 0) -> None:
        """Put texts into a row: the first ones on the left, numbers on the right."""
        for column, text in enumerate(texts):
            item = self.item(row, column)
            if item is None:
                item = QTableWidgetItem()
                side = Qt.AlignmentFlag.AlignLeft if column < left else Qt.AlignmentFlag.AlignRight
                item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
                self.setItem(row, column, item)
            item.setText(text)


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
        self._least = least
        self._asked: tuple[QSize, QSize] | None = None
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        scroll_upright(self, content)

    def sizeHint(self) -> QSize:
        """Ask for all of the contents."""
        return QSize(self._width(), self._height())

    def minimumSizeHint(self) -> QSize:
        """Ask for some of the contents."""
        return QSize(self._width(), min(self._height(), self._least))

    def eventFilter(self, watched: QObject | None, event: QEvent | None) -> bool:
        """Ask again when the contents ask for another size: the whole window is laid out then."""
        if event is not None and event.type() == QEvent.Type.LayoutRequest:
            asked = self.sizeHint(), self.minimumSizeHint()
            if asked != self._asked:
                self._asked = asked
                self.updateGeometry()
        return bool(super().eventFilter(watched, event))

    def _height(self) -> int:
        """Return the height of the contents, with their sentences broken into lines."""
        content = self.widget()
        if content is None:
            return 0
        height = content.heightForWidth(self.width()) if content.hasHeightForWidth() else -1
        return max(height, content.sizeHint().height() if height < 0 else 0) + _FRAME

    def _width(self) -> int:
        content = self.widget()
        bar = self.verticalScrollBar()
        wide = 0 if bar is None else bar.sizeHint().width()
        return wide if content is None else content.minimumSizeHint().width() + wide + _FRAME
