"""Results to Points layers and back, and what their columns mean."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...files.table import steps
from ...models.columns import DISTANCE, IN_PLANE, as_column, index_of
from ...models.estimators import STOP_NAMES, StopCondition
from ...results.spot_fits import SpotFits
from ...settings.options import settings_from
from ...settings.settings import Settings
from ..napari_compat import follow_no_feature, is_points, refreshed_once, select_points
from . import appearance
from .images import image_link, transform_arguments
from .maps import NO_MAPS, LayerMaps

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Image, Layer, Points

_STOP, _GOOD = "stop_condition", "good"
#: What colours the faces of spots whose settings are not known: the first of these they have.
_WIDTHS = ("sigma", "sigma_x", "width", "photons", "amplitude")
#: In the metadata of a layer whose spots are a preview's.
PASSING = "preview"
#: In the metadata of a layer, the steps of analysis that its spots went through.
HISTORY = "history"
#: Rows in which a column is checked for stop conditions.
_LOOKED_AT = 1000


def points_arguments(
    fits: SpotFits,
    face: str | None = None,
    colormap: str = appearance.FACE_COLORMAP,
    maps: LayerMaps = NO_MAPS,
    *,
    everything: bool = False,
) -> dict[str, Any]:
    """Return the arguments of napari's Points, without touching napari.

    Parameters
    ----------
    fits : SpotFits
        Fits with their place in an image.
    face : str, optional
        The column that colours the faces; the first of the widths where there is none of this name.
    colormap : str
        The colour map of the faces of a new layer.
    maps : LayerMaps
        The layers that described the pixels.
    everything : bool
        Draw invalid fits, too: a layer's points that were not fitted have a place of their own.
    """
    drawn = fits if everything else fits[fits.valid]
    # As napari colours them: all numbers are floats, not categories. Without attributes, which
    # pandas copies with every column that is read.
    features = drawn.to_dataframe({"b": "float32", "i": "float64", "u": "float64"})
    features.attrs.clear()
    face = face if face in features else default_face(fits)
    good = drawn.accepted
    apart = drawn.columns.get(DISTANCE)
    marks = appearance.mark_metadata(drawn.mean_sigma, good, apart)
    limits = {}
    if face != "stop_condition":
        limits["face_contrast_limits"] = appearance.face_limits(features[face].to_numpy(), good)
    return {
        "data": drawn.points(),
        "features": features,
        "face_color": face,
        "face_colormap": colormap,
        **limits,
        **appearance.mark_arguments(good, marks),
        "metadata": {
            "units": drawn.units,
            **({} if fits.settings is None else {"settings": fits.settings.to_dict()}),
            **({HISTORY: [step.plain() for step in fits.history]} if fits.history else {}),
            "stop_counts": {condition.name: n for condition, n in fits.stop_counts().items()},
            "invalid": len(fits) - len(drawn),
            "face": face,
            **marks,
            "maps": dict(maps.ids),
            "map_names": dict(maps.names),
        },
    }


def layer_arguments(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Return all arguments of a layer, from :func:`points_arguments`."""
    return {
        **arguments,
        "name": name,
        "ndim": arguments["data"].shape[1],
        "border_color": "stop_condition",
        "border_color_cycle": appearance.STOP_COLORS,
        "face_color_cycle": appearance.STOP_COLORS,
        "canvas_size_limits": appearance.CANVAS_SIZES,
        "antialiasing": appearance.ANTIALIASING,
    }


def make_points_layer(arguments: dict[str, Any], image_layer: Image | None, name: str) -> Points:
    """Make a Points layer of :func:`points_arguments` on an image."""
    from napari.layers import Points

    ndim = arguments["data"].shape[1]
    if image_layer is not None and image_layer.ndim != ndim:
        raise ValueError(
            f"the fits have {ndim} axes but “{image_layer.name}” has {image_layer.ndim}: "
            "fit the layer's whole data, and choose frames with frames=…"
        )
    place: dict[str, Any] = {}
    if image_layer is not None:
        metadata = arguments["metadata"] | image_link(image_layer)
        arguments = arguments | {"metadata": metadata}
        place = transform_arguments(image_layer)
    layer = Points(**layer_arguments(arguments, name), **place)
    # What napari's own controls show, and points added by hand get; else a large disc.
    added = appearance.mark_arguments(np.ones(1, bool), layer.metadata)
    layer.current_symbol, layer.current_size = added["symbol"], added["size"]
    layer.current_border_width = added["border_width"]
    return layer


def update_points_layer(
    layer: Points, arguments: dict[str, Any], image_layer: Image | None
) -> None:
    """Show other spots in a layer that :func:`make_points_layer` made, not yet in their colours.

    What else the user has set (mark, symbol, size, opacity) stays. Then comes
    :func:`color_points_layer`; each takes long enough to be a step of its own.
    """
    marked = appearance.is_marked(layer)
    select_points(layer, set())
    # Any colours first: napari would map the old features' in between.
    with refreshed_once(layer):
        follow_no_feature(layer, "face", "border")
        layer.data = arguments["data"]
        layer.features = arguments["features"]
        appearance.show_all(layer)
    kept = (
        {appearance.MARK: layer.metadata[appearance.MARK]}
        if appearance.MARK in layer.metadata
        else {}
    )
    link = {} if image_layer is None else image_link(image_layer)
    layer.metadata = {**layer.metadata, **arguments["metadata"], **link, **kept}
    if marked:
        appearance.draw_marks(layer)
    if image_layer is not None:
        align(layer, image_layer)


