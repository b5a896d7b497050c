"""One spot of a layer: its numbers and frame, its neighbours, and which one was clicked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...analysis.group_region import GROUP_REACH
from ...analysis.group_sample import LIGHT, Group, is_joint
from ...analysis.spot_sample import roi_of, settings_of
from ...models.columns import REFIT, describe
from ...results.columns import units_of
from ...settings.options import settings_from
from ..layers.points import axes_of, is_result, settings_of_layer
from ..layers.result_layers import REFITS, Row

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

#: A point farther from its fitted centre than this, in pixels, was moved by hand.
_MOVED = 1e-2
#: Distance, in sides of the ROI, within which spots may have taken pixels of each other.
_FAR = 2
#: A press that moves no further than this, in pixels of the screen, is a click.
_STILL = 4.0


@dataclass(frozen=True)
class Spot:
    """One spot of a layer.

    Attributes
    ----------
    row : int
        Its row in the layer.
    refitted : bool
        Whether it was fitted again with other settings than those of the layer.
    count : int
        How many the layer has.
    index : tuple of int
        Its frame, as indices along the leading axes.
    values : dict of str to float
        Its columns that are numbers.
    stop : str
        The name of its stop condition.
    settings, units : mapping
        What the fit was made with, and the columns' units.
    fitted : bool
        Whether it has the numbers of a fit at all.
    moved : bool
        Whether the point lies elsewhere than the fit's centre.
    """

    row: int
    count: int
    index: tuple[int, ...]
    values: dict[str, float]
    stop: str
    settings: Mapping[str, Any]
    units: Mapping[str, str]
    fitted: bool
    moved: bool
    refitted: bool = False


def frame_words(index: tuple[int, ...]) -> str:
    """Return a frame's indices in words; nothing where there is only one frame."""
    if len(index) < 2:
        return f"frame {index[0]}" if index else ""
    return f"frame ({', '.join(str(i) for i in index)})"


def spot_of(layer: Points, row: int) -> Spot:
    """Read one row of a layer of fitted spots."""
    return spot_as(Row.of(layer, row), layer, row)


def spot_as(content: Row, layer: Points, row: int) -> Spot:
    """Return the spot of a layer whose row has, or would have, this content."""
    values = {
        name: float(value)
        for name, value in content.cells.items()
        if isinstance(value, (int, float, np.integer, np.floating))
    }
    settings, units = content.settings, content.units
    names = [shape.name for shape in settings_of({}, settings).profile.shape]
    if REFIT in content.cells:
        # Without the shape parameters of other rows' models.
        known = {name: describe(name) for name in values}
        values = {
            name: value for name, value in values.items()
            if known[name].group != "shape" or (known[name].error_of or name) in names
        }  # fmt: skip
    refitted = settings != layer.metadata.get("settings", {})
    if refitted:
        # The layer's units belong to other fits: that of χ² may differ.
        units = {name: unit for name, unit in units.items() if "chi_square" not in name}
        units |= units_of(settings_from(settings))
    fitted = all(
        math.isfinite(values.get(name, math.nan)) for name in (*names, "amplitude", "background")
    )
    point, axes = content.point, settings_from(settings).profile.axes
    place = [values.get(axis, math.nan) for axis in axes]
    return Spot(
        row=row,
        count=len(layer.data),
        index=tuple(int(i) for i in np.rint(point[: -len(axes)])),
        values=values,
        stop=str(content.cells.get("stop_condition")),
        settings=settings,
        units=units,
        fitted=fitted,
        moved=fitted and math.dist(point[-len(axes) :], place) > _MOVED,
        refitted=refitted,
    )


def shown_frame(viewer: Viewer, layer: Points, index: tuple[int, ...]) -> tuple[int, ...]:
    """Return the frame of a layer that the viewer shows.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    layer : napari.layers.Points
        The layer.
    index : tuple of int
        Where to stay along leading axes that are displayed as a whole, as in 3-D.
    """
    shown = np.rint(layer.world_to_data(viewer.dims.point)).astype(int)
    axes = axes_of(settings_of_layer(layer.metadata))
    first = viewer.dims.ndim - layer.ndim
    return tuple(
        index[axis] if first + axis in viewer.dims.displayed else int(shown[axis])
        for axis in range(layer.ndim - axes)
    )


def nearest_spot(
    layer: Points, index: tuple[int, ...], place: NDArray[np.float64], reach: tuple[float, float]
) -> int | None:
    """Return the row of the spot that is nearest to a place; None if there is none in reach.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer; spots that it hides do not count.
    index : tuple of int
        The frame.
    place : ndarray, shape (2,)
        y and x in pixels.
    reach : (float, float)
        How far away the spot may be along y and x.
    """
    data = layer.data
    rows = _rows_near(data, index, place, reach)
    rows = rows[np.broadcast_to(layer.shown, len(data))[rows]]
    if not len(rows):
        return None
    return int(rows[np.argmin(((data[rows, -2:] - place) ** 2).sum(axis=1))])


def _rows_near(
    data: NDArray[Any], index: tuple[int, ...], place: Any, reach: tuple[float, float]
) -> NDArray[np.intp]:
    # Column by column: there may be millions of rows.
    rows: NDArray[np.intp] = np.flatnonzero(np.abs(data[:, -2] - place[0]) <= reach[0])
    rows = rows[np.abs(data[rows, -1] - place[1]) <= reach[1]]
    for axis, along in enumerate(index):
        rows = rows[np.abs(data[rows, axis] - along) < 0.5]
    return rows


