"""Where in the viewer a spot is, and how layers lie in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..napari_compat import camera_of

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points


def centre_on(viewer: Viewer, layer: Points, row: int) -> None:
    """Move the sliders to a spot's frame and the camera to the spot; the zoom stays.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer, in 2-D or 3-D.
    layer : napari.layers.Points
        A layer of spots, whatever its transform.
    row : int
        The spot.
    """
    dims, place = viewer.dims, np.asarray(layer.data_to_world(layer.data[row]), float)
    # A layer with fewer axes than the viewer has the viewer's last ones.
    first = dims.ndim - len(place)
    for axis in dims.not_displayed:
        if axis >= first:
            dims.set_point(axis, float(place[axis - first]))
    camera = camera_of(viewer)
    center = list(camera.center)
    for position, axis in enumerate(reversed(dims.displayed), 1):
        if axis >= first:
            center[-position] = float(place[axis - first])
    camera.center = tuple(center)


def matrix_of(transform: Any, ndim: int) -> NDArray[np.float64]:
    """Return an affine transform of napari's as a matrix with the translation as last column."""
    origin = np.asarray(transform(np.zeros(ndim)), float)
    ends = [np.asarray(transform(end), float) - origin for end in np.eye(ndim)]
    return np.column_stack([*ends, origin])
