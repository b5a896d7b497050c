"""napari's commands that open other programs' localisations, and save spots for them."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..files.exchange.image_info import size_of_layer
from ..files.exchange.registry import EXCHANGE, by_content, by_name
from ..files.formats import read, write
from ..results.load import fits_of
from .layers.points import layer_arguments, points_arguments
from .napari_compat import LayerData, open_viewer
from .saved_layers import open_all, table_of_layer


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], list[Any]] | None:
    """Return what opens other programs' files, if these are such; what napari asks first.

    A file is theirs if both its name and what is in it say so.
    """
    paths = [Path(one) for one in ([path] if isinstance(path, str) else path)]
    return partial(open_all, read_localisations) if all(map(_is_theirs, paths)) else None


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


def _write(format: str, path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save a layer of spots for another program; what napari calls for *File ▸ Save*.

    Raises
    ------
    RuntimeError
        If the layer has no fitted spots, or the size of a pixel is needed and not known; napari
        would not show a ValueError.
    ImportError, OSError
        If a library is missing, or the file cannot be written.
    """
    suffix = EXCHANGE[format].suffix
    # A kind of file that is chosen in napari's dialog does not complete the name.
    named = path if path.lower().endswith(suffix) else path + suffix
    try:
        return [str(write(named, table_of_layer(np.asarray(data), attributes), format))]
    except ValueError as error:
        raise RuntimeError(str(error)) from None


def __getattr__(name: str) -> Callable[..., list[str]]:
    """Return the command ``write_…`` of a format, as napari.yaml names it."""
    format = name.removeprefix("write_")
    if format == name or format not in EXCHANGE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(_write, format)


def _is_theirs(path: Path) -> bool:
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
    """Return what to call the layer of a file."""
    name = Path(path).name
    named = by_name(Path(path))
    end = Path(path).suffix if named is None else named.suffix
    return name[: len(name) - len(end)] or name