def positions_around(layer: Points, spot: Spot, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return where the fits of a spot and of those around it in its frame began: (z,) y and x.

    They began in the middle of their regions, except where the region was shifted into the image:
    there the fitted centre stands for the start.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer; its hidden spots count, too.
    spot : Spot
        The spot.
    shape : tuple of int
        That of the frame.
    """
    roi, axes = roi_of(spot.values, spot.settings), settings_from(spot.settings).profile.axes
    corner, own = np.array(roi.corner[-len(axes) :]), np.array(roi.shape[-len(axes) :])
    middle = corner + own // 2
    data, reach = layer.data, float(_FAR * max(roi.rows, roi.columns))
    rows = _rows_near(data, spot.index, middle[-2:], (reach, reach))
    rows = np.concatenate([[spot.row], rows[rows != spot.row]])
    centres: NDArray[np.float64] = np.rint(data[rows, -len(axes) :])
    names = [f"roi_{axis}" for axis in axes]
    if all(name in layer.features for name in names):
        corners = layer.features[names].to_numpy(float)[rows]
        size = _roi_sizes(layer, rows, own)
        corners[0], size[0] = corner, own
        middles = corners + size // 2
        shifted = ((corners == 0) & (centres < middles)) | (
            (corners == np.array(shape) - size) & (centres > middles)
        )
        centres = np.where(shifted | ~np.isfinite(middles), centres, middles)
    return centres


def group_around(layer: Points, spot: Spot) -> Group | None:
    """Return the spots around one that was fitted together with others; else None."""
    settings = settings_of(spot.values, spot.settings)
    if not is_joint(spot.values, settings):
        return None
    axes = settings.profile.axes
    reach = GROUP_REACH * max(settings.roi_shape[-2:]) + LIGHT * settings.known_sigma
    data = layer.data
    rows = _rows_near(data, spot.index, data[spot.row, -2:], (reach, reach))
    rows = np.concatenate([[spot.row], rows[rows != spot.row]])
    columns = {
        str(name): column.to_numpy(float)[rows]
        for name, column in layer.features.items()
        if name in spot.values and column.dtype.kind in "iuf"
    }
    for name, column in columns.items():
        column[0] = spot.values[name]
    names = [one.name for one in settings.profile.shape]
    needed = np.stack([columns[name] for name in (*names, *axes, "amplitude", "background")])
    there = np.isfinite(needed).all(axis=0)
    return Group({name: column[there] for name, column in columns.items()}, settings)


def _roi_sizes(layer: Points, rows: NDArray[np.intp], usual: NDArray[Any]) -> NDArray[np.int64]:
    """Return rows and columns of the ROI of some spots."""
    settings = layer.metadata.get("settings", {})
    known = settings_from(settings).roi_shape if settings.get("roi_size") else usual
    sizes = np.tile(np.array(known, np.int64), (len(rows), 1))
    features = layer.features
    if "roi_size" in features:
        each = features["roi_size"].to_numpy()[rows]
        sizes[np.isfinite(each)] = each[np.isfinite(each), None]
    elif REFIT in features:
        for number, one in enumerate(layer.metadata.get(REFITS, []), 1):
            sizes[features[REFIT].to_numpy()[rows] == number] = settings_from(one).roi_shape
    return sizes


class SpotClick:
    """Finds the spot that was clicked with the left button, without moving the mouse.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer in whose canvas spots are clicked.
    clicked : callable
        Called with the layer and the row.
    """

    def __init__(self, viewer: Viewer, clicked: Callable[[Points, int], None]):
        self._viewer, self._clicked = viewer, clicked

    def bind(self) -> None:
        """Listen to the mouse."""
        self._viewer.mouse_drag_callbacks.append(self._on_press)

    def unbind(self) -> None:
        """Stop listening."""
        if self._on_press in self._viewer.mouse_drag_callbacks:
            self._viewer.mouse_drag_callbacks.remove(self._on_press)

    def _on_press(self, viewer: Viewer, event: Any) -> Iterator[None]:
        active = viewer.layers.selection.active
        if (
            event.button != 1
            or event.modifiers
            or viewer.dims.ndisplay != 2
            or (active is not None and str(active.mode) != "pan_zoom")
        ):
            return
        start = np.array(event.pos, float)
        yield
        while event.type == "mouse_move":
            if math.dist(start, event.pos) > _STILL:
                return
            yield
        # A fast move may come without any event.
        if math.dist(start, event.pos) > _STILL:
            return
        found = spot_at(viewer, event)
        if found is not None:
            self._clicked(*found)


def spot_at(viewer: Viewer, event: Any) -> tuple[Points, int] | None:
    """Return the topmost visible layer of fitted spots below the mouse, and the spot's row."""
    for layer in reversed(viewer.layers):
        if not (is_result(layer) and layer.visible):
            continue
        row = layer.get_value(
            event.position,
            view_direction=event.view_direction,
            dims_displayed=list(event.dims_displayed),
            world=True,
        )
        if row is not None and np.broadcast_to(layer.shown, len(layer.data))[row]:
            return layer, _nearest(layer, int(row), event.position)
    return None


def _nearest(layer: Points, row: int, position: tuple[float, ...]) -> int:
    """Return the spot with the nearest centre: of rings that overlap, napari names the last."""
    place = np.asarray(layer.world_to_data(position))[-2:]
    point = layer.data[row]
    reach = np.abs(point[-2:] - place)
    distance = float(np.hypot(*reach))
    index = tuple(int(i) for i in np.rint(point[:-2]))
    nearest = nearest_spot(layer, index, place, (distance, distance))
    return row if nearest is None else nearest
