"""The spots of a frame whose rows come one after the other, as if all were there."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.cpu.detect import Detector
from ..engine.detection.candidates import Candidates
from ..engine.detection.detection_settings import MAXIMUM
from ..engine.detection.nonmax_suppression import (
    DROPPED,
    Maxima,
    farther_apart,
    join_bands,
    joined_maxima,
    merge_plateaus,
)
from ..images.window import Window
from ..settings.settings import Settings

#: Half a side of what is looked at for a flat area, which grows by the other number.
_AREA, _GROWS = 16, 4
#: Rows whose maxima are joined at once, which caches hold.
_ROWS = 256
#: Rows, in units of the least distance, in which spots are looked for that others may drop.
_CHAIN = 64


class TileSpots:
    """The spots of a frame of which more and more rows are there.

    Maxima wait until nothing changes any more that they depend on: maxima of the other band, the
    flat area that they are on, and brighter ones too close to them, which may depend on others.

    Parameters
    ----------
    settings : Settings
        Those of the detection.
    shape : (int, int)
        Rows and columns of the frame.
    mask : ndarray of bool, shape (Y, X), optional
        Where to look for spots.
    """

    def __init__(
        self, settings: Settings, shape: tuple[int, int], mask: NDArray[np.bool_] | None
    ) -> None:
        self._settings, self._shape, self._mask = settings, shape, mask
        self._workers = settings.threads or threads.available()
        #: All spots before this row have been returned.
        self.end = 0
        #: The first row of pixels that is still needed.
        self.first_needed = 0
        # Before these rows all maxima are known, and which of the two bands has them.
        self._looked_at = self._settled = 0
        self._maxima = self._waiting = self._kept = np.empty(0, MAXIMUM)

    def find(self, window: Window, variances: NDArray[np.float32] | None) -> Candidates:
        """Return the spots that are certain by now, in order, after those returned before."""
        detector = Detector(window.frames, self._settings, variances)
        self._look(detector, window)
        height = self._shape[0]
        areas = self._flat_areas(window, detector.level)
        limit = _uncut(self._settled, areas)
        maxima = merge_plateaus(self._waiting, window.frames) if areas else self._waiting
        maxima = _in_rows(maxima, self.end, limit)
        if self._mask is not None:
            maxima = _where(maxima, self._mask[maxima["y"], maxima["x"]])
        end = height if limit >= height else _uncut(self._certain(maxima, limit), areas)
        end = max(end, self.end)
        maxima = joined_maxima([self._kept, maxima])
        chosen = farther_apart(maxima, self._shape, self._settings.min_distance)
        near = _spots_in_rows(chosen, end - math.ceil(self._settings.min_distance), end)
        self._kept = _as_maxima(near)
        new = _spots_in_rows(chosen, self.end, end)
        self._waiting = _in_rows(self._waiting, end, height).copy()
        self.end = end
        self.first_needed = min(self._looked_at - detector.reach, end) - 1
        return new

    def _look(self, detector: Detector, window: Window) -> None:
        """Look for maxima in the strips whose surroundings are all there."""
        height, rows = self._shape[0], detector.strip_rows
        known = window.last - detector.reach if window.last < height else height + rows - 1
        # A maximum belongs to one of the other band, to which others may belong.
        margin = math.ceil(3 * detector.settings.reach) + 1
        found = [self._waiting]
        # Some rows after the other: their memory is used again.
        while self._looked_at + rows <= known and self._looked_at < height:
            first = self._looked_at
            self._looked_at = min(first + rows, height)
            new = detector.maxima_in_rows(first, self._looked_at, self._workers)
            self._maxima = joined_maxima([self._maxima, new])
            is_last = self._looked_at == height
            settled = height if is_last else max(self._looked_at - margin, self._settled)
            found += self._own(detector, self._settled, settled, 2 * margin)
            self._maxima = _in_rows(self._maxima, settled - 2 * margin, height)
            self._settled = settled
        self._waiting = joined_maxima(found)

    def _own(self, detector: Detector, begin: int, end: int, margin: int) -> list[Maxima]:
        """Return the maxima in some rows that are spots of their own, not with another band's."""
        firsts = range(begin, end, max(_ROWS, margin))
        parts: list[Maxima] = [self._maxima[:0]] * len(firsts)

        def join(number: int, _: int) -> None:
            first, last = firsts[number], min(firsts[number] + firsts.step, end)
            maxima = _in_rows(self._maxima, first - margin, last + margin)
            marked = maxima.copy()
            join_bands(marked, detector.settings, self._settings.min_distance)
            y = maxima["y"]
            own = (y >= first) & (y < last) & (marked["band"] != DROPPED)
            parts[number] = _where(maxima, own)

        threads.in_pieces(join, len(firsts), 1, self._workers)
        return parts

    def _flat_areas(self, window: Window, level: float) -> list[tuple[int, float]]:
        """Return the first and last rows of flat areas with maxima; ∞ where there may be more."""
        flat = self._waiting[self._waiting["on_flat_area"] != 0]
        return [_flat_area(window, int(one["y"]), int(one["x"]), level) for one in flat]

    def _certain(self, maxima: Maxima, limit: int) -> int:
        """Return the row before which no maximum depends on any from a row on.

        A maximum there may drop those that are close, and no brighter.
        """
        distance, rows = self._settings.min_distance, _CHAIN
        while True:
            first = limit - rows * max(math.ceil(distance), 1)
            near = _in_rows(maxima, first, limit)
            y = near["y"]
            reached = y[_reached(near, y > limit - distance, distance)]
            if not len(reached):
                return limit
            lowest = int(reached.min())
            if lowest > first + distance or len(near) == len(maxima):
                return lowest
            rows *= _GROWS


def _in_rows(maxima: Maxima, first: int, last: int) -> Maxima:
    """Return those of maxima, which are in order, that are in some rows."""
    y = maxima["y"]
    return maxima[bisect_left(y, first) : bisect_left(y, last)]


def _spots_in_rows(spots: Candidates, first: int, last: int) -> Candidates:
    """Return those of spots, which are in order, that are in some rows."""
    begin, end = bisect_left(spots.y, first), bisect_left(spots.y, last)
    return Candidates._make(column[begin:end] for column in spots)


def _where(maxima: Maxima, which: NDArray[np.bool_]) -> Maxima:
    """Return some maxima; NumPy's own way copies them number by number."""
    return maxima.take(np.flatnonzero(which))


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


def _flat_area(window: Window, y: int, x: int, level: float) -> tuple[int, float]:
    """Return the first and last row of a flat area; ∞ if it may go on where no pixels are yet."""
    from scipy.ndimage import label  # takes longer to import than a few fits

    pixels, reach = window.frames[0], _AREA
    height, width = pixels.shape
    while True:
        top, bottom = max(y - reach, window.first), min(y + reach + 1, window.last)
        left, right = max(x - reach, 0), min(x + reach + 1, width)
        box = pixels[top:bottom, left:right]
        with np.errstate(all="ignore"):
            values = (box.astype(np.float64) - level).astype(np.float32)
        values[~np.isfinite(values)] = 0
        areas, _ = label(values == values[y - top, x - left])
        rows, columns = np.nonzero(areas == areas[y - top, x - left])
        first, last = top + int(rows.min()), top + int(rows.max())
        goes_on = (
            (first == top > window.first)
            or (last == bottom - 1 < window.last - 1)
            or (left > 0 and columns.min() == 0)
            or (right < width and left + columns.max() == right - 1)
        )
        if goes_on:
            reach *= _GROWS
            continue
        return first, math.inf if last == window.last - 1 < height - 1 else last


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
