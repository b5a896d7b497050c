"""Where in the viewer a spot is, and how layers lie in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..napari_compat import camera_of

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points
    from qtpy.QtWidgets import QWidget


#: The part of the canvas, along each side, in which a spot is in sight.
_IN_SIGHT = 0.9


def go_to(viewer: Viewer, layer: Points, row: int, canvas: QWidget | None = None) -> None:
    """Move the sliders to a spot's frame, and the camera to the spot if it is out of sight.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer, in 2-D or 3-D.
    layer : napari.layers.Points
        A layer of spots, whatever its transform.
    row : int
        The spot.
    canvas : QWidget, optional
        The canvas; where it is not given, or in 3-D, the spot counts as out of sight.
    """
    _show_frame(viewer, layer, row)
    camera, center = camera_of(viewer), _centre(viewer, layer, row)
    if canvas is not None and viewer.dims.ndisplay == 2:
        away = np.abs(np.subtract(center[-2:], camera.center[-2:])) * camera.zoom
        if np.all(away <= _IN_SIGHT / 2 * np.array([canvas.height(), canvas.width()])):
            return
    camera.center = center


def _show_frame(viewer: Viewer, layer: Points, row: int) -> None:
    dims, place = viewer.dims, _world(layer, row)
    first = dims.ndim - len(place)
    for axis in dims.not_displayed:
        if axis >= first:
            dims.set_point(axis, float(place[axis - first]))


def _centre(viewer: Viewer, layer: Points, row: int) -> tuple[float, ...]:
    """Return the camera's centre if it looks at a spot."""
    dims, place = viewer.dims, _world(layer, row)
    first, center = dims.ndim - len(place), list(camera_of(viewer).center)
    for position, axis in enumerate(reversed(dims.displayed), 1):
        if axis >= first:
            center[-position] = float(place[axis - first])
    return tuple(center)


def _world(layer: Points, row: int) -> NDArray[np.float64]:
    """Return where a spot is; a layer with fewer axes than the viewer has its last ones."""
    return np.asarray(layer.data_to_world(layer.data[row]), float)


def matrix_of(transform: Any, ndim: int) -> NDArray[np.float64]:
    """Return an affine transform of napari's as a matrix with the translation as last column."""
    origin = np.asarray(transform(np.zeros(ndim)), float)
    ends = [np.asarray(transform(end), float) - origin for end in np.eye(ndim)]
    return np.column_stack([*ends, origin])
