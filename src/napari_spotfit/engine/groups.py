"""Link positions to groups, and pair the rows of fits of several spots with positions."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..images.frames import inside
from ..models.columns import GROUP, GROUP_SIZE, numbered
from . import threads
from .block import Positions
from .cpu.layouts import LinkedSpots
from .cpu.library import load
from .fit_job import FitJob
from .kernel_arguments import address
from .quality.flags import OF_FIT

#: The column by which a backend says which position each row came from. No parameter of a model
#: can have this name.
POSITION = "its position"
#: Positions of one thread's share.
_SHARE = 1 << 14

#: Which position each row came from: all, in order, or their numbers.
Rows = slice | NDArray[np.int64]


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
    places, is_inside = (
        np.ascontiguousarray(positions.places, float),
        inside(positions.places, shape),
    )
    if not is_inside.all():
        places = np.where(is_inside[:, np.newaxis], places, np.nan)
    count, axes = places.shape
    along = np.ascontiguousarray(np.broadcast_to(np.asarray(reach, float), axes))
    if not (np.isfinite(along) & (along > 0)).all():
        raise ValueError(f"reach must be a number of pixels above 0, or one an axis; got {reach!r}")
    frame = np.ascontiguousarray(positions.frames, np.int64)
    memory = np.empty((3, count), np.int64)
    heads, after, first = memory
    given = LinkedSpots(
        address(places), address(frame), address(along), count, axes,
        address(heads), address(after), address(first),
    )  # fmt: skip

    def work(begin: int, end: int) -> None:
        load().functions.spotfit_link_spots(ctypes.byref(given), begin, end)

    threads.in_pieces(work, count, _SHARE, workers)
    # Each group is known by its first position until all are there.
    number = np.cumsum(first == np.arange(count)) - 1
    return number[first].astype(np.int64)


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
