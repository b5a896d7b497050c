"""Legends of colours: rings, crosses, gradients, bars in the panel and on the canvas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import (
    QEvent,
    QPoint,
    QRect,
    QRectF,
    QSignalBlocker,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from qtpy.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent, QPen
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QWidget

from ...results.formatting import digits_apart
from ...settings.validation import Parameter
from ..napari_compat import canvas_beside
from .boxes import NumberBox
from .layout import explain, fill

if TYPE_CHECKING:
    from napari.layers import Points

#: Places from left to right at which the map is asked; in between, colours are mixed.
_PLACES = np.linspace(0, 1, 17)
_END, _SAMPLE = Parameter("Limit", "", "fit", step=0), "-123.4"
_LOW_TIP = "<p>The number from which down the faces have the first colour.</p>"
_HIGH_TIP = "<p>The number from which up the faces have the last colour.</p>"
_AUTO_TIP = (
    "<p>Let the colours run from the 5th to the 95th percentile of the good fits, "
    "again after every fit. Untick it to keep the numbers as they are, or type your own.</p>"
)
_CANVAS_WIDTH, _EDGE, _BAR = 170, 8, 10
#: A dark plate with white words is read on any image, in either theme.
_PLATE, _INK = QColor(0, 0, 0, 165), QColor(255, 255, 255)
#: Milliseconds between looks at the layer: napari emits no change of limits and maps.
_LOOK = 500


class ColorBar(QWidget):
    """The colours of a Points layer's faces between the two numbers that limit them.

    napari can draw such a bar in the canvas, but crashed when a layer with one was
    removed (0.7.1, 0.8.0 and 0.9.2, on Mesa's OpenGL); and it cannot show the unit.
    """

    #: Other limits were typed, (low, high), or None: they are to be found automatically.
    limits_chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = (NumberBox(_END, sample=_SAMPLE) for _ in range(2))
        self._gradient, self.auto = Gradient(), QCheckBox("auto")
        for box, name, tip in (
            (self.low, "Lower limit of the face colours", _LOW_TIP),
            (self.high, "Upper limit of the face colours", _HIGH_TIP),
            (self.auto, "Automatic limits of the face colours", _AUTO_TIP),
        ):
            explain(box, name, tip)
        self._gradient.setMinimumWidth(60)
        fill(QHBoxLayout(self), self.low, (self._gradient, 1), self.high, self.auto)
        self.low.valueChanged.connect(self._on_low)
        self.high.valueChanged.connect(self._on_high)
        self.auto.toggled.connect(self._on_auto)

    def show_layer(self, layer: Points) -> None:
        """Show a layer's face colours; nothing if no quantity colours them."""
        limits = layer.face_contrast_limits
        self.setVisible(layer.face_color_mode == "colormap" and limits is not None)
        if limits is None:
            return
        digits = digits_apart(*map(float, limits))  # enough to distinguish them
        for box, value in zip((self.low, self.high), limits, strict=True):
            box.digits = digits
            box.show_number(float(value))
        with QSignalBlocker(self.auto):
            self.auto.setChecked(layer.metadata.get("face_limits") is None)
        self._gradient.show_map(layer.face_colormap.map)

    def _on_low(self, low: float) -> None:
        # The other end steps aside rather than be in the way.
        high = self.high.value()
        self.limits_chosen.emit((low, high if low < high else low + (abs(low) or 1)))

    def _on_high(self, high: float) -> None:
        low = self.low.value()
        self.limits_chosen.emit((low if low < high else high - (abs(high) or 1), high))

    def _on_auto(self, automatic: bool) -> None:
        limits = (self.low.value(), self.high.value())
        self.limits_chosen.emit(None if automatic else limits)


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


class CanvasBar(QWidget):
    """The colours of a Points layer's faces in a corner of the canvas: quantity, unit and limits.

    It lets the mouse through. napari's own bar crashed when a layer with one was removed
    (0.7.1, 0.8.0 and 0.9.2, on Mesa's OpenGL), and cannot show the unit.

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
        self.setFixedSize(_CANVAS_WIDTH, 2 * self._line + _BAR + 2 * _EDGE)
        self._gradient.setGeometry(_EDGE, _EDGE + self._line, _CANVAS_WIDTH - 2 * _EDGE, _BAR)
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
        title = f"{name} [{unit}]" if unit else str(name)
        words = title, f"{low:.{digits}g}", f"{high:.{digits}g}"
        same = words == (self.title, self.low, self.high)
        if same and self.isVisible() and self._colormap is layer.face_colormap:
            return  # Qt would draw the whole window
        self.title, self.low, self.high = words
        self._colormap = layer.face_colormap
        self._gradient.show_map(self._colormap.map)
        self.show()
        self.raise_()
        self.update()

    def eventFilter(self, watched: Any, event: Any) -> bool:
        """Stay in the corner when the canvas, or what lies below the bar, gets another size."""
        resized = QEvent.Type.LayoutRequest if watched is self.below else QEvent.Type.Resize
        if event.type() == resized:
            self._move()
        return False

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the plate and the words."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), _PLATE)
        painter.setPen(_INK)
        inner = self.rect().adjusted(_EDGE, _EDGE // 2, -_EDGE, -_EDGE // 2)
        line = QRect(inner.topLeft(), QSize(inner.width(), self._line))
        title = self.fontMetrics().elidedText(self.title, Qt.TextElideMode.ElideRight, line.width())
        painter.drawText(line, Qt.AlignmentFlag.AlignHCenter, title)
        line.moveBottom(inner.bottom())
        painter.drawText(line, Qt.AlignmentFlag.AlignLeft, self.low)
        painter.drawText(line, Qt.AlignmentFlag.AlignRight, self.high)

    def _move(self) -> None:
        canvas = self.parentWidget()
        if canvas is None:
            return
        self.move(max(canvas.width() - _CANVAS_WIDTH - _EDGE, 0), _EDGE)
        if self.below is not None:
            top = _EDGE if self.isHidden() else self.geometry().bottom() + _EDGE // 2
            room = QSize(canvas.width() - 2 * _EDGE, canvas.height() - top - _EDGE)
            size = self.below.sizeHint().boundedTo(room)
            self.below.setGeometry(QRect(QPoint(canvas.width() - _EDGE - size.width(), top), size))


class Gradient(QWidget):
    """The colours of a map from left to right.

    Parameters
    ----------
    height : int
        Height in pixels.
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, height: int = 12, parent: QWidget | None = None):
        super().__init__(parent)
        self._colors: list[QColor] = []
        self.setFixedHeight(height)

    def show_map(self, colormap: Callable[[Any], Any]) -> None:
        """Show a map, given as what turns numbers from 0 to 1 into red, green, blue and alpha."""
        colors = np.asarray(colormap(_PLACES), float)
        self._colors = [QColor.fromRgbF(*color) for color in colors.tolist()]
        self.update()

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the colours."""
        gradient = QLinearGradient(0, 0, self.width(), 0)
        for place, color in zip(_PLACES, self._colors, strict=False):
            gradient.setColorAt(place, color)
        QPainter(self).fillRect(self.rect(), gradient)


class Ring(QWidget):
    """A ring in a stop condition's colour, as it is drawn in the viewer."""

    def __init__(self, color: str):
        super().__init__()
        self._color = QColor(color)
        self.setFixedSize(16, 16)

    def show_color(self, color: str) -> None:
        """Draw the ring in another colour."""
        self._color = QColor(color)
        self.update()

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the ring, with a grey edge so that white shows on white."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for color, width in ((QColor(128, 128, 128), 5.0), (self._color, 3.0)):
            painter.setPen(QPen(color, width))
            painter.drawEllipse(QRectF(4, 4, 8, 8))


class Cross(QWidget):
    """The cross of a doubtful fit, as in the viewer."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedSize(16, 16)

    def paintEvent(self, event: QPaintEvent | None) -> None:
        """Draw the cross in a grey that shows on dark and on light."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(144, 144, 144), 2.0))
        painter.drawLine(4, 4, 12, 12)
        painter.drawLine(4, 12, 12, 4)
