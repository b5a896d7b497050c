"""Layers that say something of each pixel of an image, as the engine takes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...images.camera import Camera
from ..napari_compat import is_image
from .images import full_resolution
from .masks import search_mask

if TYPE_CHECKING:
    from napari.components import LayerList
    from napari.layers import Image, Layer, Points

#: What a layer may say of the pixels, and the words for it in messages.
ROLES = {
    "mask": "where to search",
    "bad_pixels": "the bad pixels",
    "weights": "the weights",
    "offset": "the camera offset",
    "gain": "the camera gain",
    "variance": "the read-out variance",
}
_CAMERA = ("offset", "gain", "variance")


@dataclass(frozen=True, eq=False)
class LayerMaps:
    """What layers say of the pixels of an image.

    Attributes
    ----------
    read : callable
        Returns it as keyword arguments of ``localize``: ``mask``, ``bad_pixels``, ``weights``
        and ``camera``, as far as there is something to say. It may run in any thread.
    ids : dict of str to str
        The ids of the layers that a fit depends on, by what they say.
    names : dict of str to str
        The names of all layers, by what they say.
    """

    read: Callable[[], dict[str, Any]] = dict
    ids: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


#: Of an image of which no layer says anything.
NO_MAPS = LayerMaps()


def layer_maps(image: Image, layers: Mapping[str, Layer]) -> LayerMaps:
    """Return what layers say of the pixels of an image.

    The layers are looked at here, on the GUI thread; the work is done when the maps are read.

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
                "the image with the spots, or another layer there"
            )
    readers = {role: _reader(role, layer, image) for role, layer in layers.items()}
    ids = {role: str(layer.unique_id) for role, layer in layers.items() if role != "mask"}
    return LayerMaps(partial(_read, readers), ids, {role: one.name for role, one in layers.items()})


def maps_of(points: Points, image: Image, layers: LayerList) -> LayerMaps:
    """Return the maps with which a layer of spots was fitted.

    Raises
    ------
    ValueError
        If some of their layers are gone, or no longer go together with the image.
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
    camera = {role: maps.pop(role) for role in _CAMERA if role in maps}
    return maps | ({"camera": Camera(**camera)} if camera else {})
