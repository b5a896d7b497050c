"""Process frames that exceed the memory: a buffer of rows, and a cache of chunks.

Frames are divided along their first axis: "rows" are planes in volumes.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workers import Workers
from .frames import TILE, FrameReader, Part

#: Linux' MAP_NORESERVE (in Python from 3.13 on), which reserves more memory than there is.
_NO_RESERVE = 0x4000

#: Size of the cache of chunks in tiles; further chunks are read twice.
_TILES = 5


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
