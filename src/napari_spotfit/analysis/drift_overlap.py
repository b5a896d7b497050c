"""Find the drift between segments of a movie by their overlap."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.cpu.layouts import (
    OVERLAP_PADDING,
    DriftStart,
    FieldCells,
    Overlap,
    OverlapSum,
    SegmentPoints,
)  # fmt: skip
from ..engine.cpu.library import load
from ..engine.kernel_arguments import address

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Groups = NDArray[np.int32]

#: Widths of the overlap, in errors of a localisation, and the most sweeps at each. The first one
#: is of a part of the points, as a rough drift will do.
_WIDTHS, _SWEEPS, _ENOUGH, _MOST_STRIDE = (2.5, 1.25), (2, 12), 100, 16
#: Reach of the overlap in widths, as the kernel has it.
_REACH = 4.0
#: Part of the step to the minimum of a parabola that is taken, and least part of its curvature.
_DAMPING, _LEAST_CURVATURE = 0.75, 0.25
#: Curvature of the overlap of uniform densities in a plane and in space, as weights end somewhere.
_BY_CHANCE = {2: 0.0746, 3: 0.1155}
#: Largest mean step, in errors of a segment, at which sweeps end: a next one would be much smaller.
_SETTLED = 0.2
#: Largest drift from one segment to the next, in errors of a localisation.
WINDOW = 7.5
#: Mean number of partners of a point, above which it is compared with a part of them.
_PARTNERS = 32
#: Points of a segment that the search begins with, and most pairs of them.
_QUERIES, _PAIRS = 500, 1 << 12
#: Shares of the threads, and least number of points in one that are compared, and sorted.
_SHARES, _SHARE, _SORTED = 64, 1 << 13, 1 << 16


class Found(NamedTuple):
    """What is known of the drift of each group."""

    drift: Floats  # along each axis
    weight: Floats  # proportional to 1 / error²
    partnered: NDArray[np.int64]  # points near those of other segments
    contrast: Floats  # how much these are nearer than by chance; 0 for no structure


def start_drift(places: Singles, segment: Groups, segments: int) -> Floats:
    """Return a first estimate of the drift of each segment, along each axis.

    Parameters
    ----------
    places : ndarray of float32, shape (2 or 3, n)
        Positions along y, x and maybe z in units of their errors, by segment.
    segment : ndarray of int32, shape (n,)
        The segment of each.
    segments : int
        Number of segments.
    """
    moved = places.copy()
    cells, starts = _cells_of(moved, WINDOW)
    after, pairs = np.empty(moved.shape[1], np.int32), np.empty((_PAIRS, 3), np.float32)
    drift, counts = np.empty((segments, 3)), np.empty(segments)
    given = DriftStart(
        _points(moved, segment), cells, segments, _QUERIES, address(after), address(pairs),
        len(pairs), WINDOW, address(drift), address(counts),
    )  # fmt: skip
    load().functions.spotfit_start_drift(ctypes.byref(given))
    del starts
    return drift[:, : len(places)]


def refined_drift(places: Singles, group: Groups, segments: int, drift: Floats) -> Found:
    """Return the drift with which the segments of each part of a field overlap best.

    Parameters
    ----------
    places : ndarray of float32, shape (2 or 3, n)
        Positions along y, x and maybe z in units of their errors.
    group : ndarray of int32, shape (n,)
        The segment of each, and `segments` more in another part of the field.
    segments : int
        Number of segments.
    drift : ndarray of float64, shape (groups, axes)
        Where the search begins.
    """
    axes, drift = len(places), drift.copy()
    for width, sweeps in zip(_WIDTHS, _SWEEPS, strict=True):
        sums, square = _pulled_together(places, group, segments, drift, width, sweeps)
    weight, partnered = sums[:, OverlapSum.OVERLAP], sums[:, OverlapSum.PARTNERED].astype(np.int64)
    contrast = np.nan_to_num(1 - square.mean(axis=1) / (2 * width**2)) - _BY_CHANCE[axes]
    return Found(drift, weight, partnered, contrast)


def _pulled_together(
    places: Singles, group: Groups, segments: int, drift: Floats, width: float, sweeps: int
) -> tuple[Floats, Floats]:
    """Improve the drift in place with one width; return the last sums, and squared distances."""
    axes, count = places.shape
    moved = without_drift(places, drift, group)
    cells, starts = _cells_of(moved, _REACH * width)
    sorted_places, sorted_group = _sorted(moved, group, cells)
    beside = np.square(np.diff(starts), dtype=np.float64).sum()
    every = max(1, round(float(beside) / count / _PARTNERS))
    if every > 1:
        starts[:] = -(-starts // every)  # where the first of those of each cell is now
    other_group = sorted_group[::every]
    other_segment = np.pad(other_group % segments, (0, OVERLAP_PADDING))
    others = np.pad(sorted_places[:, ::every], ((0, 0), (0, OVERLAP_PADDING)))
    shifts = np.zeros((len(drift), 3), np.float32)
    stride = 1
    if width != _WIDTHS[-1]:
        stride = min(max(count // (len(drift) * _ENOUGH), 1), _MOST_STRIDE)
    given = Overlap(
        _points(sorted_places, sorted_group), _points(others, other_segment), cells,
        address(shifts), segments, stride, width,
    )  # fmt: skip
    for _ in range(sweeps):
        sums = _summed(given, count, len(drift))
        weight = sums[:, OverlapSum.OVERLAP]
        with np.errstate(all="ignore"):
            pull, square = (
                sums[:, first : first + axes] / weight[:, np.newaxis]
                for first in (OverlapSum.PULL, OverlapSum.SQUARE)
            )
            # The overlap of two normal distributions is flatter than either.
            curvature = np.clip(1 - square / (2 * width**2), _LEAST_CURVATURE, 1)
            step = _relative(_DAMPING * pull / curvature, weight, segments)
            moves = np.sqrt(np.mean(step**2) * np.mean(weight))
        shifts[:, :axes] += step
        for axis, own in zip(others, step.astype(np.float32).T, strict=True):
            axis[: len(other_group)] -= own[other_group]
        if moves < _SETTLED:
            break
    drift += shifts[:, :axes]
    return sums, square


def without_drift(places: Singles, drift: Floats, group: Groups) -> Singles:
    """Return positions from which the drift of their group is subtracted."""
    own = drift.T.astype(np.float32)
    return np.stack([axis - one[group] for axis, one in zip(places, own, strict=True)])


def _relative(step: Floats, weight: Floats, segments: int) -> Floats:
    """Return the steps of groups less their mean in each part, which the overlap leaves open."""
    parts = np.nan_to_num(step).reshape(-1, segments, step.shape[1])
    weights = weight.reshape(-1, segments, 1)
    means = (parts * weights).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    relative: Floats = (parts - np.nan_to_num(means)).reshape(step.shape)
    return relative


def _summed(given: Overlap, count: int, groups: int) -> Floats:
    """Return the sums of the overlap for each group; in order, so that they are reproducible."""
    share = max(_SHARE, -(-count // _SHARES))
    sums = np.zeros((-(-count // share), groups, OverlapSum.OVERLAP_SUMS))

    def work(first: int, last: int) -> None:
        library = load()
        library.functions.spotfit_add_overlap(
            library.index, ctypes.byref(given), first, last, address(sums[first // share])
        )

    threads.in_pieces(work, count, share, 1 if count < 2 * _SHARE * given.stride else None)
    total: Floats = sums.sum(axis=0)
    return total


def _points(places: Singles, group: Groups) -> SegmentPoints:
    z = address(places[2]) if len(places) > 2 else 0
    return SegmentPoints(address(places[0]), address(places[1]), z, address(group), len(group))


def _cells_of(places: Singles, side: float) -> tuple[FieldCells, Groups]:
    """Return cells of at least a side, no more than twice the points, and memory for their starts.

    The caller keeps the memory.
    """
    low, high = (np.floor(ends) for ends in (places[:2].min(axis=1), places[:2].max(axis=1) + 1))
    size = (high - low).astype(float)
    while np.prod(np.floor(size / side) + 1) > 2 * places.shape[1] + 64:
        side *= 1.2
    down, across = (int(along / side) + 1 for along in size)
    starts = np.empty(down * across + 1, np.int32)
    return FieldCells(*low.tolist(), 1 / side, down, across, address(starts)), starts


def _sorted(places: Singles, group: Groups, cells: FieldCells) -> tuple[Singles, Groups]:
    """Return points in the order of their cells, in the memory of their places, and their groups.

    They are sorted by rows of cells, and then within each row, as this touches memory in order.
    """
    functions, count = load().functions, len(group)
    share = max(_SORTED, -(-count // _SHARES), cells.down)
    by_row, row_group, sorted_group = np.empty_like(places), *np.empty((2, count), np.int32)
    given, to = (
        ctypes.byref(_points(*points)) for points in ((places, group), (by_row, row_group))
    )
    back, field = ctypes.byref(_points(places, sorted_group)), ctypes.byref(cells)
    rows = np.zeros((-(-count // share), cells.down), np.int32)  # of each share

    def count_by_rows(first: int, last: int) -> None:
        functions.spotfit_count_by_rows(given, field, first, last, address(rows[first // share]))

    def sort_by_rows(first: int, last: int) -> None:
        functions.spotfit_sort_by_rows(given, to, field, first, last, address(rows[first // share]))

    def sort_rows(first: int, last: int) -> None:
        functions.spotfit_sort_rows(to, back, field, address(starts), first, last)

    threads.in_pieces(count_by_rows, count, share, None)
    starts = np.append(np.int32(0), np.cumsum(rows.sum(axis=0, dtype=np.int32), dtype=np.int32))
    rows[:] = starts[:-1] + np.cumsum(rows, axis=0, dtype=np.int32) - rows
    threads.in_pieces(sort_by_rows, count, share, None)
    threads.in_pieces(sort_rows, cells.down, -(-cells.down * share // count), None)
    return places, sorted_group
