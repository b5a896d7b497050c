"""Fit cut-outs of the host in pieces, which GPUs take as they finish others.

Each GPU has its own threads, with their own streams and buffers. A thread alternates between two
pieces: it copies one while the GPU fits the other, without the interpreter's lock. If a GPU fails,
the others take its pieces.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from .. import threads
from ..backend import Range, Unfinished, cuda_errors
from ..kernel_arguments import Results, address, sizes_of_results
from . import transfer
from .devices import free_memory

#: Largest and smallest piece in bytes of pixels, and largest number of threads per GPU.
PIECE_BYTES, SMALL_PIECE, FEEDERS = 32 << 20, 1 << 20, 8
#: Largest piece if it needs page-locked memory to convert pixels or to copy results.
COPIED_BYTES = 8 << 20
#: Least number of bytes per thread.
FEEDER_BYTES = 4 << 20
#: Largest piece and number of threads if the pixels are in page-locked memory, and need no copy.
PINNED_BYTES, PINNED_FEEDERS = 32 << 20, 2
#: Number of simultaneous pieces of a thread.
UNDER_WAY = 2
#: Pieces of at most this many fits are not halved if the GPU's memory runs out.
_SMALLEST = 4096


class Task(Protocol):
    """What all pieces share, see :mod:`.fit`."""

    @property
    def settings(self) -> Settings:
        """The settings of the fit."""

    @property
    def roi_shape(self) -> tuple[int, ...]:
        """Rows and columns of a cut-out."""

    @property
    def pixel(self) -> np.dtype[Any]:
        """The pixel type that the kernel reads."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a fit's results."""

    @property
    def launches(self) -> Callable[..., tuple[Any, list[Any]]]:
        """Returns the kernel and its launches for the fits of a piece."""


def fit_in_pieces(
    frames: NDArray[Any], start: Any, maps: Any, task: Task, devices: Sequence[int]
) -> dict[str, Any]:
    """Fit many cut-outs of the host, several pieces at a time on each device.

    Parameters
    ----------
    frames : ndarray, shape (n, rows, columns)
        Cut-outs of any real type, byte order and layout, which are converted piece by piece.
    start, maps, task
        Start values, maps and task of the fits, on the host.
    devices : sequence of int
        CUDA device numbers.

    Returns
    -------
    dict of ndarray
        The columns of SpotFits; in page-locked memory if the cut-outs are.

    Raises
    ------
    Unfinished
        If a device failed, and fits are left.
    """
    n, settings = len(frames), task.settings
    reads = frames.dtype == task.pixel and transfer.is_pinned(frames)
    size = task.row_bytes * n
    memory, writes = transfer.for_results(size)
    if reads and not writes:
        memory, writes = transfer.pinned(size), True
    start = None if start is None else np.ascontiguousarray(start)
    maps = maps.each(np.ascontiguousarray)
    is_native = frames.flags.c_contiguous and frames.dtype == task.pixel
    work = _Work(frames, start, maps, task, memory, reads, writes, is_native)
    piece, feeders = _shares(work, devices)
    ranges, lost = Ranges(n, piece), dict[int, Exception]()

    def feed(feeder: _Feeder) -> None:
        if (error := feeder.feed(ranges)) is not None:
            failed(feeder.device, error)

    def failed(device: int, error: Exception) -> None:
        if not _is_memory(error):
            lost[device] = error

    def ready() -> Iterator[Callable[[], None]]:
        # Prepared in this thread one by one: in the feeding threads, which compete for the
        # interpreter's lock, it would take three times as long.
        for device in itertools.islice(itertools.cycle(devices), feeders):
            try:
                feeder = _Feeder(work, device, piece)
            except cuda_errors() as error:
                failed(device, error.with_traceback(None))
            else:
                yield partial(feed, feeder)

    threads.together(ready(), ranges.stop)
    # Ranges that are left lacked memory, or their device failed at the end: fit them one by one, in
    # smaller pieces.
    for device in devices:
        if device not in lost:
            _finish(work, device, ranges, lost)
    columns = Results.within(memory, n, settings).columns(settings.profile)
    if lost:
        raise Unfinished(columns, ranges.close(), lost)
    return columns


