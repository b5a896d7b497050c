"""Read the frames of an image in chunks, and process several chunks at once."""

from __future__ import annotations

import math
import mmap
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain, pairwise
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.backend import Load
from ..engine.select import gpu_pays_off_for_search
from ..images.arrays import is_on_device, to_host
from ..images.camera import PerPixel
from ..images.frames import TILE, FrameReader, FrameSelection, Part
from ..images.reading import all_before, up_to_damage
from ..workers import Workers

#: The longest and the shortest time of one reading in seconds, as far as chunks and frames allow.
_LONG, _SHORT = 1.0, 0.25
#: The share of the frames that the first reading may have.
_FIRST = 1 / 8
#: Linux' MAP_NORESERVE (in Python from 3.13 on), which reserves more memory than there is.
_NO_RESERVE = 0x4000

#: Size of the cache of chunks in tiles; further chunks are read twice.
_TILES = 5


class AdaptiveReader:
    """Reads frames, fewer at a time where reading is slow.

    Parameters
    ----------
    reader : FrameReader
        The image; what is in memory is read at once.
    least : int
        The least number of frames to read at once, as they may be processed in parallel.
    """

    def __init__(self, reader: FrameReader, least: int) -> None:
        self._reader, self._least, self._frames = reader, max(least, 1), 0

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """Yield numbers and pixels of successive frames, all of which may be read at once.

        Raises
        ------
        Exception
            What is wrong with a frame that cannot be read, after those before it.
        """
        for piece in self._pieces(numbers):
            begun = time.perf_counter()
            pixels, damage = up_to_damage(self._reader.read, piece)
            self._learn(time.perf_counter() - begun)
            yield piece[: len(pixels)], pixels
            if damage is not None:
                raise damage

    def _pieces(self, numbers: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield frame numbers in pieces; no chunk of the image is in two of them."""
        ends = self._reader.chunk_ends(numbers) if self._reader.is_lazy else None
        if ends is None:
            yield numbers
            return
        self._frames = self._frames or max(int(len(numbers) * _FIRST), self._least)
        first = 0
        while first < len(numbers):
            place = int(np.searchsorted(ends, first + self._frames))
            last = int(ends[min(place, len(ends) - 1)])
            yield numbers[first:last]
            first = last

    def _learn(self, seconds: float) -> None:
        """Adapt the number of frames to the time that a piece took."""
        if seconds < _SHORT:
            self._frames *= 2
        elif seconds > _LONG:
            self._frames = max(self._frames // 2, self._least)


Given = TypeVar("Given")
Made = TypeVar("Made")

#: Results that wait for earlier ones, for each worker at most; how many items wait for a worker:
#: else it rests while the caller writes the results to a file.
_AHEAD, _READY = 4, 3


class Chunk(NamedTuple):
    """Some frames: their numbers, their pixels, and where to search them."""

    block: NDArray[np.int64]
    pixels: Any
    mask: NDArray[np.bool_] | None
    #: Whether all frames before those of later chunks have come.
    all_before: bool = True


class Blocks(NamedTuple):
    """How an image's frames are read and processed."""

    #: The numbers of those that are read at once, and how many of them are worked on at once.
    reads: list[NDArray[np.int64]]
    at_once: int

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return sum(max(-(-len(block) // self.at_once), 1) for block in self.reads)


def gpu_pays_off(image: Any, reader: FrameReader, frames: FrameSelection) -> bool:
    """Whether a GPU pays off to search the chosen frames of an image."""
    pixels = len(reader.select(frames)) * math.prod(reader.frame_shape)
    return is_on_device(image) or gpu_pays_off_for_search(pixels)


def cut(
    reader: FrameReader, numbers: NDArray[np.int64], load: Load, block_bytes: int = 0
) -> Blocks:
    """Return frames of rising numbers in blocks; at least one, perhaps empty.

    A block has as many bytes as suit the backend, or these if that is more; more of them are
    read at once only where a chunk of the image has more.
    """
    size = max(load.block_bytes, block_bytes)
    at_once = reader.frames_of(load.frames, size)
    return Blocks(reader.blocks(numbers, load.frames, size) or [numbers], at_once)


def read_chunks(reader: FrameReader, parts: Iterable[Blocks], mask: Any) -> Iterator[Chunk]:
    """Read frames block by block, with the mask of each; lazy ones while others are used."""
    masks = PerPixel.of_mask(mask, reader)
    frames = AdaptiveReader(reader, threads.available())
    chunks = (chunk for blocks in parts for chunk in _read_blocks(reader, blocks, masks, frames))
    return read_ahead(chunks) if reader.is_lazy else chunks


def _read_blocks(
    reader: FrameReader, blocks: Blocks, masks: PerPixel | None, frames: AdaptiveReader
) -> Iterator[Chunk]:
    before, shared = True, masks is None or masks.shared
    for block, complete in zip(blocks.reads, all_before(blocks.reads), strict=True):
        if not len(block):
            yield Chunk(block, np.empty((0, *reader.frame_shape), np.float32), None)
            continue
        left = len(block)
        for read, pixels in frames.read(block):
            where = None if masks is None else _mask(masks, read)
            for first in range(0, len(read), blocks.at_once):
                part = slice(first, first + blocks.at_once)
                own = where if where is None or shared else where[part]
                left -= len(read[part])
                yield Chunk(read[part], pixels[part], own, complete and (before or not left))
        before = complete


def read_ahead(items: Iterator[Given]) -> Iterator[Given]:
    """Yield items in order, while another thread makes the next one."""
    with Workers(1, "napari-spotfit reader") as reader:
        coming = reader.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = reader.submit(next, items, None)
            yield item


def side_by_side(
    work: Callable[[Given], Made], given: Iterable[Given], workers: int
) -> Iterator[Made]:
    """Yield ``work(item)`` of all items in order, while the next ones are worked on.

    Items are taken as they are needed. Stopping to iterate cancels the rest; an error among
    the items comes after the results of those before it.
    """
    if workers <= 1:
        yield from map(work, given)
        return
    # Threads of its own: of those that all share, as many would work as there are items.
    pool, under_way = Workers(workers, "napari-spotfit"), deque[Future[Made]]()
    ended, running = SimpleQueue[None](), 0

    def begun() -> Iterator[Future[Made]]:
        try:
            for item in given:
                yield pool.submit(work, item)
        except Exception as error:
            failed: Future[Made] = Future()
            failed.set_exception(error)
            yield failed

    try:
        for future in begun():
            under_way.append(future)
            future.add_done_callback(lambda _: ended.put(None))
            running += 1
            # What is done early waits for those before it, while others go on: workers may differ
            # in speed.
            while running >= workers + _READY or len(under_way) > _AHEAD * workers:
                if under_way[0].done() or len(under_way) > _AHEAD * workers:
                    yield under_way.popleft().result()
                else:
                    ended.get()
                    running -= 1
                while not ended.empty():
                    ended.get()
                    running -= 1
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _mask(masks: PerPixel, block: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the mask of some frames: one for all of them, or of each."""
    where: NDArray[np.bool_] = to_host(masks.read(block))
    return where[0] if masks.shared else where


class RowBuffer:
    """An array of the frame's shape with only some rows in memory.

    So code for whole frames works on these rows, at their positions in the frame.

    Parameters
    ----------
    shape : tuple of int
        Size of the frame along each spatial axis.
    dtype : dtype
        Type of its pixels.

    Examples
    --------
    >>> window = RowBuffer((1000, 4), np.dtype(float))
    >>> window.add(np.ones((10, 4)))
    >>> window.forget(8)
    >>> window.first, window.last, window.frames[0, 8:10, 3].tolist()
    (8, 10, [1.0, 1.0])
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        #: The first row in memory, and the one after the last.
        self.first = self.last = 0
        self._memory: mmap.mmap | None = None
        #: The frame, of shape (1, …, Y, X).
        self.frames = self._empty()

    @property
    def height(self) -> int:
        """Number of rows of the frame."""
        return self._shape[0]

    def room(self, first: int, last: int) -> NDArray[Any]:
        """Return memory to read rows into: their own in the buffer if it allocates rows lazily."""
        if self._memory is None:
            return np.empty((last - first, *self._shape[1:]), self._dtype)
        self._expect(first, last)
        rows: NDArray[Any] = self.frames[0, first:last]
        return rows

    def add(self, rows: NDArray[Any]) -> None:
        """Append rows, without a copy if they were read into their own memory."""
        own = self.frames[0, self.last : self.last + len(rows)]
        if not np.may_share_memory(rows, own):
            self._expect(self.last, self.last + len(rows))
            own[...] = rows
        self.last += len(rows)

    def forget(self, before: int) -> None:
        """Free the memory of all rows before this one."""
        before = min(max(before, self.first), self.last)
        if self._memory is None:
            kept = self.frames[0, before : self.last]
            self.frames = self._empty()
            self.frames[0, before : self.last] = kept
        else:
            row, page = self._row_bytes, mmap.PAGESIZE
            begin, end = (n * row // page * page for n in (self.first, before))
            if end > begin:
                self._memory.madvise(mmap.MADV_DONTNEED, begin, end - begin)
        self.first = before

    def _expect(self, first: int, last: int) -> None:
        """Request large pages for some rows: allocating small ones takes longer than reading."""
        if self._memory is None:
            return
        row = self._row_bytes
        begin = first * row // mmap.PAGESIZE * mmap.PAGESIZE
        with suppress(AttributeError, OSError):  # a system without them
            self._memory.madvise(mmap.MADV_HUGEPAGE, begin, last * row - begin)

    def _empty(self) -> NDArray[Any]:
        shape, dtype = (1, *self._shape), self._dtype
        self._memory = _reserved(math.prod(shape) * dtype.itemsize)
        if self._memory is None:
            self.frames = np.zeros(shape, dtype)
        else:
            self.frames = np.frombuffer(self._memory, dtype).reshape(shape)
        return self.frames


def _reserved(size: int) -> mmap.mmap | None:
    """Reserve memory that is allocated on first write and can be freed; None if impossible."""
    if sys.platform != "linux":
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    return mmap.mmap(-1, size, flags=flags)


class ChunkCache:
    """Reads a frame's chunks once, although single pixels are needed before the rows.

    Parameters
    ----------
    reader : FrameReader
        The image.
    number : int
        The frame's number.
    workers : int
        Number of chunks that are read in parallel.
    """

    def __init__(self, reader: FrameReader, number: int, workers: int) -> None:
        self._reader, self._numbers, self._workers = reader, np.array([number]), workers
        self._edges = reader.chunk_edges()
        #: Chunks by the indices of their first pixels.
        self._kept: dict[tuple[int, ...], NDArray[np.generic]] = {}

    def points(self, places: NDArray[np.int64]) -> list[NDArray[np.generic]]:
        """Return single pixels at indices (n, axes), as frames of one pixel; cache their chunks."""
        parts = {_first(part): part for part in map(self._chunk_at, places.tolist())}
        pixels = sum(math.prod(one.stop - one.start for one in part) for part in parts.values())
        if pixels * self._reader.pixel_bytes > _TILES * TILE or len(self._edges[0]) == 2:
            return self._reader.read_points(int(self._numbers[0]), places)
        with Workers(self._workers, "napari-spotfit chunks") as pool:
            self._kept |= zip(parts, pool.map(self._read, parts.values()), strict=True)
        found = []
        for place in places.tolist():
            first = _first(self._chunk_at(place))
            value = self._kept[first][(0, *np.subtract(place, first))]
            found.append(np.full((1,) * (1 + len(first)), value))
        return found

    def read_rows(self, pixels: NDArray[np.generic], first: int) -> None:
        """Read rows of whole chunks into an array, from ``first`` on; drop them from the cache."""
        others = (slice(0, int(edges[-1])) for edges in self._edges[1:])
        self._fill(pixels, (slice(first, first + len(pixels)), *others))

    def _fill(self, pixels: NDArray[np.generic], part: Part, axis: int = 0) -> None:
        """Copy cached chunks of a part into an array, and read what lies between them at once.

        If the part has cached chunks, it is as large as a chunk along the axes before this one.
        """
        kept = [first for first in self._kept if _is_in(first, part)]
        if not kept:
            self._reader.read_part_into(pixels, int(self._numbers[0]), part)
            return
        if axis == len(part):
            pixels[...] = self._kept.pop(kept[0])[0]
            return
        edges, begin = self._edges[axis], part[axis].start
        firsts = sorted({first[axis] for first in kept})
        ends = edges[np.searchsorted(edges, firsts, "right")].tolist()
        cuts = [begin, *chain(*zip(firsts, ends, strict=True)), part[axis].stop]
        for start, stop in pairwise(cuts):
            if stop > start:
                own = pixels[(*(slice(None),) * axis, slice(start - begin, stop - begin))]
                self._fill(own, (*part[:axis], slice(start, stop), *part[axis + 1 :]), axis + 1)

    def _read(self, part: Part) -> NDArray[np.generic]:
        return self._reader.read_part(self._numbers, part)

    def _chunk_at(self, place: Iterable[int]) -> Part:
        """Return the chunk that contains a pixel, as a part of the frame."""
        part = []
        for edges, along in zip(self._edges, place, strict=True):
            end = int(np.searchsorted(edges, along, "right"))
            part.append(slice(int(edges[end - 1]), int(edges[end])))
        return tuple(part)


def _first(part: Part) -> tuple[int, ...]:
    return tuple(one.start for one in part)


def _is_in(place: Iterable[int], part: Part) -> bool:
    return all(one.start <= along < one.stop for along, one in zip(place, part, strict=True))
