"""Fits on the GPU: pieces of work up, one launch each, results down, all side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.frames import to_host
from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from .. import threads
from ..fit_settings import make_fit_settings
from ..kernel_arguments import FitResults, PixelMap, Results, RoiSource, address, row_bytes
from . import large_rois, transfer
from .compile import as_argument
from .fit_kernel import FitCode, FitKernel, fit_kernel

#: Bytes of pixels that go up at a time, at most and at least, and how many such pieces are
#: under way per GPU: while one is copied to pinned memory, others are on their way, fitted,
#: and copied back.
_PIECE_BYTES, _SMALL_PIECE, _WORKERS = 16 << 20, 1 << 20, 12
#: The same for pixels that are in pinned memory already: the CPU copies nothing.
_PINNED_BYTES, _PINNED_WORKERS = 32 << 20, 4
#: A piece of fewer fits is not halved when the GPU's memory runs out.
_SMALLEST = 4096
#: Up to so many bytes of pixels the GPU reads and writes the host's memory by itself:
#: one launch is then all there is.
FEW_BYTES = 256 << 10
#: What a launch does at most, in operations of one thread: a display driver ends kernels after
#: two seconds, and this takes a tenth of that on a GPU of a twentieth of an H200's speed, which has
#: so many multiprocessors. One with more of them does more in that time.
_LAUNCH_WORK, _SLOW = 1e11, 7
#: Warps of a multiprocessor that a launch has at least: slow GPUs have few multiprocessors.
_WARPS_AT_ONCE = 4


def fit_rois(
    frames: Any,
    corners: Any,
    roi_shape: tuple[int, int],
    settings: Settings,
    start: Any = None,
    *,
    planes: Planes | None = None,
    variance_map: Planes | None = None,
    on_device: bool = False,
    devices: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Fit ROIs where they lie in the frames, of NumPy or of CuPy on the current device.

    The rest is as :func:`napari_spotfit.engine.cpu.fit.fit_rois` says, its CPU twin.

    Parameters
    ----------
    frames, corners, roi_shape, settings, start, planes, variance_map
        As on the CPU; arrays may also be CuPy's.
    on_device : bool
        Leave the results on the device, and do not wait for them: they are made on
        CuPy's current stream.
    devices : sequence of int, optional
        The devices that share NumPy cut-outs; by default the current one alone.

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
        settings, roi_shape, frames.dtype.str[1:], gather=corners is not None,
        planes=planes is not None, variance_map=variance_map is not None,
    )  # fmt: skip
    if isinstance(frames, np.ndarray) and corners is None and not on_device:
        maps = maps.each(to_host)
        if frames.nbytes <= FEW_BYTES:
            return _fit_few(frames, start, maps, task)
        return _fit_in_pieces(frames, start, maps, task, devices or (cupy.cuda.Device().id,))
    frames = transfer.upload(frames)
    corners = None if corners is None else cupy.asarray(corners, np.int64)
    start = None if start is None else cupy.asarray(start, np.float32)
    maps = maps.each(transfer.upload)
    if on_device:
        memory = cupy.empty(task.row_bytes * n, np.uint8)
        task.launch(frames, corners, start, maps, memory.data.ptr, n)
        return Results.within(memory, n, settings).columns(settings.profile)
    return _fit_there(frames, corners, start, maps, task, n)


#: The address of a map of pixels, and whether frames share it.
_Place = tuple[int, bool]


class Maps(NamedTuple):
    """What is known of the pixels, where it is: of one frame for all of them, or of each."""

    planes: Any
    variance: Any

    @classmethod
    def of(cls, planes: Planes | None, variance: Planes | None) -> Maps:
        """Return the maps of what a backend is given."""
        return cls(*(None if known is None else known.values for known in (planes, variance)))

    def each(self, change: Callable[[Any], Any]) -> Maps:
        """Return each of them changed."""
        return Maps(*(None if values is None else change(values) for values in self))

    def of_rois(self, first: int, last: int, change: Callable[[Any], Any] = lambda x: x) -> Maps:
        """Return what belongs to some frames, changed; what all share, as it is."""
        return self.each(lambda values: values if len(values) == 1 else change(values[first:last]))

    def shared(self, change: Callable[[Any], Any]) -> Maps:
        """Return what all frames share, changed; the rest as it is."""
        return self.each(lambda values: change(values) if len(values) == 1 else values)

    def places(self) -> tuple[_Place, _Place]:
        """Return where each of them is."""
        planes, variance = (
            (0, True) if values is None else (address(values), len(values) == 1) for values in self
        )
        return planes, variance


@lru_cache(maxsize=64)
def task_of(
    settings: Settings, roi_shape: tuple[int, int], pixel: str, *, gather: bool, planes: bool,
    variance_map: bool,
) -> _Task:  # fmt: skip
    """Return what is the same for all fits of a kind; the same, as long as it is in use."""
    code = FitCode.of(
        settings, roi_shape, pixel, gather=gather, planes=planes, variance_map=variance_map
    )
    return _Task(
        code, settings, roi_shape, row_bytes(settings),
        as_argument(make_fit_settings(settings, roi_shape)),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Task:
    """What is the same for all pieces. It is known by its identity, which takes no time."""

    code: FitCode
    settings: Settings
    roi_shape: tuple[int, int]
    row_bytes: int
    numbers: NDArray[Any]

    def launch(
        self, frames: Any, corners: Any, start: Any, maps: Maps, memory: int, n: int
    ) -> None:
        """Begin to fit, on the current stream; memory is where the results go.

        The arrays may be the device's or pinned ones of the host.
        """
        kernel, multiprocessors, step = _on_device(self, _device())
        shape, roi_bytes = len(self.code.profile.shape), self.code.roi_bytes
        frames_at, corners_at, start_at = address(frames), address(corners), address(start)
        planes, variance = maps.places()
        for first in range(0, n, step):
            count = min(step, n - first)
            rois, output = _arguments(
                frames_at + (0 if self.code.gather else first * roi_bytes),
                frames.shape[1:], corners_at and corners_at + 24 * first,
                start_at and start_at + 4 * shape * first,
                self._from(planes, first), self._from(variance, first),
                memory, n, self, first,
            )  # fmt: skip
            rounds = kernel.threads.rounds(count, multiprocessors)
            kernel.function(
                (-(-count // (kernel.threads.fits_per_block * rounds)),), (kernel.threads.block,),
                (rois, output, self.numbers, np.int64(count), np.int32(rounds)),
            )  # fmt: skip

    def _from(self, place: _Place, first: int) -> _Place:
        """Return where a map is from a fit on."""
        values, shared = place
        if self.code.gather or shared:
            return place
        return values + 4 * self.code.rows * self.code.columns * first, False


@lru_cache(maxsize=256)
def _arguments(
    frames: int, frame_shape: tuple[int, int], corners: int, start: int,
    planes: _Place, variance: _Place,
    memory: int, n: int, task: _Task, first: int,
) -> tuple[NDArray[Any], NDArray[Any]]:  # fmt: skip
    """Return where a kernel reads and writes; in a closed loop that stays the same."""
    source = RoiSource(frames, *frame_shape, corners, start, PixelMap(*planes), PixelMap(*variance))
    return as_argument(source), as_argument(FitResults.at(memory, n, task.settings, first))


@lru_cache(maxsize=256)
def _on_device(task: _Task, device: int) -> tuple[FitKernel, int, int]:
    """Return a task's kernel, the multiprocessors, and how many fits a launch does at most."""
    kernel, multiprocessors = fit_kernel(task.code, device), _multiprocessors(device)
    return kernel, multiprocessors, _fits_per_launch(task, kernel, multiprocessors)


