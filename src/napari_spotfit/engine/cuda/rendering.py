"""Render localisations on the GPU, GPU version of kernels/cpu/vectorized/rendering.cpp."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cell_index import Colors, Floats, Part, SpotIndex
from ..cpu.layouts import CellIndex
from .compile import as_argument, kernel

#: Threads of a block, and of a localisation; blocks that share a row of cells.
THREADS, LANES, BLOCKS = 256, 8, 8
#: Kernels of a picture, in the order in which they run.
KERNELS = ("render_spots", "write_picture")


class GpuIndex:
    """An index of localisations in the memory of the current GPU.

    Parameters
    ----------
    index : SpotIndex
        The index; it takes the same memory there.
    """

    def __init__(self, index: SpotIndex):
        import cupy

        self._xp, self._device = cupy, cupy.cuda.Device()
        self._there = {name: cupy.asarray(array) for name, array in index.arrays().items()}
        self._grid = CellIndex.from_buffer_copy(index.grid)
        for name, array in self._there.items():
            setattr(self._grid, name, array.data.ptr)
        self._sums = cupy.zeros(0, np.uint64)
        self._kept: dict[str, tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def draw(
        self,
        part: Part,
        unit: float = 1.0,
        shown: NDArray[np.bool_] | None = None,
        colors: Colors | None = None,
    ) -> Floats:
        """Draw a part of a picture; see :meth:`.SpotIndex.draw`."""
        shape = part.shape(colors)
        count = math.prod(shape)
        with self._lock, self._device:
            if self._sums.size < count:
                self._sums = self._xp.zeros(count, np.uint64)
            pixels = self._xp.empty(shape, np.float32)
            index = CellIndex.from_buffer_copy(self._grid)
            row, palette = (None, None) if colors is None else colors
            for name, array in (("shown", shown), ("color", row), ("palette", palette)):
                setattr(index, name, self._uploaded(name, array))
            asked = part.argument(unit)
            made = macros(1 if colors is None else 3, gaussian=bool(index.sigma_y))
            render, write = (kernel("cuda/rendering.cu", name, **made) for name in KERNELS)
            grid, pixel_grid = (BLOCKS * index.cell_rows,), (-(-count // THREADS),)
            render(grid, (THREADS,), (as_argument(index), as_argument(asked), self._sums))
            write(pixel_grid, (THREADS,), (self._sums, np.int64(count), np.float32(unit), pixels))
            picture: Floats = pixels.get()
        return picture

    def _uploaded(self, name: str, array: NDArray[Any] | None) -> int:
        """Return where an array is on the GPU; it stays there until another one is drawn."""
        if array is None:
            return 0
        kept = self._kept.get(name)
        if kept is None or kept[0] is not array:
            kept = self._kept[name] = array, self._xp.asarray(array)
        pointer: int = kept[1].data.ptr
        return pointer


def macros(channels: int, *, gaussian: bool) -> dict[str, Any]:
    """Return the constants that the kernels are compiled for."""
    return {
        "THREADS": THREADS, "LANES": LANES, "BLOCKS": BLOCKS, "CHANNELS": channels,
        "GAUSSIAN": "true" if gaussian else "false",
    }  # fmt: skip
