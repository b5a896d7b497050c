"""The host's memory on its way to a GPU, and page-locked memory that is kept for it.

The library copies and calls CUDA's driver without the interpreter's lock. Ordinary memory passes
through page-locked memory a part at a time: while one part is on its way, the next is copied.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import threads
from ..cpu import layouts
from ..cpu.library import load
from ..kernel_arguments import address

#: Bytes that are copied at a time, and how many such parts of page-locked memory a thread has:
#: few enough for those of all threads to stay in the processor's cache until GPUs have read them.
PART, PARTS = 2 << 20, 2
#: Page-locked memory for results, in use and kept, has so many bytes at most.
_MOST_RESULTS = 448 << 20

#: Idle, and kept: staging by device, memory for results by its size.
_idle: dict[int, list[Staging]] = {}
_results: dict[int, list[NDArray[np.uint8]]] = {}
#: Bytes of each page-locked memory for results, in use or kept.
_locked_sizes: list[int] = []


#: An address to which bytes go, the one from which they come, and how many there are.
Move = tuple[int, int, int]
#: A kernel of CuPy's, grid and block, and its arguments.
Launched = tuple[Any, tuple[int], tuple[int], Sequence[Any]]


#: A kernel that begins, and the alignment of its arguments.
_LAUNCH = np.dtype(layouts.Launch)
_ALIGNED = 16


@lru_cache(maxsize=1)
def device_calls() -> layouts.DeviceCalls:
    """Return the driver's functions."""
    driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    functions = (
        driver.cuMemcpyHtoDAsync_v2, driver.cuMemcpyDtoHAsync_v2, driver.cuLaunchKernel,
        driver.cuEventRecord, driver.cuEventSynchronize, driver.cuStreamSynchronize,
    )  # fmt: skip
    return layouts.DeviceCalls(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))


class Way:
    """Where bytes of fits go and come from.

    Parameters
    ----------
    table : array of int, shape (n, 5)
        Addresses to which and from which the first fit's go, how far those of the next fit are
        from either, and how many bytes a fit has.
    """

    def __init__(self, table: Any) -> None:
        numbers = np.asarray(table, np.int64).reshape(-1, 5)
        self._first, self._steps, self._size = numbers[:, :2], numbers[:, 2:4], numbers[:, 4]
        self._moves = np.empty((len(numbers), 3), np.int64)
        self._places = self._moves[:, :2]
        self.address, self.count = self._moves.ctypes.data, len(self._moves)

    def of(self, first: int, n: int) -> None:
        """Let it be that of n fits from one on."""
        np.multiply(self._steps, first, out=self._places)
        self._places += self._first
        self._moves[:, 2] = n * self._size


class Job:
    """What is done for a piece of work: bytes go up, kernels begin, results come back.

    Parameters
    ----------
    sent, received : Way
        What goes up and comes back.
    in_place : int
        How many of those that are sent, the first ones, are in page-locked memory.
    kernel : cupy.RawKernel
        What is launched, one after the other,
    given : sequence of (grid, block, arguments)
        as it is called.
    """

    def __init__(
        self, sent: Way, received: Way, in_place: int, kernel: Any,
        given: Sequence[tuple[Any, Any, Sequence[Any]]],
    ) -> None:  # fmt: skip
        launches = _Launches([(kernel, *one) for one in given])
        self._kept = sent, received, launches
        self._piece = layouts.Piece(
            sent.address, launches.address, received.address,
            sent.count, launches.count, received.count, in_place,
        )  # fmt: skip
        self.pointer = ctypes.byref(self._piece)


class _Launches:
    """Launches as the library takes them, in few steps: there are two dozen for a block of frames.

    Parameters
    ----------
    given : sequence of Launched
        Arguments are bytes, NumPy's numbers and structures, or arrays of the device.
    """

    def __init__(self, given: Sequence[Launched]) -> None:
        values = bytearray()
        begins: list[int] = []
        rows: list[tuple[int, int, int, int]] = []
        # Many kernels are given the same.
        known: dict[int, int] = {}
        for kernel, grid, block, arguments in given:
            rows.append((kernel.kernel.ptr, len(begins), grid[0], block[0]))
            for value in arguments:
                begin = known.get(id(value))
                if begin is None:
                    begin = known[id(value)] = len(values)
                    values += _as_bytes(value)
                    values += bytes(-len(values) % _ALIGNED)
                begins.append(begin)
        table = np.array(rows, _LAUNCH)
        self._values = np.frombuffer(values or b"\0", np.uint8)
        self._places = np.array(begins, np.int64) + address(self._values)
        table["arguments"] = table["arguments"] * self._places.itemsize + address(self._places)
        self._table, self.address, self.count = table, address(table), len(table)


