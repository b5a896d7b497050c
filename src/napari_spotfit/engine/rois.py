"""ROIs of spots: where they lie, which are fitted together, and where their results go.

Each is one call of the library for all ROIs of a block: NumPy takes many steps, each of which waits
for the interpreter, which the blocks of a GPU share.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..settings.settings import Settings
from .cpu.layouts import FoundSpots, RoiParts, RoisOfSpots, SpotCells
from .cpu.library import load
from .detection.candidates import Candidates
from .kernel_arguments import Results, address, row_bytes


def places_of(
    found: Candidates, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number of each spot's frame, and its y and x, shape (n, 2).

    Parameters
    ----------
    found : Candidates
        The spots.
    numbers : ndarray of int64
        Those of the frames in which they were found.

    Examples
    --------
    >>> places, light = np.array([[0, 1], [3, 5], [4, 6]]), np.ones((2, 2), np.float32)
    >>> places_of(Candidates(*places, *light), np.array([7, 9]))
    (array([7, 9]), array([[3., 4.],
           [5., 6.]]))
    """
    count = len(found.frame)
    frame, y, x = (np.ascontiguousarray(one, np.int64) for one in found[:3])
    numbers = np.ascontiguousarray(numbers, np.int64)
    number, places = np.empty(count, np.int64), np.empty((count, 2))
    given = FoundSpots(
        address(frame), address(y), address(x), count,
        address(numbers), address(number), address(places),
    )  # fmt: skip
    load().functions.spotfit_place_spots(ctypes.byref(given))
    return number, places


class Rois(NamedTuple):
    """Where ROIs lie in frames, and where their fits start."""

    #: Frame, first row and first column of each, shape (n, 3).
    corners: NDArray[np.int64]
    #: y and x from a ROI's first pixel, NaN for the other shape parameters.
    start: NDArray[np.float32]


def rois_around(
    frame: NDArray[np.int64],
    places: NDArray[np.float64],
    frame_shape: tuple[int, int],
    roi_shape: tuple[int, ...],
    parameters: int,
) -> Rois:
    """Return the ROIs whose middles are the pixels of spots, but within their frames.

    Parameters
    ----------
    frame : ndarray of int64, shape (n,)
        The spots' frames.
    places : ndarray of float64, shape (n, 2)
        y and x of each, in a frame.
    frame_shape, roi_shape : (int, int)
        Rows and columns of a frame and of a ROI.
    parameters : int
        How many a shape has.

    Examples
    --------
    >>> rois = rois_around(np.array([0, 2]), np.array([[4.5, 0], [9.6, 5]]), (10, 10), (5, 5), 3)
    >>> rois.corners
    array([[0, 2, 0],
           [2, 5, 3]])
    >>> rois.start
    array([[2.5, 0. , nan],
           [4.6, 2. , nan]], dtype=float32)
    """
    count = len(frame)
    frame, places = np.ascontiguousarray(frame, np.int64), np.ascontiguousarray(places, float)
    rois = Rois(np.empty((count, 3), np.int64), np.empty((count, parameters), np.float32))
    given = RoisOfSpots(
        address(frame), address(places), count, *frame_shape, *roi_shape, parameters,
        *map(address, rois),
    )  # fmt: skip
    load().functions.spotfit_place_rois(ctypes.byref(given))
    return rois


class Parts(NamedTuple):
    """ROIs in two parts, one after the other."""

    #: How many are in the first part.
    first: int
    #: Which they were.
    numbers: NDArray[np.int64]
    corners: NDArray[np.int64]
    start: NDArray[np.float32] | None


def in_two_parts(
    second: NDArray[np.bool_],
    corners: NDArray[np.int64],
    start: NDArray[np.float32] | None,
    spots: SpotCells | None = None,
) -> Parts:
    """Return ROIs with those last that a mask names, each part in order.

    Of spots that are given as well, those with neighbours are last, too: they are sorted into their
    cells, and named in the mask.
    """
    count, library = len(second), load()
    numbers = np.empty(count, np.int64)
    corners = np.ascontiguousarray(corners)
    own_corners, own_start = np.empty_like(corners), None
    crowded = None if spots is None else np.empty(count, bool)
    parameters = 0
    if start is not None:
        start = np.ascontiguousarray(start)
        own_start, parameters = np.empty_like(start), start.shape[1]
    given = RoiParts(
        address(second), address(crowded), address(corners), address(start), count, parameters,
        address(numbers), address(own_corners), address(own_start),
    )  # fmt: skip
    first = library.functions.spotfit_part_rois(
        library.index, None if spots is None else ctypes.byref(spots), ctypes.byref(given)
    )
    return Parts(first, numbers, own_corners, own_start)


def put_rows(
    part: Mapping[str, NDArray[Any]],
    rows: NDArray[np.int64] | None,
    columns: Mapping[str, NDArray[Any]],
) -> None:
    """Write columns of a part into rows of all columns, which are of the same types.

    All are C-contiguous. Without rows, the part is as long as the columns.

    Examples
    --------
    >>> columns = {"y": np.zeros(4), "iterations": np.zeros(4, np.uint16)}
    >>> part = {"y": np.array([1.5, 2.5]), "iterations": np.array([7, 8], np.uint16)}
    >>> put_rows(part, np.array([3, 0]), columns)
    >>> columns["y"], columns["iterations"]
    (array([2.5, 0. , 0. , 1.5]), array([8, 0, 0, 7], dtype=uint16))
    """
    places = np.array(
        [
            (address(part[name]), address(column), column.itemsize)
            for name, column in columns.items()
        ],
        np.int64,
    )
    count = len(next(iter(part.values())))
    load().functions.spotfit_put_rows(address(places), len(places), address(rows), count)


class PlacedResults:
    """Results of fits that come in parts, each row in its place.

    Parameters
    ----------
    count : int
        How many fits there are.
    settings : Settings
        What they are made with.
    """

    #: A GPU has orders for what is to be done.
    orders = None

    def __init__(self, count: int, settings: Settings) -> None:
        memory = np.empty(row_bytes(settings) * count, np.uint8)
        self._columns = Results.within(memory, count, settings).columns(settings.profile)

    def put(self, part: Mapping[str, NDArray[Any]], rows: NDArray[np.int64]) -> None:
        """Put the results of some fits where they belong; several threads may."""
        put_rows(part, rows, self._columns)

    def begin(self) -> None:
        """Begin what is ordered: nothing here."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the results of all fits."""
        return self._columns
