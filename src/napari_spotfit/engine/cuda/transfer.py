"""Copy memory between host and GPU, on streams and through page-locked buffers that are reused."""

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

#: Bytes of a staging buffer, and number of buffers per thread: few enough for those of all threads
#: to stay in the processor's cache until GPUs have read them.
PART, PARTS = 2 << 20, 2
#: Largest total of page-locked memory for results, in use and cached, in bytes.
_MOST_RESULTS = 448 << 20

#: Idle and cached: staging by device, memory for results by size.
_idle: dict[int, list[Staging]] = {}
_results: dict[int, list[NDArray[np.uint8]]] = {}
#: Size of each page-locked buffer for results, in use or cached.
_locked_sizes: list[int] = []


#: A copy: target address, source address, and number of bytes.
Move = tuple[int, int, int]
#: A CuPy kernel, grid, block, and arguments.
Launched = tuple[Any, tuple[int], tuple[int], Sequence[Any]]


#: Layout of a launch, and alignment of arguments.
_LAUNCH = np.dtype(layouts.Launch)
_ALIGNED = 16
#: Idle streams by device; streams are never destroyed.
_idle_streams: dict[int, list[Any]] = {}
#: Largest page-locked buffer through which results are downloaded, part by part if necessary.
_ROOM = 16 << 20


@lru_cache(maxsize=1)
def device_calls() -> layouts.DeviceCalls:
    """Return the addresses of the driver's functions."""
    driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    functions = (
        driver.cuMemcpyHtoDAsync_v2, driver.cuMemcpyDtoHAsync_v2, driver.cuLaunchKernel,
        driver.cuEventRecord, driver.cuEventSynchronize, driver.cuStreamSynchronize,
    )  # fmt: skip
    return layouts.DeviceCalls(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))


class CopyTable:
    """The copies of a piece of fits, for the library.

    Parameters
    ----------
    table : array of int, shape (n, 5)
        For each copy: target and source address of the first fit, the strides of both from fit to
        fit, and the bytes per fit.
    """

    def __init__(self, table: Any) -> None:
        numbers = np.asarray(table, np.int64).reshape(-1, 5)
        self._first, self._steps, self._size = numbers[:, :2], numbers[:, 2:4], numbers[:, 4]
        self._moves = np.empty((len(numbers), 3), np.int64)
        self._places = self._moves[:, :2]
        self.address, self.count = self._moves.ctypes.data, len(self._moves)

    def select(self, first: int, n: int) -> None:
        """Set the copies to n fits from ``first`` on."""
        np.multiply(self._steps, first, out=self._places)
        self._places += self._first
        self._moves[:, 2] = n * self._size


