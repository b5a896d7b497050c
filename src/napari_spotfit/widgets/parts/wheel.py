"""Keep the mouse wheel for scrolling the panel, not for changing values by accident."""

from __future__ import annotations

from qtpy.QtCore import QEvent, QObject, Qt
from qtpy.QtWidgets import QWidget


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
