"""Cut-outs from the host's memory: pieces that GPUs take as they get done, results in order.

Each GPU is fed by threads of its own, with streams and buffers of their own. A thread has two
pieces under way: it copies one while the GPU fits the other. Nothing that takes long is done
under the interpreter's lock. What a failing GPU leaves, the others do.
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
from ..errors import Range, Unfinished, cuda_errors
from ..kernel_arguments import Results, address, sizes_of_results
from . import staging, transfer
from .devices import free_memory

#: Bytes of pixels that go up at a time, at most and at least, and how many threads copy them for
#: each GPU, at most.
PIECE_BYTES, SMALL_PIECE, FEEDERS = 32 << 20, 1 << 20, 8
#: The same where a piece has page-locked memory of its own, because its pixels are converted on the
#: way or its results copied.
COPIED_BYTES = 8 << 20
#: A thread has so many bytes to copy at least.
FEEDER_BYTES = 4 << 20
#: The same for pixels that are in page-locked memory already: the CPU copies nothing.
PINNED_BYTES, PINNED_FEEDERS = 32 << 20, 2
#: Pieces of a thread that are under way.
UNDER_WAY = 2
#: A piece of fewer fits is not halved when the GPU's memory runs out.
_SMALLEST = 4096


class Task(Protocol):
    """What is the same for all pieces, as :mod:`.fit` has it."""

    @property
    def settings(self) -> Settings:
        """How to fit."""

    @property
    def roi_shape(self) -> tuple[int, ...]:
        """Rows and columns of a cut-out."""

    @property
    def pixel(self) -> np.dtype[Any]:
        """The type of pixels that the kernel reads."""

    @property
    def row_bytes(self) -> int:
        """Bytes of results that a fit has."""

    @property
    def launches(self) -> Callable[..., tuple[Any, list[Any]]]:
        """What returns the kernel, and its launches for some fits of a piece."""


def fit_in_pieces(
    frames: NDArray[Any], start: Any, maps: Any, task: Task, devices: Sequence[int]
) -> dict[str, Any]:
    """Fit many cut-outs of the host, several pieces side by side on each device.

    Parameters
    ----------
    frames : ndarray, shape (n, rows, columns)
        Of any real number type, byte order and layout; converted piece by piece.
    start, maps, task
        As the fits take them, in the host's memory.
    devices : sequence of int
        By CUDA's numbers of them.

    Returns
    -------
    dict of ndarray
        The columns of SpotFits; in page-locked memory if the cut-outs are.

    Raises
    ------
    Unfinished
        If a device failed; what the others did not do is left.
    """
    n, settings = len(frames), task.settings
    reads = frames.dtype == task.pixel and transfer.is_pinned(frames)
    size = task.row_bytes * n
    memory, writes = staging.for_results(size)
    if reads and not writes:
        memory, writes = staging.pinned(size), True
    start = None if start is None else np.ascontiguousarray(start)
    maps = maps.each(np.ascontiguousarray)
    as_they_are = frames.flags.c_contiguous and frames.dtype == task.pixel
    work = _Work(frames, start, maps, task, memory, reads, writes, as_they_are)
    piece, feeders = _shares(work, devices)
    ranges, lost = Ranges(n, piece), dict[int, Exception]()

    def feed(feeder: _Feeder) -> None:
        if (error := feeder.feed(ranges)) is not None:
            failed(feeder.device, error)

    def failed(device: int, error: Exception) -> None:
        if not _is_memory(error):
            lost[device] = error

    def ready() -> Iterator[Callable[[], None]]:
        # Made ready by this thread, one after the other: by those that feed, all at once and each
        # with the interpreter, it would take three times as long.
        for device in itertools.islice(itertools.cycle(devices), feeders):
            try:
                feeder = _Feeder(work, device, piece)
            except cuda_errors() as error:
                failed(device, error.with_traceback(None))
            else:
                yield partial(feed, feeder)

    threads.together(ready(), ranges.stop)
    # What is left failed for want of memory, or with a device at the very end: now one after the
    # other, and smaller.
    for device in devices:
        if device not in lost:
            _finish(work, device, ranges, lost)
    columns = Results.within(memory, n, settings).columns(settings.profile)
    if lost:
        raise Unfinished(columns, ranges.take_all(), lost)
    return columns


class Ranges:
    """The ranges still to be fitted, handed out in order."""

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
        """Take ranges back that came to nothing."""
        with self._taking:
            self._left.extendleft(ranges)

    def stop(self) -> None:
        """Hand out no more."""
        self._stopped = True

    def take_all(self) -> list[Range]:
        """Return the ranges left, and close the queue."""
        rest = sorted(self._left)
        self._left.clear()
        return rest


class _Work(NamedTuple):
    """What is the same for all pieces of a call."""

    #: Cut-outs, start values and maps, each perhaps None; all but the cut-outs as they go up.
    frames: NDArray[Any]
    start: Any
    maps: Any
    task: Task
    #: Where the results go, as Results divides it.
    memory: NDArray[np.uint8]
    #: Whether the device reads the cut-outs, and writes the results, by itself.
    reads: bool
    writes: bool
    #: Whether the cut-outs' bytes are what the kernel reads.
    as_they_are: bool

    def brought(self, memory: int, room: int) -> staging.Way:
        """Return the way of results to where they go, from memory for so many fits."""
        sizes = sizes_of_results(self.task.settings)
        begins = np.cumsum(sizes) - sizes
        to = address(self.memory) + begins * len(self.frames)
        origin = memory + begins * room
        return staging.Way(np.stack([to, origin, sizes, 0 * sizes, sizes], 1))


class _Slot:
    """A stream and memory of the current device, for one piece at a time."""

    def __init__(self, work: _Work, parts: staging.Staging, stream: Any, piece: int) -> None:
        import cupy

        self._work, self._parts, self._stream, self._piece = work, parts, stream, piece
        #: What is under way.
        self.range: Range | None = None
        task = work.task
        with stream:
            self._pixels = cupy.empty((piece, *task.roi_shape), task.pixel)
            self._memory = cupy.empty(task.row_bytes * piece, np.uint8)
            self._start, *maps = (_place(array, piece) for array in (work.start, *work.maps))
        self._maps = type(work.maps)(*maps)
        self._given = None if work.as_they_are else _pinned_like(self._pixels)
        sent = [
            _up(self._pixels, work.frames) if self._given is None
            else (address(self._pixels), address(self._given), 0, 0, self._given[0].nbytes)
        ]  # fmt: skip
        for there, here in ((self._start, work.start), *zip(maps, work.maps, strict=True)):
            if here is not None and len(here) > 1:
                sent.append(_up(there, here))
        self._sent = staging.Way(sent)
        self._back = None if work.writes else staging.pinned(self._memory.size)
        there = address(self._memory)
        if self._back is None:
            self._received, self._done = work.brought(there, piece), staging.Way([])
        else:
            here = address(self._back)
            self._received = staging.Way([here, there, 0, 0, task.row_bytes])
            self._done = work.brought(here, piece)
        self._jobs: dict[int, staging.Job] = {}

    def next(self, first: int, last: int) -> None:
        """Finish what is under way, and begin to fit a range."""
        n = last - first
        if self._given is not None:
            self.finish()
            np.copyto(self._given[:n], self._work.frames[first:last], casting="unsafe")
        if n not in self._jobs:
            self._jobs[n] = self._job(n)
        done = self._brought()
        self._sent.of(first, n)
        self._received.of(first, n if self._back is None else self._piece)
        self._parts.feed(self._stream.ptr, done, self._jobs[n])
        self.range = first, last

    def finish(self) -> None:
        """Wait for what is under way; its results are where they belong then."""
        if self.range is not None:
            self._parts.feed(self._stream.ptr, self._brought())
            self.range = None

    def _brought(self) -> staging.Way | None:
        """Return what is copied when what is under way is done."""
        if self.range is None:
            return None
        first, last = self.range
        self._done.of(first, last - first)
        return self._done

    def _job(self, n: int) -> staging.Job:
        launched = self._work.task.launches(
            self._pixels, None, self._start, self._maps, address(self._memory), n, self._piece
        )
        in_place = int(self._work.reads or self._given is not None)
        return staging.Job(self._sent, self._received, in_place, *launched)


def _place(array: Any, piece: int) -> Any:
    """Return memory of the device for a piece of an array; what all fits share, as it is there."""
    import cupy

    if array is None:
        return None
    if len(array) == 1:
        return transfer.upload(array)
    return cupy.empty((piece, *array.shape[1:]), array.dtype)


def _up(there: Any, here: NDArray[Any]) -> tuple[int, int, int, int, int]:
    """Return how a piece of an array goes to memory for one piece."""
    row = here[0].nbytes
    return address(there), address(here), 0, row, row


def _pinned_like(pixels: Any) -> NDArray[Any]:
    """Return page-locked memory for as many pixels."""
    memory: NDArray[Any] = staging.pinned(pixels.nbytes).view(pixels.dtype)
    return memory.reshape(pixels.shape)


def _shares(work: _Work, devices: Sequence[int]) -> tuple[int, int]:
    """Return how many fits a piece has, and how many threads there are."""
    n, task = len(work.frames), work.task
    pixel_bytes = task.pixel.itemsize * math.prod(task.roi_shape)
    feeders, size = min(FEEDERS * len(devices), threads.available()), PIECE_BYTES
    if work.reads:
        feeders, size = PINNED_FEEDERS * len(devices), PINNED_BYTES
    elif not (work.as_they_are and work.writes):
        size = COPIED_BYTES
    # A thread takes as long to begin as to copy that much.
    feeders = min(feeders, max(n * pixel_bytes // FEEDER_BYTES, 1))
    size = max(min(n * pixel_bytes // (feeders * UNDER_WAY), size), SMALL_PIECE)
    each = pixel_bytes + task.row_bytes
    each += sum(array[0].nbytes for array in (work.start, *work.maps) if array is not None)
    room = min(map(free_memory, devices)) // 2
    piece = min(size // pixel_bytes, room // (feeders * UNDER_WAY * each), n)
    return max(piece, 1), feeders


class _Feeder:
    """What a thread needs to feed a device: page-locked memory, and slots for pieces."""

    def __init__(self, work: _Work, device: int, piece: int) -> None:
        import cupy

        self.device, self._work, self._piece = device, work, piece
        with ExitStack() as kept, cupy.cuda.Device(device):
            self._parts = kept.enter_context(staging.staging())
            #: The others are made when the first piece is under way.
            self._slots = [self._slot(kept)]
            self._kept = kept.pop_all()

    def _slot(self, kept: ExitStack) -> _Slot:
        stream = kept.enter_context(transfer.idle_stream())
        return _Slot(self._work, self._parts, stream, self._piece)

    def feed(self, ranges: Ranges) -> Exception | None:
        """Fit ranges until there are no more, or return why it does not go on."""
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
            # Without its traceback, which holds the arrays.
            return error.with_traceback(None)
        finally:
            self._slots = []
        return None


def _finish(work: _Work, device: int, ranges: Ranges, lost: dict[int, Exception]) -> None:
    """Fit what is left, on one device."""
    import cupy

    def fit(first: int, last: int) -> None:
        with staging.staging() as parts, transfer.idle_stream() as stream:
            slot = _Slot(work, parts, stream, last - first)
            slot.next(first, last)
            slot.finish()

    for first, last in ranges.take_all():
        try:
            with cupy.cuda.Device(device):
                halving(fit, first, last)
        except cuda_errors() as error:
            lost.setdefault(device, error.with_traceback(None))
            ranges.give_back([(first, last)])


def halving(work: Callable[[int, int], None], first: int, last: int) -> None:
    """Work on a range; where the GPU's memory does not suffice, on its halves in turn."""
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
