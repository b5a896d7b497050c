"""What the colours of fitted spots mean, and the choice of the face colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QFormLayout, QLabel, QWidget
from superqt import QElidingLabel

from ..layers.colors import color_faces
from ..parts.color_bar import ColorBar
from ..parts.legend import Legend
from ..parts.wheel import guard_wheel

if TYPE_CHECKING:
    from napari.layers import Points

_FACE_TIP = (
    "<p>The fitted quantity that colours the rings. The colours run from the 5th to the "
    "95th percentile of the converged fits.</p>"
)


class ResultPanel(QWidget):
    """Face colour and legend of one layer of fitted spots; hidden without one.

    Parameters
    ----------
    parent : QWidget, optional
        Qt parent.
    """

    face_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        self.layer: Points | None = None
        self.title = QElidingLabel()
        self.title.setStyleSheet("font-weight: bold")
        self.face = QComboBox()
        self.face.setObjectName("face")
        self.face.setToolTip(_FACE_TIP)
        self.face.setAccessibleName("Face colour")
        guard_wheel(self.face)
        self.bar, self.legend = ColorBar(), Legend()
        self.bar.setToolTip(_FACE_TIP)
        label, border = QLabel("Face colour"), QLabel("Border")
        label.setToolTip(_FACE_TIP)
        label.setBuddy(self.face)
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.addRow(self.title)
        form.addRow(label, self.face)
        form.addRow(self.bar)
        form.addRow(border, self.legend)
        self.face.activated.connect(self._on_face)
        self.hide()

    def show_layer(self, layer: Points | None) -> None:
        """Describe a layer of fitted spots, or nothing."""
        self.layer = layer
        self.setVisible(layer is not None)
        if layer is None:
            return
        self.title.setText(layer.name)
        self.title.setToolTip(layer.name)
        self.legend.show_counts(layer.metadata["stop_counts"])
        units = layer.metadata.get("units", {})
        self.face.clear()
        for name in layer.features.columns:
            if layer.features[name].dtype.kind == "f":
                unit = f" ({units[name]})" if name in units else ""
                self.face.addItem(f"{name}{unit}", name)
        self.face.setCurrentIndex(max(self.face.findData(layer.metadata.get("face")), 0))
        self.bar.show_layer(layer, units.get(self.face.currentData(), ""))

    def _on_face(self) -> None:
        if self.layer is not None:
            color_faces(self.layer, self.face.currentData())
            self.show_layer(self.layer)
            self.face_chosen.emit(self.face.currentData())
