"""The backend of one or several GPUs, for any number of threads.

Frames stay on the GPU where they are. Frames of the host go to the GPU with the fewest pending
blocks, so that faster GPUs get more. Each call sets its thread's current device, and errors carry
the device in ``gpu``.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import is_on_device, to_native
from ...models.columns import IN_PLANE
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from ..backend import Block, Columns, Load, Positions, Unfinished, cuda_errors, lend
from ..candidates import Candidates
from ..cpu.block_fits import CpuFitter
from ..cpu.layouts import EXCLUDE, FLAG_TOGETHER, JOIN, PLACE_ROIS
from ..cpu.library import Library, load
from ..crowds import Crowds
from ..filtered_noise import correct_errors
from ..fit_job import FitJob
from ..kernel_arguments import address
from . import crowd_fits, detect, fit, transfer
from .block_fits import DeviceFits
from .fit import Maps, task_of

#: Bytes of pixels up to which the GPU accesses the host's memory, so that one launch suffices.
FEW_BYTES = 256 << 10
#: Largest number of positions, and of pixels of their ROIs: for more, threads pay off.
_MOST, _MOST_PIXELS = 1024, 1 << 17
#: Blocks of frames that are copied to a GPU at a time: more would share the memory's bandwidth, and
#: delay the first one.
_COPIED = 8


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


class Uploaded(NamedTuple):
    """Frames on a GPU."""

    device: int
    frames: Any
    #: The stream of all work on them.
    stream: Any
    #: Counts them on their GPU as long as it is alive.
    kept: object


class _Kept:
    """A token that can be weakly referenced."""


class Gpus:
    """One or several GPUs, with the number of blocks of the host on each.

    Parameters
    ----------
    devices : sequence of int
        Their CUDA device numbers.
    name : str
        Their name in texts.
    load, long_movies : Load
        Sizes of blocks, for short and for long movies.
    """

    kind: Literal["cuda"] = "cuda"
    reads_all = True

    def __init__(
        self, devices: Sequence[int], name: str, load: Load, long_movies: Load | None = None
    ) -> None:
        self.name, self.load, self.long_movies = name, load, long_movies
        self._devices, self._turn = devices, itertools.cycle(devices)
        # Re-entrant, as garbage collection may call _count in a thread that is choosing.
        self._waiting, self._choosing = threading.Lock(), threading.RLock()
        self._busy = dict.fromkeys(devices, 0)
        self._copying = {device: threading.Semaphore(_COPIED) for device in devices}

    def ran_on(self) -> str:
        """Return the name of the GPUs."""
        return self.name

    def detect(self, block: Block, settings: Settings) -> Candidates:
        """Find spots, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        found: Candidates = self._call(
            detect.detect, self._uploaded(block), settings, block.mask, block.noise_map,
            level=block.level, depth=block.height,
        )  # fmt: skip
        return found

    def fit(
        self,
        job: FitJob,
        block: Block,
        positions: Positions | None = None,
        start: Any = None,
        *,
        on_device: bool = False,
    ) -> Columns:
        """Fit ROIs, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        if not on_device and block.uploaded is None and is_few(job, block, positions):
            columns: Columns = self._call(self._fit_few, block.pixels, job, block, positions, start)
            return columns
        if positions is None:
            return self._fit_spots(job, block, start, on_device)

        def fit_on_device(frames: Any) -> Columns:
            taken = frames if block.taken is block.pixels else block.taken
            there = replace(block, pixels=frames, taken=taken)
            return DeviceFits(load(), job).fit(there, positions)

        found: Columns = self._call(fit_on_device, self._uploaded(block))
        return found

    def fit_crowds(self, block: Block, crowds: Crowds) -> NDArray[np.void]:
        """Fit spots together, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        spots: NDArray[np.void] = self._call(
            crowd_fits.fit_crowds, self._uploaded(block), block, crowds
        )
        return spots

    def fitter(self, job: FitJob) -> GpuFitter:
        """Prepare a fit that is repeated often."""
        return GpuFitter(self, job)

    @staticmethod
    def _fit_few(
        pixels: Any, job: FitJob, block: Block, positions: Positions | None, start: Any
    ) -> Columns:
        """Fit few ROIs on the current GPU, in memory that is reused."""
        import cupy

        if positions is None:
            pixels = to_native(pixels)
            block = replace(block, pixels=pixels, taken=pixels)
        fitter, idle = lend(FewFits, load(), job, cupy.cuda.runtime.getDevice())
        found = fitter.fit(block, positions, start)
        columns = {name: column.copy() for name, column in found.items()}
        fitter.release_maps()
        idle.append(fitter)
        return columns

    def _fit_spots(self, job: FitJob, block: Block, start: Any, on_device: bool) -> Columns:
        """Fit cut-outs; all GPUs share those of the host."""
        here = isinstance(block.pixels, np.ndarray)
        known: dict[str, Any] = {"devices": self._devices} if here else {}
        if on_device:
            known["on_device"] = True
        try:
            columns: Columns = self._call(
                fit.fit_rois, block.pixels if here or on_device else self._uploaded(block), None,
                job.roi_shape, job.settings, start, planes=block.planes,
                variance_map=block.variances, **known,
            )  # fmt: skip
        except Unfinished as part:
            correct_errors(part.columns, job.settings, job.roi_shape)
            raise
        correct_errors(columns, job.settings, job.roi_shape)
        return columns

    def _uploaded(self, block: Block) -> Uploaded:
        """Return a block's frames on a GPU; the first call uploads them."""
        there: Uploaded | None = block.uploaded
        if there is None or not (there.device in self._devices or is_on_device(block.pixels)):
            there = block.uploaded = self._upload(block.pixels)
        return there

    def _upload(self, frames: Any) -> Uploaded:
        """Start to upload frames to a GPU."""
        device = self._device_of(frames)
        with _on(device):
            kept = self._taken(device)
            stream = transfer.stream_for(kept)
            with stream, self._copying.get(device, nullcontext()):
                there = self._with_room(lambda: transfer.begin_upload(frames))
            return Uploaded(device, there, stream, kept)

    def _call(self, function: Callable[..., Any], frames: Any, *rest: Any, **named: Any) -> Any:
        """Call a function on the GPU of its first argument, the frames."""
        if not isinstance(frames, Uploaded):
            with _on(self._device_of(frames)):
                return self._with_room(lambda: function(frames, *rest, **named))
        # Each block has its own stream, so that blocks do not wait for each other.
        with _on(frames.device), frames.stream:
            return self._with_room(lambda: function(frames.frames, *rest, **named))

    def _with_room(self, work: Callable[[], Any]) -> Any:
        """Run work; if memory runs out, free some and try again, one thread at a time."""
        import cupy

        # Suppress the error here, as its traceback keeps arrays alive.
        with suppress(cupy.cuda.memory.OutOfMemoryError):
            return work()
        cupy.get_default_memory_pool().free_all_blocks()
        with self._waiting:
            return work()

    def _device_of(self, frames: Any) -> int:
        # CuPy arrays have a device number; the device of NumPy arrays is 'cpu'.
        device = getattr(getattr(frames, "device", None), "id", None)
        if device is not None:
            return int(device)
        with self._choosing:
            least = min(self._busy.values())
            return next(device for device in self._turn if self._busy[device] == least)

    def _taken(self, device: int) -> object:
        """Return a token that counts as a block on a GPU as long as it is alive."""
        kept = _Kept()
        self._count(device, 1)
        weakref.finalize(kept, self._count, device, -1).atexit = False
        return kept

    def _count(self, device: int, change: int) -> None:
        if device in self._busy:
            with self._choosing:
                self._busy[device] += change


class GpuFitter:
    """Repeats fits of one job on the current GPU, in memory that is reused."""

    def __init__(self, backend: Gpus, job: FitJob) -> None:
        self._backend, self._job = backend, job
        self._few: FewFits | None = None

    def fit(self, block: Block, positions: Positions | None = None, start: Any = None) -> Columns:
        """Return the columns of fits, in memory that the next call may overwrite."""
        if is_few(self._job, block, positions):
            self._few = self._few or FewFits(load(), self._job)
            return self._few.fit(block, positions, start)
        return self._backend.fit(self._job, block, positions, start)


@contextmanager
def _on(device: int) -> Iterator[None]:
    """Make a GPU the thread's current one, and set ``gpu`` of errors."""
    import cupy

    try:
        with cupy.cuda.Device(device):
            yield
    except cuda_errors() as error:
        error.gpu = device  # type: ignore[attr-defined]
        raise
