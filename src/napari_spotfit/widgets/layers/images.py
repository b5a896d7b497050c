"""Image layers as arrays and frames, where layers lie, and how large their pixels are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import PLANES
from ...images.axes import axis_names as names_of_array
from ...images.axes import channel_axis
from ...models.calibration import Calibration
from ...models.number_checks import is_plausible_nm
from ...results.formatting import PixelSize
from ...settings.options import IN_VOLUMES, in_dimensions
from ..napari_compat import is_image, is_points

if TYPE_CHECKING:
    from napari import Viewer
    from napari.components import LayerList
    from napari.layers import Image, Labels, Layer, Points

    from ...results.spot_fits import SpotFits
    from ...settings.settings import Settings

_TRANSFORM = ("scale", "translate", "rotate", "shear", "affine")
#: Names of the events of a layer's place, and of its pixels and their place.
PLACE = (*_TRANSFORM, "units")
CONTENTS = ("data", "paint", "set_data", *_TRANSFORM)
#: In the metadata of an image and of its results: time or z, by axis, for axes without a name.
AXES = "axis_kinds"
#: In the metadata of an image and of its results: whether z is an axis of its spots.
VOLUME = "volume"
#: In the metadata of an image of localisations, the layer that it was rendered from.
RENDERED = "rendered_from"
#: In the metadata of an image of residuals, the layer of spots whose light it is without.
RESIDUAL = "residual_of"
#: Fewer planes than this are no volume.
_LEAST_PLANES = 3
#: Attributes of a layer that place it in the world.
PLACED = (*PLACE, "axis_labels")
#: How the usual units are written.
_SYMBOLS = {"micrometer": "µm", "nanometer": "nm", "millimeter": "mm"}


def full_resolution(layer: Image | Labels) -> Any:
    """Return a layer's array, the finest level if there are several, as the engine takes it.

    Booleans are 0 and 1 then, which only the viewer has for images.

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
    pixels = own_pixels(layer)
    if pixels.dtype != np.bool_ or not is_image(layer):
        return pixels
    if isinstance(pixels, np.ndarray):
        return pixels.view(np.uint8)
    import dask.array

    return (pixels if hasattr(pixels, "dask") else dask.array.from_array(pixels)).astype(np.uint8)


def is_raw(layer: Layer) -> bool:
    """Whether a layer is an image in which spots can be fitted, not made of fits itself."""
    return is_image(layer) and not {RENDERED, RESIDUAL} & set(layer.metadata)


def own_pixels(layer: Image | Labels) -> Any:
    """Return a layer's own array, the finest level if there are several."""
    return layer.data[0] if layer.multiscale else layer.data


def depth_axis(layer: Image) -> int | None:
    """Return the axis before y and x if it is z and has planes enough for a volume."""
    axis = layer.ndim - 3
    if layer.rgb or axis < 0 or axis_names(layer)[axis].lower() not in PLANES:
        return None
    return axis if own_pixels(layer).shape[axis] >= _LEAST_PLANES else None


def is_volume(layer: Image) -> bool:
    """Whether spots are fitted in volumes, not in planes one by one."""
    return bool(layer.metadata.get(VOLUME)) and depth_axis(layer) is not None


def spatial_axes(layer: Image) -> int:
    """Return how many axes the spots of a layer have: 2, or 3 in volumes."""
    return 3 if is_volume(layer) else 2


def in_its_axes(settings: Settings, layer: Image) -> Settings:
    """Return settings of spots in planes or volumes, as a layer has them.

    Raises
    ------
    ValueError
        If the model has no counterpart in volumes, or is a calibration of other pixels.
    """
    if not is_volume(layer):
        if isinstance(settings.model, Calibration) and (pixel := _steps_in_nm(layer, 2)):
            settings.model.check({"voxel_size": (None, *pixel)})
        return settings
    if settings.dimensions == 2 and settings.profile.name not in IN_VOLUMES:
        raise ValueError(
            "in a volume spots are Gaussian or elliptical: choose one of these models, or fit the "
            "planes one by one"
        )
    return in_dimensions(settings, 3, {}).changed(voxel_size=voxel_size(layer))


