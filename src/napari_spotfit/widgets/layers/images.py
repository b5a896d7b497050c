"""Image layers as arrays and frames, and what puts another layer on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..napari_compat import is_image

if TYPE_CHECKING:
    from napari import Viewer
    from napari.components import LayerList
    from napari.layers import Image, Labels, Layer, Points


def full_resolution(layer: Image | Labels) -> Any:
    """Return a layer's array, the finest level if there are several.

    Raises
    ------
    ValueError
        If the layer is RGB.
    """
    if getattr(layer, "rgb", False):
        raise ValueError(
            f"“{layer.name}” is a colour (RGB) image, in which a spot has no single brightness; "
            "choose or make a layer with one channel (right-click the layer ▸ Split RGB)"
        )
    return layer.data[0] if layer.multiscale else layer.data


def leading_shape(layer: Image) -> tuple[int, ...]:
    """Return the lengths of the axes before y and x; RGB layers have none to choose from."""
    if layer.rgb:
        return ()
    return tuple(int(length) for length in full_resolution(layer).shape[:-2])


def leading_names(layer: Image) -> tuple[str, ...]:
    """Return what to call the axes before y and x: the layer's own names where it has some."""
    labels = layer.axis_labels[: len(leading_shape(layer))]
    given = [not label.lstrip("-").isdigit() for label in labels]
    return tuple(
        label if named else f"Axis {axis}"
        for axis, (label, named) in enumerate(zip(labels, given, strict=True))
    )


def current_frame(viewer: Viewer, layer: Image) -> tuple[int, ...]:
    """Return the indices along the leading axes of the frame that the viewer shows.

    Raises
    ------
    ValueError
        If the viewer stands where the layer has no frame.
    """
    lengths = leading_shape(layer)
    indices = np.rint(layer.world_to_data(viewer.dims.point))[: len(lengths)].astype(int)
    if np.any(indices < 0) or np.any(indices >= lengths):
        raise ValueError(
            f"“{layer.name}” has no frame at the current position of the sliders; "
            "move them or choose all frames"
        )
    return tuple(int(index) for index in indices)


def image_link(layer: Image) -> dict[str, Any]:
    """Return the metadata by which a layer of spots knows its image, here and in a file."""
    shape = [int(length) for length in full_resolution(layer).shape]
    return {"image": layer.unique_id, "image_name": layer.name, "image_shape": shape}


def image_of(points: Points, layers: LayerList) -> Image | None:
    """Return the image layer that a layer of fitted spots was made of, if it is still there.

    Of spots from a file it is the one that has the image's name and shape.
    """
    known = points.metadata
    if "image" in known:
        return next((layer for layer in layers if layer.unique_id == known["image"]), None)
    if "image_name" not in known:
        return None
    name, shape = known["image_name"], known.get("image_shape")
    named = [
        layer
        for layer in layers
        if is_image(layer) and layer.name == name and list(full_resolution(layer).shape) == shape
    ]
    return named[0] if len(named) == 1 else None


def transform_arguments(layer: Layer) -> dict[str, Any]:
    """Return what puts another layer on this one: its transform, units and axis labels."""
    names = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
    values = {name: getattr(layer, name) for name in names}
    return {**values, "affine": np.asarray(layer.affine.affine_matrix)}
