"""napari's commands that open and save layers of fitted spots, as our files or other programs'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.filters import Filters
from ..files.exchange.image_info import size_of_layer
from ..files.exchange.registry import EXCHANGE, by_content, by_name
from ..files.formats import read, write
from ..files.table import LAYER, SpotTable, StoredColumn, UnreadableFileError
from ..models.columns import REQUIRED
from ..results.formatting import Units
from ..results.saving import fits_of
from .layers import appearance
from .layers.history import history_of
from .layers.images import AXES, PLACED, VOLUME, transform_arguments
from .layers.points import fits_of_features, is_result, layer_arguments, points_arguments
from .layers.result_layers import REFITS
from .layers.selection import bring_into_sight
from .napari_compat import LayerData, open_viewer

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

#: The metadata of a layer that a file keeps beside the settings, which it has anyway.
_KEPT_METADATA = (
    "units", "stop_counts", "invalid", "face", "face_limits", "filters", "summary", "maps",
    "map_names", "frames", "labels", AXES, VOLUME, REFITS, appearance.MARK, appearance.SIGMA,
    appearance.DENSE, appearance.OWN_COLOR,
)  # fmt: skip
#: The metadata of the image.
_IMAGE = ("name", "shape", "file")
#: How a layer looks, as napari names it.
_LOOK = ("opacity", "blending", "visible", "face_contrast_limits")
#: In the metadata of a layer, the file in which it is kept until it is saved.
KEPT = "kept_for_recovery"
#: Columns of a file: whether a point is shown, and its position where it was moved by hand.
_SHOWN, _MOVED = "_shown", "_point_{}"


def write_parquet(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save a layer of fitted spots as Parquet; what napari calls for *File ▸ Save*.

    Raises
    ------
    RuntimeError
        If the layer has no fitted spots; napari would not show a ValueError.
    ImportError
        If pyarrow is missing.
    OSError
        If the file cannot be written.
    """
    return _write_own_format(path, ".parquet", data, attributes)