class Ranges:
    """A queue of the ranges to fit."""

    def __init__(self, n: int, step: int) -> None:
        self._left = deque((first, min(first + step, n)) for first in range(0, n, step))
        self._taking = threading.Lock()
        self._stopped = False

    def __iter__(self) -> Iterator[Range]:
        while not self._stopped:
            with self._taking:
                if not self._left:
                    return
                taken = self._left.popleft()
            yield taken

    def give_back(self, ranges: Sequence[Range]) -> None:
        """Return ranges that were not fitted to the queue."""
        with self._taking:
            self._left.extendleft(ranges)

    def stop(self) -> None:
        """Hand out no more."""
        self._stopped = True

    def close(self) -> list[Range]:
        """Return the ranges left, and close the queue."""
        rest = sorted(self._left)
        self._left.clear()
        return rest


class _Work(NamedTuple):
    """What all pieces of a call share."""

    #: Cut-outs, optional start values and maps; all but the cut-outs in the form to upload.
    frames: NDArray[Any]
    start: Any
    maps: Any
    task: Task
    #: Memory of the results, divided as by Results.
    memory: NDArray[np.uint8]
    #: Whether the device can read the cut-outs, and write the results, in page-locked memory.
    reads: bool
    writes: bool
    #: Whether the kernel can read the cut-outs' bytes without conversion.
    is_native: bool

    def results_to_host(self, memory: int, room: int) -> transfer.CopyTable:
        """Return the copies of results to their columns, from memory for `room` fits."""
        sizes = sizes_of_results(self.task.settings)
        begins = np.cumsum(sizes) - sizes
        to = address(self.memory) + begins * len(self.frames)
        origin = memory + begins * room
        return transfer.CopyTable(np.stack([to, origin, sizes, 0 * sizes, sizes], 1))


class _Slot:
    """A stream and memory on the current device for one piece at a time."""

    def __init__(self, work: _Work, parts: transfer.Staging, stream: Any, piece: int) -> None:
        import cupy

        self._work, self._parts, self._stream, self._piece = work, parts, stream, piece
        #: The range that is being fitted.
        self.range: Range | None = None
        task = work.task
        with stream:
            self._pixels = cupy.empty((piece, *task.roi_shape), task.pixel)
            self._memory = cupy.empty(task.row_bytes * piece, np.uint8)
            self._start, *maps = (_place(array, piece) for array in (work.start, *work.maps))
        self._maps = type(work.maps)(*maps)
        self._given = None if work.is_native else _pinned_like(self._pixels)
        sent = [
            _copy_row(self._pixels, work.frames) if self._given is None
            else (address(self._pixels), address(self._given), 0, 0, self._given[0].nbytes)
        ]  # fmt: skip
        for on_device, on_host in ((self._start, work.start), *zip(maps, work.maps, strict=True)):
            if on_host is not None and len(on_host) > 1:
                sent.append(_copy_row(on_device, on_host))
        self._sent = transfer.CopyTable(sent)
        self._back = None if work.writes else transfer.pinned(self._memory.size)
        there = address(self._memory)
        if self._back is None:
            self._received, self._done = work.results_to_host(there, piece), transfer.CopyTable([])
        else:
            here = address(self._back)
            self._received = transfer.CopyTable([here, there, 0, 0, task.row_bytes])
            self._done = work.results_to_host(here, piece)
        self._commands: dict[int, transfer.PieceCommands] = {}

    def next(self, first: int, last: int) -> None:
        """Finish the current piece, and start to fit a range."""
        n = last - first
        if self._given is not None:
            self.finish()
            np.copyto(self._given[:n], self._work.frames[first:last], casting="unsafe")
        if n not in self._commands:
            self._commands[n] = self._commands_for(n)
        done = self._copies()
        self._sent.select(first, n)
        self._received.select(first, n if self._back is None else self._piece)
        self._parts.feed(self._stream.ptr, done, self._commands[n])
        self.range = first, last

    def finish(self) -> None:
        """Wait for the current piece, and copy its results to their columns."""
        if self.range is not None:
            self._parts.feed(self._stream.ptr, self._copies())
            self.range = None

    def _copies(self) -> transfer.CopyTable | None:
        """Return the copies to make when the current piece is done."""
        if self.range is None:
            return None
        first, last = self.range
        self._done.select(first, last - first)
        return self._done

    def _commands_for(self, n: int) -> transfer.PieceCommands:
        launched = self._work.task.launches(
            self._pixels, None, self._start, self._maps, address(self._memory), n, self._piece
        )
        in_place = int(self._work.reads or self._given is not None)
        return transfer.PieceCommands(self._sent, self._received, in_place, *launched)


