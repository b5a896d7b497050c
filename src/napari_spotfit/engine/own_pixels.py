"""Fits without the pixels that are other spots': a spot's own are those nearest to it.

Most spots of sparse images keep their whole ROI, and are fitted where they lie in the frames. The
others are cut out, each with a mask of its own: to a fit, what is not its own is a bad pixel. So is
what is lost to all, as saturated pixels are.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import is_on_device, like
from ..images.pixel_calibration import Planes
from ..settings.settings import Settings
from ..settings.validation import ROI_MAX
from . import threads
from .cpu.layouts import SpotCells
from .cpu.library import load
from .kernel_arguments import address
from .rois import Parts, PlacedResults, in_two_parts

#: Spots of a thread's share of the search for neighbours, and whose pixels it marks; pixels that a
#: thread, and a GPU, cuts out at a time, and how few fits a thread is given.
_SHARE, _MARKED, _SHARE_PIXELS, _CUT_OUT_PIXELS, _FEW = 1 << 14, 1 << 13, 1 << 18, 1 << 22, 512

#: In the place of the first cell's start: the spots have not been sorted.
_NOT_SORTED = -2


class Lost(NamedTuple):
    """Pixels of ROIs that count in no fit."""

    #: Which ROIs have such pixels, in rising order.
    rois: NDArray[np.int64]
    #: Which pixels these are, shape (n, rows, columns).
    pixels: NDArray[np.bool_]

    def among(self, rois: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return which of some ROIs, by their place there, have such pixels, and these."""
        place = np.searchsorted(self.rois, rois)
        place[place == len(self.rois)] = 0
        having = np.flatnonzero(self.rois[place] == rois)
        return having, self.pixels[place[having]]


def joined(*parts: Lost | None) -> Lost | None:
    """Return the pixels that are lost for any reason; None if none is."""
    some = [part for part in parts if part is not None]
    if len(some) < 2:
        return some[0] if some else None
    rois = np.unique(np.concatenate([part.rois for part in some]))
    pixels = np.zeros((len(rois), *some[0].pixels.shape[1:]), bool)
    for part in some:
        pixels[np.searchsorted(rois, part.rois)] |= part.pixels
    return Lost(rois, pixels)