class PieceCommands:
    """The commands for a piece of fits: uploads, launches of a kernel, downloads.

    Parameters
    ----------
    sent, received : CopyTable
        Copies to and from the device.
    in_place : int
        Number of uploads, the first ones, whose source is page-locked.
    kernel : cupy.RawKernel
        The kernel.
    given : sequence of (grid, block, arguments)
        Its launches.
    """

    def __init__(
        self, sent: CopyTable, received: CopyTable, in_place: int, kernel: Any,
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
    """Kernel launches packed for the library, fast, as a block of frames has two dozen.

    Parameters
    ----------
    given : sequence of Launched
        The launches; arguments are bytes, NumPy numbers and structures, or device arrays.
    """

    def __init__(self, given: Sequence[Launched]) -> None:
        values = bytearray()
        begins: list[int] = []
        rows: list[tuple[int, int, int, int]] = []
        # Many kernels share arguments.
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
    """Return an argument as bytes: a number, a structure, or the address of an array."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.generic) or value.ndim == 0:
        plain: bytes = value.tobytes()
        return plain
    return address(value).to_bytes(8, sys.byteorder)


class Staging:
    """Page-locked buffers for copies to the current device."""

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

    def upload(self, array: NDArray[Any], there: int, stream: int) -> None:
        """Start to upload a C-contiguous array to an address; it may change after the call."""
        move = np.array([there, address(array), array.nbytes], np.uint64)
        _check(load().functions.spotfit_send(ctypes.byref(self._parts), move.ctypes.data, stream))

    def feed(self, stream: int, done: CopyTable | None, piece: PieceCommands | None = None) -> None:
        """Finish a stream's current piece, and start the next one.

        Parameters
        ----------
        stream : int
            CUDA's handle of the stream.
        done : CopyTable or None
            Copies to make when the current piece is done; None without one.
        piece : PieceCommands, optional
            The next piece.
        """
        moves, count = (None, -1) if done is None else (done.address, done.count)
        next_one = None if piece is None else piece.pointer
        _check(load().functions.spotfit_feed(self._pointer, stream, moves, count, next_one))

    def run(
        self, stream: int, sent: Sequence[Move], launches: Sequence[Launched],
        received: Sequence[Move], copies: Sequence[Move] | None,
    ) -> None:  # fmt: skip
        """Upload, launch kernels, and download, in this order.

        Parameters
        ----------
        stream : int
            CUDA's handle of the stream.
        sent, received : sequence of Move
            Copies to the device, and from it to page-locked memory.
        launches : sequence of Launched
            The launches.
        copies : sequence of Move or None
            Copies to make when all is done; None to return without waiting.
        """
        up, down, last = (np.array(moves or (), np.uint64) for moves in (sent, received, copies))
        made = _Launches(launches)
        piece = layouts.Piece(
            address(up), made.address, address(down), len(sent), made.count, len(received), 0
        )
        count = -1 if copies is None else len(copies)
        _check(
            load().functions.spotfit_run_commands(
                self._pointer, stream, ctypes.byref(piece), address(last), count
            )
        )


@contextmanager
def staging() -> Iterator[Staging]:
    """Yield page-locked buffers for copies to the current device."""
    import cupy

    runtime = cupy.cuda.runtime
    device = runtime.getDevice()
    # In a new thread, the driver has no current device before a call of CUDA's runtime.
    runtime.setDevice(device)
    idle = _idle.setdefault(device, [])
    try:
        own = idle.pop()
    except IndexError:
        own = Staging()
    yield own
    # After an error, the buffers are not reused.
    idle.append(own)


def pinned(size: int) -> NDArray[np.uint8]:
    """Return ``size`` bytes of page-locked memory, which the GPU can read and write."""
    import cupy

    # CuPy caches freed memory by its exact size.
    memory = cupy.cuda.alloc_pinned_memory(_rounded(size))
    return np.frombuffer(memory, np.uint8, size)


def for_results(size: int) -> tuple[NDArray[np.uint8], bool]:
    """Return memory for results, and whether it is page-locked, so that GPUs can write it.

    Page-locked memory is reused when its results are deleted.
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
            # Do not try again.
            _locked_sizes.append(_MOST_RESULTS)
            return np.empty(size, np.uint8), False
        memory = locked
        _locked_sizes.append(room)
    # All views of the results keep this array alive; when it is freed, the memory is idle.
    lent = np.frombuffer(memory.data, np.uint8, size)
    weakref.finalize(lent, idle.append, memory).atexit = False
    return lent, True


def _rounded(size: int) -> int:
    """Round a size up by at most an eighth, so that other results can reuse the memory."""
    unit = max(1 << max(size.bit_length() - 4, 0), 4096)
    return -(-size // unit) * unit


def _forget_results() -> None:
    """Free the cached memory for results."""
    import cupy

    for size, idle in list(_results.items()):
        while idle:
            cupy.cuda.runtime.hostUnregister(idle.pop().ctypes.data)
            _locked_sizes.remove(size)


def _locked(size: int) -> NDArray[np.uint8] | None:
    """Return new page-locked memory, or None if the system refuses.

    All threads touch its pages before it is locked: CUDA's allocation takes ten times as long.
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


@contextmanager
def stream() -> Iterator[Any]:
    """Make one of our streams the current one, and wait for it at the end."""
    with idle_stream() as own, own:
        yield own


@contextmanager
def idle_stream() -> Iterator[Any]:
    """Yield a stream of the current device, and wait for it at the end."""
    idle = _idle_of_device()
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

    idle = _idle_of_device()
    own = _taken(idle)
    weakref.finalize(owner, idle.append, own).atexit = False
    before = cupy.cuda.Event(disable_timing=True)
    before.record(cupy.cuda.get_current_stream())
    own.wait_event(before)
    return own


def _idle_of_device() -> list[Any]:
    import cupy

    return _idle_streams.setdefault(cupy.cuda.Device().id, [])


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
        return _on_current_device(array)
    with stream():
        return begin_upload(array)


def begin_upload(array: Any) -> Any:
    """Upload on the current stream without waiting; page-locked arrays must not change."""
    import cupy

    if not isinstance(array, np.ndarray):
        return _on_current_device(array)
    array = np.ascontiguousarray(array)
    there, own = cupy.empty(array.shape, array.dtype), cupy.cuda.get_current_stream()
    if is_pinned(array):
        there.data.copy_from_host_async(array.ctypes.data, array.nbytes, own)
    elif array.nbytes:
        with staging() as parts:
            parts.upload(array, there.data.ptr, own.ptr)
    return there


def _on_current_device(array: Any) -> Any:
    import cupy

    elsewhere = array.device.id != cupy.cuda.Device().id
    return array.copy() if elsewhere else cupy.ascontiguousarray(array)


class CommandList:
    """Commands for the current device and its current stream, submitted together.

    Arrays are uploaded, then kernels run, then results are downloaded. Arrays to upload must not
    change before.

    Examples
    --------
    To double numbers on the GPU::

        commands = CommandList()
        on_device = commands.upload(np.arange(3.0))
        commands.launch(double_kernel, (1,), (32,), (on_device, np.int32(3)))
        doubled = commands.download(on_device)
        commands.run()
    """

    def __init__(self) -> None:
        self._uploads: list[Move] = []
        self._launches: list[Launched] = []
        self._downloads: list[tuple[NDArray[Any], int]] = []
        #: Arrays that must stay alive until the commands are done.
        self._kept: list[Any] = []

    def upload(self, array: Any) -> Any:
        """Return memory on the device for an array of the host; other arrays unchanged."""
        import cupy

        if not isinstance(array, np.ndarray):
            return array
        array = np.ascontiguousarray(array)
        on_device = cupy.empty(array.shape, array.dtype)
        if array.nbytes:
            self._uploads.append((address(on_device), address(array), array.nbytes))
        self._kept += array, on_device
        return on_device

    def launch(
        self, kernel: Any, grid: tuple[int], block: tuple[int], arguments: Sequence[Any]
    ) -> None:
        """Launch a kernel, with arguments as for CuPy."""
        self._launches.append((kernel, grid, block, arguments))
        self._kept.append(arguments)

    def download(self, on_device: Any, memory: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return memory on the host for a C-contiguous array of the device."""
        on_host: NDArray[Any] = (
            np.empty(on_device.shape, on_device.dtype) if memory is None else memory
        )
        if on_host.nbytes:
            self._downloads.append((on_host, address(on_device)))
        self._kept.append(on_device)
        return on_host

    def keep(self, *memory: Any) -> None:
        """Keep memory alive until the commands are done, as kernels only have its address."""
        self._kept += memory

    def run(self, *, wait: bool = True) -> None:
        """Submit all commands not submitted yet; by default, wait for them."""
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        room = min(sum(on_host.nbytes for on_host, _ in self._downloads), _ROOM)
        memory = pinned(room) if room else None
        with staging() as parts:
            for received, copies in self._parts(address(memory), room):
                parts.run(stream, self._uploads, self._launches, received, copies if wait else None)
                self._uploads, self._launches = [], []
        self._downloads = []

    def _parts(self, memory: int, room: int) -> Iterator[tuple[list[Move], list[Move]]]:
        """Yield downloads that fit into page-locked memory, and the copies from there."""
        received: list[Move] = []
        copies: list[Move] = []
        used = 0
        for on_host, on_device in self._downloads:
            for first in range(0, on_host.nbytes, _ROOM):
                size = min(_ROOM, on_host.nbytes - first)
                if used + size > room:
                    yield received, copies
                    received, copies, used = [], [], 0
                received.append((memory + used, on_device + first, size))
                copies.append((address(on_host) + first, memory + used, size))
                used += size
        yield received, copies
