"""The spots of a frame whose rows come one after the other, as if all were there."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from ..engine.detection.candidates import Candidates
from ..engine.detection.detection_settings import MAXIMUM
from ..engine.detection.nonmax_suppression import (
    Maxima,
    area_rows,
    farther_apart,
    first_row_of_areas,
    joined_maxima,
    merge_plateaus,
    where,
)
from ..images.large_frames import Window
from .own_maxima import OwnMaxima, in_rows

#: Rows, in units of the least distance, in which spots are looked for that others may drop; they
#: grow by the other number.
_CHAIN, _GROWS = 64, 4


class TileSpots:
    """The spots of a frame of which more and more rows are there.

    Maxima wait until nothing changes any more that they depend on: maxima of the other band, the
    flat area that they are on, and brighter ones too close to them, which may depend on others.

    Parameters
    ----------
    source : OwnMaxima
        What looks for maxima.
    min_distance : float
        Those closer than this are one spot.
    level : float
        The frame's.
    mask : ndarray of bool, shape (Y, X), optional
        Where to look for spots.
    """

    def __init__(
        self,
        source: OwnMaxima,
        min_distance: float,
        level: float,
        mask: NDArray[np.bool_] | None,
    ) -> None:
        self._source, self._min_distance = source, min_distance
        self._level, self._mask = level, mask
        #: All spots before this row have been returned.
        self.end = 0
        #: The first row of pixels that is still needed.
        self.first_needed = 0
        self._waiting = self._kept = np.empty(0, MAXIMUM)

    def find(self, window: Window) -> Candidates:
        """Return the spots that are certain by now, in order, after those returned before."""
        self._waiting = joined_maxima([self._waiting, self._source.next(window)])
        height, width = window.height, window.frames.shape[2]
        areas = self._flat_areas(window)
        limit = _uncut(self._first_unknown(window), areas)
        maxima = self._merged(window) if areas else self._waiting
        maxima = in_rows(maxima, self.end, limit)
        if self._mask is not None:
            maxima = where(maxima, self._mask[maxima["y"], maxima["x"]])
        end = height if limit >= height else _uncut(self._certain(maxima, limit), areas)
        end = max(end, self.end)
        maxima = joined_maxima([self._kept, maxima])
        chosen = farther_apart(maxima, (height, width), self._min_distance)
        near = _spots_in_rows(chosen, end - math.ceil(self._min_distance), end)
        self._kept = _as_maxima(near)
        new = _spots_in_rows(chosen, self.end, end)
        self._waiting = in_rows(self._waiting, end, height).copy()
        self.end = end
        self.first_needed = min(self._source.first_needed, end) - 1
        return new

    def _first_unknown(self, window: Window) -> int:
        """Return the row before which no flat area has maxima that are still to come."""
        known = self._source.known
        if not window.first < known < window.last:
            return known
        rows = window.frames[0, window.first : window.last]
        return window.first + first_row_of_areas(rows, known - window.first, self._level)

    def _merged(self, window: Window) -> Maxima:
        """Return the maxima that wait, one of each flat area."""
        maxima = self._waiting.copy()
        maxima["y"] -= window.first
        maxima = merge_plateaus(maxima, window.frames[:, window.first : window.last], self._level)
        maxima["y"] += window.first
        return maxima

    def _flat_areas(self, window: Window) -> list[tuple[int, float]]:
        """Return the first and last rows of flat areas with maxima; ∞ where there may be more.

        Maxima on areas that have no spots wait no longer.
        """
        on_flat = self._waiting["on_flat_area"] != 0
        if not on_flat.any():
            return []
        flat = self._waiting[on_flat]
        flat["y"] -= window.first
        # Only areas that have no spots, as far as they are known, are not all in the window.
        rows = area_rows(
            flat, window.frames[0, window.first : window.last], self._level,
            is_cut=window.first > 0,
        )  # fmt: skip
        has_spots = rows[:, 0] <= rows[:, 1]
        on_flat[on_flat] = ~has_spots
        self._waiting, rows = where(self._waiting, ~on_flat), rows[has_spots]
        goes_on = window.last - 1 if window.last < window.height else math.inf
        return [
            (first, math.inf if last == goes_on else last)
            for first, last in np.unique(rows + window.first, axis=0).tolist()
        ]

    def _certain(self, maxima: Maxima, limit: int) -> int:
        """Return the row before which no maximum depends on any from a row on.

        A maximum there may drop those that are close, and no brighter.
        """
        distance, rows = self._min_distance, _CHAIN
        while True:
            first = limit - rows * max(math.ceil(distance), 1)
            near = in_rows(maxima, first, limit)
            y = near["y"]
            reached = y[_reached(near, y > limit - distance, distance)]
            if not len(reached):
                return limit
            lowest = int(reached.min())
            if lowest > first + distance or len(near) == len(maxima):
                return lowest
            rows *= _GROWS


def _spots_in_rows(spots: Candidates, first: int, last: int) -> Candidates:
    """Return those of spots, which are in order, that are in some rows."""
    begin, end = bisect_left(spots.y, first), bisect_left(spots.y, last)
    return Candidates._make(column[begin:end] for column in spots)


def _reached(maxima: Maxima, reached: NDArray[np.bool_], distance: float) -> NDArray[np.bool_]:
    """Return which maxima depend on some of them, which may drop others as close and no higher."""
    front = np.flatnonzero(reached)
    if not len(front):
        return reached
    from scipy.spatial import cKDTree  # takes longer to import than a few fits

    reached, height = reached.copy(), maxima["height"]
    places = np.column_stack([maxima["y"], maxima["x"]]).astype(float)
    tree = cKDTree(places)
    while len(front):
        pairs = tree.query_ball_point(places[front], distance)
        others = np.concatenate([np.empty(0), *map(np.asarray, pairs)]).astype(np.int64)
        higher = np.repeat(height[front], list(map(len, pairs)))
        front = np.unique(others[(height[others] <= higher) & ~reached[others]])
        reached[front] = True
    return reached


def _uncut(row: int, areas: list[tuple[int, float]]) -> int:
    """Return the last row up to one that lies in no area, but for its first row."""
    while cut := [first for first, last in areas if first < row <= last]:
        row = min(cut)
    return row


def _as_maxima(spots: Candidates) -> Maxima:
    maxima = np.zeros(len(spots.y), MAXIMUM)
    for name in ("y", "x", "height", "score"):
        maxima[name] = getattr(spots, name)
    return maxima