def _as_bytes(value: Any) -> bytes:
    """Return an argument as a kernel reads it: a number, a structure, where an array is."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.generic) or value.ndim == 0:
        plain: bytes = value.tobytes()
        return plain
    return address(value).to_bytes(8, sys.byteorder)


class Staging:
    """Page-locked memory through which bytes pass to the current device."""

    def __init__(self) -> None:
        import cupy

        self._memory = pinned(PART * PARTS)
        self._events = [cupy.cuda.Event(disable_timing=True) for _ in range(PARTS)]
        self._pointers = (ctypes.c_void_p * PARTS)(*(event.ptr for event in self._events))
        self._parts = layouts.Staging(
            device_calls(), address(self._memory), PART, PARTS,
            ctypes.addressof(self._pointers), 0,
        )  # fmt: skip
        self._pointer = ctypes.byref(self._parts)

    def send(self, array: NDArray[Any], there: int, stream: int) -> None:
        """Begin to copy a C-contiguous array to an address of the device; it may change then."""
        move = np.array([there, address(array), array.nbytes], np.uint64)
        _check(load().functions.spotfit_send(ctypes.byref(self._parts), move.ctypes.data, stream))

    def feed(self, stream: int, done: Way | None, job: Job | None = None) -> None:
        """Finish a stream's piece of work, and begin the next one.

        Parameters
        ----------
        stream : int
            CUDA's handle of it.
        done : Way or None
            What is copied once the piece that is under way is done; None if there is none.
        job : Job, optional
            What begins then.
        """
        moves, count = (None, -1) if done is None else (done.address, done.count)
        next_one = None if job is None else job.pointer
        _check(load().functions.spotfit_feed(self._pointer, stream, moves, count, next_one))

    def carry_out(
        self, stream: int, sent: Sequence[Move], launches: Sequence[Launched],
        received: Sequence[Move], brought: Sequence[Move] | None,
    ) -> None:  # fmt: skip
        """Let bytes go up, kernels run, and bytes come back, one after the other.

        Parameters
        ----------
        stream : int
            CUDA's handle of it.
        sent, received : sequence of Move
            To the device and from it; those that come back, to page-locked memory.
        launches : sequence of Launched
            What runs in between.
        brought : sequence of Move or None
            What is copied when all is done; None not to wait for that.
        """
        up, down, last = (np.array(moves or (), np.uint64) for moves in (sent, received, brought))
        made = _Launches(launches)
        piece = layouts.Piece(
            address(up), made.address, address(down), len(sent), made.count, len(received), 0
        )
        count = -1 if brought is None else len(brought)
        _check(
            load().functions.spotfit_carry_out(
                self._pointer, stream, ctypes.byref(piece), address(last), count
            )
        )


@contextmanager
def staging() -> Iterator[Staging]:
    """Lend page-locked memory for copies to the current device."""
    import cupy

    runtime = cupy.cuda.runtime
    device = runtime.getDevice()
    # A thread that has asked CUDA's runtime for nothing yet has no device of the driver's.
    runtime.setDevice(device)
    idle = _idle.setdefault(device, [])
    try:
        own = idle.pop()
    except IndexError:
        own = Staging()
    yield own
    # After an error it is not used again.
    idle.append(own)


def pinned(size: int) -> NDArray[np.uint8]:
    """Return memory that the GPU reads and writes by itself, ``size`` bytes."""
    import cupy

    # CuPy keeps what is given back for others of just its size.
    memory = cupy.cuda.alloc_pinned_memory(_rounded(size))
    return np.frombuffer(memory, np.uint8, size)


def for_results(size: int) -> tuple[NDArray[np.uint8], bool]:
    """Return memory for results, and whether all GPUs write it by themselves.

    Page-locked memory of results that are gone is kept for the next ones.
    """
    room = _rounded(size)
    idle = _results.setdefault(room, [])
    try:
        memory = idle.pop()
    except IndexError:
        if sum(_locked_sizes) + room > _MOST_RESULTS:
            _forget_results()
        if sum(_locked_sizes) + room > _MOST_RESULTS:
            return np.empty(size, np.uint8), False
        locked = _locked(room)
        if locked is None:
            # As good as none left: it is not tried again.
            _locked_sizes.append(_MOST_RESULTS)
            return np.empty(size, np.uint8), False
        memory = locked
        _locked_sizes.append(room)
    # An array of its own, which all views of the results keep.
    lent = np.frombuffer(memory.data, np.uint8, size)
    weakref.finalize(lent, idle.append, memory).atexit = False
    return lent, True


def _rounded(size: int) -> int:
    """Return a size that is at most an eighth larger, so that other results have it, too."""
    unit = max(1 << max(size.bit_length() - 4, 0), 4096)
    return -(-size // unit) * unit


def _forget_results() -> None:
    """Give back the memory that is kept for results."""
    import cupy

    for size, idle in list(_results.items()):
        while idle:
            cupy.cuda.runtime.hostUnregister(idle.pop().ctypes.data)
            _locked_sizes.remove(size)


def _locked(size: int) -> NDArray[np.uint8] | None:
    """Return new page-locked memory, or None where the system gives none.

    Made by all threads and locked afterwards: CUDA's own takes ten times as long.
    """
    import cupy

    new = mmap.mmap(-1, size)
    with suppress(AttributeError, OSError):
        new.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(new, np.uint8)

    def touch(first: int, last: int) -> None:
        load().functions.spotfit_touch(memory.ctypes.data + first, last - first)

    threads.in_pieces(touch, size, 16 << 20, None)
    runtime, for_all_gpus = cupy.cuda.runtime, 1
    try:
        runtime.hostRegister(memory.ctypes.data, size, for_all_gpus)
    except runtime.CUDARuntimeError:
        return None
    return memory


def _check(code: int) -> None:
    if code:
        from cupy.cuda.driver import CUDADriverError

        raise CUDADriverError(code)