def color_points_layer(layer: Points) -> None:
    """Colour the spots of an updated layer."""
    with refreshed_once(layer, moved=False):
        layer.border_color = "stop_condition"
        appearance.color_faces(layer, layer.metadata["face"])


def align(layer: Points, image_layer: Image) -> None:
    """Put a layer of spots on its image again, if the image was moved or scaled."""
    earlier = transform_arguments(layer)
    for name, value in transform_arguments(image_layer).items():
        equal = operator.eq if isinstance(value, tuple) else np.array_equal
        # Only where it differs: napari computes all extents again each time.
        if not equal(value, earlier[name]):
            setattr(layer, name, value)


def default_face(fits: SpotFits) -> str:
    """Return the column that colours the faces unless another is chosen: the first width."""
    if fits.settings is None:
        return width_of(fits)
    return fits.settings.profile.widths[0] if fits.settings.profile.widths else "photons"


def width_of(features: Container[object]) -> str:
    """Return the column that colours the faces of spots whose settings are not known."""
    return next((name for name in _WIDTHS if name in features), "x")


def layer_name(image_layer: Image) -> str:
    """Return the name of the layer with an image's spots."""
    return f"{image_layer.name} spots"


def is_result(layer: Layer | None) -> bool:
    """Whether a layer shows fitted spots: made here, or with the same columns."""
    if layer is None or not is_points(layer) or _STOP not in layer.features:
        return False
    return "stop_counts" in layer.metadata or _is_table_of_fits(layer.features)


def _is_table_of_fits(features: pd.DataFrame) -> bool:
    """Whether a table has the columns of fits: those of pasted points, or of napari's own CSV."""
    known = {"y", "x", "amplitude", "background", "photons"} <= set(features)
    return known and bool(features[_STOP].iloc[:_LOOKED_AT].isin(STOP_NAMES).all())


def is_preview(layer: Layer | None) -> bool:
    """Whether a layer shows the spots of a preview, which come and go."""
    return layer is not None and bool(layer.metadata.get(PASSING))


def fitted_layers(layers: Iterable[Layer]) -> list[Points]:
    """Return the layers of fitted spots among others, without previews."""
    return [one for one in layers if is_result(one) and not is_preview(one)]


def stop_counts(layer: Points) -> dict[str, int]:
    """Return how many of a layer's fits ended under each condition."""
    if "stop_counts" in layer.metadata:
        return dict(layer.metadata["stop_counts"])
    counts = layer.features[_STOP].value_counts()
    return {name: int(counts.get(name, 0)) for name in STOP_NAMES}


def fits_of_features(
    features: pd.DataFrame, metadata: Mapping[str, Any], ndim: int | None = None
) -> SpotFits:
    """Return the fits whose columns are a layer's features.

    Whole numbers, which napari has as floating-point ones, are whole again.

    Parameters
    ----------
    features : pandas.DataFrame
        The features of a layer of fitted spots, and whatever was added to them.
    metadata : mapping
        The layer's metadata.
    ndim : int, optional
        How many axes the layer has; without it none of them is one of channels.
    """
    columns = {
        str(name): _column(str(name), values) for name, values in features.items() if name != _GOOD
    }
    settings = settings_of_layer(metadata)
    index = index_of(columns, None if ndim is None else ndim - axes_of(settings))
    units = metadata.get("units", {}) if settings is None else {}
    history = steps(metadata.get(HISTORY))
    return SpotFits(columns, index, settings, units=units, history=history)


def settings_of_layer(metadata: Mapping[str, Any]) -> Settings | None:
    """Return the settings that a layer's spots were fitted with, if they are known."""
    settings = metadata.get("settings")
    return settings_from(settings) if settings else None


def axes_of(settings: Settings | None) -> int:
    """Return how many spatial axes spots have, by what they were fitted with."""
    return len(IN_PLANE) if settings is None else settings.dimensions


def _column(name: str, values: pd.Series) -> NDArray[Any]:
    if name == _STOP:
        words = values.astype("category").cat
        # A point without a condition, the code -1, was not fitted.
        codes = [
            StopCondition.__members__.get(word, StopCondition.INVALID) for word in words.categories
        ]
        stops = np.array([*codes, StopCondition.INVALID], np.uint8)
        rows: NDArray[np.int8] = words.codes.to_numpy()
        return stops[rows]
    if getattr(values.dtype, "kind", "O") in "fiub":
        return as_column(name, values.to_numpy())
    text: NDArray[Any] = values.to_numpy(object)
    return text
