"""Frames that memory does not hold: a buffer of their rows, and a cache of their chunks.

In volumes, planes take the place of rows: frames are cut along the first spatial axis.
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

#: Linux' MAP_NORESERVE, which Python has from 3.13 on: more may be asked for than there is.
_NO_RESERVE = 0x4000

#: Chunks are cached up to the bytes of this many tiles; more are read twice.
_TILES = 5


class RowBuffer:
    """The rows of a frame that are in memory, where they lie in the frame.

    The array is as large as the frame, but only the rows that are in it take memory: code for
    frames works on these rows, at their positions in the frame.

    Parameters
    ----------
    shape : tuple of int
        Size of the frame along each spatial axis.
    dtype : dtype
        The type of its pixels.

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
        #: The first row that is there, and the one after the last.
        self.first = self.last = 0
        self._memory: mmap.mmap | None = None
        #: The frame, of shape (1, …, Y, X).
        self.frames = self._empty()

    @property
    def height(self) -> int:
        """How many rows the frame has."""
        return self._shape[0]

    def room(self, first: int, last: int) -> NDArray[Any]:
        """Return memory for rows that are to be added: their own, where there is any."""
        if self._memory is None:
            return np.empty((last - first, *self._shape[1:]), self._dtype)
        self._expect(first, last)
        rows: NDArray[Any] = self.frames[0, first:last]
        return rows

    def add(self, rows: NDArray[Any]) -> None:
        """Add the rows that come next; those in the memory that was made for them are there."""
        own = self.frames[0, self.last : self.last + len(rows)]
        if not np.may_share_memory(rows, own):
            self._expect(self.last, self.last + len(rows))
            own[...] = rows
        self.last += len(rows)

    def forget(self, before: int) -> None:
        """Free the memory of all rows before one."""
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
        """Let the memory of some rows come in large pages: small ones take longer than the rows."""
        if self._memory is None:
            return
        row = self._row_bytes
        begin = first * row // mmap.PAGESIZE * mmap.PAGESIZE
        with suppress(AttributeError, OSError):  # of a system without them
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
    """Reserve memory that is allocated when it is written, and can be freed; else return None."""
    if sys.platform != "linux":
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    return mmap.mmap(-1, size, flags=flags)


class ChunkCache:
    """A frame whose pixels are read once, some of them before the others.

    Parameters
    ----------
    reader : FrameReader
        The image.
    number : int
        The frame's number.
    workers : int
        Chunks that are read at once.
    """

    def __init__(self, reader: FrameReader, number: int, workers: int) -> None:
        self._reader, self._numbers, self._workers = reader, np.array([number]), workers
        self._edges = reader.chunk_edges()
        #: By the places of their first pixels.
        self._kept: dict[tuple[int, ...], NDArray[np.generic]] = {}

    def points(self, places: NDArray[np.int64]) -> list[NDArray[np.generic]]:
        """Return single pixels at places (n, axes), and keep the chunks they are in.

        Each is a frame of one pixel.
        """
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
        """Put some rows, from a first one on, of whole chunks into memory of their shape.

        Their chunks are dropped from the cache.
        """
        others = (slice(0, int(edges[-1])) for edges in self._edges[1:])
        self._fill(pixels, (slice(first, first + len(pixels)), *others))

    def _fill(self, pixels: NDArray[np.generic], part: Part, axis: int = 0) -> None:
        """Put a part of the frame into memory: what lies between kept chunks is read at once.

        Along the axes before this one, it is as large as a chunk if it has kept ones.
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
        """Return the pixels of the chunk in which a pixel lies."""
        part = []
        for edges, along in zip(self._edges, place, strict=True):
            end = int(np.searchsorted(edges, along, "right"))
            part.append(slice(int(edges[end - 1]), int(edges[end])))
        return tuple(part)


def _first(part: Part) -> tuple[int, ...]:
    return tuple(one.start for one in part)


def _is_in(place: Iterable[int], part: Part) -> bool:
    return all(one.start <= along < one.stop for along, one in zip(place, part, strict=True))
