"""Which images are fitted: a list with ticks, which follows the layer list."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from qtpy.QtCore import QSignalBlocker, QSize, Qt, Signal
from qtpy.QtGui import QKeyEvent
from qtpy.QtWidgets import QListWidget, QListWidgetItem, QSizePolicy, QVBoxLayout, QWidget

from ..layers.images import image_of, is_raw
from ..layers.points import is_preview, is_result
from ..parts.docking import Follower
from ..parts.layout import button, explain, fill, sentence, show_text

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Layer

IMAGE_TIP = (
    "<p>The images whose spots are fitted: those selected in the layer list, until you tick some "
    "here. Each is fitted with its own σ and noise.</p><p>Click a name to look at that image: "
    "preview, estimates and clicks are of it.</p>"
)
_PIN_TIP = (
    "<p>Keep these ticks, whichever layers are selected. Without, the images that are selected in "
    "the layer list are ticked here, unless one alone is hidden, or is a map of the camera's "
    "pixels. A tick of yours pins them.</p>"
)
_NONE = "no image"
#: Rows of the list in sight, and pixels around the words of each and around all.
_ROWS, _AROUND, _FRAME = 5, 6, 4


class ImageChoice(QWidget):
    """Ticks the images that are fitted; one of them is the current one.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows them.
    maps : callable
        Returns the layers that describe the images' pixels, which are not fitted themselves.
    """

    #: Another image is the current one.
    changed = Signal()
    #: Other images are ticked.
    ticks_changed = Signal()

    def __init__(self, viewer: Viewer, maps: Callable[[], Iterable[Layer]]):
        super().__init__()
        self._layers, self._maps = viewer.layers, maps
        self._layer: Image | None = None
        self._ticked: list[Image] = []
        #: Earlier current images, the latest last.
        self._earlier: list[ref[Image]] = []
        #: The layers that were selected last.
        self._selected: set[str] = set()
        self._list, self._selection = Follower(self._refresh), Follower(self.follow)
        self.rows, self.skipped = _Rows(), sentence()
        #: Keeps the ticks, whichever layers are selected.
        self.pin = button("Pin", _PIN_TIP, name="Pin the images", checkable=True)
        explain(self.rows, "Images", IMAGE_TIP)
        self.setFocusProxy(self.rows)
        self.skipped.hide()
        fill(QVBoxLayout(self), self.rows, self.skipped, spacing=2)
        self.pin.toggled.connect(self._choose_selected)
        self.rows.itemChanged.connect(self._on_tick)
        self.rows.named.connect(self._on_name)

    @property
    def layer(self) -> Image | None:
        """The current image, one of those that are ticked; set, it is ticked alone."""
        return self._layer

    @layer.setter
    def layer(self, layer: Image) -> None:
        self._choose([layer], layer)

    @property
    def ticked(self) -> list[Image]:
        """The images that are fitted, as they lie in the viewer, the lowest first."""
        return [layer for layer in self._layers if layer in self._ticked]

    def tick(self, layers: Iterable[Image]) -> None:
        """Tick these images and no others, as the user does, whatever is selected."""
        self.pin.setChecked(True)
        self._choose(list(layers), self._layer)

    def look_at(self, image: Image) -> bool:
        """Look at an image; return whether that is so, as no others are pinned."""
        if image not in self._ticked and self.pin.isChecked():
            return False
        self._choose(self._ticked if image in self._ticked else [image], image)
        return True

    def bind(self) -> None:
        """Follow the viewer's layers, and which of them are selected."""
        events = self._layers.events
        self._list.follow(events.inserted, events.removed, events.reordered, events.renamed)
        self._selection.follow(self._layers.selection.events.changed)
        self._refresh()
        self._choose_selected()

    def unbind(self) -> None:
        """Stop following them."""
        self._list.follow()
        self._selection.follow()

    def leave_maps(self) -> None:
        """Untick images that have become maps; look at that of before if none is left."""
        if any(self._is_map(layer) for layer in self._ticked):
            left = [layer for layer in self._ticked if not self._is_map(layer)]
            self._choose(left or self._first(), self._layer)
        self._show_skipped()

    def follow(self, event: Any = None) -> None:
        """Tick what is selected now, if that has changed and no images are pinned."""
        selected = list(self._layers.selection)
        # A new preview is selected for a moment, and then what was selected before.
        if not selected or any(is_preview(layer) for layer in selected):
            return
        before, self._selected = self._selected, {str(layer.unique_id) for layer in selected}
        if self._selected != before:
            self._choose_selected()

    def _choose_selected(self) -> None:
        selected = [layer for layer in reversed(self._layers) if layer in self._layers.selection]
        self._show_skipped()
        if self.pin.isChecked() or not selected:
            return
        if len(selected) == 1 and is_result(selected[0]):
            image = image_of(selected[0], self._layers)
            if image is not None:
                self.look_at(image)
            return
        images = [one for one in selected if is_raw(one) and not self._is_map(one)]
        if len(selected) == 1:  # one that is added hidden is selected, too
            images = [layer for layer in images if layer.visible]
        if images:
            self._choose(images, self._layer)

    def _show_skipped(self) -> None:
        """Name what is selected beside images and not fitted."""
        selected, known = list(self._layers.selection), list(self._maps())
        words = []
        for layer in selected if len(selected) > 1 and not self.pin.isChecked() else ():
            if is_raw(layer):
                words += [f"“{layer.name}” (it is chosen as a map)"] * self._is_map(layer)
            elif not is_result(layer) and not any(one is layer for one in known):
                words.append(f"“{layer.name}” ({type(layer).__name__}, no raw image)")
        show_text(self.skipped, f"Not fitted: {', '.join(words)}." if words else "")

    def _choose(self, ticked: Sequence[Image], look: Image | None) -> None:
        """Tick images, and look at one of them: if not at that, at the topmost."""
        others = {id(one) for one in ticked} != {id(one) for one in self._ticked}
        self._ticked = [layer for layer in reversed(self._layers) if layer in ticked]
        if look not in self._ticked:
            look = next(iter(self._ticked), None)
        before, self._layer = self._layer, look
        self.rows.show_layers(self._images(), self._ticked, look)
        if look is not None and look is not before:
            earlier = [one for one in self._earlier if one() not in (None, look)]
            self._earlier = [*earlier, ref(look)]
        if others:
            self.ticks_changed.emit()
        if look is not before:
            self.changed.emit()

    def _images(self) -> list[Image]:
        return [layer for layer in reversed(self._layers) if is_raw(layer)]

    def _first(self) -> list[Image]:
        """Return the last current image, else a visible one, but no map if possible."""
        images = self._images()
        earlier = [layer for one in reversed(self._earlier) if (layer := one()) in images]
        listed = [*earlier, *(layer for layer in images if layer.visible), *images]
        first = next((one for one in listed if not self._is_map(one)), next(iter(images), None))
        return [] if first is None else [first]

    def _is_map(self, layer: Layer) -> bool:
        return any(one is layer for one in self._maps())

    def _refresh(self, event: Any = None) -> None:
        """List the images that there are; where no ticked one is left, tick one."""
        left = [layer for layer in self._ticked if layer in self._layers]
        if not left and (self._ticked or not self.pin.isChecked()):
            self.pin.setChecked(False)
            left = self._first()
        self._choose(left, self._layer)

    def _on_tick(self) -> None:
        """Take a tick of the user's, which pins all of them."""
        self.tick(layer for layer in self.rows.ticked() if layer in self._layers)

    def _on_name(self, layer: Image) -> None:
        """Look at the image that was clicked, which is ticked alone if it was not before."""
        self._choose(self._ticked if layer in self._ticked else [layer], layer)


