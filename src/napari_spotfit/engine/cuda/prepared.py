"""Fits of cut-outs of one kind again and again on the GPU: one launch, over memory that is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.validation import ROI_MAX
from ..fit_job import FitJob
from ..kernel_arguments import Results, address
from . import staging
from .fit import FEW_BYTES, Maps, fit_rois, pinned_copy, task_of


class PreparedFits:
    """Fits of cut-outs of one job, by one thread at a time.

    The GPU reads cut-outs from the host's pinned memory, and writes results there, by itself. What
    is too much for that, or lies on the GPU, goes the way of all fits.
    """

    def __init__(self, job: FitJob) -> None:
        import cupy

        self._settings, self._roi_shape = job.settings, job.roi_shape
        self._dtype = np.dtype(job.pixel_type)
        self._device, self._stream = cupy.cuda.Device(), cupy.cuda.Stream(non_blocking=True)
        self._columns: dict[str, NDArray[Any]] = {}
        self._count = self._room = 0
        self._given: tuple[Any, ...] | None = None
        pixel_bytes = job.roi_shape[0] * job.roi_shape[1] * self._dtype.itemsize
        self._most = 0 if max(job.roi_shape) > ROI_MAX else FEW_BYTES // pixel_bytes

    def __call__(
        self,
        pixels: Any,
        start: Any = None,
        planes: Planes | None = None,
        variance_map: Planes | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of fits; some are the same memory in each call."""
        count = len(pixels)
        with self._device:
            if not (0 < count <= self._most and isinstance(pixels, np.ndarray)):
                return fit_rois(
                    pixels, None, self._roi_shape, self._settings, start, planes=planes,
                    variance_map=variance_map,
                )  # fmt: skip
            if self._given is None or self._given != (id(planes), id(variance_map)):
                self._know(planes, variance_map)
            if count != self._count:
                self._take(count)
            np.copyto(self._pixels, pixels)
            if start is not None:
                np.copyto(self._start, start)
            with self._stream:
                self._task.launch(
                    self._pixels, None, None if start is None else self._start, self._maps,
                    self._memory_at, count,
                )  # fmt: skip
            self._stream.synchronize()
        return self._columns

    def _know(self, planes: Planes | None, variance_map: Planes | None) -> None:
        """Keep what is known of the pixels where the GPU reads it."""
        self._task = task_of(
            self._settings, self._roi_shape, self._dtype.str[1:], gather=False,
            planes=planes is not None, variance_map=variance_map is not None,
        )  # fmt: skip
        self._kept = planes, variance_map
        self._maps = Maps.of(planes, variance_map).each(pinned_copy)
        self._given = id(planes), id(variance_map)

    def _take(self, count: int) -> None:
        """Have room for so many fits."""
        shape = len(self._settings.profile.shape)
        if count > self._room:
            rows, columns = self._roi_shape
            self._all_pixels = _pinned((count, rows, columns), self._dtype)
            self._all_starts = _pinned((count, shape), np.dtype(np.float32))
            self._memory = staging.pinned(self._task.row_bytes * count)
            self._memory_at, self._room = address(self._memory), count
        self._pixels, self._start = self._all_pixels[:count], self._all_starts[:count]
        memory = self._memory[: self._task.row_bytes * count]
        results = Results.within(memory, count, self._settings)
        self._columns, self._count = results.columns(self._settings.profile), count


def _pinned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    size = int(np.prod(shape)) * dtype.itemsize
    return staging.pinned(size).view(dtype).reshape(shape)
