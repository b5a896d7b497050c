"""Fit ROIs on the GPU, from frames on the device or the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ...images.arrays import native_type, to_host
from ...images.pixel_calibration import Planes
from ...models.lattice import Lattice
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from ..cpu.layouts import PixelMap, RoiSource
from ..fit_job import make_fit_settings
from ..kernel_arguments import (
    Reached,
    Results,
    address,
    fit_results,
    frame_sizes,
    program_of,
    row_bytes,
    templates,
)
from . import large_rois, transfer
from .compile import as_argument
from .devices import multiprocessors
from .fit_kernel import WARP, FitCode, FitKernel, fit_kernel
from .pieces import fit_in_pieces, halving
from .transfer import CommandList

#: Largest work of a launch in operations per thread, and the number of multiprocessors for which it
#: holds: 0.2 s on a GPU with a twentieth of an H200's speed, as display drivers end kernels after
#: 2.
_LAUNCH_WORK, _SLOW = 1e11, 7
#: Least number of warps per multiprocessor in a launch.
_WARPS_AT_ONCE = 4


class PsfOnDevice(NamedTuple):
    """The constants of a PSF, and the arrays that they refer to."""

    constants: Any
    kept: tuple[Any, ...]


@lru_cache(maxsize=16)
def psf_on_device(psf: Lattice, roi_shape: tuple[int, ...], _device: int) -> PsfOnDevice:
    """Return a PSF for ROIs of one size on the current device, which is `_device`."""
    import cupy

    return lay_out_psf(psf, roi_shape, cupy.asarray)


def lay_out_psf(psf: Lattice, roi_shape: tuple[int, ...], upload: Any) -> PsfOnDevice:
    """Return a PSF in the layout of kernels/cuda/lattice.h, with arrays from ``upload``."""
    reached = Reached.of(psf, roi_shape)
    places, images = templates(psf, roi_shape)
    taps = taps_of(reached.coefficients)
    pixels = 2 * roi_shape[-1] + 1  # of a line of an image
    arrays = (
        upload(places),
        upload(_and_past(taps, taps[0, 0].size)),
        upload(_and_past(images, pixels)),
    )
    numbers = as_argument(program_of(psf, reached, *arrays)).reshape(1).view(np.uint8)
    return PsfOnDevice(upload(numbers), arrays)


def taps_of(coefficients: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each voxel's coefficient and the next ones in z, by planes, rows and columns."""
    return sliding_window_view(coefficients, 4, axis=0)


