"""How many frames are read at once: fewer where they come slowly, as nothing is told meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.frames import FrameReader
from ..images.reading import up_to_damage

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
        The image; what is in memory is read at once.
    least : int
        So many frames are read at once in any case, as they may be computed side by side.
    """

    def __init__(self, reader: FrameReader, least: int) -> None:
        self._reader, self._least, self._frames = reader, max(least, 1), 0

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """Yield numbers and pixels of frames, which may all be read at once, some after the other.

        Raises
        ------
        Exception
            After those before a frame that cannot be read: what is wrong with it.
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
        """Learn from how long a piece has taken."""
        if seconds < _SHORT:
            self._frames *= 2
        elif seconds > _LONG:
            self._frames = max(self._frames // 2, self._least)
