"""Fits on the GPU: pieces of work up, one launch each, results down, all side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.frames import to_host
from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from .. import threads
from ..variants import is_plain
from . import large, layout, pixelwise, transfer
from .compile import kernel
from .layout import Results

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
_FEW_BYTES = 256 << 10
#: Pixels of one launch. A display driver ends kernels after two seconds; this takes a
#: tenth of that on a slow GPU.
_LAUNCH_PIXELS = 1 << 29
#: The same where fits visit every pixel at every step, which takes longer.
_PIXELWISE_PIXELS = 1 << 26


def fit_rois(
    frames: Any,
    corners: Any,
    roi_shape: tuple[int, int],
    settings: Settings,
    start: Any = None,
    *,
    planes: Planes | None = None,
    on_device: bool = False,
    devices: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Fit ROIs where they lie in the frames, of NumPy or of CuPy on the current device.

    The rest is as :func:`napari_spotfit.engine.cpu.fit.fit_rois` says, its CPU twin.

    Parameters
    ----------
    frames, corners, roi_shape, settings, start, planes
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
        return large.fit_rois(frames, corners, roi_shape, settings, start, planes, on_device)
    n = len(frames) if corners is None else len(corners)
    if corners is None and _address(frames) % 4:
        frames = frames.copy()  # kernels read whole words
    if n == 0:
        return Results.within(np.empty(0, np.uint8), 0, settings).columns(settings.profile)
    known = None if planes is None else planes.values
    more = known is not None and len(known) > 1
    plain = is_plain(settings, planes)
    task = _Task(roi_shape, settings, frames.dtype, corners is not None, plain, more)
    if isinstance(frames, np.ndarray) and corners is None and not on_device:
        known = to_host(known)
        if frames.nbytes <= _FEW_BYTES:
            return _fit_few(frames, start, known, task)
        return _fit_in_pieces(frames, start, known, task, devices or (cupy.cuda.Device().id,))
    frames = transfer.upload(frames)
    corners = None if corners is None else cupy.asarray(corners, np.int64)
    start = None if start is None else cupy.asarray(start, np.float32)
    known = None if known is None else transfer.upload(known)
    if on_device:
        memory = cupy.empty(task.row_bytes * n, np.uint8)
        task.launch(frames, corners, start, known, memory.data.ptr, n)
        return Results.within(memory, n, settings).columns(settings.profile)
    return _fit_there(frames, corners, start, known, task, n)


class _Task(NamedTuple):
    """What is the same for all pieces."""

    roi_shape: tuple[int, int]
    settings: Settings
    pixel: np.dtype[Any]
    gather: bool
    #: Whether the fits are those of the fast path, and whether each frame has its own plane.
    plain: bool
    more_planes: bool

    @property
    def row_bytes(self) -> int:
        return layout.row_bytes(self.settings)

    def planes(self, known: Any, first: int, last: int) -> Any:
        """Return the planes of some cut-outs."""
        return known[first:last] if self.more_planes and not self.gather else known

    def launch(
        self, frames: Any, corners: Any, start: Any, known: Any, memory: int, n: int
    ) -> None:
        """Begin to fit, on the current stream; memory is where the results go.

        The arrays may be the device's or pinned ones of the host.
        """
        plan = _plan(self, known is not None, _device())
        pixels, shape = self.roi_shape[0] * self.roi_shape[1], len(self.settings.profile.shape)
        per_warp, most = plan.groups, _PIXELWISE_PIXELS
        if self.plain:
            per_warp *= layout.rounds(n, plan.groups, pixels, plan.multiprocessors)
            most = _LAUNCH_PIXELS
        per_block = per_warp * plan.warps
        step = max(most // pixels // per_block, 1) * per_block
        frames_at, corners_at, start_at = _address(frames), _address(corners), _address(start)
        for first in range(0, n, step):
            count = min(step, n - first)
            rois, output = _arguments(
                frames_at + (0 if self.gather else first * pixels * self.pixel.itemsize),
                frames.shape[1:], corners_at and corners_at + 24 * first,
                start_at and start_at + 4 * shape * first,
                memory, n, self.settings, first,
            )  # fmt: skip
            plan.kernel(
                (-(-count // per_block),), (32 * plan.warps,),
                self.arguments(rois, output, self.planes(known, first, n), count, per_warp),
            )  # fmt: skip

    def arguments(
        self, rois: Any, output: Any, known: Any, count: int, per_warp: int
    ) -> tuple[Any, ...]:
        """Return the arguments of either kernel."""
        settings, shape = self.settings, self.roi_shape
        camera = layout.camera(settings)
        if self.plain:
            limits = layout.limits(settings, shape)
            return rois, output, limits, camera, np.int64(count), np.int32(per_warp)
        planes = pixelwise.planes(_address(known), self.more_planes)
        limits = layout.limits(settings, shape, settings.offset)
        first = pixelwise.first(settings.profile)
        return rois, planes, output, limits, first, camera, np.int64(count)


@lru_cache(maxsize=256)
def _arguments(
    frames: int, frame_shape: tuple[int, int], corners: int, start: int,
    memory: int, n: int, settings: Settings, first: int,
) -> tuple[NDArray[Any], NDArray[Any]]:  # fmt: skip
    """Return where a kernel reads and writes; in a closed loop that stays the same."""
    return (
        layout.rois(frames, frame_shape, corners, start), layout.output(memory, n, settings, first)
    )  # fmt: skip


class _Plan(NamedTuple):
    """How the fits of one kind are done on one device."""

    kernel: Any
    warps: int  # of a block
    groups: int  # fits that a warp works on at a time
    multiprocessors: int


@lru_cache(maxsize=512)
def _plan(task: _Task, planes: bool, device: int) -> _Plan:
    import cupy

    file, before, macros = _kernel(task, planes)
    return _Plan(
        kernel(file, "fit", before, **macros),
        int(macros["WARPS"]),
        32 // (int(macros.get("LANES_X", 1)) * int(macros["LANES_Y"])),
        int(cupy.cuda.Device(device).attributes["MultiProcessorCount"]),
    )


def _kernel(task: _Task, planes: bool) -> tuple[str, str, dict[str, int | str]]:
    """Return the file of a task's kernel, what comes before it, and its macros."""
    settings, shape = task.settings, task.roi_shape
    if task.plain:
        return "fit.cu", "", layout.macros(shape, task.pixel, task.gather, settings)
    macros = pixelwise.macros(shape, task.pixel, task.gather, planes, settings)
    return "fit_pixelwise.cu", pixelwise.before(settings.profile), macros


