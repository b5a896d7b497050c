"""The panel of one layer of fitted spots: its image, marks, colours and legend."""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from qtpy.QtCore import QSignalBlocker, Qt, QTimer, Signal
from qtpy.QtWidgets import QFormLayout, QHBoxLayout, QMenu, QPushButton, QWidget
from superqt import QElidingLabel

from ..layers import appearance
from ..layers.history import history_of
from ..layers.images import bind_image, image_of, images_for
from ..layers.points import is_preview, is_result, width_of
from ..parts.boxes import Choice
from ..parts.color_legend import BarOnCanvas, ColorBar
from ..parts.layout import HEADING, Label, add_action, button, fill, sentence
from ..parts.messages import number
from ..result_pages.features import read_units
from ..result_pages.legend import CanvasLegend, Legend
from ..result_pages.shown_spots import ShownSpots
from .image_fit import counts_in_words

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

_TIE_TIP = (
    "<p>Choose the open image that these spots were fitted in, if it has another name; it must "
    "have as many pixels. Then Results shows their data, and can fit them again.</p>"
)
#: The key that hides all spots while it is held down over the canvas.
IMAGE_KEY = "."
OFF = "off"
MARK_TIP = (
    "<p>What marks good fits: a <i>ring</i> through which the spot is seen, a <i>dot</i> or a "
    "<i>cross</i>; doubtful ones are an × independent of this choice. A preview is a <i>halo</i>. "
    "<i>off</i> hides the layer.</p>"
    f"<p>Hold the key <b>{IMAGE_KEY}</b> down over the canvas to see the image without marks.</p>"
)
_FACE_TIP = (
    "<p>What colours the faces of the rings: a fitted quantity, or the stop condition. It is "
    "remembered for the next fit.</p>"
)
_CHANNELS_TIP = (
    "<p>The spots of several images that were fitted together have one colour for each image, or, "
    "as those of one image have, the colour of their fitted width. Borders have that of the stop "
    "condition.</p>"
)
_MAP_TIP = (
    "<p>The colours that stand for the numbers. All maps but <i>turbo</i> rise evenly in "
    "brightness; <i>coolwarm</i> is for numbers that matter on either side of a middle, "
    "and <i>cividis</i> looks alike to all kinds of colour vision. It is remembered for the "
    "next fit.</p>"
)
_SHOWN_TIP = (
    "<p>How many of the layer's spots are shown, and which, in words. The widget Results has more: "
    "limits on every quantity, and these filters for other layers.</p>"
)
_HEADING_TIP = (
    "<p>Show or hide the legend of the spots, which is their filter, and their colours.</p>"
)
#: Least width of a choice in pixels.
_LEAST = 84
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
        #: How many spots are good; unfolds the panel.
        self.heading = button("", _HEADING_TIP, checkable=True)
        self.heading.setStyleSheet(HEADING)
        self.heading.setMinimumWidth(120)
        self.title = QElidingLabel()
        # Names are the user's: what looks like HTML in them is none.
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.title.setStyleSheet("font-weight: bold")
        self.face = Choice("Face colour", _FACE_TIP)
        self.colormap = Choice("Colour map", _MAP_TIP, appearance.COLORMAPS)
        #: The layer's filters, which the widget Results has, too.
        self.spots = ShownSpots(viewer, self)
        self.bar, self.legend = ColorBar(), Legend(self.spots)
        self.on_canvas = BarOnCanvas(self, lambda canvas: CanvasLegend(canvas, self.spots))
        self.marks, self.channels = MarkBox(viewer), ChannelColors(viewer)
        self.shown, self.image = sentence(), ImageTie(viewer)
        self.shown.setToolTip(_SHOWN_TIP)
        for box in (self.marks, self.face, self.colormap):
            box.setObjectName(box.accessibleName())
            box.setMinimumWidth(_LEAST)  # a long name does not widen the panel
        self._lay_out()
        self.face.activated.connect(self._on_face)
        self.colormap.activated.connect(self._on_colormap)
        self.bar.limits_chosen.connect(self._color)
        self.channels.changed.connect(self.look)
        self.spots.replaced.connect(self._on_table)
        self.spots.changed.connect(self._on_shown)
        self.heading.toggled.connect(self._fold)
        self._look = QTimer(self)
        self._look.setInterval(_LOOK)
        self._look.timeout.connect(self.look)
        self.hide()

    def show_layer(self, layer: Points | None) -> None:
        """Describe a layer of fitted spots, or nothing."""
        self.layer = layer
        self.spots.show_layer(layer)
        self.image.look(layer)
        self._fold()
        if layer is None:
            self.on_canvas.show_layer(None)
        else:
            self.title.setText(layer.name)
            self.title.setToolTip(f"<p>{html.escape(layer.name)}</p>")
            self.marks.look(layer)
            self.channels.look()
            self._list_features(layer)
            self._show_colors(layer)

    def _fold(self) -> None:
        """Show the panel or its heading alone, or nothing without a layer."""
        layer, unfolded = self.layer, self.heading.isChecked()
        self.heading.setVisible(layer is not None)
        self.setVisible(layer is not None and unfolded)
        if layer is not None:
            counts = counts_in_words(appearance.good_rows(layer.features))
            what = f"Preview: {counts}" if is_preview(layer) else counts
            self.heading.setText(f"{what} {'▾' if unfolded else '▸'}")

    def look(self) -> None:
        """Show the layer's colours again if they were changed elsewhere."""
        self.marks.look(self.layer)
        self.channels.look()
        self.image.look(self.layer)
        layer, seen = self.layer, self._seen
        if layer is None or seen is None or (now := _colors(layer)) == seen:
            return
        changed = seen.chosen == now.chosen and seen.limits != now.limits
        # Other spots have other limits; what they do not explain was set in the console.
        if changed and now.limits != appearance.automatic_limits(
            layer.features, layer.metadata.get("face")
        ):
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
        self._fold()
        self.legend.show_table()
        self._on_shown()

    def _on_shown(self) -> None:
        self.legend.show_rows()
        shown, filters = self.spots.shown, self.spots.filters
        words = filters.words(self.spots.units)
        between = ": " if len(words) < 2 else "\n"
        text = f"{number(int(shown.sum()))} of {number(len(shown))} shown"
        self.shown.setText(between.join([text, *words]))

    def _list_features(self, layer: Points) -> None:
        names = [*appearance.number_names(layer.features), "stop_condition"]
        texts = [*map(read_units(layer, physical=False).title, names)]
        if appearance.OWN_COLOR in layer.metadata:
            names, texts = [*names, appearance.OWN_COLOR], [*texts, "one colour"]
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
        self.colormap.setEnabled(
            self.face.currentData() not in ("stop_condition", appearance.OWN_COLOR)
        )
        self.bar.show_layer(layer)
        self.on_canvas.show_layer(layer)

    def _on_face(self) -> None:
        self._color()
        if self.face.currentData() != appearance.OWN_COLOR:
            self.face_chosen.emit(self.face.currentData(), self.colormap.currentText())

    def _on_colormap(self) -> None:
        if self.layer is not None:
            self._color(self.layer.metadata.get("face_limits"))
        self.face_chosen.emit(self.face.currentData(), self.colormap.currentText())

    def _color(self, limits: tuple[float, float] | None = None) -> None:
        """Colour the layer's faces as chosen."""
        if self.layer is not None:
            feature = self.face.currentText()
            history_of(self._viewer).record_view(
                self.layer, f"the colours by {feature}", merge=True
            )
            appearance.color_faces(
                self.layer, self.face.currentData(), self.colormap.currentText(), limits
            )
            self._show_colors(self.layer)

    def _lay_out(self) -> None:
        label = Label("Marks")
        label.setToolTip(MARK_TIP)
        label.setBuddy(self.marks)
        colors = fill(QHBoxLayout(), (self.face, 3), (self.colormap, 2), spacing=4)
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setVerticalSpacing(4)
        form.addRow(self.title)
        form.addRow(self.image)
        form.addRow(label, self.marks)
        form.addRow("Colour", colors)
        form.addRow(self.bar)
        form.addRow(self.legend)
        form.addRow(self.shown)


