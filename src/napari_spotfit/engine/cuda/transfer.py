"""Streams, and copies between host and GPU.

Work on a stream is done when a call returns, so that the next call, on any thread, can reuse the
stream and the memory that CuPy caches for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .staging import staging

#: Idle streams by device; streams are never destroyed.
_idle: dict[int, list[Any]] = {}


@contextmanager
def stream() -> Iterator[Any]:
    """Make one of our streams the current one, and wait for it at the end."""
    with idle_stream() as own, own:
        yield own


@contextmanager
def idle_stream() -> Iterator[Any]:
    """Yield a stream of the current device, and wait for it at the end."""
    idle = _idle_here()
    own = _taken(idle)
    try:
        yield own
    finally:
        own.synchronize()
        idle.append(own)


def stream_for(owner: object) -> Any:
    """Return a stream of the current device, reserved as long as its owner is alive.

    Its work starts after that of the current stream.
    """
    import cupy

    idle = _idle_here()
    own = _taken(idle)
    weakref.finalize(owner, idle.append, own).atexit = False
    before = cupy.cuda.Event(disable_timing=True)
    before.record(cupy.cuda.get_current_stream())
    own.wait_event(before)
    return own


def _idle_here() -> list[Any]:
    import cupy

    return _idle.setdefault(cupy.cuda.Device().id, [])


def _taken(idle: list[Any]) -> Any:
    import cupy

    try:
        return idle.pop()
    except IndexError:
        return cupy.cuda.Stream(non_blocking=True)


def is_pinned(array: NDArray[Any]) -> bool:
    """Whether an array is page-locked, so that the GPU can read it asynchronously."""
    import cupy

    if not (array.flags.c_contiguous and array.nbytes):
        return False
    registered, first = 1, array.ctypes.data
    kind = cupy.cuda.runtime.pointerGetAttributes
    # If memory was locked after allocation, maybe only a part of it was.
    return all(kind(place).type == registered for place in (first, first + array.nbytes - 1))


def upload(array: Any) -> Any:
    """Return an array on the current device, without a copy if it is there already."""
    if not isinstance(array, np.ndarray):
        return _here(array)
    with stream():
        return begin_upload(array)


def begin_upload(array: Any) -> Any:
    """Upload on the current stream without waiting; page-locked arrays must not change."""
    import cupy

    if not isinstance(array, np.ndarray):
        return _here(array)
    array = np.ascontiguousarray(array)
    there, own = cupy.empty(array.shape, array.dtype), cupy.cuda.get_current_stream()
    if is_pinned(array):
        there.data.copy_from_host_async(array.ctypes.data, array.nbytes, own)
    elif array.nbytes:
        with staging() as parts:
            parts.upload(array, there.data.ptr, own.ptr)
    return there


def _here(array: Any) -> Any:
    import cupy

    elsewhere = array.device.id != cupy.cuda.Device().id
    return array.copy() if elsewhere else cupy.ascontiguousarray(array)
