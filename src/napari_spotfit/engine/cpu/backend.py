"""The CPU: detection in strips of frames, for threads, and fits, by the compiled library."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import to_host
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from .. import threads
from ..backend import Block, Columns, Load, Positions, lend
from ..candidates import (
    Candidates,
    Maxima,
    choose_spots,
    in_order,
    join_bands,
    joined,
    masks_of,
    merge_plateaus,
    nothing,
    strips_in_order,
)
from ..crowds import Crowds
from ..detection_settings import (
    MAXIMUM,
    bands_of,
    detection_source,
    make_detection_settings,
)
from ..fit_job import FitJob
from ..kernel_arguments import address
from . import crowd_fits
from .block_fits import CpuFitter
from .layouts import DetectionSettings
from .library import load

#: Pixels of a thread's share of frames, at most.
_SHARE_PIXELS = 1 << 22
#: With fewer pixels than this, starting threads takes longer than they save.
_THREADS_PIXELS = 1 << 18
#: Frames with more pixels than this are shared by threads.
_LARGE_PIXELS = 1 << 20
#: Maxima that there is room for between two calls of the library, if a strip has no more.
_ROOM = 1 << 15

#: Rows of a frame from which the rows of strips follow.
_TALL = 1 << 30
#: Bytes of a block of frames: few, for the caches.
_BLOCK_BYTES = 8 << 20
#: So few spots are fitted by one thread, in memory that is there already.
_FEW = 1024


def detect(
    frames: NDArray[Any],
    settings: Settings,
    mask: NDArray[np.bool_] | None = None,
    variance_map: NDArray[np.float32] | None = None,
    *,
    level: float | None = None,
    depth: int | None = None,
    texture: bool = False,
) -> Candidates:
    """Detect spots in frames.

    A spot is a local maximum of one of two band-passed frames that stands out of the noise and
    is curved as a spot is. NaN and infinite pixels are left out of the band-pass; pixels that
    stand out as no spot's can are taken for the mean of their neighbours.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X), or volumes (n, Z, Y, X)
        C-contiguous, in native byte order; uint8, uint16, int16, float32 or float64.
    settings : Settings
        ``sigma``, of volumes ``sigma_z``, ``false_spots``, ``threshold``, ``noise``,
        ``min_distance`` and ``threads``.
    mask : ndarray of bool, shape of a frame or of all, optional
        Where to look for spots.
    variance_map : ndarray of float32, shape of a frame, optional
        Variances of all pixels beside the settings' noise.
    level : float, optional
        Level of the whole frame, where only parts of it are given; by default that of each frame.
    depth : int, optional
        Planes of the whole volume, where only some of them are given.
    texture : bool
        Whether texture is kept that looks like spots.

    Returns
    -------
    Candidates
        They depend on neither the number of threads nor the other frames.
    """
    masks = masks_of(mask, frames.shape)
    if frames.size == 0:
        return nothing(frames.ndim - 1)
    n, pixels = len(frames), math.prod(frames.shape[1:])
    workers = settings.threads or threads.available()
    if frames.size <= _THREADS_PIXELS:
        workers = 1
    detector = Detector(frames, settings, variance_map, level, depth, texture=texture)
    whole = pixels > _LARGE_PIXELS and n < workers
    parts: dict[int, Candidates] = {}

    def spots(first: int, last: int, threads_of_frame: int) -> None:
        maxima = detector.maxima(first, last, threads_of_frame)
        join_bands(maxima, detector.settings, settings.min_distance)
        parts[first] = choose_spots(
            maxima, detector.settings, masks, settings.min_distance,
            lambda flat: merge_plateaus(
                flat, frames, level, detector.settings.planes_per_pixel
            ),
        )  # fmt: skip

    if whole:
        for frame in range(n):
            spots(frame, frame + 1, workers)
    else:
        share = min(-(-n // workers), max(_SHARE_PIXELS // pixels, 1))
        threads.in_pieces(lambda first, last: spots(first, last, 1), n, share, workers)
    return joined([parts[first] for first in sorted(parts)])


def strip_rows(width: int) -> int:
    """Return how many rows of a frame so wide are filtered together, where it has as many."""
    library, counts = load(), list[int]()
    for height in (1, _TALL):
        shape = DetectionSettings(height=height, width=width, depth=1)
        counts.append(
            library.functions.spotfit_detection_strips(library.index, ctypes.byref(shape))
        )
    return round(_TALL * counts[0] / counts[1])


class Detector:
    """Frames, and what to find in them.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        As :func:`detect` takes them.
    settings, variance_map
        As :func:`detect` takes them.
    level, depth
        Those of the whole frame, if these are parts of it.
    texture
        As :func:`detect` takes it.
    """

    def __init__(
        self,
        frames: NDArray[Any],
        settings: Settings,
        variance_map: NDArray[np.float32] | None = None,
        level: float | None = None,
        depth: int | None = None,
        *,
        texture: bool = False,
    ) -> None:
        self._bands = bands_of(settings, frames.shape[1:])
        #: As the library takes them.
        self.settings = make_detection_settings(
            settings, self._bands, address, variance_map=variance_map, level=level, depth=depth,
            texture=texture,
        )  # fmt: skip
        self._kept = frames, variance_map
        self._source = detection_source(frames, self.settings)
        self._library = load()
        self._strips = self._ask("spotfit_detection_strips")
        self._most_maxima = self._ask("spotfit_most_maxima")

    def maxima(self, first: int, last: int, workers: int = 1) -> Maxima:
        """Return the maxima of both bands that are spots', of some frames."""
        found = self._of_strips(first * self._strips, last * self._strips, workers)
        if last - first == 1 and not self.settings.volume:
            return strips_in_order(found, int(self.settings.height))
        return in_order(found)

    def _of_strips(self, first: int, last: int, workers: int) -> Maxima:
        found: dict[int, list[NDArray[np.uint8]]] = {}

        def find(begin: int, end: int) -> None:
            found[begin] = self._in_strips(first + begin, first + end)

        count = last - first
        threads.in_pieces(find, count, -(-count // workers), workers)
        parts = [part for begin in sorted(found) for part in found[begin]]
        maxima: Maxima = np.concatenate(parts).view(MAXIMUM).ravel()
        return maxima

    def _in_strips(self, first: int, last: int) -> list[NDArray[np.uint8]]:
        """Return the maxima of strips of all frames, in as many parts as it takes.

        As plain bytes: NumPy copies records field by field.
        """
        room = max(self._most_maxima, min(_ROOM, (last - first) * self._most_maxima))
        memory = np.empty(self._ask("spotfit_detection_bytes"), np.uint8)
        found = np.empty((room, MAXIMUM.itemsize), np.uint8)
        count = ctypes.c_longlong()
        parts = []
        while first < last:
            first = self._library.functions.spotfit_find_maxima(
                self._library.index, ctypes.byref(self._source), first, last, address(memory),
                address(found), room, ctypes.byref(count),
            )  # fmt: skip
            parts.append(found[: count.value].copy())
        return parts

    def _ask(self, name: str) -> int:
        """Call a function of the library that needs the settings alone."""
        function = getattr(self._library.functions, name)
        return int(function(self._library.index, self._source.settings))


class Cpu:
    """The CPU.

    Parameters
    ----------
    threads : int
        How many it works with at most.
    """

    kind: Literal["cpu"] = "cpu"
    long_movies = None
    reads_all = False

    def __init__(self, threads: int) -> None:
        self.name = f"CPU ({threads} thread{'s' if threads > 1 else ''})"
        self.load = Load(threads, _BLOCK_BYTES, 1)

    def ran_on(self) -> str:
        """Return its name."""
        return self.name

    def detect(self, block: Block, settings: Settings) -> Candidates:
        """Find spots, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        return detect(
            to_host(block.pixels), settings, block.mask, block.noise_map,
            level=block.level, depth=block.height,
        )  # fmt: skip

    def fit(
        self,
        job: FitJob,
        block: Block,
        positions: Positions | None = None,
        start: NDArray[np.float32] | None = None,
        *,
        on_device: bool = False,
    ) -> Columns:
        """Fit ROIs, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        assert not on_device
        count = len(block.pixels if positions is None else positions.places)
        if count > _FEW or max(job.roi_shape) > ROI_MAX:
            return CpuFitter(load(), job).fit(block, positions, start)
        fitter, idle = lend(CpuFitter, load(), job)
        columns = fitter.fit(block, positions, start)
        columns = {name: column.copy() for name, column in columns.items()}
        fitter.release_maps()
        idle.append(fitter)
        return columns

    def fit_crowds(self, block: Block, crowds: Crowds) -> NDArray[np.void]:
        """Fit spots together, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        return crowd_fits.fit_crowds(block, crowds)

    def fitter(self, job: FitJob) -> CpuFitter:
        """Prepare fits that are made again and again."""
        return CpuFitter(load(), job)
