"""Fits of a few spots at places of single frames of the host's, made by the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from ..cpu import place_fits
from ..kernel_arguments import address
from . import staging
from .fit import FEW_BYTES, Maps, task_of


class PlaceFits(place_fits.PlaceFits):
    """The twin of :class:`napari_spotfit.engine.cpu.place_fits.PlaceFits`, for a CUDA device.

    Of a frame the GPU needs no more than the ROIs. The library cuts them out, into memory that the
    GPU reads by itself, and while they are fitted it looks for pixels that do not count; the few
    ROIs that have some are fitted once more. Frames with maps go the way of all fits.
    """

    def __init__(
        self,
        settings: Settings,
        detection: Settings,
        frame_shape: tuple[int, int],
        planes: Planes | None = None,
        variance_map: Planes | None = None,
    ) -> None:
        import cupy

        super().__init__(settings, detection, frame_shape, planes, variance_map)
        self._device, self._stream = cupy.cuda.Device(), cupy.cuda.Stream(non_blocking=True)
        if planes is not None or variance_map is not None:
            self._most = 0

    def _new(self, size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        kind = np.dtype(dtype)
        memory = staging.pinned(int(np.prod(size)) * kind.itemsize)
        new: NDArray[Any] = memory.view(kind).reshape(size)
        return new

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

    def _make_room(self, room: int, dtype: np.dtype[Any], taken: np.dtype[Any]) -> None:
        super()._make_room(room, dtype, taken)
        # To the kernel each ROI is a frame: that of cut-outs rounds in another order.
        self._first_pixels = self._new((room, 3), np.int64)
        self._first_pixels[:] = 0
        self._first_pixels[:, 0] = range(room)
        self._launches: dict[tuple[int, bool], Any] = {}

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
