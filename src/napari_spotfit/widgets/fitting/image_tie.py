"""The line that says that the image of a result is not open, and lets it be chosen."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QMenu, QPushButton, QWidget

from ..layers.images import bind_image, image_of, images_for
from ..parts.layout import explain, fill, sentence

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

_TIP = (
    "<p>Say which open image these spots were fitted in, should it have another name here; it must "
    "have as many pixels. Then Inspect spot shows their data, and they are fitted again.</p>"
)


class ImageTie(QWidget):
    """Ties a layer of spots to its image; hidden while it knows one that is open.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    """

    #: What was done.
    said = Signal(str)

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._layer: Points | None = None
        self.label, self.button = sentence(), QPushButton("Choose it")
        explain(self.button, "Choose the image of these spots", _TIP)
        menu = QMenu(self.button)
        menu.aboutToShow.connect(self._fill)
        self.button.setMenu(menu)
        fill(QHBoxLayout(self), (self.label, 1), self.button)
        self.hide()

    def show_layer(self, layer: Points | None) -> None:
        """Look at another layer of spots."""
        self._layer = layer
        self.look()

    def look(self) -> None:
        """Say whether the image is open now."""
        layer, layers = self._layer, self._viewer.layers
        known = {} if layer is None else layer.metadata
        missing = layer is not None and "image_name" in known and image_of(layer, layers) is None
        self.setVisible(missing)
        if missing and layer is not None:
            self.label.setText(f"Their image “{known['image_name']}” is not open.")
            self.button.setVisible(bool(images_for(layer, layers)))

    def tie(self, image: Image) -> None:
        """Let the spots be those of an image."""
        if self._layer is not None:
            bind_image(self._layer, image, self._viewer.layers)
            self.said.emit(
                f"The spots of “{self._layer.name}” are of the image “{image.name}” now."
            )
            self.look()

    def _fill(self) -> None:
        menu = self.button.menu()
        assert menu is not None
        menu.clear()
        if self._layer is None:
            return
        for image in images_for(self._layer, self._viewer.layers):
            action = menu.addAction(image.name.replace("&", "&&"))
            assert action is not None
            action.triggered.connect(partial(self._on_triggered, image))

    def _on_triggered(self, image: Image, checked: bool = False) -> None:
        self.tie(image)
