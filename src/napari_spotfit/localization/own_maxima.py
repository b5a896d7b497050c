"""The maxima of a frame whose rows come one after the other: those that are spots of their own."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.backend import Backend
from ..engine.cpu.detect import Detector
from ..engine.detection.band import make_bands
from ..engine.detection.detection_settings import (
    MAXIMUM,
    DetectionSettings,
    make_detection_settings,
)
from ..engine.detection.nonmax_suppression import DROPPED, Maxima, join_bands, joined_maxima, where
from ..images.large_frames import Window
from ..settings.settings import Settings

#: Rows whose maxima are joined at once, which caches hold.
_ROWS = 256


class OwnMaxima(Protocol):
    """What looks for maxima in the rows that have come."""

    #: Before this row, all maxima have been returned.
    known: int

    @property
    def first_needed(self) -> int:
        """The first row of pixels that later maxima depend on."""

    def next(self, window: Window) -> Maxima:
        """Return those that are certain by now, in order, after those returned before."""


class OnHost:
    """Maxima by the library, strip after strip of the frame, as of a frame that is all there.

    Parameters
    ----------
    settings : Settings
        Those of the detection.
    variances : ndarray of float32, shape (Y, X), optional
        Variances of the pixels beside the settings' noise.
    level : float
        The frame's.
    """

    def __init__(
        self, settings: Settings, variances: NDArray[np.float32] | None, level: float
    ) -> None:
        self._settings, self._variances, self._level = settings, variances, level
        self._workers = settings.threads or threads.available()
        # Before the one row all maxima are known, before the other which of two bands has them.
        self._looked_at = self.known = self._reach = 0
        self._maxima = np.empty(0, MAXIMUM)

    @property
    def first_needed(self) -> int:
        """As :class:`OwnMaxima` says."""
        return self._looked_at - self._reach

    def next(self, window: Window) -> Maxima:
        """As :class:`OwnMaxima` says."""
        detector = Detector(window.frames, self._settings, self._variances, self._level)
        height, rows = window.height, detector.strip_rows
        self._reach = detector.settings.reach_in_pixels
        there = window.last - self._reach if window.last < height else height + rows - 1
        margin = margin_of(detector.settings)
        found: list[Maxima] = [self._maxima[:0]]
        # Some rows after the other: their memory is used again.
        while self._looked_at + rows <= there and self._looked_at < height:
            first = self._looked_at
            self._looked_at = min(first + rows, height)
            new = detector.maxima_in_rows(first, self._looked_at, self._workers)
            self._maxima = joined_maxima([self._maxima, new])
            is_last = self._looked_at == height
            known = height if is_last else max(self._looked_at - margin, self.known)
            found += self._own(detector, self.known, known, 2 * margin)
            self._maxima = in_rows(self._maxima, known - 2 * margin, height)
            self.known = known
        return joined_maxima(found)

    def _own(self, detector: Detector, begin: int, end: int, margin: int) -> list[Maxima]:
        firsts = range(begin, end, max(_ROWS, margin))
        parts: list[Maxima] = [self._maxima[:0]] * len(firsts)

        def join(number: int, _: int) -> None:
            first, last = firsts[number], min(firsts[number] + firsts.step, end)
            maxima = in_rows(self._maxima, first - margin, last + margin)
            marked = maxima.copy()
            join_bands(marked, detector.settings, self._settings.min_distance)
            y = maxima["y"]
            own = (y >= first) & (y < last) & (marked["band"] != DROPPED)
            parts[number] = where(maxima, own)

        threads.in_pieces(join, len(firsts), 1, self._workers)
        return parts


class OnBackend:
    """The same by a backend, to which the rows go.

    Parameters
    ----------
    backend : Backend
        What looks for them.
    settings, variances, level
        As :class:`OnHost` takes them.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        variances: NDArray[np.float32] | None,
        level: float,
    ) -> None:
        self._backend, self._settings = backend, settings
        self._variances, self._level = variances, level
        bands = make_bands(settings.known_sigma, (1, 1))
        given = make_detection_settings(settings, bands, lambda _: None)
        #: Rows beside those whose maxima are certain.
        self._reach = given.reach_in_pixels + 3 * margin_of(given)
        self.known = 0

    @property
    def first_needed(self) -> int:
        """As :class:`OwnMaxima` says."""
        return self.known - self._reach

    def next(self, window: Window) -> Maxima:
        """As :class:`OwnMaxima` says."""
        is_last = window.last == window.height
        first, begin = max(self.known - self._reach, 0), self.known
        end = window.height if is_last else window.last - self._reach
        if end <= begin:
            return np.empty(0, MAXIMUM)
        own = slice(first, window.last)
        maxima: Maxima = self._backend.own_maxima(
            self._backend.upload(window.frames[:, own]), self._settings,
            None if self._variances is None else self._variances[own], level=self._level,
        )  # fmt: skip
        maxima["y"] += first
        self.known = end
        return in_rows(maxima, begin, end)


def margin_of(settings: DetectionSettings) -> int:
    """Return how far a maximum's band depends on others: of the other band, and theirs."""
    return math.ceil(3 * float(settings.reach)) + 1


def in_rows(maxima: Maxima, first: int, last: int) -> Maxima:
    """Return those of maxima, which are in order, that are in some rows."""
    y = maxima["y"]
    return maxima[bisect_left(y, first) : bisect_left(y, last)]
