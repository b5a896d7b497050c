"""The spots of a frame whose rows come one after the other, as if all were there."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.cpu.detect import Detector
from ..engine.detection.candidates import Candidates, joined, nothing
from ..engine.detection.detection_settings import MAXIMUM
from ..engine.detection.nonmax_suppression import (
    DROPPED,
    Maxima,
    farther_apart,
    in_order,
    join_bands,
    merge_plateaus,
)
from ..images.window import Window
from ..settings.settings import Settings

#: Half a side of what is looked at for a flat area, which grows by the other number.
_AREA, _GROWS = 16, 4
#: Columns whose maxima are looked at at once, at least.
_COLUMNS = 2048
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
        maxima = self._waiting
        if areas:
            maxima = merge_plateaus(in_order(maxima), window.frames)
        maxima = _where(maxima, (maxima["y"] >= self.end) & (maxima["y"] < limit))
        if self._mask is not None:
            maxima = _where(maxima, self._mask[maxima["y"], maxima["x"]])
        end = height if limit >= height else _uncut(self._certain(maxima, limit), areas)
        end = max(end, self.end)
        chosen = self._farther_apart(np.concatenate([self._kept, maxima]))
        new = Candidates._make(
            column[(chosen.y >= self.end) & (chosen.y < end)] for column in chosen
        )
        near = (chosen.y >= end - math.ceil(self._settings.min_distance)) & (chosen.y < end)
        self._kept = _as_maxima(Candidates._make(column[near] for column in chosen))
        self._waiting = _where(self._waiting, self._waiting["y"] >= end)
        self.end = end
        self.first_needed = min(self._looked_at - detector.reach, end) - 1
        return new

    def _look(self, detector: Detector, window: Window) -> None:
        """Look for maxima in the strips whose surroundings are all there."""
        height, rows = self._shape[0], detector.strip_rows
        is_all = window.last == height
        known = height if is_all else (window.last - detector.reach) // rows * rows
        if known > self._looked_at:
            new = detector.maxima_in_rows(self._looked_at, known, self._workers)
            self._maxima = np.concatenate([self._maxima, new])
            self._looked_at = known
        # A maximum belongs to one of the other band, to which others may belong.
        margin = math.ceil(3 * detector.settings.reach) + 1
        settled = height if is_all else max(self._looked_at - margin, self._settled)
        y = self._maxima["y"]
        ours = (y >= self._settled) & (y < settled) & self._are_own(detector, margin)
        self._waiting = np.concatenate([self._waiting, _where(self._maxima, ours)])
        self._maxima = _where(self._maxima, y >= settled - 2 * margin)
        self._settled = settled

    def _are_own(self, detector: Detector, margin: int) -> NDArray[np.bool_]:
        """Return which maxima are spots of their own, and not one with another band's."""
        own = np.zeros(len(self._maxima), bool)

        def join(rows: NDArray[np.int64], first: int, last: int) -> None:
            maxima = self._maxima.take(rows)
            order = _order(maxima)
            maxima = maxima.take(order)
            join_bands(maxima, detector.settings, self._settings.min_distance)
            inside = (maxima["x"] >= first) & (maxima["x"] < last)
            own[rows[order[inside]]] = maxima["band"][inside] != DROPPED

        self._in_columns(join, self._maxima["x"], 2 * margin)
        return own

    def _farther_apart(self, maxima: Maxima) -> Candidates:
        """Return maxima, in any order, in their order, less those too close to higher ones."""
        distance, shape = self._settings.min_distance, self._shape
        margin = _CHAIN * max(math.ceil(distance), 1)
        parts: dict[int, Candidates] = {}
        depend: list[bool] = []

        def choose(rows: NDArray[np.int64], begin: int, end: int) -> None:
            own = in_order(maxima.take(rows))
            beside = (own["x"] < begin) | (own["x"] >= end)
            x = own["x"][beside]
            left, right = max(begin - margin, 0), min(end + margin, shape[1])
            cut = (x < left + distance) & (left > 0) | (x >= right - distance) & (right < shape[1])
            near = _reached(_where(own, beside), cut, distance)
            reached = x[near]
            depend.append(
                bool(((reached > begin - 2 * distance) & (reached < begin)).any())
                or bool(((reached < end + 2 * distance) & (reached >= end)).any())
            )
            spots = farther_apart(own, shape, distance)
            inside = (spots.x >= begin) & (spots.x < end)
            parts[begin] = Candidates._make(column[inside] for column in spots)

        self._in_columns(choose, maxima["x"], margin)
        if any(depend):
            return farther_apart(in_order(maxima), shape, distance)
        spots = joined([nothing(), *parts.values()])
        order = np.argsort(spots.y * shape[1] + spots.x, kind="stable")
        return Candidates._make(column[order] for column in spots)

    def _in_columns(
        self, work: Callable[[NDArray[np.int64], int, int], None], x: NDArray[np.int32], margin: int
    ) -> None:
        """Call a function with which maxima are in some columns and beside, and these columns.

        Near memory is faster, and each core takes some of the columns.
        """
        size = max(_COLUMNS, margin)
        own = (x // size).astype(np.uint16)
        order = np.argsort(own, kind="stable")
        count = -(-self._shape[1] // size)
        ends = np.searchsorted(own[order], range(count + 1))

        def columns(number: int, _: int) -> None:
            first, last = number * size, min((number + 1) * size, self._shape[1])
            rows = order[ends[max(number - 1, 0)] : ends[min(number + 2, count)]]
            there = x[rows]
            work(rows[(there >= first - margin) & (there < last + margin)], first, last)

        threads.in_pieces(columns, count, 1, self._workers)

    def _flat_areas(self, window: Window, level: float) -> list[tuple[int, float]]:
        """Return the first and last rows of flat areas with maxima; ∞ where there may be more."""
        flat = self._waiting[self._waiting["on_flat_area"] != 0]
        return [_flat_area(window, int(one["y"]), int(one["x"]), level) for one in flat]

    def _certain(self, maxima: Maxima, limit: int) -> int:
        """Return the row before which no maximum depends on any from a row on.

        A maximum there may drop those that are close, and no brighter.
        """
        distance, rows = self._settings.min_distance, _CHAIN
        places = np.column_stack([maxima["y"], maxima["x"]]).astype(float)
        while True:
            first = limit - rows * max(math.ceil(distance), 1)
            near = np.flatnonzero(places[:, 0] >= first)
            if not len(near):
                return limit
            own = places[near]
            reached = _reached(maxima.take(near), own[:, 0] > limit - distance, distance)
            if not reached.any():
                return limit
            lowest = int(own[reached, 0].min())
            if lowest > first + distance or len(near) == len(places):
                return lowest
            rows *= _GROWS


def _where(maxima: Maxima, which: NDArray[np.bool_]) -> Maxima:
    """Return some maxima; NumPy's own way copies them number by number."""
    return maxima.take(np.flatnonzero(which))


def _order(maxima: Maxima) -> NDArray[np.int64]:
    """Return the order of a frame's maxima by row and column."""
    width = int(maxima["x"].max(initial=0)) + 1
    return np.argsort(maxima["y"].astype(np.int64) * width + maxima["x"], kind="stable")


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
