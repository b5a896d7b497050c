"""Streams, pinned memory, and arrays on their way to the GPU and back.

Whatever a call begins on a stream is done when the call returns, so that streams and the
memory that CuPy keeps for them serve the next call, on whichever thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .staging import pinned, staging

#: Page-locked memory through which results pass piece by piece.
_PIECE = 16 << 20

#: Streams that nobody uses, by device; created ones are kept.
_idle: dict[int, list[Any]] = {}


@contextmanager
def stream(*, in_turn: bool = False) -> Iterator[Any]:
    """Make a stream of our own the current one, and wait at the end for what was begun.

    ``in_turn``, its work begins when that of the current one is done.
    """
    import cupy

    with idle_stream() as own:
        if in_turn:
            before = cupy.cuda.Event(disable_timing=True)
            before.record(cupy.cuda.get_current_stream())
            own.wait_event(before)
        with own:
            yield own


@contextmanager
def idle_stream() -> Iterator[Any]:
    """Lend a stream of the current device, and wait at the end for what was begun."""
    import cupy

    idle = _idle.setdefault(cupy.cuda.Device().id, [])
    try:
        own = idle.pop()
    except IndexError:
        own = cupy.cuda.Stream(non_blocking=True)
    try:
        yield own
    finally:
        own.synchronize()
        idle.append(own)


def is_pinned(array: NDArray[Any]) -> bool:
    """Whether the GPU may read an array by itself while the CPU goes on."""
    import cupy

    if not (array.flags.c_contiguous and array.nbytes):
        return False
    registered, first = 1, array.ctypes.data
    kind = cupy.cuda.runtime.pointerGetAttributes
    # Of memory that was page-locked afterwards, perhaps a part was.
    return all(kind(place).type == registered for place in (first, first + array.nbytes - 1))


def upload(array: Any) -> Any:
    """Return an array on the current device; one that is there already, as it is."""
    import cupy

    if not isinstance(array, np.ndarray):
        elsewhere = array.device.id != cupy.cuda.Device().id
        return array.copy() if elsewhere else cupy.ascontiguousarray(array)
    array = np.ascontiguousarray(array)
    with stream() as own:
        there = cupy.empty(array.shape, array.dtype)
        if array.nbytes:
            if is_pinned(array):
                there.data.copy_from_host_async(array.ctypes.data, array.nbytes, own)
            else:
                with staging() as parts:
                    parts.send(array, there.data.ptr, own.ptr)
        own.synchronize()
    return there


def receive(there: Any, array: NDArray[Any], own: Any) -> None:
    """Begin to copy a device array to pinned memory, whose rows may lie apart."""
    import cupy

    rows = 1 if there.ndim == 1 else len(there)
    row = there.nbytes // rows
    runtime = cupy.cuda.runtime
    runtime.memcpy2DAsync(
        array.ctypes.data, array.strides[0] if array.ndim > 1 else row,
        there.data.ptr, row, row, rows, runtime.memcpyDeviceToHost, own.ptr,
    )  # fmt: skip


def fetch(there: Any) -> NDArray[Any]:
    """Return a device array in the host's memory, which few bytes reach faster if it is pinned."""
    import cupy

    few = not isinstance(there, np.ndarray) and 0 < there.nbytes <= _PIECE
    memory = pinned(there.nbytes).view(there.dtype).reshape(there.shape) if few else None
    here: NDArray[Any] = cupy.asnumpy(there, out=memory)
    return here


def download(there: Any, own: Any) -> NDArray[np.uint8]:
    """Return the bytes of a device array in new memory of the host."""
    memory = np.empty(there.size, np.uint8)
    staging = pinned(min(there.size, _PIECE))
    for first in range(0, there.size, _PIECE):
        size = min(_PIECE, there.size - first)
        (there.data + first).copy_to_host_async(staging.ctypes.data, size, own)
        own.synchronize()
        memory[first : first + size] = staging[:size]
    return memory
