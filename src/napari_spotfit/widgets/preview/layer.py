"""The Points layer that shows a preview's spots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..layers.appearance import PREVIEW, color_faces, with_mark
from ..layers.points import (
    PASSING,
    color_points_layer,
    is_result,
    make_points_layer,
    update_points_layer,
)

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

#: A preview is a halo: results are as they were, and shine through it.
_OPACITY = 0.6


class PreviewLayer:
    """One layer, made when it is needed, drawn into again and again, then removed.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows it.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer
        self.layer: Points | None = None
        #: The image on which it lies.
        self.image: Image | None = None

    def draw(self, image: Image, arguments: dict[str, Any]) -> None:
        """Show an image's spots.

        Parameters
        ----------
        image : napari.layers.Image
            The image in which they were found.
        arguments : dict
            From :func:`~napari_spotfit.widgets.layers.points.points_arguments`.
        """
        self.image = image
        if self.layer is None:
            arguments = with_mark(arguments, PREVIEW)
            arguments["metadata"][PASSING] = True
            layer = make_points_layer(arguments, image, f"{image.name} (preview)")
            layer.opacity = _OPACITY
            self._add(layer)
        else:
            self._update(self.layer, image, arguments)
        self._raise(image)

    def empty(self) -> None:
        """Show no spots."""
        if self.layer is not None:
            self.layer.selected_data = set()
            self.layer.face_color_mode = self.layer.border_color_mode = "direct"
            self.layer.data = np.empty((0, self.layer.ndim))
            self.layer.metadata = {**self.layer.metadata, "stop_counts": {}, "invalid": 0}

    def hide(self) -> None:
        """Hide the layer, as Mesa's OpenGL crashes where points of one frame are drawn alone."""
        if self.layer is not None:
            self.layer.visible = False

    def remove(self) -> None:
        """Take the layer away, if it is still there."""
        layer, self.layer, self.image = self.layer, None, None
        if layer is not None and layer in self._viewer.layers:
            self._viewer.layers.remove(layer)

    def _add(self, layer: Points) -> None:
        """Add the layer; what was selected stays so."""
        self.layer = layer
        selection = self._viewer.layers.selection
        active, selected = selection.active, set(selection)
        self._viewer.add_layer(layer)
        selection.clear()
        selection.update(selected)
        selection.active = active

    def _update(self, layer: Points, image: Image, arguments: dict[str, Any]) -> None:
        """Show other spots in the layer; colours that were chosen for it stay."""
        earlier = dict(layer.metadata)
        update_points_layer(layer, arguments, image)
        color_points_layer(layer)
        limits = earlier.get("face_limits")
        if limits is not None and earlier.get("face") == layer.metadata["face"]:
            color_faces(layer, layer.metadata["face"], limits=limits)

    def _raise(self, image: Image) -> None:
        """Keep the layer above the image, and above the results of earlier fits."""
        layers = self._viewer.layers
        if self.layer is not None and self.layer in layers and image in layers:
            place = layers.index(self.layer)
            below = [i for i, one in enumerate(layers) if one is image or is_result(one)]
            if place < max(below):
                layers.move(place, max(below) + 1)
