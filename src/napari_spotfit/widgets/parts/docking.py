"""Where a widget docks at first."""

from __future__ import annotations

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QDockWidget, QMainWindow, QWidget

_BOTTOM = Qt.DockWidgetArea.BottomDockWidgetArea
#: Height in pixels that a widget below the canvas gets.
_HEIGHT = 300


def dock_below(widget: QWidget) -> None:
    """Move a widget's dock below the canvas, as a tab beside another one there.

    napari docks what its menus open on the right, where a wide widget has no room.

    Parameters
    ----------
    widget : QWidget
        A docked widget of which this was not asked before.
    """
    dock = widget.parent()
    while dock is not None and not isinstance(dock, QDockWidget):
        dock = dock.parent()
    if dock is None:
        return
    window = dock.parent()
    if not isinstance(window, QMainWindow) or dock.isFloating():
        return
    there = [
        other
        for other in window.findChildren(QDockWidget)
        if other is not dock
        and other.isVisible()
        and not other.isFloating()
        and window.dockWidgetArea(other) == _BOTTOM
        and other.widget() is not None
    ]
    window.addDockWidget(_BOTTOM, dock)
    if there:
        window.tabifyDockWidget(there[0], dock)
        dock.raise_()
    else:
        window.resizeDocks([dock], [_HEIGHT], Qt.Orientation.Vertical)
    # Qt would never let it be lower than it had to be on the right, with its title on top.
    dock.setMinimumSize(0, 0)
