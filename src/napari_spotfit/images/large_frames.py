"""Frames that memory does not hold: a buffer of their rows, and a cache of their chunks."""

from __future__ import annotations

import math
import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .frames import TILE, FrameReader, Part

#: Linux' MAP_NORESERVE, which Python has from 3.13 on: more may be asked for than there is.
_NO_RESERVE = 0x4000

#: Chunks are kept if they have no more bytes than so many tiles; else they are read twice.
_TILES = 5


class RowBuffer:
    """The rows of a frame that are in memory, where they lie in the frame.

    The array is as large as the frame, but only the rows that are in it take memory: whatever works
    on frames works on these rows, and their places are those in the frame.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of the frame.
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

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        #: The first row that is there, and the one after the last.
        self.first = self.last = 0
        self._memory: mmap.mmap | None = None
        #: The frame, of shape (1, Y, X).
        self.frames = self._empty()

    @property
    def height(self) -> int:
        """How many rows the frame has."""
        return self._shape[0]

    def room(self, first: int, last: int) -> NDArray[Any]:
        """Return memory for rows that are to be added, (rows, X): their own, where there is any."""
        if self._memory is None:
            return np.empty((last - first, self._shape[1]), self._dtype)
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
            row = self._shape[1] * self._dtype.itemsize
            begin, end = (n * row // mmap.PAGESIZE * mmap.PAGESIZE for n in (self.first, before))
            if end > begin:
                self._memory.madvise(mmap.MADV_DONTNEED, begin, end - begin)
        self.first = before

    def _expect(self, first: int, last: int) -> None:
        """Let the memory of some rows come in large pages: small ones take longer than the rows."""
        if self._memory is None:
            return
        row = self._shape[1] * self._dtype.itemsize
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
    """Return memory that is there where it is written to, and can be freed; None without such."""
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
        self._rows, self._columns = reader.chunk_edges()
        #: By the places of their first pixels.
        self._kept: dict[tuple[int, int], NDArray[np.generic]] = {}

    def points(self, y: NDArray[np.int64], x: NDArray[np.int64]) -> list[NDArray[np.generic]]:
        """Return single pixels, each of shape (1, 1, 1), and keep the chunks they are in."""
        row = np.searchsorted(self._rows, y, "right") - 1
        column = np.searchsorted(self._columns, x, "right") - 1
        cells = sorted(set(zip(row.tolist(), column.tolist(), strict=True)))
        parts = [self._part(*cell) for cell in cells]
        pixels = sum(math.prod(one.stop - one.start for one in part) for part in parts)
        if pixels * self._reader.pixel_bytes > _TILES * TILE or len(self._rows) == 2:
            return self._reader.read_points(int(self._numbers[0]), y, x)
        with ThreadPoolExecutor(self._workers, "napari-spotfit chunks") as pool:
            for part, chunk in zip(parts, pool.map(self._read, parts), strict=True):
                self._kept[part[0].start, part[1].start] = chunk
        found = []
        for place_y, place_x, i, j in zip(y, x, row, column, strict=True):
            top, left = int(self._rows[i]), int(self._columns[j])
            value = self._kept[top, left][0, place_y - top, place_x - left]
            found.append(np.full((1, 1, 1), value))
        return found

    def read_rows(self, pixels: NDArray[np.generic], first: int) -> None:
        """Put some rows, from a first one on, of whole chunks into memory of the shape (rows, X).

        What was kept of them is kept no more.
        """
        last, width = first + len(pixels), int(self._columns[-1])
        if not any(first <= top < last for top, _ in self._kept):
            self._read_into(pixels, first, slice(first, last), slice(0, width))
            return
        tops = self._rows[(self._rows >= first) & (self._rows < last)]
        for top in tops.tolist():
            bottom = int(self._rows[np.searchsorted(self._rows, top) + 1])
            begun = 0
            # What lies between kept ones is read at once.
            for left in [*sorted(left for own, left in self._kept if own == top), width]:
                if left > begun:
                    self._read_into(pixels, first, slice(top, bottom), slice(begun, left))
                chunk = self._kept.pop((top, left), None)
                if chunk is not None:
                    begun = left + chunk.shape[2]
                    pixels[top - first : bottom - first, left:begun] = chunk[0]

    def _read_into(
        self, pixels: NDArray[np.generic], first: int, rows: slice, columns: slice
    ) -> None:
        own = pixels[rows.start - first : rows.stop - first, columns]
        self._reader.read_part_into(own, int(self._numbers[0]), (rows, columns))

    def _read(self, part: Part) -> NDArray[np.generic]:
        return self._reader.read_part(self._numbers, part)

    def _part(self, row: int, column: int) -> Part:
        return (
            slice(int(self._rows[row]), int(self._rows[row + 1])),
            slice(int(self._columns[column]), int(self._columns[column + 1])),
        )