class _Rows(QListWidget):
    """The images with their ticks, as high as they are, up to a few rows."""

    #: The image whose name was clicked, or on which Return was pressed.
    named = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._listed: list[tuple[Image, str]] = []
        self._before = Qt.CheckState.Unchecked
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.itemPressed.connect(self._on_pressed)
        self.itemClicked.connect(self._on_clicked)

    def show_layers(self, layers: list[Image], ticked: list[Image], look: Image | None) -> None:
        """List images, with ticks at some of them; the current one is highlighted."""
        with QSignalBlocker(self):
            listed = [(layer, layer.name) for layer in layers]
            # In the middle of a click the rows must stay.
            if listed != self._listed or not listed:
                self._list(listed)
            for row, layer in enumerate(layers):
                on = Qt.CheckState.Checked if layer in ticked else Qt.CheckState.Unchecked
                item = self._row(row)
                item.setCheckState(on)
                item.setSelected(layer is look)
                if layer is look:
                    self.setCurrentItem(item)

    def ticked(self) -> list[Image]:
        """Return the images with a tick."""
        return [
            layer
            for row, (layer, _) in enumerate(self._listed)
            if self._row(row).checkState() == Qt.CheckState.Checked
        ]

    def sizeHint(self) -> QSize:
        """Ask for the height of the rows."""
        rows = min(self.count(), _ROWS)
        height = self.fontMetrics().height() + _AROUND
        return QSize(120, rows * height + 2 * self.frameWidth() + _FRAME)

    def minimumSizeHint(self) -> QSize:
        """Ask for the same height."""
        return QSize(60, self.sizeHint().height())

    def keyPressEvent(self, event: QKeyEvent | None) -> None:
        """Look at an image with Return; Space ticks it."""
        if event is not None and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._name(self.currentItem())
        else:
            super().keyPressEvent(event)

    def _row(self, row: int) -> QListWidgetItem:
        item = self.item(row)
        assert item is not None
        return item

    def _list(self, listed: list[tuple[Image, str]]) -> None:
        self._listed = listed
        self.clear()
        for layer, name in listed:
            item = QListWidgetItem(name)
            item.setSizeHint(QSize(0, self.fontMetrics().height() + _AROUND))
            item.setToolTip(f"<p>{html.escape(name)}</p>{IMAGE_TIP}")
            item.setData(Qt.ItemDataRole.UserRole, layer)
            self.addItem(item)
        if not listed:
            item = QListWidgetItem(_NONE)
            item.setFlags(Qt.ItemFlag.NoItemFlags)
            self.addItem(item)
        self.updateGeometry()

    def _on_pressed(self, item: QListWidgetItem) -> None:
        self._before = item.checkState()

    def _on_clicked(self, item: QListWidgetItem) -> None:
        if item.checkState() == self._before:  # else the tick was clicked
            self._name(item)

    def _name(self, item: QListWidgetItem | None) -> None:
        if item is not None and (layer := item.data(Qt.ItemDataRole.UserRole)) is not None:
            self.named.emit(layer)
