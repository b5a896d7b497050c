"""Results to Points layers."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...models.stopping import STOP_NAMES
from ...results.spot_fits import SpotFits
from ..napari_compat import follow_no_feature, is_points, refreshed_once, select_points
from .colors import FACE_COLORMAP, STOP_COLORS, color_faces, face_limits
from .hiding import CANVAS_SIZES, show_all
from .images import image_link, transform_arguments
from .maps import NO_MAPS, LayerMaps
from .marks import ANTIALIASING, MARK, draw_marks, is_marked, mark_arguments, mark_metadata

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Image, Layer, Points

_STOP = "stop_condition"
#: What colours the faces of spots whose settings are not known: the first of these they have.
_WIDTHS = ("sigma", "sigma_x", "width", "photons", "amplitude")
#: In the metadata of a layer whose spots are a preview's.
PASSING = "preview"
#: So many rows tell whether a column has stop conditions.
_LOOKED_AT = 1000


def points_arguments(
    fits: SpotFits,
    face: str | None = None,
    colormap: str = FACE_COLORMAP,
    maps: LayerMaps = NO_MAPS,
    *,
    everything: bool = False,
) -> dict[str, Any]:
    """Return what napari's Points are made of, without touching napari.

    Parameters
    ----------
    fits : SpotFits
        Fits with their place in an image.
    face : str, optional
        The column that colours the faces; by default the first of the widths.
    colormap : str
        The colour map of the faces of a new layer.
    maps : LayerMaps
        The layers with what was known of the pixels.
    everything : bool
        Draw invalid fits, too: a layer's points that were not fitted have a place of their own.
    """
    face = face or default_face(fits)
    drawn = fits if everything else fits[fits.valid]
    features = _features(drawn)
    if face not in features:
        raise ValueError(f"face must be a column of the fits, {', '.join(features)}; got {face!r}")
    good = drawn.good
    marks = mark_metadata(drawn.mean_sigma[good])
    limits = {}
    if face != "stop_condition":
        limits["face_contrast_limits"] = face_limits(features[face].to_numpy(), good)
    return {
        "data": drawn.points(),
        "features": features,
        "face_color": face,
        "face_colormap": colormap,
        **limits,
        **mark_arguments(good, marks),
        "metadata": {
            "units": dict(features.attrs["units"]),
            **({} if fits.settings is None else {"settings": fits.settings.to_dict()}),
            "stop_counts": {condition.name: n for condition, n in fits.stop_counts().items()},
            "invalid": len(fits) - len(drawn),
            "face": face,
            **marks,
            "maps": dict(maps.ids),
            "map_names": dict(maps.names),
        },
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
    added = mark_arguments(np.ones(1, bool), layer.metadata)
    layer.current_symbol, layer.current_size = added["symbol"], added["size"]
    layer.current_border_width = added["border_width"]
    return layer


def layer_arguments(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what napari makes a layer of, from :func:`points_arguments`."""
    return {
        **arguments,
        "name": name,
        "ndim": arguments["data"].shape[1],
        "border_color": "stop_condition",
        "border_color_cycle": STOP_COLORS,
        "face_color_cycle": STOP_COLORS,
        "canvas_size_limits": CANVAS_SIZES,
        "antialiasing": ANTIALIASING,
    }


def update_points_layer(layer: Points, arguments: dict[str, Any], image_layer: Image) -> None:
    """Show other spots in a layer that :func:`make_points_layer` made, not yet in their colours.

    What else the user has set (mark, symbol, size, opacity) stays. Then comes
    :func:`color_points_layer`; each takes long enough to be a step of its own.
    """
    marked = is_marked(layer)
    select_points(layer, set())
    # Any colours first: napari would map the old features' in between.
    with refreshed_once(layer):
        follow_no_feature(layer, "face", "border")
        layer.data = arguments["data"]
        layer.features = arguments["features"]
        show_all(layer)
    kept = {MARK: layer.metadata[MARK]} if MARK in layer.metadata else {}
    link = image_link(image_layer)
    layer.metadata = {**layer.metadata, **arguments["metadata"], **link, **kept}
    if marked:
        draw_marks(layer)
    align(layer, image_layer)


def align(layer: Points, image_layer: Image) -> None:
    """Put a layer of spots on its image again, should that have got another transform."""
    earlier = transform_arguments(layer)
    for name, value in transform_arguments(image_layer).items():
        equal = operator.eq if isinstance(value, tuple) else np.array_equal
        # Only where it differs: napari works out all extents anew each time.
        if not equal(value, earlier[name]):
            setattr(layer, name, value)


def color_points_layer(layer: Points) -> None:
    """Colour the spots of an updated layer."""
    with refreshed_once(layer, moved=False):
        layer.border_color = "stop_condition"
        color_faces(layer, layer.metadata["face"])


def default_face(fits: SpotFits) -> str:
    """Return the column that colours the faces unless another is chosen: the first width."""
    if fits.settings is None:
        return next((name for name in _WIDTHS if name in fits), "x")
    return fits.settings.profile.widths[0] if fits.settings.profile.widths else "photons"


def is_result(layer: Layer | None) -> bool:
    """Whether a layer shows fitted spots: ours, or a table of theirs that came another way."""
    if layer is None or not is_points(layer) or _STOP not in layer.features:
        return False
    return "stop_counts" in layer.metadata or _is_table_of_fits(layer.features)


def is_preview(layer: Layer | None) -> bool:
    """Whether a layer shows the spots of a preview, which come and go by themselves."""
    return layer is not None and bool(layer.metadata.get(PASSING))


def stop_counts(layer: Points) -> dict[str, int]:
    """Return how many of a layer's fits ended under each condition."""
    if "stop_counts" in layer.metadata:
        return dict(layer.metadata["stop_counts"])
    counts = layer.features[_STOP].value_counts()
    return {name: int(counts.get(name, 0)) for name in STOP_NAMES}


def _is_table_of_fits(features: pd.DataFrame) -> bool:
    """Whether a table has the columns of fits: those of pasted points, or of napari's own CSV."""
    known = {"y", "x", "amplitude", "background", "photons"} <= set(features)
    return known and bool(features[_STOP].iloc[:_LOOKED_AT].isin(STOP_NAMES).all())


def layer_name(image_layer: Image) -> str:
    """Return the name of the layer with an image's spots."""
    return f"{image_layer.name} spots"


def _features(fits: SpotFits) -> pd.DataFrame:
    """Return the columns as napari colours them: all numbers are floats, not categories."""
    table = fits.to_dataframe()
    # With each column that is taken pandas would copy the units of all: longer than a fit takes.
    told, table.attrs = table.attrs, {}
    for name, dtype in table.dtypes.items():
        if dtype.kind in "iub":
            table[name] = table[name].astype("float32" if dtype.kind == "b" else "float64")
    table.attrs = told
    return table
