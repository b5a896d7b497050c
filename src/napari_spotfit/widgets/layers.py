"""Layers to arrays, and results to layers."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results import SpotFits
from .colors import FACE_COLORMAP, STOP_COLORS, color_faces, face_limits

if TYPE_CHECKING:
    import pandas as pd
    from napari import Viewer
    from napari.layers import Image, Labels, Layer, Points

#: Outer diameter of the rings in σ. Half of it is the hole through which the spot
#: is seen: ±1.75 σ.
_RING = 7.0
#: Width of the ring's border in fractions of its diameter.
_BORDER = 0.06


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


def points_arguments(fits: SpotFits, face: str = "sigma") -> dict[str, Any]:
    """Return what napari's Points are made of, without touching napari.

    Parameters
    ----------
    fits : SpotFits
        Fits with their place in an image.
    face : str
        The column that colours the faces.
    """
    drawn = fits[fits.valid]
    features = _features(drawn)
    if face not in features:
        raise ValueError(f"face must be a column of the fits, {', '.join(features)}; got {face!r}")
    sigmas = drawn.sigma[drawn.converged]
    sigma = float(np.median(sigmas)) if len(sigmas) else 1.3
    limits = {}
    if face != "stop_condition":
        limits["face_contrast_limits"] = face_limits(features[face].to_numpy(), drawn.converged)
    return {
        "data": drawn.points(),
        "features": features,
        "face_color": face,
        **limits,
        "size": round(_RING * sigma, 2),
        "metadata": {
            "units": dict(features.attrs["units"]),
            "stop_counts": {condition.name: n for condition, n in fits.stop_counts().items()},
            "invalid": len(fits) - len(drawn),
            "face": face,
        },
    }


def transform_arguments(layer: Layer) -> dict[str, Any]:
    """Return what puts another layer on this one: its transform, units and axis labels."""
    names = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
    values = {name: getattr(layer, name) for name in names}
    return {**values, "affine": np.asarray(layer.affine.affine_matrix)}


def make_points_layer(arguments: dict[str, Any], image_layer: Image | None, name: str) -> Points:
    """Make a Points layer of :func:`points_arguments` on an image."""
    from napari.layers import Points

    ndim = arguments["data"].shape[1]
    if image_layer is not None and image_layer.ndim != ndim:
        raise ValueError(
            f"the fits have {ndim} axes but “{image_layer.name}” has {image_layer.ndim}: "
            "fit the layer's whole data, and choose frames with frames=…"
        )
    arguments = dict(arguments)
    face = arguments.pop("face_color")
    layer = Points(
        **arguments,
        **(transform_arguments(image_layer) if image_layer is not None else {}),
        name=name,
        ndim=ndim,
        symbol="ring",
        border_width=_BORDER,
        border_color="stop_condition",
        border_color_cycle=STOP_COLORS,
        face_color=face,
        face_colormap=FACE_COLORMAP,
        face_color_cycle=STOP_COLORS,
        canvas_size_limits=(5, 10000),
    )
    return layer


def update_points_layer(layer: Points, arguments: dict[str, Any], image_layer: Image) -> None:
    """Show other spots in a layer that :func:`make_points_layer` made, white as yet.

    What else the user has set (symbol, size, opacity) stays. Then comes
    :func:`color_points_layer`; each takes long enough to be a step of its own.
    """
    # Plain colours first: napari would map the old features' colours in between.
    layer.face_color = layer.border_color = "white"
    layer.selected_data = set()
    layer.data = arguments["data"]
    layer.features = arguments["features"]
    layer.shown = True
    layer.metadata = {**layer.metadata, **arguments["metadata"]}
    earlier = transform_arguments(layer)
    for name, value in transform_arguments(image_layer).items():
        equal = operator.eq if isinstance(value, tuple) else np.array_equal
        # Only where it differs: napari works out all extents anew each time.
        if not equal(value, earlier[name]):
            setattr(layer, name, value)


def color_points_layer(layer: Points) -> None:
    """Colour the spots of an updated layer."""
    layer.border_color = "stop_condition"
    color_faces(layer, layer.metadata["face"])


def to_points_layer(
    fits: SpotFits,
    image_layer: Image | None = None,
    *,
    name: str | None = None,
    face: str = "sigma",
) -> Points:
    """Return a napari layer that shows fitted spots.

    Each spot is a ring around its centre. Its face colour is the fitted σ, its border
    colour the stop condition; hovering shows every other quantity. Invalid fits are
    not drawn.

    Parameters
    ----------
    fits : SpotFits
        Fits with their place in an image, from ``localize`` or ``fit_at``.
    image_layer : napari.layers.Image, optional
        The image that was fitted; the points take over its scale, translation,
        rotation, shear, affine transform, units, axis labels and name.
    name : str, optional
        Name of the layer; the default is made from the image's name.
    face : str, default "sigma"
        The column that colours the faces.

    Returns
    -------
    napari.layers.Points
        Its ``features`` are the columns of `fits`; its ``metadata`` holds their
        ``units``, the ``stop_counts`` and the number of ``invalid`` fits.
    """
    if name is None:
        name = layer_name(image_layer) if image_layer is not None else "spots"
    return make_points_layer(points_arguments(fits, face), image_layer, name)


def layer_name(image_layer: Image) -> str:
    """Return the name of the layer with an image's spots."""
    return f"{image_layer.name} spots"


def _features(fits: SpotFits) -> pd.DataFrame:
    """Return the columns as napari colours them: all numbers are floats, not categories."""
    table = fits.to_dataframe()
    for name in table.columns:
        kind = table[name].dtype.kind
        if kind in "iub":
            table[name] = table[name].astype("float32" if kind == "b" else "float64")
    return table