class _Colors(NamedTuple):
    """What the meaning of a layer's face colours depends on."""

    mode: str
    limits: tuple[float, float] | None
    colormap: str
    #: The feature and the limits that were chosen in the panel.
    chosen: tuple[Any, Any]


def _colors(layer: Points) -> _Colors:
    chosen = layer.metadata.get("face"), layer.metadata.get("face_limits")
    mode, limits = str(layer.face_color_mode), layer.face_contrast_limits
    return _Colors(mode, limits, layer.face_colormap.name, chosen)


class ChannelColors(QPushButton):
    """Colours the spots of several images by what was fitted, or those of each image alike.

    Hidden where no results have a colour of their own.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    """

    #: The faces of layers have other colours.
    changed = Signal()

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self.setToolTip(_CHANNELS_TIP)
        self.clicked.connect(self._on_clicked)
        self.hide()

    def look(self) -> None:
        """Offer the colours that the results do not have."""
        layers = self._layers()
        self.setText("Colour by width" if _of_channels(layers) else "Colour by image")
        self.setVisible(bool(layers))

    def _layers(self) -> list[Points]:
        return [layer for layer in self._viewer.layers if appearance.OWN_COLOR in layer.metadata]

    def _on_clicked(self) -> None:
        layers, run = self._layers(), object()
        by_image = not _of_channels(layers)
        for layer in layers:
            feature = appearance.OWN_COLOR if by_image else width_of(layer.features)
            history_of(self._viewer).record_view(layer, "the colours of the images", run=run)
            appearance.color_faces(layer, feature)
        self.look()
        self.changed.emit()


