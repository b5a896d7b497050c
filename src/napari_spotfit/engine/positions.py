"""Positions of spots: their groups, their ROIs' excluded pixels, and the rows of their fits."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..images.arrays import to_host, to_native
from ..images.frames import inside
from ..models.columns import GROUP, GROUP_SIZE, numbered
from . import threads
from .backend import Block, Positions
from .candidates import Candidates
from .cpu.block_fits import CpuFitter
from .cpu.layouts import (
    HOT_PIXEL,
    NEIGHBOUR_PIXEL,
    PADDING_PIXEL,
    SATURATED_PIXEL,
    FoundSpots,
    LinkedSpots,
)
from .cpu.library import load
from .fit_job import FitJob
from .flags import OF_FIT
from .kernel_arguments import address

Mask = NDArray[np.bool_]
#: The column by which a backend says which position each row came from. No parameter of a model
#: can have this name.
POSITION = "its position"
#: Positions of one thread's share.
_SHARE = 1 << 14

#: Which position each row came from: all, in order, or their numbers.
Rows = slice | NDArray[np.int64]


def places_of(
    found: Candidates, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number of each spot's frame, and its place in it, shape (n, axes).

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
    if found.z is not None:
        return numbers[found.frame], found.places()
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


def scatter_rows(
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
    >>> scatter_rows(part, np.array([3, 0]), columns)
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


class ExcludedPixels(NamedTuple):
    """Pixels of a ROI that its fit excludes, each under one reason."""

    #: First row and first column of the ROI, before these of a volume its first plane.
    corner: tuple[int, ...]
    #: Of the shape of the ROI: named bad by the caller, of weight 0, or no number; at the end of
    #: the camera's range; far above or below all around them; without data; nearer to another spot.
    bad: Mask
    saturated: Mask
    hot: Mask
    padding: Mask
    neighbour: Mask

    @property
    def pixels(self) -> Mask:
        """All of them."""
        return self.bad | self.saturated | self.hot | self.padding | self.neighbour


def excluded_pixels(
    job: FitJob,
    block: Block,
    positions: Positions,
    corner: tuple[int, ...] | None = None,
    bad: Mask | None = None,
) -> ExcludedPixels:
    """Return the pixels of the ROI around the first of some positions that its fit excludes.

    Parameters
    ----------
    job, block, positions
        As :meth:`~.backend.Backend.fit` takes them; one frame, and all of its positions.
    corner : tuple of int, optional
        First pixel of the ROI along each axis, if it is known.
    bad : ndarray of bool, optional
        Which pixels of the ROI are bad, if that is known of no others.
    """
    pixels, taken = (to_native(to_host(frames)) for frames in (block.pixels, block.taken))
    shape, places = job.roi_shape, np.ascontiguousarray(positions.places, float)
    # A position outside of the frame is no neighbour.
    places = places[inside(places, pixels.shape[1:])]
    if corner is not None and not len(places):
        places = np.array([corner], float)
    known = Block(pixels, taken)
    given = None if corner is None else np.array([[0, *corner]])
    corners, all_reasons = CpuFitter(load(), job).explain(known, Positions(places), given)
    first, reasons = tuple(corners[0, 1:].tolist()), all_reasons[0]
    bad = _bad(job, block, first) if bad is None else bad
    found = [bad | ~np.isfinite(pixels[0][_at(first, shape)])]
    for reason in (SATURATED_PIXEL, PADDING_PIXEL, HOT_PIXEL, NEIGHBOUR_PIXEL):
        found.append(((reasons & reason) != 0) & ~np.logical_or.reduce(found))
    bad, saturated, padding, hot, neighbour = found
    return ExcludedPixels(first, bad, saturated, hot, padding, neighbour)


def _at(first: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + side) for begin, side in zip(first, shape, strict=True))


def _bad(job: FitJob, block: Block, first: tuple[int, ...]) -> Mask:
    """Return which pixels of a ROI the caller excludes, as bad or by their weights."""
    bad, here = np.zeros(job.roi_shape, bool), _at(first, job.roi_shape)
    if block.bad is not None:
        bad |= np.asarray(to_host(block.bad)[0])[here]
    if block.planes is not None:
        values = np.asarray(to_host(block.planes.values)[0])[here]
        is_variance = job.settings.estimator_kind.is_likelihood
        bad |= np.isnan(values) if is_variance else values == 0
    return bad


def link_positions(
    positions: Positions, reach: ArrayLike, shape: tuple[int, ...], workers: int | None = None
) -> NDArray[np.int64]:
    """Return the group of each position: those of a frame that are linked, perhaps by others.

    Parameters
    ----------
    positions : Positions
        The positions. Those outside of their frame, and NaN, are alone.
    reach : float, or one for each axis
        How far apart two positions are linked at most: the half axes of an ellipsoid, in pixels.
    shape : tuple of int
        Of a frame.
    workers : int, optional
        How many threads share the frames.

    Returns
    -------
    ndarray of int64
        Numbers from 0 on, in the order of each group's first position.

    Examples
    --------
    >>> places = np.array([[3.0, 3.0], [9.0, 9.0], [3.0, 5.0], [3.0, 7.0]])
    >>> link_positions(Positions(places), 2.0, (16, 16))
    array([0, 1, 0, 0])
    >>> link_positions(Positions(places, np.array([0, 0, 0, 1])), 2.0, (16, 16))
    array([0, 1, 0, 2])
    """
    places = np.ascontiguousarray(positions.places, float)
    count, axes = places.shape
    along = np.ravel(reach).tolist()
    if len(along) not in (1, axes) or not all(0 < half < math.inf for half in along):
        raise ValueError(f"reach must be a number of pixels above 0, or one an axis; got {reach!r}")
    along *= axes // len(along)
    halves = (ctypes.c_double * axes)(*along)
    frame = np.ascontiguousarray(positions.frames, np.int64)
    memory = np.empty((3, count), np.int64)
    begin = address(memory)
    heads, after, first = (begin + row * memory.strides[0] for row in range(3))
    given = LinkedSpots(
        address(places), address(frame), ctypes.addressof(halves), count, axes,
        heads, after, first, (*shape, *[0] * (3 - axes)),
    )  # fmt: skip
    functions = load().functions

    def work(begin: int, end: int) -> None:
        functions.spotfit_link_spots(ctypes.byref(given), begin, end)

    threads.in_pieces(work, count, _SHARE, workers)
    # Each group is known by its first position until all are there.
    functions.spotfit_number_groups(ctypes.byref(given))
    group: NDArray[np.int64] = memory[2]
    return group


def rows_of(job: FitJob, columns: dict[str, NDArray[Any]]) -> Rows:
    """Return which position each row of fits came from, and complete what rows of a fit share.

    All code that pairs the rows of :meth:`Backend.fit` with positions calls this first. Groups are
    numbered from 0 on, in the order of the rows; flags of a fit go to all of its rows.

    Raises
    ------
    ValueError
        If the rows are not what the job asks for.
    """
    rows: Rows = columns.pop(POSITION, slice(None))
    if job.one_row_per_position and not isinstance(rows, slice):
        raise ValueError("these fits must have one row for each position, in order")
    if GROUP in columns:
        every = np.arange(len(columns[GROUP]))
        if np.array_equal(columns[GROUP], every):  # all are alone, as in most sparse blocks
            columns[GROUP_SIZE] = np.ones_like(every)
            return rows
        group = columns[GROUP] = numbered(columns[GROUP])
        if not job.one_row_per_position and (np.diff(group) < 0).any():
            raise ValueError("the rows of spots that are fitted together must follow each other")
        columns[GROUP_SIZE] = np.bincount(group)[group].astype(np.int64, copy=False)
        shared = np.flatnonzero(columns[GROUP_SIZE] > 1)
        of_fit = np.zeros(len(group), np.uint32)
        np.bitwise_or.at(of_fit, group[shared], columns["flags"][shared] & np.uint32(OF_FIT))
        columns["flags"] = columns["flags"] | of_fit[group]
    return rows


def scores_of(rows: Rows, score: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the score of each row: that of its position; NaN of spots that were added there."""
    if isinstance(rows, slice):
        return score
    first = np.empty(len(score), np.int64)
    first[rows[::-1]] = np.arange(len(rows))[::-1]
    is_first = first[rows] == np.arange(len(rows))
    return np.where(is_first, score[rows], np.float32(np.nan))


def of_first(columns: dict[str, NDArray[Any]], values: NDArray[Any]) -> NDArray[Any]:
    """Return the value of each row's first one among those that were fitted together."""
    if GROUP not in columns:
        return values
    group = columns[GROUP]
    return values[np.searchsorted(group, group)]


def whole_fits(
    columns: dict[str, NDArray[Any]], which: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Return some rows, among which those of a fit are all or none, with groups from 0 on."""
    chosen = {name: column[which] for name, column in columns.items()}
    return chosen | ({GROUP: numbered(chosen[GROUP])} if GROUP in chosen else {})
