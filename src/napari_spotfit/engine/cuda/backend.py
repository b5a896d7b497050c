"""The backend of one or several GPUs, for any number of threads.

Frames stay on the GPU where they are. Frames of the host go to the GPU with the fewest pending
blocks, so that faster GPUs get more. Each call sets its thread's current device, and errors carry
the device in ``gpu``.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import is_on_device, to_native
from ...settings.settings import Settings
from ..backend import Columns, Load, Unfinished, cuda_errors, lend
from ..block import Block, Positions
from ..cpu.library import load
from ..crowds import Crowds
from ..detection.candidates import Candidates
from ..filtered_noise import correct_errors
from ..fit_job import FitJob
from . import crowd_fits, detect, fit, transfer
from .block_fits import DeviceFits
from .few_fits import FewFits, is_few

#: Blocks of frames that are copied to a GPU at a time: more would share the memory's bandwidth, and
#: delay the first one.
_COPIED = 8


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
