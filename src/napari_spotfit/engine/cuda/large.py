"""Large ROIs on the GPU: an image is uploaded once, and a point of the search is a launch."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from ..large import fit
from ..large.image import Array, Bins, Sums, origin_of, sums_of, to_sums
from . import pixelwise, transfer
from .compile import kernel
from .layout import PIXEL_TYPES, model_macros, packed

#: Warps of a block, blocks that a multiprocessor works on side by side, and pixels that a
#: warp takes at a time, as kernels/large.cu says.
WARPS, _BLOCKS, _RUN = 8, 4, 64

#: Numbers that kernels return at most: bins, or sums.
_SHARED = 4 * 64 * 64

#: Where pixels and planes lie: addresses, lengths of rows in memory, rows and columns.
_ROI = struct.Struct("QQqqii")


class Place(NamedTuple):
    """Where a ROI's pixels lie: the address of the first, and a row's length in memory."""

    address: int
    pitch: int


class Launcher(NamedTuple):
    """What starts kernels: on the device, or in tests on the host."""

    #: Takes kernel name, grid, arguments and macros.
    run: Callable[[str, int, tuple[Any, ...], dict[str, Any]], None]
    #: Waits for the kernels.
    wait: Callable[[], None]
    #: Memory of the device: sums of blocks, and how many blocks have finished (none yet).
    blocks: Any
    finished: Any
    #: Memory that the host and the kernels see.
    shared: NDArray[np.float64]
    #: Blocks of a launch, at most.
    most: int


def fit_rois(
    frames: Any,
    corners: Any,
    roi_shape: tuple[int, int],
    settings: Settings,
    start: Any,
    planes: Planes | None,
    on_device: bool,
) -> dict[str, Any]:
    """Fit large ROIs where they lie in the frames; as ``cuda.fit.fit_rois`` says."""
    import cupy

    corners = None if corners is None else cupy.asnumpy(corners)
    start = None if start is None else cupy.asnumpy(start)
    there, known = _Uploaded(frames), None if planes is None else _Uploaded(planes.values)
    launcher = _launcher(settings, len(settings.profile.shape))

    def image_of(number: int) -> CudaImage | None:
        frame, top, left = (number, 0, 0) if corners is None else map(int, corners[number])
        if frame < 0:
            return None
        plane = Place(0, 0) if known is None else known.place(frame, top, left)
        pixels = there.place(frame, top, left)
        return CudaImage(launcher, roi_shape, pixels, plane, settings, frames.dtype)

    count = len(frames) if corners is None else len(corners)
    columns = fit.fit_rois(image_of, count, roi_shape, settings, start)
    if on_device:
        return {name: cupy.asarray(values) for name, values in columns.items()}
    return columns


class _Uploaded:
    """Frames on the device; those of the host come one by one."""

    def __init__(self, frames: Any) -> None:
        self._frames, self._number = frames, -1
        self._one = None if isinstance(frames, np.ndarray) else transfer.upload(frames)

    def place(self, frame: int, top: int, left: int) -> Place:
        """Return where a ROI begins; a plane alone is that of all frames."""
        number = min(frame, len(self._frames) - 1)
        _, height, width = self._frames.shape
        if isinstance(self._frames, np.ndarray):
            if number != self._number:
                self._one, self._number = transfer.upload(self._frames[number]), number
            number = 0
        assert self._one is not None
        place = (number * height + top) * width + left
        return Place(self._one.data.ptr + place * self._one.dtype.itemsize, width)


def _launcher(settings: Settings, shape: int) -> Launcher:
    import cupy

    before = pixelwise.before(settings.profile)
    attributes = cupy.cuda.Device().attributes
    most = int(attributes["MultiProcessorCount"]) * _BLOCKS
    blocks = cupy.empty(most * sums_of(shape), np.float64)
    finished = cupy.zeros(1, np.uint32)

    def run(name: str, grid: int, arguments: tuple[Any, ...], macros: dict[str, Any]) -> None:
        kernel("large.cu", name, before, **macros)((grid,), (32 * WARPS,), arguments)

    return Launcher(
        run, lambda: cupy.cuda.get_current_stream().synchronize(), blocks, finished,
        transfer.pinned(8 * _SHARED).view(np.float64), most,
    )  # fmt: skip


def _address(memory: NDArray[np.float64]) -> np.uint64:
    """Return pinned memory as CuPy takes it as a kernel's argument."""
    return np.uint64(memory.ctypes.data)