def fit_own_pixels(
    fit_rois: Callable[..., dict[str, Any]],
    frames: Any,
    corners: Any,
    roi_shape: tuple[int, ...],
    settings: Settings,
    start: Any = None,
    *,
    places: NDArray[np.float64] | None = None,
    lost: Lost | None = None,
    planes: Planes | None = None,
    variance_map: Planes | None = None,
    **rest: Any,
) -> dict[str, Any]:
    """Fit ROIs where they lie in frames, without the pixels that are other spots'.

    Parameters
    ----------
    fit_rois : callable
        A backend's fits, which take all that follows but the places.
    places : ndarray of float64, shape (n, 2), optional
        y and x of the ROIs' spots, in pixels of their frames. Only pixels that are nearer to the
        ROI's own spot than to any other of the frame count in its fit; what is halfway between
        two counts for neither, and spots at one place take nothing from each other. Without
        places, all pixels count.
    lost : Lost, optional
        Pixels that do not count either.
    frames, corners, roi_shape, settings, start, planes, variance_map, **rest
        As the backend takes them.

    Returns
    -------
    dict of ndarray
        The columns of SpotFits, with y and x from the ROI's first pixel.
    """
    known = {"planes": planes, "variance_map": variance_map}
    on_device = is_on_device(frames)
    spots = None
    if places is not None and len(places) > 1:
        spots = Spots(corners, places, roi_shape, frames.shape)
    elif lost is None:
        return fit_rois(frames, corners, roi_shape, settings, start, **known, **rest)
    parts = _divided(spots, lost, corners, start, settings.threads)
    whole, numbers = parts.first, parts.numbers
    if whole == len(numbers):
        return fit_rois(frames, corners, roi_shape, settings, start, **known, **rest)
    corners, start = parts.corners, parts.start
    is_large = max(roi_shape) > ROI_MAX
    results = _results(len(numbers), settings, there=on_device and not is_large)
    if results.orders is not None:
        rest |= {"on_device": True, "orders": results.orders}
    all_own = slice(0, whole)
    part = fit_rois(
        frames, corners[all_own], roi_shape, settings, _of(start, all_own), **known, **rest
    )
    results.put(part, numbers[all_own])
    maps = [None if one is None else like(one.values, frames) for one in (planes, variance_map)]
    by_threads = not on_device and not is_large
    one_by_one = settings.changed(threads=1) if by_threads else settings

    def fit_piece(first: int, last: int) -> None:
        piece = slice(whole + first, whole + last)
        rois = numbers[piece]
        pixels, plane, variances = (
            None if values is None else cut_out(values, corners[piece], roi_shape, results.orders)
            for values in (frames, *maps)
        )
        own = _own_plane(spots, lost, rois, roi_shape, one_by_one)
        if plane is not None:
            results.begin()
            own = like(own, frames)
            own = own + plane if settings.estimator_kind.is_likelihood else own * plane
        part = fit_rois(
            pixels, None, roi_shape, one_by_one, _of(start, piece), planes=Planes(own),
            variance_map=None if variances is None else Planes(variances), **rest,
        )  # fmt: skip
        results.put(part, rois)

    workers = (settings.threads or threads.available()) if by_threads else 1
    share = (_SHARE_PIXELS if by_threads else _CUT_OUT_PIXELS) // math.prod(roi_shape)
    share = max(min(share, -(-(len(numbers) - whole) // workers)), _FEW if by_threads else 1)
    threads.in_pieces(fit_piece, len(numbers) - whole, share, workers)
    columns: dict[str, Any] = results.columns()
    return columns


def _results(count: int, settings: Settings, *, there: bool) -> Any:
    """Return a place for the results of fits; on the current GPU all is begun and comes at once."""
    if not there:
        return PlacedResults(count, settings)
    from .cuda.placed_results import PlacedResultsThere

    return PlacedResultsThere(count, settings)


def _own_plane(
    spots: Spots | None,
    lost: Lost | None,
    rois: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    settings: Settings,
) -> NDArray[np.float32]:
    """Return what tells a fit of some ROIs which pixels count: weights, or variances to add."""
    own_mark, other_mark = settings.estimator_kind.counted, settings.estimator_kind.excluded
    if spots is None:
        own = np.full((len(rois), *roi_shape), own_mark, np.float32)
    else:
        own = spots.own_pixels(rois, own_mark, other_mark, settings.threads)
    if lost is not None:
        having, mask = lost.among(rois)
        own[having] = np.where(mask, np.float32(other_mark), own[having])
    return own


def _divided(
    spots: Spots | None, lost: Lost | None, corners: Any, start: Any, workers: int | None
) -> Parts:
    """Return ROIs with those last of which not all pixels count."""
    if spots is None or len(corners) <= _SHARE or workers == 1:
        cut, looked_at = np.zeros(len(corners), bool), spots
    else:
        cut, looked_at = spots.crowded(workers), None
    if lost is not None:
        cut[lost.rois] = True
    return in_two_parts(cut, corners, start, looked_at)


class Spots(SpotCells):
    """Spots of frames, each with its ROI, in cells of the frames.

    Parameters
    ----------
    corners : ndarray of int64, shape (n, 3)
        Frame, first row and first column of each ROI; a negative frame stands for no spot.
    places : ndarray of float64, shape (n, 2)
        y and x of the spots, in pixels of their frames.
    roi_shape : (int, int)
        Rows and columns of the ROIs.
    shape : (int, int, int)
        How many frames there are, and their rows and columns.

    Examples
    --------
    >>> corners, places = np.array([[0, 0, 0], [0, 0, 3]]), np.array([[2.0, 2.0], [2.0, 5.0]])
    >>> spots = Spots(corners, places, (5, 5), (1, 5, 8))
    >>> spots.crowded()
    array([ True,  True])
    >>> spots.own_pixels(np.array([0]))[0, 0]
    array([1., 1., 1., 1., 0.], dtype=float32)
    """

    def __init__(
        self,
        corners: NDArray[np.int64],
        places: NDArray[np.float64],
        roi_shape: tuple[int, ...],
        shape: tuple[int, int, int],
    ) -> None:
        count, (frames, height, width) = len(corners), shape
        # Of a large frame, they may be in few rows.
        top, bottom = _rows_of(places, height) if frames == 1 else (0, height)
        height = bottom - top
        # No more cells than spots, about, and none smaller than a ROI.
        side = max(*roi_shape, math.isqrt(frames * height * width // count))
        down, across = -(-height // side), -(-width // side)
        starts = np.empty(frames * down * across + 1, np.int64)
        corners, places = (
            np.ascontiguousarray(corners, np.int64),
            np.ascontiguousarray(places, float),
        )
        by_cell = np.empty_like(places)
        starts[0] = _NOT_SORTED
        #: What must outlast it.
        self._kept = corners, places, starts, by_cell
        super().__init__(
            address(corners), address(places), count, frames, down, across, address(starts),
            address(by_cell), top, side, *roi_shape,
        )  # fmt: skip

    def crowded(self, workers: int | None = None) -> NDArray[np.bool_]:
        """Sort the spots; return which ROIs have pixels that are not their own."""
        self._sort()
        library = load()
        found = np.empty(self.count, bool)

        def work(first: int, last: int) -> None:
            library.functions.spotfit_find_crowded(
                library.index, ctypes.byref(self), first, last, address(found)
            )

        threads.in_pieces(work, self.count, _SHARE, workers)
        return found

    def own_pixels(
        self,
        rois: NDArray[np.int64],
        own: float = 1.0,
        others: float = 0.0,
        workers: int | None = 1,
    ) -> NDArray[np.float32]:
        """Return one number for the own pixels of some ROIs, another for the others.

        The shape is (n, rows, columns).
        """
        if self._kept[2][0] == _NOT_SORTED:
            self._sort()
        planes = np.empty((len(rois), self.rows, self.columns), np.float32)
        library = load()

        def work(first: int, last: int) -> None:
            part = slice(first, last)
            library.functions.spotfit_mark_own_pixels(
                library.index, ctypes.byref(self), address(rois[part]), last - first, own, others,
                address(planes[part]),
            )  # fmt: skip

        # By one thread in one go: each call waits for the interpreter.
        threads.in_pieces(work, len(rois), len(rois) if workers == 1 else _MARKED, workers)
        return planes

    def _sort(self) -> None:
        library = load()
        library.functions.spotfit_sort_spots(library.index, ctypes.byref(self))


def _of(values: Any, which: slice) -> Any:
    return None if values is None else values[which]


def cut_out(values: Any, corners: Any, roi_shape: tuple[int, ...], orders: Any = None) -> Any:
    """Return ROIs of frames, or of a map that all frames share, where these lie.

    On a GPU they are there when its orders are carried out, at once without.
    """
    if is_on_device(values):
        from .cuda import cut_out as there

        return there.cut_out(values, corners, roi_shape, orders)
    rois = np.empty((len(corners), *roi_shape), values.dtype)
    library = load()
    library.functions.spotfit_cut_out(
        library.index, address(values), values.itemsize, *values.shape[1:], len(values) == 1,
        address(corners), len(corners), *roi_shape, address(rois),
    )  # fmt: skip
    return rois


def _rows_of(places: NDArray[np.float64], height: int) -> tuple[int, int]:
    """Return the first row of a frame that spots lie in, and the one after the last."""
    y = places[:, 0]
    y = y[(y >= 0) & (y < height)]
    return (int(y.min()), int(y.max()) + 1) if len(y) else (0, height)
