"""The scale of the face colours, with the numbers at its ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QWidget

from ...settings.parameter import Parameter
from .gradient import Gradient
from .layout import explain, fill
from .number_box import NumberBox
from .rounding import digits_apart

if TYPE_CHECKING:
    from napari.layers import Points

_END, _SAMPLE = Parameter("Limit", "", "fit", step=0), "-123.4"
_LOW_TIP = "<p>The number from which down the faces have the first colour.</p>"
_HIGH_TIP = "<p>The number from which up the faces have the last colour.</p>"
_AUTO_TIP = (
    "<p>Let the colours run from the 5th to the 95th percentile of the good fits, "
    "anew after every fit. Untick it to keep the numbers as they are, or type your own.</p>"
)


class ColorBar(QWidget):
    """The colours of a Points layer's faces between the two numbers that limit them.

    napari can draw such a bar in the canvas, but crashed when a layer with one was
    removed (0.7.1, 0.8.0 and 0.9.2, on Mesa's OpenGL); and it cannot say the unit.
    """

    #: Other limits were typed, (low, high), or None: they are to be found automatically.
    limits_chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high, self._gradient = (
            NumberBox(_END, sample=_SAMPLE),
            NumberBox(_END, sample=_SAMPLE),
            Gradient(),
        )
        self.auto = QCheckBox("auto")
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
        low, high = limits
        self._put(float(low), float(high))
        self.auto.blockSignals(True)
        self.auto.setChecked(layer.metadata.get("face_limits") is None)
        self.auto.blockSignals(False)
        self._gradient.show_map(layer.face_colormap.map)

    def _put(self, low: float, high: float) -> None:
        """Show two numbers, with enough digits to tell them apart."""
        digits = digits_apart(low, high)
        for box, value in ((self.low, low), (self.high, high)):
            box.digits = digits
            box.show_number(value)

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