def _address(array: Any) -> int:
    """Return where an array begins, 0 without one."""
    if array is None:
        return 0
    if isinstance(array, np.ndarray):
        host: int = array.__array_interface__["data"][0]
        return host
    there: int = array.data.ptr
    return there


def _device() -> int:
    import cupy

    number: int = cupy.cuda.runtime.getDevice()
    return number


def _fit_few(frames: NDArray[Any], start: Any, known: Any, task: _Task) -> dict[str, Any]:
    """Fit few cut-outs with the least delay: the GPU reads and writes pinned memory."""
    n = len(frames)
    with transfer.stream():
        pixels = _pinned_copy(frames)
        begin = None if start is None else _pinned_copy(start)
        there = None if known is None else _pinned_copy(known)
        memory = transfer.pinned(task.row_bytes * n)
        task.launch(pixels, None, begin, there, _address(memory), n)
    return Results.within(memory.copy(), n, task.settings).columns(task.settings.profile)


def _pinned_copy(array: NDArray[Any]) -> NDArray[Any]:
    if transfer.is_pinned(array):
        return array
    copy = transfer.pinned(array.nbytes).view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy


def _fit_in_pieces(
    frames: NDArray[Any], start: Any, known: Any, task: _Task, devices: Sequence[int]
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
    for_all = {} if known is None or task.more_planes else _uploaded(known, devices)

    def fit_piece(first: int, last: int) -> None:
        count = last - first
        with transfer.stream() as stream:
            there = cupy.empty((count, *task.roi_shape), frames.dtype)
            kept = transfer.send(frames[first:last], there, stream)
            begin = None if start is None else cupy.asarray(start[first:last])
            plane = for_all.get(_device())
            if task.more_planes:
                plane = cupy.asarray(known[first:last])
            memory = cupy.empty(task.row_bytes * count, np.uint8)
            task.launch(there, None, begin, plane, memory.data.ptr, count)
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


def _uploaded(known: Any, devices: Sequence[int]) -> dict[int, Any]:
    """Return the plane that is the same for all frames, on each device."""
    import cupy

    there = {}
    for device in devices:
        with cupy.cuda.Device(device):
            there[device] = transfer.upload(known)
    return there


def _fit_there(
    frames: Any, corners: Any, start: Any, known: Any, task: _Task, n: int
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
            task.planes(known, first, last),
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
