"""Which points have another one near, in the same frame, among millions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Cells are larger than the reach by more than rounding takes off.
_ROOM = 1 - 1e-9


def has_near(
    frame: NDArray[np.int64],
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    reach: tuple[float, float],
    rank: NDArray[np.float64] | None = None,
    asked: NDArray[np.intp] | None = None,
) -> NDArray[np.bool_]:
    """Say which points have another one in reach, in their frame.

    A grid whose cells are as large as the reach: only those of a point's own cell and of the
    eight around it are looked at, one after the other, until one is in reach. So the time
    follows the number of points, however many lie at one place.

    Parameters
    ----------
    frame : ndarray of int, shape (n,)
        The points' frames.
    y, x : ndarray, shape (n,)
        Where they lie; finite.
    reach : (float, float)
        Greatest distance along y and x, where there is no rank.
    rank : ndarray, shape (n,), optional
        Only a point of lower rank counts; of points of the same rank that of the lower y,
        then x, then the earlier one. The reach, that along y, is then that of the distance.
    asked : ndarray of int, optional
        Numbers of the points that are asked for; False is said of the others.
    """
    near = np.zeros(len(frame), bool)
    if len(frame) < 2:
        return near
    row, column = (
        ((along - along.min()) * (_ROOM / size)).astype(np.int64) + 1
        for along, size in zip((y, x), reach, strict=True)
    )
    columns, rows = int(column.max()) + 2, int(row.max()) + 2
    cell = ((frame - frame.min()) * rows + row) * columns + column
    order = np.argsort(cell, kind="stable")
    y, x = y[order], x[order]
    # One more at the end, which nothing reaches.
    key = np.append(cell[order], np.iinfo(np.int64).max)
    ranks = None if rank is None else rank[order]
    asking = np.arange(len(frame))
    if asked is not None:
        chosen = np.zeros(len(frame), bool)
        chosen[asked] = True
        asking = np.flatnonzero(chosen[order])
    for step in (-columns, 0, columns):
        this, last = asking, key[asking] + (step + 1)
        other = np.searchsorted(key, last - 2)
        hits = []
        while len(this):
            there = key[other] <= last
            this, other, last = this[there], other[there], last[there]
            down, across = y[other] - y[this], x[other] - x[this]
            if ranks is None:
                hit = (abs(down) <= reach[0]) & (abs(across) <= reach[1]) & (other != this)
            else:
                same, level = ranks[other] == ranks[this], down == 0
                before = (down < 0) | (level & (across < 0))
                before |= level & (across == 0) & (order[other] < order[this])
                better = (ranks[other] < ranks[this]) | (same & before)
                hit = better & (down * down + across * across <= reach[0] ** 2)
            hits.append(this[hit])
            this, other, last = this[~hit], other[~hit] + 1, last[~hit]
        found = np.concatenate(hits) if hits else asking[:0]
        near[order[found]] = True
        asking = asking[~near[order[asking]]]
    return near
