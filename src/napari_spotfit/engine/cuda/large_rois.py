"""Fit large ROIs: sums over pixels on the GPU, the optimiser in the CPU library."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import to_host
from ...images.pixel_calibration import Planes
from ...models.profiles import Profile
from ...settings.settings import Settings
from ..cpu.fit_kind import LargeFit
from ..cpu.layouts import TILE_COLUMNS, LargePixels, LargeRequest, LargeTask
from ..kernel_arguments import Results, address, fit_results, row_bytes
from . import transfer
from .compile import PIXEL_TYPES, as_argument, compiled, with_includes
from .fit_kernel import profile_text

#: Threads of a block, and of a warp.
THREADS, WARP = 256, 32
#: Approximate number of tiles, and least and largest number of rows of a tile: a thread sums some
#: dozens of pixels in single precision. Independent of the GPU, so that sums are, too.
_TILES, _LEAST_ROWS, _MOST_ROWS = 4096, 4, 64

#: Takes a kernel's text and name, a number of warps, and the arguments.
Launch = Callable[..., None]

_SUMS_KERNEL = """#include "cuda/large_roi.h"
{own_profile}
using namespace spotfit;
using namespace spotfit::SPOTFIT_ISA;

extern "C" __global__ void __launch_bounds__({threads})
    add_up(const LargePixels source, const LargeRequest request, const int tiles,
           const int rows_of_tile, double* numbers) {{
    const int tile = blockIdx.x * ({threads} / WARP) + threadIdx.x / WARP;
    add_up_tile<{profile}, {pixel}, {task}>(source, request, tile, tiles, rows_of_tile, numbers);
}}
"""

_JOIN_KERNEL = """#include "cuda/large_roi.h"
using namespace spotfit::SPOTFIT_ISA;

extern "C" __global__ void __launch_bounds__({threads})
    join_up(const double* numbers, const int tiles, const int sums, double* joined) {{
    join_tiles(numbers, tiles, sums, blockIdx.x * ({threads} / WARP) + threadIdx.x / WARP, joined);
}}
"""

_CELLS_KERNEL = """#include "cuda/large_roi.h"
using namespace spotfit;
using namespace spotfit::SPOTFIT_ISA;

