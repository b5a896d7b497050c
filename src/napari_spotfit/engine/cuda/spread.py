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
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..errors import cuda_errors
from ..own_pixels import fit_own_pixels
from . import detect, fit, lost_pixels, transfer


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


class Functions(NamedTuple):
    """What a backend is made of."""

    upload: Callable[[Any], Uploaded]
    detect: Callable[..., Any]
    fit_rois: Callable[..., dict[str, Any]]
    lost_pixels: Callable[..., Any]
    own_maxima: Callable[..., Any]


def over(devices: Sequence[int]) -> Functions:
    """Return the CUDA backend's functions for these GPUs, by CUDA's numbers of them."""
    import cupy

    turn = itertools.cycle(devices)
    # Memory may be cleared while a thread chooses.
    waiting, choosing = threading.Lock(), threading.RLock()
    busy = dict.fromkeys(devices, 0)

    def with_room(work: Callable[[], Any]) -> Any:
        """Work; if memory runs out, once more, and only one of those to whom this happens."""
        # Suppressed, the error lets go of the arrays that its traceback holds.
        with suppress(cupy.cuda.memory.OutOfMemoryError):
            return work()
        cupy.get_default_memory_pool().free_all_blocks()
        with waiting:
            return work()

    def device_of(frames: Any) -> int:
        # CuPy's arrays say on which GPU they are; NumPy's say 'cpu'.
        device = getattr(getattr(frames, "device", None), "id", None)
        if device is not None:
            return int(device)
        with choosing:
            least = min(busy.values())
            return next(device for device in turn if busy[device] == least)

    def taken(device: int) -> object:
        """Return what counts on a GPU for as long as it is kept."""
        kept = _Kept()
        count(device, 1)
        weakref.finalize(kept, count, device, -1).atexit = False
        return kept

    def count(device: int, change: int) -> None:
        if device in busy:
            with choosing:
                busy[device] += change

    @contextmanager
    def on(device: int) -> Iterator[None]:
        try:
            with cupy.cuda.Device(device):
                yield
        except cuda_errors() as error:
            error.gpu = device  # type: ignore[attr-defined]
            raise

    def upload(frames: Any) -> Uploaded:
        device = device_of(frames)
        with on(device):
            kept = taken(device)
            stream = transfer.stream_for(kept)
            with stream:
                there = with_room(lambda: transfer.begin_upload(frames))
            return Uploaded(device, there, stream, kept)

    def there(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(frames: Any, *rest: Any, **named: Any) -> Any:
            if not isinstance(frames, Uploaded):
                with on(device_of(frames)):
                    return with_room(lambda: function(frames, *rest, **named))
            # Blocks of frames that are worked on side by side do not wait for each other.
            with on(frames.device), frames.stream:
                return with_room(lambda: function(frames.frames, *rest, **named))

        return call

    def fit_rois(frames: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        if isinstance(frames, np.ndarray):
            # Cut-outs of the host are shared by all.
            named["devices"] = devices
        columns: dict[str, Any] = there(partial(fit_own_pixels, fit.fit_rois))(
            frames, *rest, **named
        )
        return columns

    return Functions(
        upload, there(detect.detect), fit_rois, there(lost_pixels.lost_pixels),
        there(detect.own_maxima),
    )  # fmt: skip
