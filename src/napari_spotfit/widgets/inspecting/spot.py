"""One spot of a layer: its numbers, its frame, and which spot is nearest to a place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...models.columns import REFIT, describe
from ...results.spot_fits import units_of
from ...settings.settings import Settings
from ..layers.result_layers import REFITS, Row
from .sample import roi_of, settings_of

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

#: A point that lies so far in pixels from where its fit ended was moved by hand.
_MOVED = 1e-2
#: So far away, in sides of the ROI, spots may have taken pixels of each other.
_FAR = 2


@dataclass(frozen=True)
class Spot:
    """What a layer says of one of its spots.

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

    @property
    def frame_words(self) -> str:
        """The frame in words; nothing where there is only one."""
        return frame_words(self.index)


def frame_words(index: tuple[int, ...]) -> str:
    """Return a frame's indices in words; nothing where there is only one frame."""
    if len(index) < 2:
        return f"frame {index[0]}" if index else ""
    return f"frame ({', '.join(str(i) for i in index)})"


def spot_of(layer: Points, row: int) -> Spot:
    """Read one row of a layer of fitted spots."""
    return spot_as(Row.of(layer, row), layer, row)


def spot_as(there: Row, layer: Points, row: int) -> Spot:
    """Return what one row of a layer of fitted spots says if this stands there."""
    values = {
        name: float(value)
        for name, value in there.cells.items()
        if isinstance(value, (int, float, np.integer, np.floating))
    }
    settings, units = there.settings, there.units
    names = [shape.name for shape in settings_of({}, settings).profile.shape]
    if REFIT in there.cells:
        # What only the models of other rows have, this one has not.
        known = {name: describe(name) for name in values}
        values = {
            name: value for name, value in values.items()
            if known[name].group != "shape" or (known[name].error_of or name) in names
        }  # fmt: skip
    refitted = settings != layer.metadata.get("settings", {})
    if refitted:
        # Those of the layer are of other fits: of their χ², say.
        units = {name: unit for name, unit in units.items() if "chi_square" not in name}
        units |= units_of(Settings(**settings))
    fitted = all(
        math.isfinite(values.get(name, math.nan)) for name in (*names, "amplitude", "background")
    )
    point = there.point
    return Spot(
        row=row,
        count=len(layer.data),
        index=tuple(int(i) for i in np.rint(point[:-2])),
        values=values,
        stop=str(there.cells.get("stop_condition")),
        settings=settings,
        units=units,
        fitted=fitted,
        moved=fitted and math.dist(point[-2:], (values["y"], values["x"])) > _MOVED,
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
    here = np.rint(layer.world_to_data(viewer.dims.point)).astype(int)
    first = viewer.dims.ndim - layer.ndim
    return tuple(
        index[axis] if first + axis in viewer.dims.displayed else int(here[axis])
        for axis in range(layer.ndim - 2)
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
    # The columns one after the other: there may be millions of rows.
    rows = np.flatnonzero(np.abs(data[:, -2] - place[0]) <= reach[0])
    rows = rows[np.abs(data[rows, -1] - place[1]) <= reach[1]]
    for axis, along in enumerate(index):
        rows = rows[np.abs(data[rows, axis] - along) < 0.5]
    rows = rows[np.broadcast_to(layer.shown, len(data))[rows]]
    if not len(rows):
        return None
    return int(rows[np.argmin(((data[rows, -2:] - place) ** 2).sum(axis=1))])


def places_around(layer: Points, spot: Spot, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return y and x where the fits of a spot and of those around it in its frame began.

    They began in the middle of their regions but for those that were shifted into the image, of
    which the fitted centre tells.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer; spots that it hides have taken their pixels, too.
    spot : Spot
        The spot.
    shape : (int, int)
        Rows and columns of the frame.
    """
    roi = roi_of(spot.values, spot.settings)
    own = np.array([roi.y, roi.x, roi.rows, roi.columns])
    middle = own[:2] + own[2:] // 2
    data, side = layer.data, max(roi.rows, roi.columns)
    rows = np.flatnonzero(np.abs(data[:, -2] - middle[0]) <= _FAR * side)
    rows = rows[np.abs(data[rows, -1] - middle[1]) <= _FAR * side]
    for axis, along in enumerate(spot.index):
        rows = rows[np.abs(data[rows, axis] - along) < 0.5]
    rows = np.concatenate([[spot.row], rows[rows != spot.row]])
    centres: NDArray[np.float64] = np.rint(data[rows, -2:])
    if "roi_y" in layer.features and "roi_x" in layer.features:
        corners = layer.features[["roi_y", "roi_x"]].to_numpy(float)[rows]
        size = _roi_sizes(layer, rows, own[2:])
        corners[0], size[0] = own[:2], own[2:]
        middles = corners + size // 2
        shifted = ((corners == 0) & (centres < middles)) | (
            (corners == np.array(shape) - size) & (centres > middles)
        )
        centres = np.where(shifted | ~np.isfinite(middles), centres, middles)
    return centres


def _roi_sizes(layer: Points, rows: NDArray[np.intp], usual: NDArray[Any]) -> NDArray[np.int64]:
    """Return rows and columns of the ROI of some spots."""
    settings = layer.metadata.get("settings", {})
    known = Settings(**settings).roi_shape if settings.get("roi_size") else usual
    sizes = np.tile(np.array(known, np.int64), (len(rows), 1))
    features = layer.features
    if "roi_size" in features:
        each = features["roi_size"].to_numpy()[rows]
        sizes[np.isfinite(each)] = each[np.isfinite(each), None]
    elif REFIT in features:
        for number, one in enumerate(layer.metadata.get(REFITS, []), 1):
            sizes[features[REFIT].to_numpy()[rows] == number] = Settings(**one).roi_shape
    return sizes


def half_roi(spot: Spot) -> tuple[float, float]:
    """Return half the height and width of a spot's ROI in pixels."""
    roi = roi_of(spot.values, spot.settings)
    return roi.rows / 2, roi.columns / 2
