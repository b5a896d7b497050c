"""What the colours of fitted spots mean, and the choice of the face colours."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, NamedTuple

from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QLabel, QPushButton, QWidget
from superqt import QElidingLabel

from ..layers.colors import COLORMAPS, automatic_limits, color_faces, number_names
from ..layers.history import history_of
from ..one_to_another import inspect_spot, list_spot
from ..parts.canvas_bar import BarOnCanvas
from ..parts.color_bar import ColorBar
from ..parts.layout import explain, fill, sentence
from ..parts.scrolled import Scrolled
from ..parts.status import number
from ..parts.wheel import guard_wheel
from ..table.legend import CanvasLegend, Legend
from ..table.shown_spots import ShownSpots
from .image_tie import ImageTie
from .mark_box import MARK_TIP, MarkBox

if TYPE_CHECKING:
    from collections.abc import Callable

    from napari import Viewer
    from napari.layers import Points

_FACE_TIP = (
    "<p>What colours the faces of the rings: a fitted quantity, or the stop condition. It is "
    "remembered for the next fit.</p>"
)
_MAP_TIP = (
    "<p>The colours that stand for the numbers. All maps but <i>turbo</i> rise evenly in "
    "brightness; <i>coolwarm</i> is for numbers that are telling on either side of a middle, "
    "and <i>cividis</i> looks alike to all kinds of colour vision. It is remembered for the "
    "next fit.</p>"
)
_LIST_TIP = "<p>List these spots in the widget <i>Spots</i>, with filters, plots and sums.</p>"
_INSPECT_TIP = (
    "<p>Show data, model and residual of the selected spot, or of the first doubtful one, in the "
    "widget <i>Inspect spot</i>.</p>"
)
_SHOWN_TIP = (
    "<p>How many of the layer's spots are shown, and which, in words. The widget Spots has more: "
    "limits on every quantity, and these filters for other layers.</p>"
)
#: Height in pixels that the legend has in any case, if it is that high.
_LEAST = 72
#: Milliseconds after which the panel looks whether the layer's colours were changed elsewhere:
#: of limits and maps napari has events, but emits none (0.7.1, 0.8.0, 0.9.2).
_LOOK = 500


class ResultPanel(QWidget):
    """Colours, legend and filter of one layer of fitted spots; hidden without one.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layer.
    """

    #: The feature and the colour map that were chosen for the faces.
    face_chosen = Signal(str, str)

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self.layer: Points | None = None
        self._seen: _Colors | None = None
        self.title = QElidingLabel()
        # Names are the user's: what looks like HTML in them is none.
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.title.setStyleSheet("font-weight: bold")
        self.list_button, self.inspect_button = QPushButton("Spots"), QPushButton("Inspect")
        self.face, self.colormap = QComboBox(), QComboBox()
        self.colormap.addItems(COLORMAPS)
        #: The layer's filters, which the widget Spots has, too.
        self.spots = ShownSpots(viewer, self)
        self.bar, self.legend = ColorBar(), Legend(self.spots)
        self.legend_area = Scrolled(self.legend, _LEAST)
        self.on_canvas = BarOnCanvas(self, lambda canvas: CanvasLegend(canvas, self.spots))
        self.marks = MarkBox(viewer)
        self.shown, self.image = sentence(), ImageTie(viewer)
        self.shown.setToolTip(_SHOWN_TIP)
        for box, name, tip in (
            (self.face, "Face colour", _FACE_TIP),
            (self.colormap, "Colour map", _MAP_TIP),
        ):
            box.setObjectName(name)
            explain(box, name, tip)
            guard_wheel(box)
        for box, least in ((self.marks, 4), (self.face, 6), (self.colormap, 4)):
            # A long name does not widen the panel.
            box.setSizeAdjustPolicy(box.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.setMinimumContentsLength(least)
        self._lay_out()
        for button, tip, show in (
            (self.list_button, _LIST_TIP, list_spot),
            (self.inspect_button, _INSPECT_TIP, inspect_spot),
        ):
            button.setToolTip(tip)
            button.clicked.connect(lambda checked=False, show=show: self._go_on(viewer, show))
        self.face.activated.connect(self._on_face)
        self.colormap.activated.connect(self._on_colormap)
        self.bar.limits_chosen.connect(self._on_limits)
        self.spots.replaced.connect(self._on_table)
        self.spots.changed.connect(self._on_shown)
        self._look = QTimer(self)
        self._look.setInterval(_LOOK)
        self._look.timeout.connect(self.look)
        self.hide()

    def show_layer(self, layer: Points | None) -> None:
        """Describe a layer of fitted spots, or nothing."""
        self.layer = layer
        self.spots.show_layer(layer)
        self.image.show_layer(layer)
        self.setVisible(layer is not None)
        if layer is None:
            self.on_canvas.show_layer(None)
        if layer is not None:
            self.title.setText(layer.name)
            self.title.setToolTip(f"<p>{html.escape(layer.name)}</p>")
            self.marks.show_layer(layer)
            self._list_features(layer)
            self._show_colors(layer)

    def _go_on(self, viewer: Viewer, show: Callable[[Viewer, Points], None]) -> None:
        """Show the layer in another widget."""
        if self.layer is not None:
            show(viewer, self.layer)

    def look(self) -> None:
        """Show the layer's colours anew if they were changed elsewhere."""
        self.marks.look()
        self.image.look()
        layer, seen = self.layer, self._seen
        if layer is None or seen is None or (now := _colors(layer)) == seen:
            return
        changed = seen.chosen == now.chosen and seen.limits != now.limits
        # Other spots have other limits; what they do not explain was set in the console.
        if changed and now.limits != automatic_limits(layer.features, layer.metadata.get("face")):
            layer.metadata = {**layer.metadata, "face_limits": now.limits}
        self._show_colors(layer)

    def showEvent(self, event: Any) -> None:
        """Look at the layer from time to time while the panel is seen."""
        super().showEvent(event)
        self._look.start()

    def hideEvent(self, event: Any) -> None:
        """Rest."""
        super().hideEvent(event)
        self._look.stop()

    def _on_table(self) -> None:
        self.legend.show_table()
        self._on_shown()

    def _on_shown(self) -> None:
        self.legend.show_rows()
        shown, filters = self.spots.shown, self.spots.filters
        text = f"{number(int(shown.sum()))} of {number(len(shown))} shown"
        self.shown.setText(f"{text}: {filters.in_words(self.spots.units)}" if filters else text)

    def _list_features(self, layer: Points) -> None:
        units = layer.metadata.get("units", {})
        names = [*number_names(layer.features), "stop_condition"]
        texts = [f"{name} ({units[name]})" if name in units else str(name) for name in names]
        if texts != [self.face.itemText(row) for row in range(self.face.count())]:
            self.face.clear()
            for text, name in zip(texts, names, strict=True):
                self.face.addItem(text, name)
            view = self.face.view()
            assert view is not None
            view.setMinimumWidth(view.sizeHintForColumn(0) + 24)

    def _show_colors(self, layer: Points) -> None:
        self._seen = _colors(layer)
        self.face.setCurrentIndex(max(self.face.findData(layer.metadata.get("face")), 0))
        name = layer.face_colormap.name
        if self.colormap.findText(name) < 0:
            self.colormap.addItem(name)
        self.colormap.setCurrentText(name)
        self.colormap.setEnabled(self.face.currentData() != "stop_condition")
        self.bar.show_layer(layer)
        self.on_canvas.show_layer(layer)

    def _on_face(self) -> None:
        self._color()
        self.face_chosen.emit(self.face.currentData(), self.colormap.currentText())

    def _on_colormap(self) -> None:
        if self.layer is not None:
            self._color(self.layer.metadata.get("face_limits"))
        self.face_chosen.emit(self.face.currentData(), self.colormap.currentText())

    def _on_limits(self, limits: tuple[float, float] | None) -> None:
        self._color(limits)

    def _color(self, limits: tuple[float, float] | None = None) -> None:
        """Colour the layer's faces as chosen."""
        if self.layer is not None:
            feature = self.face.currentText()
            history_of(self._viewer).record_view(
                self.layer, f"the colours by {feature}", merge=True
            )
            color_faces(self.layer, self.face.currentData(), self.colormap.currentText(), limits)
            self._show_colors(self.layer)

    def _lay_out(self) -> None:
        label = QLabel("Marks")
        label.setToolTip(MARK_TIP)
        label.setBuddy(self.marks)
        row = fill(QHBoxLayout(), (self.marks, 2), (self.face, 4), (self.colormap, 3), spacing=4)
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setVerticalSpacing(4)
        head = fill(
            QHBoxLayout(), (self.title, 1), self.list_button, self.inspect_button, spacing=4
        )
        form.addRow(head)
        form.addRow(self.image)
        form.addRow(label, row)
        form.addRow(self.bar)
        form.addRow(self.legend_area)
        form.addRow(self.shown)


class _Colors(NamedTuple):
    """What tells whether a layer's face colours mean something else now."""

    mode: str
    limits: tuple[float, float] | None
    colormap: str
    #: The feature and the limits that were chosen in the panel.
    chosen: tuple[Any, Any]


def _colors(layer: Points) -> _Colors:
    chosen = layer.metadata.get("face"), layer.metadata.get("face_limits")
    mode, limits = str(layer.face_color_mode), layer.face_contrast_limits
    return _Colors(mode, limits, layer.face_colormap.name, chosen)
