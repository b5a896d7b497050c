"""Some rows of a frame that is too large for memory, in an array that is as large as the frame."""

from __future__ import annotations

import math
import mmap
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Linux' MAP_NORESERVE, which Python has from 3.13 on: more may be asked for than there is.
_NO_RESERVE = 0x4000


class Window:
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
    >>> window = Window((1000, 4), np.dtype(float))
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