extern "C" __global__ void __launch_bounds__({threads})
    fill_cells(const LargePixels source, const LargeRequest request, double* numbers) {{
    const int cell = blockIdx.x * ({threads} / WARP) + threadIdx.x / WARP;
    fill_cell<{pixel}>(source, request, cell, numbers);
}}
"""


class Tiling(NamedTuple):
    """The division of a request's rows into tiles, one per warp."""

    tiles: int
    rows: int

    @classmethod
    def of(cls, request: LargeRequest) -> Tiling:
        """Return the tiles of a request for sums."""
        across = -(-request.columns // TILE_COLUMNS)
        height = request.end_row - request.first_row
        rows = min(max(-(-height * across // _TILES), _LEAST_ROWS), _MOST_ROWS)
        return cls(across * -(-height // rows), rows)


@lru_cache(maxsize=64)
def sums_text(profile: Profile, averaging: str, pixel: str, task: int) -> str:
    """Return the C++ of the kernel that sums over tiles."""
    own_profile, name = profile_text(profile, averaging)
    return with_includes(
        _SUMS_KERNEL.format(
            own_profile=own_profile, profile=name, pixel=PIXEL_TYPES[pixel],
            task=LargeTask.NAMES[task], threads=THREADS,
        )
    )  # fmt: skip


@lru_cache(maxsize=1)
def join_text() -> str:
    """Return the C++ of the kernel that adds up the sums of tiles."""
    return with_includes(_JOIN_KERNEL.format(threads=THREADS))


@lru_cache(maxsize=8)
def cells_text(pixel: str) -> str:
    """Return the C++ of the kernel that examines pixels in cells."""
    return with_includes(_CELLS_KERNEL.format(pixel=PIXEL_TYPES[pixel], threads=THREADS))


def fit_rois(
    frames: Any,
    corners: Any,
    roi_shape: tuple[int, ...],
    settings: Settings,
    start: Any = None,
    *,
    planes: Planes | None = None,
    variance_map: Planes | None = None,
    on_device: bool = False,
) -> dict[str, Any]:
    """Fit large ROIs in frames, with the arguments of :func:`.fit.fit_rois`."""
    import cupy

    corners = None if corners is None else cupy.asnumpy(corners)
    start = None if start is None else np.ascontiguousarray(cupy.asnumpy(start), np.float32)
    count = len(frames) if corners is None else len(corners)
    fit = LargeFit(settings, roi_shape, planes=planes is not None)
    arrays = frames, *(None if one is None else one.values for one in (planes, variance_map))
    there = [None if array is None else _Uploaded(array) for array in arrays]
    memory = np.empty(row_bytes(settings) * count, np.uint8)
    target = fit_results(address(memory), count, settings)
    machine = Machine(settings, frames.dtype.str[1:])
    for roi in range(count):
        frame, top, left = (roi, 0, 0) if corners is None else map(int, corners[roi])
        fit.begin(None if start is None else address(start[roi]), 0.0)
        if frame >= 0:
            places = [array and array.place(frame, top, left) for array in there]
            pixels = LargePixels(*places, frames.shape[2])
            while fit.request.task:
                fit.take(machine.numbers(pixels, fit.request), 1)
        fit.write(roi, target)
    columns = Results.within(memory, count, settings).columns(settings.profile)
    if on_device:
        return {name: cupy.asarray(values) for name, values in columns.items()}
    return columns


class _Uploaded:
    """Frames on the device; those of the host are uploaded one by one."""

    def __init__(self, frames: Any) -> None:
        self._frames, self._number = frames, -1
        self._one = None if isinstance(frames, np.ndarray) else transfer.upload(frames)

    def place(self, frame: int, top: int, left: int) -> int:
        """Return the address of a ROI's first pixel; a single frame serves all."""
        number = min(frame, len(self._frames) - 1)
        _, height, width = self._frames.shape
        if isinstance(self._frames, np.ndarray):
            if number != self._number:
                self._one, self._number = transfer.upload(self._frames[number]), number
            number = 0
        assert self._one is not None
        first: int = self._one.data.ptr
        size: int = self._one.dtype.itemsize
        return first + ((number * int(height) + top) * int(width) + left) * size


class Machine:
    """Computes the numbers that the library requests, on the current device.

    Parameters
    ----------
    settings : Settings
        The settings of the fit.
    pixel : str
        Type of the pixels, such as "u2".
    launch : callable, optional
        Called with a kernel's text and name, a number of warps and the arguments.
    empty : callable, optional
        Returns memory for a number of values.
    """

    def __init__(
        self, settings: Settings, pixel: str, launch: Launch | None = None, empty: Any = None
    ) -> None:
        self._profile, self._averaging, self._pixel = settings.profile, settings.pixel, pixel
        shape = len(settings.profile.shape)
        self._sums = (shape + 2) * (shape + 3) // 2 + shape + 3
        self._launch, self._empty = launch or _launch, empty or _empty

    def numbers(self, pixels: LargePixels, request: LargeRequest) -> NDArray[np.float64]:
        """Return the numbers of a request, computed on the current stream."""
        given = as_argument(pixels), as_argument(request)
        if request.task == LargeTask.CELLS:
            result = self._empty(request.numbers)
            cells = request.cell_rows * request.cell_columns
            self._launch(cells_text(self._pixel), "fill_cells", cells, *given, result)
        else:
            tiling, sums = Tiling.of(request), np.int32(self._sums)
            count, rows = np.int32(tiling.tiles), np.int32(tiling.rows)
            of_tiles, result = self._empty(self._sums * tiling.tiles), self._empty(self._sums)
            text = sums_text(self._profile, self._averaging, self._pixel, request.task)
            self._launch(text, "add_up", tiling.tiles, *given, count, rows, of_tiles)
            self._launch(join_text(), "join_up", self._sums, of_tiles, count, sums, result)
        host: NDArray[np.float64] = to_host(result)
        return host


def _launch(text: str, name: str, warps: int, *arguments: Any) -> None:
    """Launch a kernel with at least this many warps."""
    compiled(text, name)((-(-warps * WARP // THREADS),), (THREADS,), arguments)


def _empty(count: int) -> Any:
    import cupy

    return cupy.empty(count, np.float64)
