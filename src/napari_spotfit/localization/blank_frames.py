"""Notice frames without light: chunks that were never written are read as one value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..images.arrays import is_on_device

#: Pixels of a frame that are looked at first, and frames that a warning names, at most.
_FIRST, _NAMED = 64, 8
#: Smaller frames may be dark, or saturated, in all pixels.
_LEAST_PIXELS = 1024


class BlankFrames:
    """Frames of a run that have the same value in all pixels.

    Threads: any number may add frames at a time.

    Examples
    --------
    >>> seen = BlankFrames()
    >>> seen.add(np.arange(2), np.stack([np.zeros((64, 64)), np.eye(64)]))
    >>> seen.numbers().tolist()
    [0]
    """

    def __init__(self) -> None:
        self._found: list[tuple[int, float]] = []
        self._counts: list[int] = []

    def add(self, numbers: NDArray[np.int64], pixels: Any) -> None:
        """Look at frames, if they are in the host's memory."""
        if is_on_device(pixels) or not len(numbers) or pixels[0].size < _LEAST_PIXELS:
            return
        self._counts.append(len(numbers))
        frames = np.asarray(pixels)
        line: tuple[Any, ...] = (slice(None), *(0,) * (frames.ndim - 2), slice(_FIRST))
        some = frames[line]
        for row in np.flatnonzero((some == some[:, :1]).all(axis=1)):
            value = some[row, 0]
            if (frames[row] == value).all():
                self._found.append((int(numbers[row]), float(value)))

    def numbers(self) -> NDArray[np.int64]:
        """Return the numbers of these frames, rising."""
        return np.unique(np.array([number for number, _ in self._found], np.int64))

    def warn(self) -> None:
        """Warn the caller of them, unless all frames are blank."""
        found, total = self.numbers(), sum(self._counts)
        if not 0 < len(found) < total:
            return
        named = ", ".join(map(str, found[:_NAMED].tolist()))
        more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
        values = sorted({value for _, value in self._found})
        value = f"{values[0]:g}" if len(values) == 1 else "one number"
        warn_caller(
            f"{len(found):,} of {total:,} frames are {value} in all pixels: {named}{more}. No "
            "camera takes such frames: chunks that were never written are read so, as of a copy "
            "that was not finished. Complete the file, or leave them out, frames=…"
        )