class CudaImage:
    """The pixels of one ROI; see :class:`~napari_spotfit.engine.large.image.Image`."""

    def __init__(
        self, launcher: Launcher, shape: tuple[int, int], pixels: Place, plane: Place,
        settings: Settings, pixel: np.dtype[Any],
    ) -> None:  # fmt: skip
        self._launcher, self._shape = launcher, shape
        self._roi = packed(_ROI, pixels.address, plane.address, pixels.pitch, plane.pitch, *shape)
        #: What the kernels are compiled for.
        self.macros = model_macros(settings) | {
            "HELD": 0, "CANONICAL": 0, "WARPS": WARPS, "PIXEL": PIXEL_TYPES[pixel.str[1:]],
            "PLANES": int(plane.address != 0), "POISSON": int(settings.estimator == "mle"),
            "LIKELIHOOD": 0,
        }  # fmt: skip
        self._profile = settings.profile
        self._level, self._scale = 0.0, 1.0

    def bins(self, top: int, left: int, cell: int, rows: int, columns: int) -> Bins:
        """Return the pixels from row ``top`` and column ``left`` on in cells of a side."""
        cells = rows * columns
        numbers = (np.int32(value) for value in (top, left, cell, rows, columns))
        shared = self._launcher.shared
        arguments = (self._roi, *numbers, _address(shared))
        self._launcher.run("bin_pixels", -(-cells // WARPS), arguments, self.macros)
        self._launcher.wait()
        return Bins(*shared[: 4 * cells].copy().reshape(4, rows, columns))

    def set_unit(self, level: float, scale: float) -> None:
        """From now on pixels are (counts - level) · scale."""
        self._level, self._scale = level, scale

    def least_squares(
        self, shape: Array, amplitude: float, background: float, weighted: bool = True
    ) -> Sums:
        """Return the sums at a shape, in the order of the kernels; the angle in radians."""
        macros = self.macros if weighted else self.macros | {"PLANES": 0}
        return self._sums(macros, shape, (amplitude, background, 1.0, 0.0))

    def noise(self, shape: Array, amplitude: float, background: float, shot: float) -> Array:
        """Return Σ w² n d dᵀ with the variance n = shot · max(amplitude·f + background, 0)."""
        return self._sums(self.macros, shape, (amplitude, background, 0.0, shot)).matrix

    def likelihood(self, shape: Array, amplitude: float, background: float) -> Sums:
        """Return the sums of maximum likelihood; the variance v is in pixels' units."""
        macros = self.macros | {"LIKELIHOOD": 1}
        return self._sums(macros, shape, (amplitude, background, 1.0, 0.0))

    def _sums(self, macros: dict[str, Any], shape: Array, light: tuple[float, ...]) -> Sums:
        origin = [int(place) for place in origin_of(self._profile, shape)]
        near = (shape[0] - origin[0], shape[1] - origin[1], *shape[2:])
        count = len(shape)
        kind = struct.Struct(f"2d{count + 4}f2i{'4x' if count % 2 else ''}")
        trial = packed(kind, self._level, self._scale, *near, *light, *origin)
        launcher = self._launcher
        runs = self._shape[0] * -(-self._shape[1] // _RUN)
        grid = min(-(-runs // WARPS), launcher.most)
        arguments = (
            self._roi, trial, launcher.blocks, launcher.finished, _address(launcher.shared)
        )  # fmt: skip
        launcher.run("add_pixels", grid, arguments, macros)
        launcher.wait()
        return to_sums(launcher.shared[: sums_of(count)], count)
