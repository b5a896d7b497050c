"""The same work on one GPU or on several, whichever thread asks for it.

A thread's current CUDA device is its own, so that each call says which it means: frames
stay on the GPU that they came to. Those that come from the host go to the GPU that has fewest of
them: a faster one has done its own the sooner. An error says in ``gpu`` where it happened.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import cuda_errors
from ..own_pixels import fit_own_pixels
from . import detect, fit, lost_pixels, transfer

#: Blocks of frames that are copied to a GPU at a time: more of them would take each other's share
#: of the memory's speed, and the first one would come so much later.
_COPIED = 8


class Uploaded(NamedTuple):
    """Frames on a GPU."""

    device: int
    frames: Any
    #: On which all is done with them, one thing after the other.
    stream: Any
    #: What says that they are still there.
    kept: object


class _Kept:
    """Something that is kept."""


class Gpus:
    """The CUDA backend's functions for these GPUs, and how many of the host's blocks each has.

    Parameters
    ----------
    devices : sequence of int
        CUDA's numbers of them.
    """

    def __init__(self, devices: Sequence[int]) -> None:
        self.detect = self._there(detect.detect)
        self.lost_pixels = self._there(lost_pixels.lost_pixels)
        self._devices, self._turn = devices, itertools.cycle(devices)
        # Memory may be cleared while a thread chooses.
        self._waiting, self._choosing = threading.Lock(), threading.RLock()
        self._busy = dict.fromkeys(devices, 0)
        self._copying = {device: threading.Semaphore(_COPIED) for device in devices}

    def upload(self, frames: Any) -> Uploaded:
        """Begin to send frames to a GPU."""
        device = self._device_of(frames)
        with _on(device):
            kept = self._taken(device)
            stream = transfer.stream_for(kept)
            with stream, self._copying.get(device, nullcontext()):
                there = self._with_room(lambda: transfer.begin_upload(frames))
            return Uploaded(device, there, stream, kept)

    def _there(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that works where the frames are that it is given first."""

        def call(frames: Any, *rest: Any, **named: Any) -> Any:
            if not isinstance(frames, Uploaded):
                with _on(self._device_of(frames)):
                    return self._with_room(lambda: function(frames, *rest, **named))
            # Blocks of frames that are worked on side by side do not wait for each other.
            with _on(frames.device), frames.stream:
                return self._with_room(lambda: function(frames.frames, *rest, **named))

        return call

    def fit_rois(self, frames: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        """Fit ROIs where they lie in frames, or cut-outs."""
        if isinstance(frames, np.ndarray):
            # Cut-outs of the host are shared by all.
            named["devices"] = self._devices
        columns: dict[str, Any] = self._there(partial(fit_own_pixels, fit.fit_rois))(
            frames, *rest, **named
        )
        return columns

    def _with_room(self, work: Callable[[], Any]) -> Any:
        """Work; if memory runs out, once more, and only one of those to whom this happens."""
        import cupy

        # Suppressed, the error lets go of the arrays that its traceback holds.
        with suppress(cupy.cuda.memory.OutOfMemoryError):
            return work()
        cupy.get_default_memory_pool().free_all_blocks()
        with self._waiting:
            return work()

    def _device_of(self, frames: Any) -> int:
        # CuPy's arrays say on which GPU they are; NumPy's say 'cpu'.
        device = getattr(getattr(frames, "device", None), "id", None)
        if device is not None:
            return int(device)
        with self._choosing:
            least = min(self._busy.values())
            return next(device for device in self._turn if self._busy[device] == least)

    def _taken(self, device: int) -> object:
        """Return what counts on a GPU for as long as it is kept."""
        kept = _Kept()
        self._count(device, 1)
        weakref.finalize(kept, self._count, device, -1).atexit = False
        return kept

    def _count(self, device: int, change: int) -> None:
        if device in self._busy:
            with self._choosing:
                self._busy[device] += change


@contextmanager
def _on(device: int) -> Iterator[None]:
    """Make a GPU the thread's own; an error says that it was this one."""
    import cupy

    try:
        with cupy.cuda.Device(device):
            yield
    except cuda_errors() as error:
        error.gpu = device  # type: ignore[attr-defined]
        raise
