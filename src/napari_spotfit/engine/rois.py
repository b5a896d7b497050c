"""Positions of spots, excluded pixels of ROIs, and rows of results put in place.

Each is one call of the library: NumPy takes many steps, each of which waits for the interpreter,
which the blocks of a GPU share.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host, to_native
from ..images.frames import inside
from .block import Block, Positions
from .cpu.block_fits import CpuFitter
from .cpu.layouts import HOT_PIXEL, NEIGHBOUR_PIXEL, PADDING_PIXEL, SATURATED_PIXEL, FoundSpots
from .cpu.library import load
from .detection.candidates import Candidates
from .fit_job import FitJob
from .kernel_arguments import address

Mask = NDArray[np.bool_]


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
