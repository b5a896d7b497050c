"""The same work on one GPU or on several, whichever thread asks for it.

A thread's current CUDA device is its own, so that each call says which it means: frames
stay on the GPU that they came to, and those that come from the host take turns.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..own_pixels import fit_own_pixels
from . import detect, fit, lone_pixels, transfer


class Uploaded(NamedTuple):
    """Frames on a GPU."""

    device: int
    frames: Any


class Functions(NamedTuple):
    """What a backend is made of."""

    upload: Callable[[Any], Uploaded]
    detect: Callable[..., Any]
    fit_rois: Callable[..., dict[str, Any]]
    lone_pixels: Callable[..., Any]


def over(devices: Sequence[int]) -> Functions:
    """Return the CUDA backend's functions for these GPUs, by CUDA's numbers of them."""
    import cupy

    turn = itertools.cycle(devices)
    waiting = threading.Lock()

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
        return next(turn) if device is None else int(device)

    def upload(frames: Any) -> Uploaded:
        device = device_of(frames)
        with cupy.cuda.Device(device):
            return Uploaded(device, with_room(lambda: transfer.upload(frames)))

    def there(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(frames: Any, *rest: Any, **named: Any) -> Any:
            if not isinstance(frames, Uploaded):
                with cupy.cuda.Device(device_of(frames)):
                    return with_room(lambda: function(frames, *rest, **named))
            # Blocks of frames that are worked on side by side do not wait for each other.
            with cupy.cuda.Device(frames.device), transfer.stream(in_turn=True):
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

    return Functions(upload, there(detect.detect), fit_rois, there(lone_pixels.lone_pixels))
