"""The scale of the face colours, on the canvas itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEvent, QObject, QPoint, QRect, QSize, Qt, QTimer
from qtpy.QtGui import QColor, QPainter, QPaintEvent
from qtpy.QtWidgets import QWidget

from ..napari_compat import canvas_beside
from .gradient import Gradient
from .rounding import digits_apart

if TYPE_CHECKING:
    from napari.layers import Points

_WIDTH, _EDGE, _BAR = 170, 8, 10
#: A dark plate with white words is read on any image, in either theme.
_PLATE, _INK = QColor(0, 0, 0, 165), QColor(255, 255, 255)
#: Milliseconds after which it looks at its layer: napari tells of no change of limits and maps.
_LOOK = 500


class CanvasBar(QWidget):
    """The colours of a Points layer's faces in a corner of the canvas: quantity, unit and limits.

    It lets the mouse through. napari's own bar crashed when a layer with one was removed
    (0.7.1, 0.8.0 and 0.9.2, on Mesa's OpenGL), and cannot say the unit.

    Parameters
    ----------
    canvas : QWidget
        What it lies on.
    """

    def __init__(self, canvas: QWidget):
        super().__init__(canvas)
        self._layer: Points | None = None
        #: What lies below the bar and is seen as long as the layer is.
        self.below: QWidget | None = None
        self.title, self.low, self.high = "", "", ""
        self._colormap: Any = None
        self._gradient = Gradient(_BAR, self)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName("Scale of the face colours")
        self._line = self.fontMetrics().height()
        self.setFixedSize(_WIDTH, 2 * self._line + _BAR + 2 * _EDGE)
        self._gradient.setGeometry(_EDGE, _EDGE + self._line, _WIDTH - 2 * _EDGE, _BAR)
        self._look = QTimer(self)
        self._look.setInterval(_LOOK)
        self._look.timeout.connect(self.look)
        canvas.installEventFilter(self)
        self.hide()

    def show_layer(self, layer: Points | None) -> None:
        """Show a layer's face colours as long as it is seen; nothing without one."""
        self._layer = layer
        self._look.stop() if layer is None else self._look.start()
        self.look()

    def look(self) -> None:
        """Show the colours as they are now."""
        layer = self._layer
        seen = layer is not None and layer.visible and len(layer.data) > 0
        self._show_colors(layer if seen else None)
        if self.below is not None:
            self.below.setVisible(seen)
            self.below.raise_()
        self._move()

    def put_below(self, widget: QWidget) -> None:
        """Let a child of the canvas lie below the bar, as large as it asks to be."""
        self.below = widget
        widget.installEventFilter(self)
        self.look()

    def _show_colors(self, layer: Points | None) -> None:
        limits = None if layer is None else layer.face_contrast_limits
        if layer is None or limits is None or layer.face_color_mode != "colormap":
            self.hide()
            return
        name = layer.metadata.get("face", "")
        unit = layer.metadata.get("units", {}).get(name)
        low, high = (float(limit) for limit in limits)
        digits = digits_apart(low, high)
        title = f"{name} ({unit})" if unit else str(name)
        words = title, f"{low:.{digits}g}", f"{high:.{digits}g}"
        if self.isVisible() and self._colormap is layer.face_colormap and words == self._words():
            return  # Qt would draw the whole window
        self.title, self.low, self.high = words
        self._colormap = layer.face_colormap
        self._gradient.show_map(self._colormap.map)
        self.show()
        self.raise_()
        self.update()

    def _words(self) -> tuple[str, str, str]:
        return self.title, self.low, self.high

    def eventFilter(self, watched: QObject | None, event: QEvent | None) -> bool:
        """Stay in the corner when the canvas, or what lies below the bar, gets another size."""
        kind = None if event is None else event.type()
        if kind == (QEvent.Type.LayoutRequest if watched is self.below else QEvent.Type.Resize):
            self._move()
        return False

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the plate and the words."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), _PLATE)
        painter.setPen(_INK)
        inner = self.rect().adjusted(_EDGE, _EDGE // 2, -_EDGE, -_EDGE // 2)
        words = QRect(inner.left(), inner.top(), inner.width(), self._line)
        elided = self.fontMetrics().elidedText(
            self.title, Qt.TextElideMode.ElideRight, words.width()
        )
        painter.drawText(words, Qt.AlignmentFlag.AlignHCenter, elided)
        words.moveBottom(inner.bottom())
        painter.drawText(words, Qt.AlignmentFlag.AlignLeft, self.low)
        painter.drawText(words, Qt.AlignmentFlag.AlignRight, self.high)

    def _move(self) -> None:
        canvas = self.parentWidget()
        if canvas is None:
            return
        self.move(max(canvas.width() - _WIDTH - _EDGE, 0), _EDGE)
        if self.below is not None:
            top = _EDGE if self.isHidden() else self.geometry().bottom() + _EDGE // 2
            room = QSize(canvas.width() - 2 * _EDGE, canvas.height() - top - _EDGE)
            size = self.below.sizeHint().boundedTo(room)
            self.below.setGeometry(QRect(QPoint(canvas.width() - _EDGE - size.width(), top), size))


class BarOnCanvas:
    """The bar of the window in which a widget is docked, made when it is needed.

    Parameters
    ----------
    widget : QWidget
        A widget that is docked beside the canvas, or will be.
    below : callable, optional
        Makes, on the canvas, what lies below the bar.
    """

    def __init__(self, widget: QWidget, below: Callable[[QWidget], QWidget] | None = None):
        self._widget, self._below = widget, below
        self.bar: CanvasBar | None = None

    def show_layer(self, layer: Points | None) -> None:
        """Show a layer's face colours on the canvas, if there is one."""
        if self.bar is None and layer is not None:
            canvas = canvas_beside(self._widget)
            if canvas is None:
                return
            self.bar = CanvasBar(canvas)
            if self._below is not None:
                self.bar.put_below(self._below(canvas))
            # With the window the canvas goes, and the bar with it.
            self.bar.destroyed.connect(self._on_destroyed)
        if self.bar is not None:
            self.bar.show_layer(layer)

    def remove(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            bar, self.bar = self.bar, None
            bar.show_layer(None)
            for part in (bar.below, bar):
                if part is not None:
                    part.setParent(None)
                    part.deleteLater()

    def _on_destroyed(self, bar: Any = None) -> None:
        self.bar = None
