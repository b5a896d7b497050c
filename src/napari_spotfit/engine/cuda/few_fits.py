"""Fits of a few spots in single frames of the host's, made by the GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.validation import ROI_MAX
from ..block import Block, Positions
from ..cpu.block_fits import CpuFitter
from ..cpu.layouts import EXCLUDE, FLAG_TOGETHER, JOIN, PLACE_ROIS
from ..fit_job import FitJob
from ..kernel_arguments import address
from . import staging
from .fit import FEW_BYTES, Maps, task_of

#: The most positions of a call, and the pixels of their ROIs: with more of them, threads are of
#: use.
_MOST, _MOST_PIXELS = 1024, 1 << 17


def is_few(job: FitJob, block: Block, positions: Positions) -> bool:
    """Whether fits are few enough, in a frame of the host's without maps of its pixels."""
    pixels = len(positions.yx) * math.prod(job.roi_shape)
    return (
        isinstance(block.pixels, np.ndarray)
        and positions.frame is None
        and block.planes is None
        and block.variances is None
        and 0 < len(positions.yx) <= _MOST
        and pixels <= min(_MOST_PIXELS, FEW_BYTES // block.pixels.itemsize)
        and max(job.roi_shape) <= ROI_MAX
    )


class FewFits(CpuFitter):
    """Fits of a few ROIs of a frame, by one thread at a time.

    Of the frame the GPU needs no more than the ROIs. The library cuts them out, into memory that
    the GPU reads by itself, and while they are fitted it looks for pixels to exclude; the few ROIs
    that have some are fitted once more.
    """

    at_once = 0

    def __init__(self, *given: Any) -> None:
        import cupy

        super().__init__(*given)
        self._device, self._stream = cupy.cuda.Device(), cupy.cuda.Stream(non_blocking=True)

    def _new(self, size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return page-locked memory, which is kept as long as what is prepared."""
        kind = np.dtype(dtype)
        memory = staging.pinned(math.prod(size) * kind.itemsize)
        new: NDArray[Any] = memory.view(kind).reshape(size)
        self._kept.append(new)
        return new

    def _prepare_positions(self, pixels: Any, block: Block) -> None:
        super()._prepare_positions(pixels, block)
        count = self._count
        self._whole = self._new((count, *self._job.roi_shape), pixels.dtype)
        self._given.whole, self._given.room = address(self._whole), count
        # To the kernel each ROI is a frame: that of cut-outs rounds in another order.
        self._first_pixels = self._new((count, 3), np.int64)
        self._first_pixels[:] = 0
        self._first_pixels[:, 0] = range(count)
        self._launches: dict[int, Any] = {}
        self._work_memory: NDArray[Any] | None = None

    def _share_out(self, steps: int) -> int:
        """Let the GPU fit what the library prepares."""
        if self._work_memory is None:
            self._work_memory = self._new((self._work_bytes,), np.uint8)
        at, count = address(self._work_memory), self._count
        call = self._library.index, self._by_reference, 0, count, at
        if self._work(*call, PLACE_ROIS) < 0:
            return -1
        with self._device, self._stream:
            self._launch(0)
            self._work(*call, EXCLUDE)
            if self._given.cut_count:
                self._launch(self._given.cut_count)
            self._stream.synchronize()
        return int(self._work(*call, JOIN | FLAG_TOGETHER))

    def _launch(self, cut: int) -> None:
        """Begin to fit so many ROIs without some of their pixels, or all with all pixels.

        What is told to the GPU is the same for as many of them in each frame.
        """
        if cut not in self._launches:
            self._launches[cut] = self._launches_of(cut)
        kernel, given = self._launches[cut]
        for one in given:
            kernel(*one)

    def _launches_of(self, cut: int) -> Any:
        job, given, dtype = self._job, self._given, self._whole.dtype
        task = task_of(
            job.settings, job.roi_shape, dtype.str[1:],
            gather=not cut, planes=cut > 0, variance_map=False,
        )  # fmt: skip
        if not cut:
            count, no_maps = self._count, Maps(None, None)
            return task.launches(
                self._whole, self._first_pixels, self._start, no_maps,
                given.results.y, count, count,
            )  # fmt: skip
        pixels, own = (
            self._part(place, kind, (cut, *job.roi_shape))
            for place, kind in ((given.cut.frames, dtype), (given.cut.planes.values, np.float32))
        )
        start = self._part(given.cut.start, np.float32, (cut, self._start.shape[1]))
        return task.launches(
            pixels, None, start, Maps(own, None), given.cut_results.y, cut, given.room
        )

    def _part(self, place: int, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return what the library has put into its memory."""
        assert self._work_memory is not None
        return np.ndarray(shape, dtype, self._work_memory, place - address(self._work_memory))
