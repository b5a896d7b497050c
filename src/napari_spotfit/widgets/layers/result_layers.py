"""The Points layers with an image's spots: made once, updated by the next fit."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .cells import LABEL, LABELS, with_unknown_labels
from .history import history_of
from .points import (
    color_points_layer,
    is_result,
    layer_name,
    make_points_layer,
    update_points_layer,
)
from .state import LayerState

if TYPE_CHECKING:
    from collections.abc import Hashable

    from napari import Viewer
    from napari.layers import Image, Points

#: In the metadata of a layer, what it was like when a fit had made it.
_MADE = "as_fitted"


class ResultLayers:
    """Knows which layer shows the spots of which image: a layer's metadata say it.

    A new fit of an image updates the layer that an earlier fit of it made, so that
    the layer list stays short and the user's settings of that layer stay. A layer that
    was renamed, or whose points or features were changed since, is the user's: it is
    left alone and the new fit gets a layer of its own.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer
        self._before: LayerState | None = None

    def can_show(self, image: Image) -> bool:
        """Whether the viewer still has an image."""
        return image in self._viewer.layers

    def prepare(self, image: Image, arguments: dict[str, Any]) -> Points:
        """Return the layer with an image's spots, updated if there is one, else new and hidden.

        What napari does for a layer is slow. So it is done in steps, between which the
        viewer can answer: first this, then ``add``, and last the layer is made visible.

        Parameters
        ----------
        image : napari.layers.Image
            The image that was fitted.
        arguments : dict
            From :func:`~napari_spotfit.widgets.layers.points.points_arguments`.
        """
        layer = self.unchanged(image)
        self._before = None if layer is None else LayerState.of(layer)
        if layer is None:
            layer = make_points_layer(arguments, image, layer_name(image))
            layer.visible = False
        else:
            with history_of(self._viewer).pause():
                update_points_layer(layer, with_unknown_labels(arguments, layer), image)
        return layer

    def add(self, layer: Points) -> None:
        """Add a prepared layer, and note in it that it is as a fit left it."""
        if layer in self._viewer.layers:
            color_points_layer(layer)
        else:
            self._viewer.add_layer(layer)
        layer.metadata = {**layer.metadata, _MADE: _fingerprint(layer)}
        history_of(self._viewer).record(layer, self._before, "the last fit of the image")
        self._before = None

    def unchanged(self, image: Image) -> Points | None:
        """Return the layer with an image's spots if it is still as a fit left it."""
        made = (
            layer
            for layer in reversed(self._viewer.layers)
            if _MADE in layer.metadata
            and layer.metadata.get("image") == image.unique_id
            and is_result(layer)
            and layer.metadata[_MADE] == _fingerprint(layer)
        )
        return next(made, None)


def _fingerprint(layer: Points) -> Hashable:
    """Return what changes when the user renames the layer or edits its points."""
    checksum = zlib.crc32(layer.data.tobytes())
    # The spots' labels follow from a Labels layer: they are no edit of the user's.
    names = [name for name in layer.features if name != LABEL or LABELS not in layer.metadata]
    for name in names:
        column = layer.features[name]
        values = column.cat.codes if column.dtype == "category" else column
        values = values.to_numpy()
        if values.dtype == object:
            values = np.array([repr(value) for value in values])
        checksum = zlib.crc32(values.tobytes(), checksum)
    return layer.name, layer.data.shape, tuple(names), checksum