def _fits_per_launch(task: _Task, kernel: FitKernel, multiprocessors: int) -> int:
    """Return how many fits a launch does at most, whole blocks."""
    code, threads = task.code, kernel.threads
    work = _LAUNCH_WORK * max(multiprocessors / _SLOW, 1.0)
    most = int(work / fit_work(code, task.settings.max_iterations))
    at_once = multiprocessors * _WARPS_AT_ONCE * 32 // (threads.lanes_x * threads.lanes_y)
    return max(most, at_once) // threads.fits_per_block * threads.fits_per_block


def fit_work(code: FitCode, iterations: int) -> float:
    """Return about how many operations a fit takes that ends after so many iterations."""
    parameters = len(code.profile.shape) + 2
    pixels = code.rows * code.columns
    step = 100 + 4 * parameters**3
    if code.in_registers:
        return iterations * (6 * pixels + 40 * (code.rows + code.columns) + step)
    per_pixel = 60 + 2 * parameters**2
    if code.averaging == "integrated":
        per_pixel *= 2
    if code.profile.expression is not None:
        # Its functions, and matrices that registers have no room for.
        per_pixel, step = 8 * per_pixel, 24 * step
    # Maximum likelihood begins with least squares.
    return iterations * (1 + code.likelihood) * (per_pixel * pixels + step)


@lru_cache(maxsize=64)
def _multiprocessors(device: int) -> int:
    import cupy

    return int(cupy.cuda.Device(device).attributes["MultiProcessorCount"])


def _device() -> int:
    import cupy

    number: int = cupy.cuda.runtime.getDevice()
    return number


