"""Tie widgets to their viewer: docks, events, keys, and the other widgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEvent, QObject, Qt
from qtpy.QtGui import QCloseEvent, QShowEvent
from qtpy.QtWidgets import QApplication, QDockWidget, QLabel, QMainWindow, QWidget
from superqt.utils import qdebounced

from ..napari_compat import itself, main_window

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Layer, Points

#: The plugin's name in its manifest.
_PLUGIN = "napari-spotfit"
_BOTTOM = Qt.DockWidgetArea.BottomDockWidgetArea
_RIGHT = Qt.DockWidgetArea.RightDockWidgetArea
#: The share of the window's height that a widget below the canvas gets; a window that is lower than
#: this, in pixels, has no room there beside napari's own controls.
_SHARE, _LOW = 0.4, 760
#: The share of that height with which it is content.
_ENOUGH = 0.7
#: The widths in pixels that it gets on the right then, where it is alone and as a tab.
_WIDTH, _AS_TAB = 360, 322
#: What has the keyboard is outlined, which napari's themes leave out; a border would move the
#: handle of a slider.
_FOCUS = (
    "QPushButton:focus, QComboBox:focus, QAbstractSpinBox:focus, QListView:focus, QLineEdit:focus,"
    "QCheckBox:focus, QTabBar:focus { border: 1px solid #56b4e9 }"
    "QSlider::handle:focus { background: #56b4e9 }"
)
#: Title of a widget in the manifest.
RESULTS = "Results"


class Docked(QWidget):
    """A widget that follows the viewer from when it is made or docked until dock or window closes.

    What a subclass connects in :meth:`follow_viewer` it disconnects in
    :meth:`leave_viewer`; they are called in turns, never one of them twice in a row. A
    subclass calls :meth:`bind` at the end of its ``__init__``.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer in whose window the widget is docked; it may be behind a proxy.
    below : bool
        Whether to dock the widget below the canvas when it is shown for the first time, or in a low
        window as a tab on the right, and to let it become as small as the window needs; else it
        stays where napari docks it.
    """

    #: What the manifest calls the widget.
    title = ""

    def __init__(self, viewer: Viewer, below: bool = False):
        super().__init__()
        # A proxy returns proxies of layers, but events name the layers themselves.
        self._viewer: Viewer = itself(viewer)
        #: Whether the widget follows the viewer.
        self.bound = False
        self._closing = self._narrowed = False
        self._below = below
        self.setStyleSheet(_FOCUS)
        self._placing = qdebounced(self._place, 0, parent=self)
        self._narrowing = qdebounced(self._narrow, 0, parent=self)
        if below:
            # Else the window grows where there is less room than the layout asks for.
            self.setMinimumSize(1, 1)

    def serves(self, viewer: Viewer) -> bool:
        """Whether the widget follows a viewer, also one behind a proxy."""
        return self.bound and self._viewer is itself(viewer)

    def bind(self) -> None:
        """Follow the viewer, unless the widget does."""
        if not self.bound:
            self.bound, self._closing = True, False
            window = main_window(self._viewer)
            if window is not None:
                window.installEventFilter(self)
            self.follow_viewer()

    def unbind(self) -> None:
        """Stop all work and leave no callback behind."""
        if self.bound:
            self.bound = False
            self._placing.cancel()
            self._narrowing.cancel()
            window = main_window(self._viewer)
            if window is not None:
                window.removeEventFilter(self)
            self.leave_viewer()

    def follow_viewer(self) -> None:
        """Connect to the viewer and show its state."""

    def leave_viewer(self) -> None:
        """Stop what runs and disconnect from the viewer."""

    def changeEvent(self, event: QEvent | None) -> None:
        """Notice when napari docks the widget or closes its dock."""
        super().changeEvent(event)
        if event is not None and event.type() == QEvent.Type.ParentChange:
            self.unbind() if self.parent() is None else self.bind()

    def closeEvent(self, event: QCloseEvent | None) -> None:
        """Stop everything."""
        self.unbind()
        super().closeEvent(event)

    def eventFilter(self, watched: QObject | None, event: QEvent | None) -> bool:
        """Notice when the viewer's window closes, which napari does not report to docks.

        A window may refuse: only one that closes is hidden then, unless it was never shown.
        """
        kind = None if event is None else event.type()
        if kind in (QEvent.Type.Close, QEvent.Type.Hide) and isinstance(watched, QMainWindow):
            self._closing |= kind == QEvent.Type.Close
            if self._closing and watched.isHidden():
                self.unbind()
        return bool(super().eventFilter(watched, event))

    def showEvent(self, event: QShowEvent | None) -> None:
        """Find a place at first, once napari has docked the widget."""
        super().showEvent(event)
        self._placing()

    def _narrow(self) -> None:
        """Let the dock be as wide as the widget asks to be, not as its title was."""
        dock = _dock_of(self)
        if dock is not None and isinstance(window := dock.parent(), QMainWindow):
            window.resizeDocks([dock], [self.sizeHint().width()], Qt.Orientation.Horizontal)

    def _place(self) -> None:
        dock = _dock_of(self)
        if dock is not None and (bar := dock.titleBarWidget()) is not None:
            for label in bar.findChildren(QLabel):
                label.setMinimumWidth(1)  # else a dock is as wide as its title at least
            dock.setMinimumSize(0, 0)  # which Qt keeps from before
            if not self._narrowed and not self._below:
                self._narrowing()
            self._narrowed = True
        if self._below:
            self._below = False
            _dock_where_there_is_room(self)


def opened(viewer: Viewer, title: str) -> Docked | None:
    """Return a viewer's open widget of a title, however it was opened; None if there is none."""
    shown = (one for one in QApplication.allWidgets() if isinstance(one, Docked))
    return next((one for one in shown if one.title == title and one.serves(viewer)), None)