def _of_channels(layers: list[Points]) -> bool:
    return any(layer.metadata.get("face") == appearance.OWN_COLOR for layer in layers)


class MarkBox(Choice):
    """Chooses the mark of the good fits of a layer, or hides the layer.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layer.
    """

    #: The mark that was chosen, also for the next fit.
    chosen = Signal(str)

    def __init__(self, viewer: Viewer):
        super().__init__("Marks", MARK_TIP)
        self._viewer = viewer
        self._layer: Points | None = None
        self.activated.connect(self._on_activated)

    def look(self, layer: Points | None) -> None:
        """Show what marks the spots of a layer now."""
        self._layer = layer
        if layer is None:
            return
        mark = layer.metadata.get(appearance.MARK, "ring")
        names = [*((appearance.PREVIEW,) if mark == appearance.PREVIEW else appearance.MARKS), OFF]
        with QSignalBlocker(self):
            if names != [self.itemText(row) for row in range(self.count())]:
                self.clear()
                self.addItems(names)
            self.setCurrentText(mark if layer.visible else OFF)

    def _on_activated(self) -> None:
        layer, mark = self._layer, self.currentText()
        if layer is None:
            return
        if mark != OFF:
            if mark != layer.metadata.get(appearance.MARK):
                history_of(self._viewer).record_view(layer, "the marks")
            appearance.choose_mark(layer, mark)
            if mark in appearance.MARKS:
                self.chosen.emit(mark)
        layer.visible = mark != OFF


class ImageTie(QWidget):
    """Shows that the image of a layer of spots is not open, and lets it be chosen; else hidden.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    """

    #: A message about what was done.
    said = Signal(str)

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._layer: Points | None = None
        name, self.label = "Choose the image of these spots", sentence()
        self.button = button("Choose it", _TIE_TIP, name=name)
        menu = QMenu(self.button)
        menu.aboutToShow.connect(self._fill)
        self.button.setMenu(menu)
        fill(QHBoxLayout(self), (self.label, 1), self.button)
        self.hide()

    def look(self, layer: Points | None) -> None:
        """Show whether the image of a layer is open now."""
        self._layer, layers = layer, self._viewer.layers
        known = {} if layer is None else layer.metadata
        missing = layer is not None and "image_name" in known and image_of(layer, layers) is None
        self.setVisible(missing)
        if missing and layer is not None:
            self.label.setText(f"Their image “{known['image_name']}” is not open.")
            self.button.setVisible(bool(images_for(layer, layers)))

    def tie(self, image: Image) -> None:
        """Link the spots to an image."""
        if self._layer is not None:
            bind_image(self._layer, image, self._viewer.layers)
            name = self._layer.name
            self.said.emit(f"The spots of “{name}” are of the image “{image.name}” now.")
            self.look(self._layer)

    def _fill(self) -> None:
        menu = self.button.menu()
        assert menu is not None
        menu.clear()
        if self._layer is None:
            return
        for image in images_for(self._layer, self._viewer.layers):
            add_action(menu, image.name, partial(self.tie, image))


def hide_spots(viewer: Viewer) -> Iterator[None]:
    """Hide all fitted spots until the key is released."""
    hidden = [layer for layer in viewer.layers if layer.visible and is_result(layer)]
    for layer in hidden:
        layer.visible = False
    try:
        yield
    finally:
        for layer in hidden:
            layer.visible = True
