"""How many frames are read at once: fewer where they come slowly, as nothing is told meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..images.frames import FrameReader

#: A reading takes no longer than the one number of seconds, if chunks allow it, and no less than
#: the other, if there are as many frames.
_LONG, _SHORT = 1.0, 0.25
#: The first one has this share of the frames that it may have.
_FIRST = 1 / 8


class Pace:
    """The pace at which an image's frames are read.

    Parameters
    ----------
    reader : FrameReader
        The image.
    least : int
        So many frames are read at once in any case, as they may be computed side by side.
    """

    def __init__(self, reader: FrameReader, least: int) -> None:
        self._reader, self._least, self._frames = reader, max(least, 1), 0

    def pieces(self, numbers: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield frames, which may all be read at once, in pieces; no chunk is in two of them."""
        ends = self._reader.chunk_ends(numbers)
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

    def took(self, seconds: float) -> None:
        """Learn how long the last piece has taken."""
        if seconds < _SHORT:
            self._frames *= 2
        elif seconds > _LONG:
            self._frames = max(self._frames // 2, self._least)
