"""Labels and Shapes layers as masks of where to search for spots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..napari_compat import is_shapes
from .images import full_resolution
from .place import matrix_of

if TYPE_CHECKING:
    from napari.layers import Image, Labels, Layer, Shapes

#: Corners of the polygon that stands for an ellipse.
_ELLIPSE_CORNERS = 90
_CLOSED = ("rectangle", "ellipse", "polygon")


def search_mask(limit: Labels | Shapes, image: Image) -> Callable[[], Any]:
    """Return a function that makes the mask of an image's pixels to search.

    The layers are read here, on the GUI thread; the work is in the function that is
    returned, which may run in any thread.

    Parameters
    ----------
    limit : Labels or Shapes
        Labels above zero, or the inside of rectangles, ellipses and polygons. With
        fewer axes than the image it counts for every frame; shapes always do.
    image : Image
        The image to search.

    Returns
    -------
    callable
        Returns a boolean array that broadcasts to the image, lazy if the labels are.

    Raises
    ------
    ValueError
        If the layers cannot be brought together.
    """
    shape = tuple(full_resolution(image).shape)
    if is_shapes(limit):
        polygons = _polygons(limit, image)
        return lambda: _filled(polygons, shape[-2:])
    return _labels_mask(limit, image, shape)


def _labels_mask(limit: Labels, image: Image, shape: tuple[int, ...]) -> Callable[[], Any]:
    labels = full_resolution(limit)
    if labels.ndim > len(shape):
        raise ValueError(
            f"“{limit.name}” has {labels.ndim} axes, more than “{image.name}” with {len(shape)}; "
            "choose labels with as many axes or fewer"
        )
    to_labels = np.linalg.inv(_to_world(limit)) @ _trailing(_to_world(image), labels.ndim)
    same_grid = np.allclose(to_labels, np.eye(labels.ndim + 1), atol=1e-3)
    if same_grid and labels.shape == shape[-labels.ndim :]:
        return lambda: _above_zero(labels, shape)
    if labels.ndim > 2:
        raise ValueError(
            f"“{limit.name}” lies on another grid than “{image.name}”; give it the image's shape, "
            "scale and translation, or choose labels with the axes y and x only"
        )
    return lambda: _resampled(np.asarray(labels), to_labels, shape[-2:])


def _above_zero(labels: Any, shape: tuple[int, ...]) -> Any:
    """Return where labels are above zero: one plane, or as much as the image, but lazy."""
    if labels.ndim == 2:
        return np.asarray(labels) > 0
    import dask.array

    lazy = labels if hasattr(labels, "dask") else dask.array.from_array(labels)
    return dask.array.broadcast_to(lazy > 0, shape)


def _resampled(
    labels: NDArray[Any], matrix: NDArray[np.float64], shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Look every pixel of the image up in labels on another grid; outside is False."""
    pixels = np.indices(shape).reshape(2, -1)
    rows, columns = np.rint(matrix[:2, :2] @ pixels + matrix[:2, 2:]).astype(np.intp)
    inside = (rows >= 0) & (rows < labels.shape[0]) & (columns >= 0) & (columns < labels.shape[1])
    mask = np.zeros(rows.shape, bool)
    mask[inside] = labels[rows[inside], columns[inside]] > 0
    return mask.reshape(shape)


def _polygons(limit: Shapes, image: Image) -> list[NDArray[np.float64]]:
    """Return the closed shapes as corners in the image's pixels."""
    matrix = np.linalg.inv(_trailing(_to_world(image), 2)) @ _trailing(_to_world(limit), 2)
    polygons = []
    for corners, kind in zip(limit.data, limit.shape_type, strict=True):
        if kind in _CLOSED:
            corners = np.asarray(corners, float)[:, -2:]
            corners = _ellipse(corners) if kind == "ellipse" else corners
            polygons.append(corners @ matrix[:2, :2].T + matrix[:2, 2])
    if not polygons:
        raise ValueError(
            f"“{limit.name}” has no rectangle, ellipse or polygon to search in; draw one, "
            "or search the whole image"
        )
    return polygons


def _ellipse(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the outline of the ellipse in a box of four corners."""
    angles = np.linspace(0, 2 * np.pi, _ELLIPSE_CORNERS, endpoint=False)[:, None]
    across, down = (corners[1] - corners[0]) / 2, (corners[3] - corners[0]) / 2
    middle: NDArray[np.float64] = corners.mean(axis=0)
    outline: NDArray[np.float64] = middle + np.cos(angles) * across + np.sin(angles) * down
    return outline


def _filled(polygons: list[NDArray[np.float64]], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    from skimage.draw import polygon

    mask = np.zeros(shape, bool)
    for corners in polygons:
        inside = polygon(corners[:, 0], corners[:, 1], shape)  # type: ignore[no-untyped-call]
        mask[inside] = True
    return mask


def _to_world(layer: Layer) -> NDArray[np.float64]:
    """Return a layer's transform from data to world as one matrix."""
    matrix = np.eye(layer.ndim + 1)
    matrix[:-1] = matrix_of(layer.data_to_world, layer.ndim)
    return matrix


def _trailing(matrix: NDArray[np.float64], axes: int) -> NDArray[np.float64]:
    """Return the part of a transform that acts on the last axes."""
    return matrix[-axes - 1 :, -axes - 1 :]