def _fit_few(frames: NDArray[Any], start: Any, maps: Maps, task: _Task) -> dict[str, Any]:
    """Fit few cut-outs with the least delay: the GPU reads and writes pinned memory."""
    n = len(frames)
    with transfer.stream():
        pixels = pinned_copy(frames)
        begin = None if start is None else pinned_copy(start)
        memory = transfer.pinned(task.row_bytes * n)
        task.launch(pixels, None, begin, maps.each(pinned_copy), address(memory), n)
    return Results.within(memory.copy(), n, task.settings).columns(task.settings.profile)


def pinned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that the GPU may read by itself; one that is so already, as it is."""
    if transfer.is_pinned(array):
        return array
    copy = transfer.pinned(array.nbytes).view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy


def _fit_in_pieces(
    frames: NDArray[Any], start: Any, maps: Maps, task: _Task, devices: Sequence[int]
) -> dict[str, Any]:
    """Fit many cut-outs of the host, several pieces side by side.

    Where the cut-outs are in pinned memory, the results are: nothing is copied by the CPU.
    """
    import cupy

    n, settings = len(frames), task.settings
    in_place = transfer.is_pinned(frames)
    size = task.row_bytes * n
    results = Results.within(
        transfer.pinned(size) if in_place else np.empty(size, np.uint8), n, settings
    )
    turn = itertools.cycle(devices)
    for_all = _uploaded(maps, devices)

    def fit_piece(first: int, last: int) -> None:
        count = last - first
        with transfer.stream() as stream:
            there = cupy.empty((count, *task.roi_shape), frames.dtype)
            kept = transfer.send(frames[first:last], there, stream)
            begin = None if start is None else cupy.asarray(start[first:last])
            known = for_all[_device()].of_rois(first, last, cupy.asarray)
            memory = cupy.empty(task.row_bytes * count, np.uint8)
            task.launch(there, None, begin, known, memory.data.ptr, count)
            if in_place:
                for column, part in zip(
                    results, Results.within(memory, count, settings), strict=True
                ):
                    transfer.receive(part, column[..., first:last], stream)
            else:
                back = transfer.pinned(memory.size)
                transfer.receive(memory, back, stream)
            stream.synchronize()
            del kept
        if not in_place:
            for column, part in zip(results, Results.within(back, count, settings), strict=True):
                column[..., first:last] = part

    left = []

    def work(first: int, last: int) -> None:
        with cupy.cuda.Device(next(turn)):
            try:
                fit_piece(first, last)
            except cupy.cuda.memory.OutOfMemoryError:
                left.append((first, last))

    workers = _PINNED_WORKERS if in_place else min(_WORKERS, threads.available())
    workers *= len(devices)
    piece_bytes = min(frames.nbytes // workers, _PINNED_BYTES if in_place else _PIECE_BYTES)
    piece = max(max(piece_bytes, _SMALL_PIECE) // (frames.nbytes // n), 1)
    threads.in_pieces(work, n, piece, workers)
    # Side by side they needed too much memory: one after the other, and smaller.
    for first, last in left:
        with cupy.cuda.Device(next(turn)):
            _halving(fit_piece, first, last)
    return results.columns(settings.profile)


def _uploaded(maps: Maps, devices: Sequence[int]) -> dict[int, Maps]:
    """Return the maps, with what all frames share on each device."""
    import cupy

    there = {}
    for device in devices:
        with cupy.cuda.Device(device):
            there[device] = maps.shared(transfer.upload)
    return there


def _fit_there(
    frames: Any, corners: Any, start: Any, maps: Maps, task: _Task, n: int
) -> dict[str, Any]:
    """Fit ROIs that lie on the device; return the results to the host."""
    import cupy

    parts = []

    def work(first: int, last: int) -> None:
        memory = cupy.empty(task.row_bytes * (last - first), np.uint8)
        task.launch(
            frames if corners is not None else frames[first:last],
            None if corners is None else corners[first:last],
            None if start is None else start[first:last],
            maps if corners is not None else maps.of_rois(first, last),
            memory.data.ptr,
            last - first,
        )
        host = transfer.download(memory, cupy.cuda.get_current_stream())
        results = Results.within(host, last - first, task.settings)
        parts.append(results.columns(task.settings.profile))

    _halving(work, 0, n)
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _halving(work: Callable[[int, int], None], first: int, last: int) -> None:
    """Work on a range; where the GPU's memory does not suffice, on its halves in turn."""
    import cupy

    try:
        work(first, last)
    except cupy.cuda.memory.OutOfMemoryError:
        if last - first <= _SMALLEST:
            raise
    else:
        return
    cupy.get_default_memory_pool().free_all_blocks()
    middle = (first + last) // 2
    _halving(work, first, middle)
    _halving(work, middle, last)
