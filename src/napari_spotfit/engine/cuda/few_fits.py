"""Fit a few spots of the host on the GPU: cut-outs, or ROIs of a single frame."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.columns import IN_PLANE
from ...settings.validation import ROI_MAX
from ..block import Block, Positions
from ..cpu.block_fits import CpuFitter
from ..cpu.layouts import EXCLUDE, FLAG_TOGETHER, JOIN, PLACE_ROIS
from ..cpu.library import Library
from ..fit_job import FitJob
from ..kernel_arguments import address
from . import transfer
from .fit import Maps, task_of

#: Bytes of pixels up to which the GPU accesses the host's memory, so that one launch suffices.
FEW_BYTES = 256 << 10
#: Largest number of positions, and of pixels of their ROIs: for more, threads pay off.
_MOST, _MOST_PIXELS = 1024, 1 << 17


def is_few(job: FitJob, block: Block, positions: Positions | None) -> bool:
    """Whether fits are few: cut-outs, or ROIs of one plane on the host without maps."""
    count = len(block.pixels if positions is None else positions.places)
    pixels = count * math.prod(job.roi_shape)
    if not (
        isinstance(block.pixels, np.ndarray)
        and 0 < pixels <= FEW_BYTES // np.dtype(job.pixel_type).itemsize
        and max(job.roi_shape) <= ROI_MAX
    ):
        return False
    has_maps = block.planes is not None or block.variances is not None
    return positions is None or (
        len(job.axes) == len(IN_PLANE)
        and positions.frame is None
        and not has_maps
        and count <= _MOST
        and pixels <= _MOST_PIXELS
    )


class FewFits(CpuFitter):
    """Fits a few ROIs, one thread at a time.

    The GPU reads pixels from page-locked memory, and writes results there. The library cuts ROIs
    out of the frame, and searches for pixels to exclude while they are fitted; the few ROIs that
    have some are fitted again.
    """

    at_once = 0

    def __init__(self, library: Library, job: FitJob, _device: int = 0) -> None:
        import cupy

        super().__init__(library, job)
        self._device, self._stream = cupy.cuda.Device(), cupy.cuda.Stream(non_blocking=True)

    def _new(self, size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return page-locked memory that lives as long as the preparation."""
        new = _pinned(size, dtype)
        self._kept.append(new)
        return new

    def _prepare(
        self, kind: tuple[Any, ...], pixels: Any, taken: Any, block: Block, count: int, *, at: bool
    ) -> None:
        self._whole = _pinned((count, *self._job.roi_shape), pixels.dtype)
        self._start = _pinned((count, len(self._job.model.shape)), np.float32)
        self._launches: dict[tuple[int, bool], Any] = {}
        self._work_memory: NDArray[Any] | None = None
        self._known: Any = None
        super()._prepare(kind, pixels, taken, block, count, at=at)

    def _prepare_positions(self, pixels: Any, block: Block) -> None:
        super()._prepare_positions(pixels, block)
        count = self._count
        self._given.whole, self._given.room = address(self._whole), count
        # Each ROI is a frame for the kernel: the kernel of cut-outs rounds in another order.
        self._first_pixels = self._new((count, 3), np.int64)
        self._first_pixels[:] = 0
        self._first_pixels[:, 0] = range(count)

    def _share_out(self, steps: int) -> int:
        """Fit the ROIs that the library prepares on the GPU."""
        source, at_positions = self._source, steps & PLACE_ROIS
        if self._work_memory is None:
            self._work_memory = self._new((self._work_bytes,), np.uint8)
        at, count = address(self._work_memory), self._count
        call = self._library.index, self._by_reference, 0, count, at
        if at_positions and self._work(*call, PLACE_ROIS) < 0:
            return -1
        if not at_positions:
            ctypes.memmove(address(self._whole), source.frames, self._whole.nbytes)
            if source.start:
                ctypes.memmove(address(self._start), source.start, self._start.nbytes)
        with self._device, self._stream:
            self._launch(0)
            if at_positions and self._work(*call, EXCLUDE) == 0 and self._given.cut_count:
                self._launch(self._given.cut_count)
            self._stream.synchronize()
        return int(self._work(*call, JOIN | (steps & FLAG_TOGETHER)))

    def _launch(self, cut: int) -> None:
        """Start to fit `cut` ROIs with excluded pixels, or all ROIs without.

        The commands are cached by that number.
        """
        if self._known is not self._maps:
            self._known, self._launches = self._maps, {}
            self._pinned_maps: Any = Maps.of(*self._maps).each(pinned_copy)
        key = cut, bool(self._source.start)
        if key not in self._launches:
            self._launches[key] = self._launches_of(*key)
        kernel, given = self._launches[key]
        for one in given:
            kernel(*one)

    def _launches_of(self, cut: int, started: bool) -> Any:
        job, given, dtype, maps = self._job, self._given, self._whole.dtype, self._pinned_maps
        corners = self._first_pixels if given.source.corners and not cut else None
        pixels, start = self._whole, self._start if started else None
        results, count, room = given.results.positions, self._count, self._count
        if cut:
            pixels, own = (
                self._part(place, kind, (cut, *job.roi_shape)) for place, kind in
                ((given.cut.frames, dtype), (given.cut.planes.values, np.float32))
            )  # fmt: skip
            start = self._part(given.cut.start, np.float32, (cut, self._start.shape[1]))
            maps, results, count = Maps(own, None), given.cut_results.positions, cut
        task = task_of(
            job.settings, job.roi_shape, dtype.str[1:], gather=corners is not None,
            planes=maps.planes is not None, variance_map=maps.variance is not None,
        )  # fmt: skip
        return task.launches(pixels, corners, start, maps, results, count, room)

    def release_maps(self) -> None:
        """Release the caller's maps, here and in the GPU's memory."""
        super().release_maps()
        if self._known is not self._maps:
            self._known = self._pinned_maps = None

    def _part(self, place: int, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return an array that the library has filled."""
        assert self._work_memory is not None
        return np.ndarray(shape, dtype, self._work_memory, place - address(self._work_memory))


def pinned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in page-locked memory, without a copy if it is there already."""
    if transfer.is_pinned(array):
        return array
    copy = _pinned(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def _pinned(size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    kind = np.dtype(dtype)
    memory: NDArray[Any] = transfer.pinned(math.prod(size) * kind.itemsize).view(kind)
    return memory.reshape(size)