def _dock_of(widget: QWidget) -> QDockWidget | None:
    """Return the dock that a widget lies in."""
    dock = widget.parent()
    while dock is not None and not isinstance(dock, QDockWidget):
        dock = dock.parent()
    return dock


def _dock_where_there_is_room(widget: QWidget) -> None:
    """Move a widget's dock below the canvas, or in a low window to the right; there as a tab.

    napari docks what its menus open on the right, below all else there.

    Parameters
    ----------
    widget : QWidget
        A docked widget.
    """
    dock = _dock_of(widget)
    if dock is None:
        return
    window = dock.parent()
    if not isinstance(window, QMainWindow) or dock.isFloating():
        return
    area = _RIGHT if window.height() < _LOW else _BOTTOM
    others = [
        other
        for other in window.findChildren(QDockWidget)
        if other is not dock
        and other.isVisible()
        and not other.isFloating()
        and window.dockWidgetArea(other) == area
        and other.widget() is not None
    ]
    window.addDockWidget(area, dock)
    if others:
        window.tabifyDockWidget(others[0], dock)
        dock.raise_()
        if area == _RIGHT:
            window.resizeDocks([dock], [_AS_TAB], Qt.Orientation.Horizontal)
    elif area == _BOTTOM:
        high = round(_SHARE * window.height())
        window.resizeDocks([dock], [high], Qt.Orientation.Vertical)
        if dock.height() < _ENOUGH * high:
            # napari's own controls, high as those of labels are, leave it too little below them.
            window.setCorner(Qt.Corner.BottomLeftCorner, Qt.DockWidgetArea.LeftDockWidgetArea)
            window.resizeDocks([dock], [high], Qt.Orientation.Vertical)
    else:
        window.resizeDocks([dock], [_WIDTH], Qt.Orientation.Horizontal)
    # Qt would never let it be lower than it had to be on the right, with its title on top.
    dock.setMinimumSize(0, 0)


def show_result(viewer: Viewer, layer: Points, page: str = "", row: int | None = None) -> None:
    """Show a layer in *Results*, at a page of this title, and one of its spots."""
    widget: Any = opened(viewer, RESULTS)
    if widget is None or _dock_of(widget) is None:
        # As napari's own menu does, which then knows that it is open.
        _, widget = itself(viewer).window.add_plugin_dock_widget(_PLUGIN, RESULTS)
    if (dock := _dock_of(widget)) is not None:
        dock.show()
        dock.raise_()
    widget.go_to(layer, row, page)


class Follower:
    """Calls a method on the events that matter now, and on no others.

    Parameters
    ----------
    method : callable
        A bound method that takes the event.
    """

    def __init__(self, method: Callable[[Any], None]):
        self._method = method
        self._events: tuple[Any, ...] = ()

    def follow(self, *events: Any) -> bool:
        """Follow these events and leave the earlier ones; return whether they are others."""
        if [id(event) for event in events] == [id(event) for event in self._events]:
            return False
        for event in self._events:
            event.disconnect(self._method)
        for event in events:
            event.connect(self._method)
        self._events = events
        return True


class Keys:
    """Keys of a viewer, or of a layer while it is active, for as long as they are bound.

    napari looks for a key first among those bound to the active layer itself, then among those
    of its class, then among the viewer's.

    Parameters
    ----------
    owner : napari.Viewer or napari.layers.Layer
        The viewer, or the layer.
    actions : mapping
        What to do, by the key in napari's words. A generator function gets the owner, and goes on
        when the key is released.
    """

    def __init__(self, owner: Viewer | Layer, actions: Mapping[str, Callable[..., object]]):
        self._owner, self._actions = owner, actions
        self._bound: list[str] = []

    def bind(self) -> None:
        """Bind the keys that the viewer does not use otherwise."""
        for key, action in self._actions.items():
            method = action if isgeneratorfunction(action) else _without_owner(action)
            try:
                self._owner.bind_key(key, method, overwrite=False)
            except ValueError:  # it is bound already
                continue
            self._bound.append(key)

    def unbind(self) -> None:
        """Free the keys that were bound."""
        for key in self._bound:
            self._owner.bind_key(key, None)
        self._bound.clear()


def _without_owner(action: Callable[[], object]) -> Callable[[Viewer | Layer], None]:
    def on_key(owner: Viewer | Layer) -> None:
        action()

    return on_key
