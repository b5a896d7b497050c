"""Detection on the CPU, by the compiled library: frames, or tiles of large ones, for threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from .. import threads
from ..detection.band import make_band
from ..detection.candidates import Candidates, joined, masks_of, nothing
from ..detection.detection_settings import MAXIMUM, make_detection_settings
from ..detection.nonmax_suppression import (
    Maxima,
    has_plateaus,
    in_order,
    merge_plateaus,
    one_per_spot,
)
from ..kernel_arguments import address
from .interface import DetectionSource
from .library import load

#: Pixels of a thread's share of frames, at most.
_SHARE_PIXELS = 1 << 22
#: With fewer pixels than this, starting threads takes longer than they save.
_THREADS_PIXELS = 1 << 18
#: A frame with more pixels is taken in parts, by several threads if there are fewer frames.
_LARGE_PIXELS = 1 << 20
#: Of whose tiles a thread gets so many at a time.
_SHARE_TILES = 16
#: Maxima that there is room for between two calls of the library, if a frame has no more.
_ROOM = 1 << 15
#: How many numbers more there must be room for behind a sample.
_SAMPLE_PADDING = 16
#: Distances along y and x of the samples that the noise is estimated from: none for the
#: filtered pixels, the others for detail.
_SAMPLES = ((0, 0), (1, 1), (1, 2), (2, 1))


def detect(
    frames: NDArray[Any], settings: Settings, mask: NDArray[np.bool_] | None = None
) -> Candidates:
    """Detect spots in frames.

    A spot is a local maximum of the band-passed frame that is higher than the threshold.
    NaN and infinite pixels are left out of the band-pass. On the border, where mirrored
    pixels count twice, the noise is higher accordingly.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        C-contiguous, in native byte order; uint8, uint16, int16, float32 or float64.
    settings : Settings
        ``sigma``, ``threshold``, ``threshold_unit``, ``min_distance`` and ``threads``.
    mask : ndarray of bool, shape (Y, X) or (n, Y, X), optional
        Where to look for spots. The noise is that of the whole frame all the same.

    Returns
    -------
    Candidates
        They depend on neither the number of threads nor the other frames.
    """
    masks = masks_of(mask, frames.shape)
    if frames.size == 0:
        return nothing()
    n, height, width = frames.shape
    workers = settings.threads or threads.available()
    if frames.size <= _THREADS_PIXELS:
        workers = 1
    large = height * width > _LARGE_PIXELS
    in_frame = workers if large and n < workers else 1
    detector = Detector(frames, settings)
    parts = {}

    def work(first: int, last: int) -> None:
        if large:
            maxima = detector.maxima_of_frame(first, in_frame)
        else:
            maxima = detector.maxima(first, last)
        merged = has_plateaus(maxima)
        if merged:
            maxima = merge_plateaus(maxima, frames)
        parts[first] = one_per_spot(maxima, masks, height, settings.min_distance, merged)

    share = 1 if large else min(-(-n // workers), max(_SHARE_PIXELS // (height * width), 1))
    threads.in_pieces(work, n, share, 1 if in_frame > 1 else workers)
    return joined([parts[first] for first in sorted(parts)])


class Detector:
    """Frames, and what to find in them.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        As :func:`detect` takes them.
    settings : Settings
        ``sigma``, ``threshold`` and ``threshold_unit`` count.
    """

    def __init__(self, frames: NDArray[Any], settings: Settings) -> None:
        self._band = make_band(settings.sigma, frames.shape[1:])
        #: As the library takes them.
        self.settings = make_detection_settings(settings, self._band, address)
        self._frames, self._source = frames, DetectionSource.of(frames, self.settings)
        self._library = load()
        self._tiles = self._ask("spotfit_detection_tiles")
        self._most_maxima = self._ask("spotfit_most_maxima")

    def maxima(self, first: int, last: int) -> Maxima:
        """Return the maxima that stand out, of frames from beginning to end."""
        room = max(self._tiles * self._most_maxima, min(_ROOM, (last - first) * self._most_maxima))
        memory, found = self._memory(whole=True), np.empty(room, MAXIMUM)
        count = ctypes.c_longlong()
        parts = []
        while first < last:
            first = self._call(
                "spotfit_detect", first, last, address(memory), address(found), room,
                ctypes.byref(count),
            )  # fmt: skip
            parts.append(found[: count.value].copy())
        return self._joined(parts)

    def maxima_of_frame(self, frame: int, workers: int) -> Maxima:
        """Return the same of one frame, of which several threads do some tiles each."""
        bad = self.has_bad_pixels(frame)
        noise, filtered = self.estimate_noise(frame, workers)
        found = {}

        def find(first: int, last: int) -> None:
            memory = self._memory(whole=False)
            maxima = np.empty((last - first) * self._most_maxima, MAXIMUM)
            count = self._call(
                "spotfit_find_maxima", frame, bad, noise, first, last, address(memory),
                address(filtered), address(maxima),
            )  # fmt: skip
            found[first] = maxima[:count].copy()

        self._in_tiles(find, workers)
        return self._joined(list(found.values()))

    def has_bad_pixels(self, frame: int) -> bool:
        """Whether there are NaN or infinite pixels in a frame, or pixels as good as infinite."""
        return bool(self._call("spotfit_has_bad_pixels", frame))

    def estimate_noise(self, frame: int, workers: int = 1) -> tuple[float, NDArray[np.float32]]:
        """Return a frame's noise after the band-pass, and the filtered pixels it is that of."""
        bad = self.has_bad_pixels(frame)
        filtered, fine = (self.sample(frame, bad, by, workers) for by in _SAMPLES[:2])
        known = self._deviations([filtered, fine], workers)
        # What is not known yet may not matter.
        noise = self._noise(known, np.zeros(2))
        if noise != self._noise(known, np.full(2, np.inf)):
            coarse = [self.sample(frame, bad, by, workers) for by in _SAMPLES[2:]]
            noise = self._noise(known, self._deviations(coarse, workers))
        return noise, filtered

    def _noise(self, fine: NDArray[np.float64], coarse: NDArray[np.float64]) -> float:
        """Return the noise from the deviations of all samples."""
        deviations = np.concatenate([fine, coarse])
        return float(self._ask("spotfit_noise", address(deviations)))

    def _deviations(self, samples: list[NDArray[np.float32]], workers: int) -> NDArray[np.float64]:
        """Return the standard deviation of the middle of each sample."""
        deviations = np.empty(len(samples))

        def measure(first: int, last: int) -> None:
            deviations[first] = self._library.functions.spotfit_deviation(
                self._library.index, address(samples[first]), len(samples[first]) - _SAMPLE_PADDING
            )

        threads.in_pieces(measure, len(samples), 1, workers)
        return deviations

    def sample(
        self, frame: int, bad: bool, by: tuple[int, int], workers: int = 1
    ) -> NDArray[np.float32]:
        """Return numbers that the noise is estimated from, and room for some more.

        They are the filtered pixels of every ``row_step``-th row, or detail at distances along y
        and x.
        """
        numbers = np.empty(self._ask("spotfit_sample_size", *by) + _SAMPLE_PADDING, np.float32)

        def fill(first: int, last: int) -> None:
            memory = self._memory(whole=False)
            self._call(
                "spotfit_sample", frame, bad, *by, first, last, address(memory), address(numbers)
            )

        self._in_tiles(fill, workers)
        return numbers

    def _in_tiles(self, work: Callable[[int, int], None], workers: int) -> None:
        share = min(-(-self._tiles // workers), _SHARE_TILES)
        threads.in_pieces(work, self._tiles, share, workers)

    def _joined(self, parts: list[Maxima]) -> Maxima:
        maxima = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return maxima if self._tiles == 1 else in_order(maxima)

    def _memory(self, whole: bool) -> NDArray[np.uint8]:
        """Return what a thread needs, for whole frames or for tiles."""
        return np.empty(self._ask("spotfit_detection_bytes", whole), np.uint8)

    def _ask(self, name: str, *rest: Any) -> Any:
        """Call a function of the library that needs the settings."""
        function = getattr(self._library.functions, name)
        return function(self._library.index, self._source.settings, *rest)

    def _call(self, name: str, *rest: Any) -> Any:
        """Call a function of the library that needs the frames."""
        function = getattr(self._library.functions, name)
        return function(self._library.index, ctypes.byref(self._source), *rest)
