"""Fits of a few spots at places of single frames of the host's, made by the GPU."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...settings.validation import ROI_MAX
from ..block import Block
from ..columns import numbers_per_fit
from ..cpu import layouts
from ..cpu.fit_kind import fit_kind
from ..cpu.layouts import DetectionSource, HostRois, SpotCells
from ..detection.band import make_bands
from ..detection.detection_settings import make_detection_settings
from ..fit_job import FitJob
from ..flat_areas import rule_for
from ..kernel_arguments import PIXEL_TYPES, Results, address, fit_results, row_bytes
from ..own_pixels import Lost
from . import staging
from .fit import FEW_BYTES, Maps, task_of

#: The most places of a call, and the pixels of their ROIs: with more of them, threads are of use.
_MOST, _MOST_PIXELS = 1024, 1 << 17


class Placed(NamedTuple):
    """Fits at places."""

    #: The columns, with y and x from the ROI's first pixel: the same in each call for as many.
    columns: dict[str, NDArray[Any]]
    #: Frame, first row and first column of each ROI.
    corners: NDArray[np.int64]
    #: Pixels that were no spot's.
    lone: Lost | None


class PlaceFits:
    """Fits at places of frames of one shape, by one thread at a time.

    Of a frame the GPU needs no more than the ROIs. The library cuts them out, into memory that the
    GPU reads by itself, and while they are fitted it looks for pixels that do not count; the few
    ROIs that have some are fitted once more. Frames with maps go the way of all fits.

    Parameters
    ----------
    job : FitJob
        How to fit; where its detection knows no σ, hot pixels count.
    """

    def __init__(self, job: FitJob) -> None:
        import cupy

        self._device, self._stream = cupy.cuda.Device(), cupy.cuda.Stream(non_blocking=True)
        self._settings = job.settings
        detection = job.detection
        self._detection = None if detection is None or detection.sigma is None else detection
        self._room = self._count = -1
        self._prepared_for: tuple[Any, ...] = ()
        rows, columns = job.roi_shape
        self._most = min(_MOST, _MOST_PIXELS // (rows * columns))
        if max(rows, columns) > ROI_MAX:
            self._most = 0

    def __call__(self, block: Block, places: NDArray[np.float64]) -> Placed | None:
        """Return fits at places.

        Parameters
        ----------
        block : Block
            One frame of the host's.
        places : ndarray of float64, shape (n, 2)
            y and x in pixels.

        Returns
        -------
        Placed or None
            None where that is left to what looks at pixels more closely: too many places, such as
            are outside, pixels that may be saturated, and pixels with maps.
        """
        count, frame, taken = len(places), block.pixels, block.taken
        has_maps = block.planes is not None or block.variances is not None
        if not 0 < count <= self._most or has_maps:
            return None
        kind = frame.shape, frame.dtype, taken.dtype
        if kind != self._prepared_for:
            self._prepare(block, kind)
        if count > self._room:
            self._make_room(count, frame.dtype, taken.dtype)
        given = self._given
        if count != self._count:
            self._columns = {name: values[:count] for name, values in self._all.items()}
            self._corners = self._all_corners[:count]
            given.spots.count = self._count = count
        self._places[:count] = places
        given.source.frames, given.taken = address(frame), address(taken)
        if self._lone_source is not None:
            self._lone_source.frames = given.source.frames
        cut = self._run()
        if cut < 0:
            return None
        return Placed(self._columns, self._corners, self._lost(cut) if given.lone_count else None)

    def _prepare(self, block: Block, kind: tuple[Any, ...]) -> None:
        """Start over, with frames of another kind."""
        self._room = self._count = -1
        self._shape = block.pixels.shape[1:]
        settings = self._settings
        self._kind = fit_kind(settings, settings.roi_shape, False)
        self._library, self._prepared_for = self._kind.library, kind

    def _run(self) -> int:
        functions, index = self._library.functions, self._library.index
        count, fits = self._count, self._by_reference
        if self._whole[:count].nbytes > FEW_BYTES or functions.spotfit_cut_places(index, fits) < 0:
            return -1
        with self._device, self._stream:
            self._launch(count, whole=True)
            cut: int = functions.spotfit_prepare_cut_places(index, fits)
            if cut > 0:
                self._launch(cut, whole=False)
            self._stream.synchronize()
        if cut > 0:
            functions.spotfit_put_cut_places(index, fits, cut)
        return cut

    def _new(self, size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        kind = np.dtype(dtype)
        memory = staging.pinned(int(np.prod(size)) * kind.itemsize)
        new: NDArray[Any] = memory.view(kind).reshape(size)
        return new

    def _lost(self, cut: int) -> Lost:
        """Return the lone pixels."""
        rois = self._cut[:cut]
        having = self._lone[rois]
        return Lost(rois[having], self._lone_pixels[:cut][having])

    def _make_room(self, room: int, dtype: np.dtype[Any], taken: np.dtype[Any]) -> None:
        """Take memory for so many fits, and say once where all of it is."""
        self._room = self._count = -1  # until all is there: an error leaves no room half made
        self._kept: list[NDArray[Any]] = []
        self._allocate(room, dtype)
        self._look_for_lone_pixels(dtype)
        self._given = self._filled(room, dtype, taken)
        self._by_reference = ctypes.byref(self._given)
        # To the kernel each ROI is a frame: that of cut-outs rounds in another order.
        self._first_pixels = self._new((room, 3), np.int64)
        self._first_pixels[:] = 0
        self._first_pixels[:, 0] = range(room)
        self._launches: dict[tuple[int, bool], Any] = {}
        self._room = room

    def _kept_new(self, size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return memory that is kept as long as this room."""
        self._kept.append(self._new(size, dtype))
        return self._kept[-1]

    def _allocate(self, room: int, dtype: np.dtype[Any]) -> None:
        """Take the memory that Python, too, reads or writes."""
        settings, new = self._settings, self._kept_new
        rois, shape = (room, *settings.roi_shape), (room, len(settings.profile.shape))
        size = row_bytes(settings) * room
        self._results, self._cut_results = (new((size,), np.uint8) for _ in range(2))
        self._all = Results.within(self._results, room, settings).columns(settings.profile)
        self._places, self._all_corners = new((room, 2), float), new((room, 3), np.int64)
        self._cut, self._lone = new((room,), np.int64), new((room,), bool)
        self._lone_pixels = new(rois, bool)
        self._start, self._cut_start = (new(shape, np.float32) for _ in range(2))
        self._pixels, self._whole = (new(rois, dtype) for _ in range(2))
        self._own = new(rois, np.float32)

    def _look_for_lone_pixels(self, dtype: np.dtype[Any]) -> None:
        """Prepare what finds them, if the settings of detection know a σ."""
        self._lone_source = None
        if self._detection is not None:
            self._bands = make_bands(self._detection.known_sigma, self._shape)
            self._numbers = make_detection_settings(self._detection, self._bands, address)
            self._lone_source = DetectionSource(
                0, ctypes.addressof(self._numbers), PIXEL_TYPES[dtype.str[1:]]
            )

    def _filled(self, room: int, dtype: np.dtype[Any], taken: np.dtype[Any]) -> layouts.PlaceFits:
        """Return what the library is given: where all memory is."""
        settings, kind, new = self._settings, self._kind, self._kept_new
        rows, columns = settings.roi_shape
        source = HostRois(
            depth=1,
            height=self._shape[0],
            width=self._shape[1],
            corners=address(self._all_corners),
            start=address(self._start),
            constants=ctypes.addressof(kind.encoded.program) if kind.encoded else 0,
            pixel_type=PIXEL_TYPES[dtype.str[1:]],
        )
        return layouts.PlaceFits(
            source=source,
            taken_type=PIXEL_TYPES[taken.str[1:]],
            profile=kind.profile,
            estimator=kind.estimator,
            rows=rows,
            columns=columns,
            shape=len(settings.profile.shape),
            numbers=numbers_per_fit(settings),
            settings=ctypes.addressof(kind.numbers),
            detection=ctypes.addressof(self._lone_source) if self._lone_source else 0,
            areas=rule_for(taken),
            spots=self._cells(room),
            work=address(new((kind.work_bytes,), np.uint8)),
            results=fit_results(address(self._results), room, settings),
            crowded=address(new((room,), bool)),
            lone=address(self._lone),
            cut=address(self._cut),
            lone_pixels=address(self._lone_pixels),
            pixels=address(self._pixels),
            own=address(self._own),
            planes=address(new((rows, columns), np.float32)),
            variances=address(new((room, rows, columns), np.float32)),
            start=address(self._cut_start),
            cut_results=fit_results(address(self._cut_results), room, settings),
            whole=address(self._whole),
        )

    def _cells(self, room: int) -> SpotCells:
        """Return the places by cells of a frame, none where all pixels count."""
        height, width = self._shape
        roi_shape, new = self._settings.roi_shape, self._kept_new
        side = max(*roi_shape, math.isqrt(height * width // room))
        down, across = -(-height // side), -(-width // side)
        if self._settings.neighbours != "exclude":
            down = across = 0
        return SpotCells(
            corners=address(self._all_corners),
            places=address(self._places),
            frames=1,
            down=down,
            across=across,
            starts=address(new((down * across + 1,), np.int64)),
            by_cell=address(new((room, 2), float)),
            side=side,
            rows=roi_shape[0],
            columns=roi_shape[1],
        )

    def _launch(self, count: int, *, whole: bool) -> None:
        """Begin to fit ROIs: all of them with all pixels, or some without those that do not count.

        What is told to the GPU is the same for as many of them in each frame.
        """
        if (count, whole) not in self._launches:
            self._launches[count, whole] = self._launches_of(count, whole)
        kernel, given = self._launches[count, whole]
        for one in given:
            kernel(*one)

    def _launches_of(self, count: int, whole: bool) -> Any:
        settings = self._settings
        given: tuple[Any, ...] = (
            (self._whole, self._first_pixels, self._start, None, self._results)
            if whole
            else (self._pixels, None, self._cut_start, self._own, self._cut_results)
        )
        pixels, corners, start, own, results = given
        task = task_of(
            settings, settings.roi_shape, pixels.dtype.str[1:],
            gather=whole, planes=not whole, variance_map=False,
        )  # fmt: skip
        return task.launches(
            pixels, corners, start, Maps(own, None), address(results), count, self._room
        )