def _and_past(numbers: NDArray[np.float32], line: int) -> NDArray[np.float32]:
    """Return numbers, and the lines after them that threads with fewer lines read in vain."""
    return np.concatenate([numbers.ravel(), np.zeros(WARP * line, np.float32)])


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
    commands: CommandList | None = None,
    devices: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Fit ROIs in frames of NumPy, or of CuPy on the current device.

    Parameters
    ----------
    frames : array, shape (n_frames, Y, X)
        Of a type that kernels read; NumPy cut-outs of any real type and layout.
    corners : array of int64, shape (n, 3), or None
        Frame, first row and first column of each ROI; ROIs outside the image have a negative frame,
        and their fits are INVALID. None if every frame is a ROI.
    roi_shape : tuple of int
        Rows and columns of the ROIs.
    settings : Settings
        The settings of the fit.
    start : array of float32, shape (n, K), optional
        Start values of the shape parameters in the order of the profile, y and x from the ROI's
        first pixel; NaN for the built-in value.
    planes : Planes, optional
        Weights for least squares, read-out variances for maximum likelihood.
    variance_map : Planes, optional
        Read-out variances in counts², for the standard errors of least squares with a known gain;
        by default that of the settings.
    on_device : bool
        Whether to leave the results on the device, computed on CuPy's current stream without
        waiting.
    commands : CommandList, optional
        The list to which to add the fits, instead of running them.
    devices : sequence of int, optional
        The devices that share NumPy cut-outs; by default the current one.

    Returns
    -------
    dict of ndarray
        The columns of SpotFits, with y and x from the ROI's first pixel.
    """
    import cupy

    if max(roi_shape) > ROI_MAX:
        return large_rois.fit_rois(
            frames, corners, roi_shape, settings, start,
            planes=planes, variance_map=variance_map, on_device=on_device,
        )  # fmt: skip
    n = len(frames) if corners is None else len(corners)
    if n == 0:
        return Results.within(np.empty(0, np.uint8), 0, settings).columns(settings.profile)
    maps = Maps.of(planes, variance_map)
    task = task_of(
        settings, roi_shape, native_type(frames.dtype).str[1:], gather=corners is not None,
        planes=planes is not None, variance_map=variance_map is not None,
    )  # fmt: skip
    if isinstance(frames, np.ndarray) and corners is None and not on_device:
        maps = maps.each(to_host)
        return fit_in_pieces(frames, start, maps, task, devices or (cupy.cuda.Device().id,))
    frames = transfer.upload(frames)
    corners, start = _as_type(corners, np.int64), _as_type(start, np.float32)
    maps = maps.each(lambda one: one if isinstance(one, np.ndarray) else transfer.upload(one))
    if on_device:
        memory = cupy.empty(task.row_bytes * n, np.uint8)
        begun = _begin(frames, corners, start, maps, task, memory, n, commands)
        if commands is None:
            begun.run(wait=False)
        return Results.within(memory, n, settings).columns(settings.profile)
    return _fit_on_device(frames, corners, start, maps, task, n)


def _as_type(array: Any, dtype: Any) -> Any:
    """Convert an array to a type on its device; None stays None."""
    return None if array is None else array.astype(dtype, copy=False)


#: The address of a map of pixels, and whether frames share it.
_Place = tuple[int, bool]


class Maps(NamedTuple):
    """Per-pixel maps, shared by all frames or one per frame."""

    planes: Any
    variance: Any

    @classmethod
    def of(cls, planes: Planes | None, variance: Planes | None) -> Maps:
        """Return the maps of a backend's arguments."""
        return cls(*(None if known is None else known.values for known in (planes, variance)))

    def each(self, change: Callable[[Any], Any]) -> Maps:
        """Apply a function to each map."""
        return Maps(*(None if values is None else change(values) for values in self))

    def of_rois(self, first: int, last: int) -> Maps:
        """Return the maps of some frames; shared maps are unchanged."""
        return self.each(lambda values: values if len(values) == 1 else values[first:last])

    def shared(self, change: Callable[[Any], Any]) -> Maps:
        """Apply a function to the shared maps."""
        return self.each(lambda values: change(values) if len(values) == 1 else values)

    def places(self) -> tuple[_Place, _Place]:
        """Return the address of each map, and whether it is shared."""
        planes, variance = (
            (0, True) if values is None else (address(values), len(values) == 1) for values in self
        )
        return planes, variance