def set_volume(layer: Image, volume: bool) -> None:
    """Remember whether spots are fitted in volumes."""
    layer.metadata = {**layer.metadata, VOLUME: volume}


def leading_shape(layer: Image) -> tuple[int, ...]:
    """Return the lengths of the axes before those of spots; RGB layers have none to choose from."""
    if layer.rgb:
        return ()
    return tuple(int(length) for length in own_pixels(layer).shape[: -spatial_axes(layer)])


def leading_names(layer: Image) -> tuple[str, ...]:
    """Return names for the axes before y and x, by number where they have none."""
    names = axis_names(layer)[: len(leading_shape(layer))]
    return tuple(f"Axis {axis}" if is_number(name) else name for axis, name in enumerate(names))


def axis_names(layer: Layer) -> tuple[str, ...]:
    """Return the names of a layer's axes: its own, its array's, else those that the user chose."""
    kinds = layer.metadata.get(AXES, {})
    return tuple(
        kinds.get(str(axis), label) if is_number(label) else label
        for axis, label in enumerate(_labels(layer))
    )


def _labels(layer: Layer) -> Sequence[str]:
    """Return the labels of a layer's axes, or those that its array has; numbers where none has."""
    labels: Sequence[str] = layer.axis_labels
    if is_image(layer) and all(map(is_number, labels)):
        return names_of_array(own_pixels(layer)) or labels
    return labels


def channels_of(layer: Image) -> int | None:
    """Return which of a layer's leading axes runs over several channels; None if none does."""
    axis = channel_axis(axis_names(layer))
    return None if axis is None or leading_shape(layer)[axis] < 2 else axis


def planes_of(layer: Layer, fits: SpotFits) -> str:
    """Return the axis of a layer whose planes were fitted one by one; nothing if none was."""
    for name, column in zip(axis_names(layer), fits.index_names, strict=False):
        along = fits.columns[column]
        if name.lower() in PLANES and len(along) and along.min() < along.max():
            return name
    return ""


def unnamed_axes(layer: Image) -> list[int]:
    """Return the axes before y and x that have no name and several indices."""
    lengths = leading_shape(layer)
    labels = _labels(layer)[: len(lengths)]
    return [
        axis
        for axis, (label, length) in enumerate(zip(labels, lengths, strict=True))
        if is_number(label) and length > 1
    ]


def name_axis(layer: Image, axis: int, name: str, layers: LayerList) -> None:
    """Remember in an image, and in the results of its fits, whether an axis is time or z."""
    kinds = {**layer.metadata.get(AXES, {}), str(axis): name}
    layer.metadata = {**layer.metadata, AXES: kinds}
    for points in layers:
        if is_points(points) and points.metadata.get("image") == layer.unique_id:
            points.metadata = {**points.metadata, AXES: kinds}


def recall_axes(layer: Image, layers: LayerList) -> None:
    """Copy what is known of an image's axes from its results to the image."""
    for points in layers:
        if not is_points(points):
            continue
        known = points.metadata
        new = {name: known[name] for name in (AXES, VOLUME) if name in known}
        image = image_of(points, layers)
        if new and image is not None and image is layer:
            layer.metadata = {**new, **layer.metadata}
            return


def is_number(label: str) -> bool:
    """Whether a label is napari's default, a number."""
    return label.lstrip("-").isdigit()


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
    """Return the metadata that link a layer of spots to its image, here and in a file."""
    link: dict[str, Any] = {
        "image": layer.unique_id,
        "image_name": layer.name,
        "image_shape": [int(length) for length in full_resolution(layer).shape],
        "image_file": _file_of(layer),
    }
    return link | {name: layer.metadata[name] for name in (AXES, VOLUME) if name in layer.metadata}


def image_of(points: Points, layers: LayerList) -> Image | None:
    """Return the image layer that spots were fitted in, if it is open.

    For spots from a file it is the one of the right shape with the same name, else the one from a
    file of the same name.
    """
    known = points.metadata
    if "image" in known:
        return next((layer for layer in layers if layer.unique_id == known["image"]), None)
    if "image_name" not in known:
        return None
    alike = images_for(points, layers)
    named = [layer for layer in alike if layer.name == known["image_name"]]
    file = known.get("image_file")
    same = named or [layer for layer in alike if file and _file_of(layer) == file]
    return same[0] if len(same) == 1 else None


