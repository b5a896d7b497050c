"""Read layers as maps of an image's pixels: masks, bad pixels, weights, the camera."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...images.camera import Camera
from ..napari_compat import is_image, is_shapes
from .images import full_resolution, matrix_of

if TYPE_CHECKING:
    from napari.components import LayerList
    from napari.layers import Image, Labels, Layer, Points, Shapes

#: Corners of the polygon that stands for an ellipse.
_ELLIPSE_CORNERS = 90
_CLOSED = ("rectangle", "ellipse", "polygon")
#: The maps that a layer may be, and the words for them in messages.
ROLES = {
    "mask": "where to search",
    "bad_pixels": "the bad pixels",
    "weights": "the weights",
    "offset": "the camera offset",
    "gain": "the camera gain",
    "variance": "the read-out variance",
}
#: Those that stand for a setting of the camera.
QUANTITIES = ("offset", "gain", "variance")


@dataclass(frozen=True, eq=False)
class LayerMaps:
    """The maps of an image's pixels that layers hold.

    Attributes
    ----------
    read : callable
        Returns the arguments ``mask``, ``bad_pixels``, ``weights`` and ``camera`` of ``localize``,
        those that there are. It may run in any thread.
    ids : dict of str to str
        The ids of the layers that a fit depends on, by role.
    names : dict of str to str
        The names of all layers, by role.
    """

    read: Callable[[], dict[str, Any]] = dict
    ids: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


#: For an image that no layer describes.
NO_MAPS = LayerMaps()


def layer_maps(image: Image, layers: Mapping[str, Layer]) -> LayerMaps:
    """Return the maps of an image's pixels that layers hold.

    The layers are accessed now, on the GUI thread; the work is done when the maps are read.

    Parameters
    ----------
    image : Image
        The image that is searched and fitted.
    layers : mapping of str to Layer
        A layer for each of some of :data:`ROLES`. Where to search, and bad pixels, are Labels
        above zero or Shapes, brought to the image's pixels; bad pixels may be an Image that is
        not zero there, too. All other maps are Images of the same pixels as the image.

    Raises
    ------
    ValueError
        If a layer does not go together with the image.
    """
    for role, layer in layers.items():
        if layer is image:
            raise ValueError(
                f"“{image.name}” is chosen for {ROLES[role]}, so it is not fitted itself; choose "
                "the image with the spots, or another layer for it"
            )
    readers = {role: _reader(role, layer, image) for role, layer in layers.items()}
    ids = {role: str(layer.unique_id) for role, layer in layers.items() if role != "mask"}
    return LayerMaps(partial(_read, readers), ids, {role: one.name for role, one in layers.items()})


def frame_of(mask: Any, index: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the part of a mask that counts for a frame."""
    return np.asarray(mask if mask.ndim == 2 else mask[index])


def maps_of(points: Points, image: Image, layers: LayerList) -> LayerMaps:
    """Return the maps with which a layer of spots was fitted.

    Raises
    ------
    ValueError
        If some of their layers are gone, or do not fit the image any more.
    """
    found = {role: _layer_of(role, points, layers) for role in points.metadata.get("maps", {})}
    if gone := [ROLES[role] for role, layer in found.items() if layer is None]:
        raise ValueError(
            f"The layer with {' and with '.join(gone)} of this fit is gone from the viewer, so "
            "the data cannot be shown as it was fitted. The numbers are those of the fit."
        )
    return layer_maps(image, {role: layer for role, layer in found.items() if layer is not None})


def _layer_of(role: str, points: Points, layers: LayerList) -> Layer | None:
    """Return a layer with a map: by its id, or of spots from a file by its name."""
    known = points.metadata
    if "image" in known:
        by_id = {str(layer.unique_id): layer for layer in layers}
        return by_id.get(known["maps"][role])
    name = known.get("map_names", {}).get(role)
    return next((layer for layer in layers if layer.name == name), None)


def _reader(role: str, layer: Layer, image: Image) -> Callable[[], Any]:
    if not is_image(layer):
        return search_mask(layer, image)
    pixels = _same_pixels(role, layer, image)
    return partial(_not_zero, pixels) if role == "bad_pixels" else partial(_whole, pixels)


def _same_pixels(role: str, layer: Image, image: Image) -> Any:
    """Return a layer's array if it has the shape of a frame or of the image."""
    pixels, shape = full_resolution(layer), tuple(full_resolution(image).shape)
    frame, own = shape[-2:], tuple(pixels.shape)
    if own == shape or (own[-2:] == frame and math.prod(own[:-2]) == 1):
        return pixels
    accepted = " or ".join("×".join(map(str, one)) for one in dict.fromkeys((frame, shape)))
    raise ValueError(
        f"“{layer.name}” has {'×'.join(map(str, own))} pixels, but {ROLES[role]} of "
        f"“{image.name}” must have {accepted}: one for each pixel. Crop the map to the region "
        "that the camera read out"
    )


def _whole(pixels: Any) -> Any:
    """Return one frame as an array in memory, and a stack as it is, which may be lazy."""
    if math.prod(pixels.shape[:-2]) == 1:
        return np.asarray(pixels).reshape(pixels.shape[-2:])
    return pixels


def _not_zero(pixels: Any) -> Any:
    values = _whole(pixels)
    if values.ndim == 2 or isinstance(values, np.ndarray):
        return np.asarray(values) != 0
    import dask.array

    return (values if hasattr(values, "dask") else dask.array.from_array(values)) != 0


def _read(readers: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    maps = {role: read() for role, read in readers.items()}
    camera = {role: maps.pop(role) for role in QUANTITIES if role in maps}
    return maps | ({"camera": Camera(**camera)} if camera else {})


def search_mask(limit: Labels | Shapes, image: Image) -> Callable[[], Any]:
    """Return a function that makes the mask of an image's pixels to search.

    The layers are read now, on the GUI thread; the work is in the function that is
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
    limits, world = (matrix_of(one.data_to_world, one.ndim) for one in (limit, image))
    to_labels = np.linalg.inv(limits) @ _trailing(world, labels.ndim)
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
    of_limit, of_image = (
        _trailing(matrix_of(one.data_to_world, one.ndim), 2) for one in (limit, image)
    )
    matrix = np.linalg.inv(of_image) @ of_limit
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


def _trailing(matrix: NDArray[np.float64], axes: int) -> NDArray[np.float64]:
    """Return the part of a transform that acts on the last axes."""
    return matrix[-axes - 1 :, -axes - 1 :]