def _place(array: Any, piece: int) -> Any:
    """Return device memory for a piece of an array; upload an array that all fits share."""
    import cupy

    if array is None:
        return None
    if len(array) == 1:
        return transfer.upload(array)
    return cupy.empty((piece, *array.shape[1:]), array.dtype)


def _copy_row(on_device: Any, on_host: NDArray[Any]) -> tuple[int, int, int, int, int]:
    """Return the row of a copy table that uploads a piece of an array."""
    row = on_host[0].nbytes
    return address(on_device), address(on_host), 0, row, row


def _pinned_like(pixels: Any) -> NDArray[Any]:
    """Return page-locked memory of the same shape and type."""
    memory: NDArray[Any] = transfer.pinned(pixels.nbytes).view(pixels.dtype)
    return memory.reshape(pixels.shape)


def _shares(work: _Work, devices: Sequence[int]) -> tuple[int, int]:
    """Return the number of fits of a piece, and the number of threads."""
    n, task = len(work.frames), work.task
    pixel_bytes = task.pixel.itemsize * math.prod(task.roi_shape)
    feeders, size = min(FEEDERS * len(devices), threads.available()), PIECE_BYTES
    if work.reads:
        feeders, size = PINNED_FEEDERS * len(devices), PINNED_BYTES
    elif not (work.is_native and work.writes):
        size = COPIED_BYTES
    # Starting a thread takes as long as copying this much.
    feeders = min(feeders, max(n * pixel_bytes // FEEDER_BYTES, 1))
    size = max(min(n * pixel_bytes // (feeders * UNDER_WAY), size), SMALL_PIECE)
    each = pixel_bytes + task.row_bytes
    each += sum(array[0].nbytes for array in (work.start, *work.maps) if array is not None)
    room = min(map(free_memory, devices)) // 2
    piece = min(size // pixel_bytes, room // (feeders * UNDER_WAY * each), n)
    return max(piece, 1), feeders


class _Feeder:
    """Feeds a device from one thread, with page-locked memory and slots for pieces."""

    def __init__(self, work: _Work, device: int, piece: int) -> None:
        import cupy

        self.device, self._work, self._piece = device, work, piece
        with ExitStack() as kept, cupy.cuda.Device(device):
            self._parts = kept.enter_context(transfer.staging())
            #: Further slots are made once the first piece has started.
            self._slots = [self._slot(kept)]
            self._kept = kept.pop_all()

    def _slot(self, kept: ExitStack) -> _Slot:
        stream = kept.enter_context(transfer.idle_stream())
        return _Slot(self._work, self._parts, stream, self._piece)

    def feed(self, ranges: Ranges) -> Exception | None:
        """Fit ranges until there are no more, or return the error that stopped it."""
        import cupy

        taken: Range | None = None
        try:
            with cupy.cuda.Device(self.device), self._kept as kept:
                for i, taken in enumerate(ranges):
                    if len(self._slots) < min(i + 1, UNDER_WAY):
                        self._slots.append(self._slot(kept))
                    self._slots[i % UNDER_WAY].next(*taken)
                    taken = None
                for slot in self._slots:
                    slot.finish()
        except cuda_errors() as error:
            own = {slot.range for slot in self._slots} | {taken}
            ranges.give_back([one for one in own if one is not None])
            # The traceback would keep arrays alive.
            return error.with_traceback(None)
        finally:
            self._slots = []
        return None


def _finish(work: _Work, device: int, ranges: Ranges, lost: dict[int, Exception]) -> None:
    """Fit the ranges that are left, on one device."""
    import cupy

    def fit(first: int, last: int) -> None:
        with transfer.staging() as parts, transfer.idle_stream() as stream:
            slot = _Slot(work, parts, stream, last - first)
            slot.next(first, last)
            slot.finish()

    for first, last in ranges.close():
        try:
            with cupy.cuda.Device(device):
                halving(fit, first, last)
        except cuda_errors() as error:
            lost.setdefault(device, error.with_traceback(None))
            ranges.give_back([(first, last)])


def halving(work: Callable[[int, int], None], first: int, last: int) -> None:
    """Process a range; if the GPU's memory does not suffice, halve it."""
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
    halving(work, first, middle)
    halving(work, middle, last)


def _is_memory(error: Exception) -> bool:
    from cupy.cuda.memory import OutOfMemoryError

    return isinstance(error, OutOfMemoryError)