def write_csv(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save a layer of fitted spots as CSV; else as :func:`write_parquet`."""
    return _write_own_format(path, ".csv", data, attributes)


def _write_own_format(path: str, ending: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    written = _write(path, f".spots{ending}", ending, None, data, attributes)
    drop_kept(attributes["metadata"])
    return written


def _write(
    path: str, suffix: str, ending: str, format: str | None, data: Any, attributes: dict[str, Any]
) -> list[str]:
    # napari's dialog does not complete a name by the suffix of the chosen kind of file.
    named = path if path.lower().endswith(ending) else path + suffix
    try:
        return [str(write(named, table_of_layer(np.asarray(data), attributes), format))]
    except ValueError as error:  # which napari would not show
        raise RuntimeError(str(error)) from None


def drop_kept(metadata: Mapping[str, Any]) -> None:
    """Delete the file in which a layer was kept for the case of a crash: now it is saved."""
    if KEPT in metadata:
        Path(metadata[KEPT]).unlink(missing_ok=True)


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], list[LayerData]] | None:
    """Return the reader of files of fitted spots, if all files are; napari's entry point."""
    paths = [path] if isinstance(path, str) else path
    is_own = all(one.lower().endswith((".spots.parquet", ".spots.csv")) for one in paths)
    return partial(open_all, read_layer) if is_own else None


def read_layer(path: str) -> LayerData:
    """Return a layer of fitted spots as it was saved.

    Raises
    ------
    ValueError
        If the file is damaged, of a newer version, or something else; the message says which.
    """
    table = read(path)
    try:
        return _layer_data(table, path)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UnreadableFileError(
            f"“{Path(path).name}” cannot be opened: its record of the layer is damaged: {error}"
        ) from None


def open_all(read_one: Callable[[str], LayerData], path: str | list[str]) -> list[Any]:
    """Open files in napari; where one fails, its window says why, and nothing changes."""
    from napari.utils.notifications import show_error

    try:
        layers = [read_one(one) for one in ([path] if isinstance(path, str) else path)]
    except (ImportError, OSError, ValueError) as error:
        if open_viewer() is None:
            raise
        # napari would put it below sentences about other plugins.
        show_error(str(error))
        return [(None,)]
    if (viewer := open_viewer()) is not None:
        history_of(viewer)
        if viewer.layers:  # to the first layer of all, napari moves by itself
            _show_once_added(viewer)
    return layers


def _show_once_added(viewer: Viewer) -> None:
    """Bring the spots that napari is about to add into sight."""

    def on_inserted(event: Any) -> None:
        viewer.layers.events.inserted.disconnect(on_inserted)
        if is_result(event.value):
            bring_into_sight(viewer, event.value)

    viewer.layers.events.inserted.connect(on_inserted)


def attributes_of(layer: Points) -> dict[str, Any]:
    """Return the attributes of a layer for :func:`table_of_layer`, without copying its points."""
    names = ("name", "metadata", "features", "shown", "symbol", "size", "face_colormap", *_LOOK)
    return {name: getattr(layer, name) for name in names} | transform_arguments(layer)


def table_of_layer(
    data: Any, attributes: Mapping[str, Any], rows: NDArray[np.intp] | None = None
) -> SpotTable:
    """Return the table that a file of a layer holds.

    Parameters
    ----------
    data : ndarray, shape (n, ndim)
        The layer's points.
    attributes : mapping
        The other attributes of the layer.
    rows : ndarray of int, optional
        The points to save, in order; the file shows all of them. By default all, as they are.
    """
    features, metadata = attributes["features"], attributes["metadata"]
    missing = [name for name in REQUIRED if name not in features]
    if missing:
        raise ValueError(
            f"“{attributes['name']}” has no fitted spots: its features have no {missing[0]!r}. "
            "Choose the layer of a fit, or save these points as napari's own CSV"
        )
    shown = np.broadcast_to(attributes["shown"], len(data)).astype(bool)
    look = _layer(attributes, len(data))
    if rows is not None:
        data, features, shown = data[rows], features.iloc[rows], np.ones(len(rows), bool)
    fits = fits_of_features(features, metadata, data.shape[1])
    if rows is not None and len(rows) < len(attributes["features"]):
        counts = {condition.name: count for condition, count in fits.stop_counts().items()}
        look["metadata"] |= {"stop_counts": counts, "invalid": 0}
    table = fits.to_table()
    more: dict[str, Any] = {}
    if not shown.all():
        more[_SHOWN] = shown
    if not np.array_equal(data, fits.points()):
        more |= {_MOVED.format(axis): data[:, axis].astype(float) for axis in range(data.shape[1])}
    known = {name: StoredColumn(values.dtype.name, role=LAYER) for name, values in more.items()}
    image = {key: metadata[f"image_{key}"] for key in _IMAGE if f"image_{key}" in metadata}
    about = replace(
        table.about, columns={**table.about.columns, **known}, image=image or None, layer=look
    )
    return SpotTable({**table.columns, **more}, about)


def _layer(attributes: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the place, look and metadata of a layer as plain values."""
    metadata = attributes["metadata"]
    sizes = appearance.sizes_when_shown(attributes["size"], metadata, count)
    size = float(sizes[0]) if count and (sizes == sizes[0]).all() else None
    symbols = appearance.names_of(attributes["symbol"])
    return {
        "name": attributes["name"],
        **{name: _plain(attributes[name]) for name in (*PLACED, *_LOOK) if name in attributes},
        "size": size,
        # Those of good and doubtful fits follow from the fits.
        "symbol": None
        if len(symbols) != 1 or symbols <= appearance.own_symbols(metadata)
        else symbols.pop(),
        "features": [str(name) for name in attributes["features"]],
        "face_colormap": _colormap_name(attributes["face_colormap"]),
        # For people who read the file; the layer's own are in its metadata.
        "filter": _filter_in_words(metadata),
        "metadata": {name: metadata[name] for name in _KEPT_METADATA if name in metadata},
    }


def _layer_data(table: SpotTable, path: str) -> LayerData:
    """Return the layer of a file as napari's readers return it."""
    fits, about = fits_of(table), table.about
    layer: Mapping[str, Any] = about.layer or {}
    metadata = dict(layer.get("metadata", {}))
    face = metadata.get("face")
    made = points_arguments(
        fits,
        face,
        _known_colormap(layer.get("face_colormap")),
        everything=about.layer is not None,
    )
    made["metadata"] |= metadata
    made["metadata"] |= {f"image_{name}": value for name, value in (about.image or {}).items()}
    if face == appearance.OWN_COLOR and isinstance(metadata.get(appearance.OWN_COLOR), str):
        made["face_color"] = metadata[appearance.OWN_COLOR]
    if about.layer is not None:
        made |= appearance.mark_arguments(fits.accepted, made["metadata"])
    if "features" in layer:
        made["features"] = made["features"][[n for n in layer["features"] if n in made["features"]]]
    if _MOVED.format(0) in table.columns:
        moved = [name for name in table.columns if name.startswith(_MOVED.format(""))]
        made["data"] = np.column_stack([table.columns[name] for name in moved])
    made |= {
        name: layer[name]
        for name in (*PLACED, *_LOOK, "size", "symbol")
        if layer.get(name) is not None
    }
    arguments = layer_arguments(made, str(layer.get("name", _stem(path))))
    if _SHOWN in table.columns:
        arguments |= appearance.hidden_arguments(arguments, table.columns[_SHOWN])
    return arguments.pop("data"), arguments, "points"


def _filter_in_words(metadata: Mapping[str, Any]) -> str:
    try:
        filters = Filters.from_dict(metadata.get("filters", {}))
    except ValueError:
        filters = Filters()
    return filters.in_words(Units(metadata.get("units", {})))


def _plain(value: Any) -> Any:
    """Return a transform, units or a plain value as JSON has them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _colormap_name(colormap: Any) -> str:
    name = colormap.get("name") if isinstance(colormap, Mapping) else colormap
    return str(getattr(name, "name", name))


def _known_colormap(name: Any) -> str:
    """Return a colour map that napari has."""
    from napari.utils.colormaps import AVAILABLE_COLORMAPS

    return (
        name if isinstance(name, str) and name in AVAILABLE_COLORMAPS else appearance.FACE_COLORMAP
    )


def _stem(path: str) -> str:
    """Return the name of a layer whose file has none."""
    name = Path(path).name
    return name[: name.lower().rfind(".spots.")] or name


def get_exchange_reader(path: str | list[str]) -> Callable[[str | list[str]], list[Any]] | None:
    """Return the reader of other programs' files, if all files are; napari's entry point.

    Both the name of a file and its contents must be of their format.
    """
    paths = [Path(one) for one in ([path] if isinstance(path, str) else path)]
    return partial(open_all, read_localisations) if all(map(_is_exchange_file, paths)) else None


def read_localisations(
    path: str, format: str | None = None, pixel_size: float | None = None
) -> LayerData:
    """Return a layer of the localisations of another program, to scale where that is known.

    Parameters
    ----------
    path : str
        The file.
    format : str, optional
        The name of its format.
    pixel_size : float, optional
        Size of a pixel in nm; by default that of the viewer's image, if the file needs it.
    """
    table = read(path, format, pixel_size=pixel_size or pixel_size_of_images())
    arguments = layer_arguments(points_arguments(fits_of(table)), name_of_layer(path))
    arguments |= dict(table.about.layer or {})
    return arguments.pop("data"), arguments, "points"


def __getattr__(name: str) -> Callable[[str, Any, dict[str, Any]], list[str]]:
    """Return ``write_FORMAT``, which saves a layer of spots for another program.

    napari calls it for *File ▸ Save*. It raises a RuntimeError if the layer has no fitted spots,
    or if the size of a pixel is needed and not known.
    """
    format = name.removeprefix("write_")
    if name == format or format not in EXCHANGE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    suffix = EXCHANGE[format].suffix
    return lambda path, data, attributes: _write(path, suffix, suffix, format, data, attributes)


def _is_exchange_file(path: Path) -> bool:
    named = by_name(path)
    if named is None or not path.is_file() or not fnmatchcase(path.name.lower(), named.pattern):
        return False
    return by_content(path) is named


def pixel_size_of_images() -> tuple[float, float] | None:
    """Return the size in nm of the pixels of the viewer's images, if they have one and one only."""
    viewer = open_viewer()
    if viewer is None:
        return None
    from napari.layers import Image

    active = viewer.layers.selection.active
    images = [active] if isinstance(active, Image) else list(viewer.layers)
    sizes = {size_of_layer(one.scale, one.units) for one in images if isinstance(one, Image)}
    sizes.discard(None)
    return sizes.pop() if len(sizes) == 1 else None


def name_of_layer(path: str) -> str:
    """Return the name of the layer of a file."""
    name = Path(path).name
    named = by_name(Path(path))
    end = Path(path).suffix if named is None else named.suffix
    return name[: len(name) - len(end)] or name