def images_for(points: Points, layers: LayerList) -> list[Image]:
    """Return the open images with the shape of the one that spots were fitted in."""
    shape = points.metadata.get("image_shape")
    images = (layer for layer in reversed(layers) if is_raw(layer) and not layer.rgb)
    return [image for image in images if list(full_resolution(image).shape) == shape]


def bind_image(points: Points, image: Image, layers: LayerList) -> None:
    """Link a layer of spots to an image, and its maps to layers of the same names."""
    known = points.metadata
    names = known.get("map_names", {})
    named = {layer.name: str(layer.unique_id) for layer in layers}
    maps = {
        role: named.get(names.get(role, ""), one) for role, one in known.get("maps", {}).items()
    }
    points.metadata = {**known, **image_link(image), "maps": maps}


def _file_of(layer: Image) -> str:
    """Return the name of the file that a layer was read from; nothing if there is none."""
    path = layer.source.path
    return "" if path is None else Path(path).name


def transform_arguments(layer: Layer) -> dict[str, Any]:
    """Return the arguments that put another layer on this one: transform, units, axis labels."""
    values = {name: getattr(layer, name) for name in PLACED}
    return {**values, "affine": np.asarray(layer.affine.affine_matrix)}


def pixel_size(layer: Layer) -> PixelSize | None:
    """Return the size of a layer's pixels; None if the layer has no physical unit."""
    unit, other = (str(unit) for unit in layer.units[-2:])
    if unit != other or unit in ("pixel", "dimensionless"):
        return None
    corners = np.zeros((3, layer.ndim))
    corners[1, -2] = corners[2, -1] = 1
    origin, *ends = (np.asarray(layer.data_to_world(corner)) for corner in corners)
    y, x = (float(np.linalg.norm(end - origin)) for end in ends)
    return PixelSize(y, x, _SYMBOLS.get(unit, unit))


def voxel_size(layer: Layer) -> tuple[float, float, float] | None:
    """Return distances of planes, rows and columns in nm; None if they are no plausible lengths."""
    steps = _steps_in_nm(layer, 3) if layer.ndim > 2 else None
    return (
        None
        if steps is None or not all(map(is_plausible_nm, steps))
        else (steps[0], steps[1], steps[2])
    )


def _steps_in_nm(layer: Layer, axes: int) -> tuple[float, ...] | None:
    """Return how far apart pixels are along the last axes, in nm; None without such units."""
    nm = [ratio_of(unit, "nm") for unit in layer.units[-axes:]]
    if None in nm:
        return None
    matrix = matrix_of(layer.data_to_world, layer.ndim)[-axes - 1 : -1, -axes - 1 : -1]
    return tuple(np.linalg.norm(matrix * np.array(nm, float)[:, None], axis=0).tolist())


def ratio_of(unit: Any, other: Any) -> float | None:
    """Return a unit in another one; None for units of different kinds."""
    import pint

    registry: Any = pint.get_application_registry()  # type: ignore[no-untyped-call]
    try:
        return float(registry.Quantity(1, unit).to(other).magnitude)
    except pint.DimensionalityError:
        return None


def matrix_of(transform: Any, ndim: int) -> NDArray[np.float64]:
    """Return an affine transform of napari's as one matrix, its last column the translation."""
    matrix = np.eye(ndim + 1)
    matrix[:-1, -1] = origin = np.asarray(transform(np.zeros(ndim)), float)
    for axis, end in enumerate(np.eye(ndim)):
        matrix[:-1, axis] = np.asarray(transform(end), float) - origin
    return matrix


def events_of(names: Iterable[str], *layers: Layer | None) -> list[Any]:
    """Return events of layers by name, each once, as far as the layers have them."""
    known = dict.fromkeys(layer for layer in layers if layer is not None)
    events = (getattr(layer.events, name, None) for layer in known for name in names)
    return [event for event in events if event is not None]
