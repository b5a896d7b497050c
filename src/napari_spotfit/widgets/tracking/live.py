"""What a camera sees, as a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...images.arrays import to_host

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image

_NAME = "camera"


class LiveFrames:
    """An image layer of the newest frame, in which fiducials can be clicked.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer; the layer is added with the first frame, and again if it was removed.
    """

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self.layer: Image | None = None

    def show(self, frame: Any) -> None:
        """Show a frame in the place of the one before."""
        pixels, layers = to_host(frame), self._viewer.layers
        if (
            self.layer is not None
            and self.layer in layers
            and self.layer.data.shape == pixels.shape
        ):
            self.layer.data = pixels
            return
        selected = set(layers.selection)
        self.layer = self._viewer.add_image(pixels, name=_NAME)
        if selected:
            layers.selection = selected
