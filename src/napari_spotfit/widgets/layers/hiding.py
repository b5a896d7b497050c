"""Hide points, also where napari would draw them all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..napari_compat import draws_hidden_points, refreshed_once

if TYPE_CHECKING:
    from napari.layers import Points

#: Diameters in screen pixels between which points are drawn however far one zooms. A smallest
#: one would cover the image of a whole field, and bring back points without a size.
CANVAS_SIZES = (0, 10000)
#: Key of the metadata under which the sizes of hidden points wait.
_KEPT = "sizes_when_shown"


def show_only(layer: Points, shown: NDArray[np.bool_] | bool, ndisplay: int) -> None:
    """Show some points of a layer and hide the others.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer.
    shown : bool or array of bool, shape (n,)
        Which points are shown.
    ndisplay : int
        How many axes the viewer displays.
    """
    all_axes = layer.ndim <= ndisplay
    with refreshed_once(layer, moved=False):
        layer.shown = shown
        if all_axes and not np.all(shown) and draws_hidden_points():
            sizes = sizes_when_shown(layer.size, layer.metadata, len(layer.size))
            layer.metadata = {**layer.metadata, _KEPT: sizes}
            # A point without a size is not drawn, unless there is a smallest size on the canvas.
            layer.canvas_size_limits = (0, layer.canvas_size_limits[1])
            layer.size = np.where(shown, sizes, 0)
        else:
            _restore_sizes(layer)


def show_all(layer: Points) -> None:
    """Show all points of a layer, also those that came since some were hidden."""
    if not np.all(layer.shown):
        layer.shown = True
    _restore_sizes(layer)


def hidden_arguments(arguments: dict[str, Any], shown: NDArray[np.bool_]) -> dict[str, Any]:
    """Return what else napari makes a layer of, some of whose points are hidden.

    Parameters
    ----------
    arguments : dict
        What napari makes the layer of that shows them all.
    shown : array of bool, shape (n,)
        Which points are shown.
    """
    hiding: dict[str, Any] = {"shown": shown}
    # A frame that is a whole layer is displayed with all axes, as long as nobody asks for 3-D.
    if arguments["data"].shape[1] <= 2 and draws_hidden_points():
        sizes = np.broadcast_to(np.asarray(arguments["size"], float), shown.shape)
        hiding["size"] = np.where(shown, sizes, 0)
        hiding["metadata"] = {**arguments["metadata"], _KEPT: sizes.copy()}
    return hiding


def sizes_when_shown(size: Any, metadata: Mapping[str, Any], count: int) -> NDArray[np.float64]:
    """Return the size of every point when it is shown, from what napari knows of a layer."""
    sizes, kept = np.array(np.broadcast_to(size, count), float), metadata.get(_KEPT)
    hidden = sizes <= 0
    if kept is not None and len(kept) == len(sizes):
        sizes[hidden] = kept[hidden]
    elif hidden.any():  # points came or went meanwhile
        known = sizes[~hidden] if kept is None or not len(kept) else kept
        sizes[hidden] = np.median(known)
    return sizes


def set_sizes(layer: Points, sizes: NDArray[np.float64]) -> None:
    """Set the size of every point, of a hidden one for when it is shown."""
    if _KEPT in layer.metadata:
        layer.metadata = {**layer.metadata, _KEPT: np.array(sizes, float)}
        sizes = np.where(layer.shown, sizes, 0)
    layer.size = sizes


def _restore_sizes(layer: Points) -> None:
    if _KEPT in layer.metadata:
        layer.size = sizes_when_shown(layer.size, layer.metadata, len(layer.size))
        layer.metadata.pop(_KEPT)