@lru_cache(maxsize=64)
def task_of(
    settings: Settings, roi_shape: tuple[int, ...], pixel: str, *, gather: bool, planes: bool,
    variance_map: bool,
) -> _Task:  # fmt: skip
    """Return what all fits of a kind share; the same object as long as it is in use."""
    code = FitCode.of(
        settings, roi_shape, pixel, gather=gather, planes=planes, variance_map=variance_map
    )
    return _Task(
        code, settings, roi_shape, np.dtype(pixel), row_bytes(settings),
        as_argument(make_fit_settings(settings, roi_shape)),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Task:
    """What all pieces of fits share. Compared by identity, so cache look-ups are fast."""

    code: FitCode
    settings: Settings
    roi_shape: tuple[int, ...]
    pixel: np.dtype[Any]
    row_bytes: int
    numbers: NDArray[Any]

    def launches(
        self, frames: Any, corners: Any, start: Any, maps: Maps, memory: int, n: int, room: int
    ) -> tuple[Any, list[Any]]:
        """Return the kernel for the current device, and grid, block and arguments of its launches.

        They fit n ROIs, in memory for ``room`` fits.
        """
        kernel, processors, step = _on_device(self, _device())
        shape, roi_bytes = len(self.code.profile.shape), self.code.roi_bytes
        frames_at, corners_at, start_at = address(frames), address(corners), address(start)
        planes, variance = maps.places()
        constants = self._constants()
        given: list[Any] = []
        for first in range(0, n, step):
            count = min(step, n - first)
            rois, output = _arguments(
                frames_at + (0 if self.code.gather else first * roi_bytes),
                frames.shape[1:], corners_at and corners_at + 8 * (1 + len(self.roi_shape)) * first,
                start_at and start_at + 4 * shape * first,
                self._from(planes, first), self._from(variance, first),
                memory, room, self, first, constants,
            )  # fmt: skip
            rounds = kernel.threads.rounds(count, processors)
            grid = (-(-count // (kernel.threads.fits_per_block * rounds)),)
            arguments = rois, output, self.numbers, np.int64(count), np.int32(rounds)
            given.append((grid, (kernel.threads.block,), arguments))
        return kernel.function, given

    def _constants(self) -> int:
        """Return where the profile's constants are on the current device; 0 without any."""
        psf = self.code.profile.lattice
        if psf is None:
            return 0
        return address(psf_on_device(psf, self.roi_shape, _device()).constants)

    def _from(self, place: _Place, first: int) -> _Place:
        """Return the address of a map from a fit on."""
        values, shared = place
        if self.code.gather or shared:
            return place
        return values + 4 * self.code.lines * self.code.columns * first, False


@lru_cache(maxsize=256)
def _arguments(
    frames: int, frame_shape: tuple[int, ...], corners: int, start: int,
    planes: _Place, variance: _Place,
    memory: int, n: int, task: _Task, first: int, constants: int,
) -> tuple[NDArray[Any], NDArray[Any]]:  # fmt: skip
    """Return the structures of addresses for a kernel; cached, as loops reuse memory."""
    source = RoiSource(
        frames, corners=corners, start=start, planes=PixelMap(*planes),
        variance=PixelMap(*variance), constants=constants, **frame_sizes(frame_shape),
    )  # fmt: skip
    return as_argument(source), as_argument(fit_results(memory, n, task.settings, first))


@lru_cache(maxsize=256)
def _on_device(task: _Task, device: int) -> tuple[FitKernel, int, int]:
    """Return a task's kernel, the number of multiprocessors, and the most fits per launch."""
    kernel, count = fit_kernel(task.code, device), multiprocessors(device)
    return kernel, count, _fits_per_launch(task, kernel, count)


def _fits_per_launch(task: _Task, kernel: FitKernel, multiprocessors: int) -> int:
    """Return the largest number of fits per launch, in whole blocks."""
    code, threads = task.code, kernel.threads
    work = _LAUNCH_WORK * max(multiprocessors / _SLOW, 1.0)
    most = int(work / fit_work(code, task.settings.max_iterations))
    at_once = multiprocessors * _WARPS_AT_ONCE * 32 // (threads.lanes_x * threads.lanes_y)
    return max(most, at_once) // threads.fits_per_block * threads.fits_per_block


def fit_work(code: FitCode, iterations: int) -> float:
    """Estimate the operations of a fit with a number of iterations."""
    parameters = len(code.profile.shape) + 2
    pixels = code.lines * code.columns
    step = 100 + 4 * parameters**3
    if code.in_registers:
        return iterations * (6 * pixels + 40 * (code.rows + code.columns) + step)
    per_pixel = 60 + 2 * parameters**2
    if code.averaging == "integrated":
        per_pixel *= 2
    if code.profile.expression is not None:
        # Own models evaluate functions, and keep matrices outside registers.
        per_pixel, step = 8 * per_pixel, 24 * step
    # Maximum likelihood starts with a least-squares fit.
    return iterations * (1 + code.likelihood) * (per_pixel * pixels + step)


def _device() -> int:
    import cupy

    number: int = cupy.cuda.runtime.getDevice()
    return number


def _begin(
    frames: Any, corners: Any, start: Any, maps: Maps, task: _Task, memory: Any, n: int,
    commands: CommandList | None = None,
) -> CommandList:  # fmt: skip
    """Return commands for fits into device memory, with uploads of host arrays."""
    commands = commands or CommandList()
    commands.keep(frames, memory)
    kernel, given = task.launches(
        frames, commands.upload(corners), commands.upload(start), maps.each(commands.upload),
        memory.data.ptr, n, n,
    )  # fmt: skip
    for one in given:
        commands.launch(kernel, *one)
    return commands


def _fit_on_device(
    frames: Any, corners: Any, start: Any, maps: Maps, task: _Task, n: int
) -> dict[str, Any]:
    """Fit ROIs on the device, and download the results."""
    import cupy

    parts = []

    def work(first: int, last: int) -> None:
        memory = cupy.empty(task.row_bytes * (last - first), np.uint8)
        commands = _begin(
            frames if corners is not None else frames[first:last],
            None if corners is None else corners[first:last],
            None if start is None else start[first:last],
            maps if corners is not None else maps.of_rois(first, last),
            task, memory, last - first,
        )  # fmt: skip
        host = commands.download(memory)
        commands.run()
        results = Results.within(host, last - first, task.settings)
        parts.append(results.columns(task.settings.profile))

    halving(work, 0, n)
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
