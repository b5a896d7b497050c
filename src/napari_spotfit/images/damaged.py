"""Frames of an image of which some cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Returns frames of rising numbers.
Read = Callable[[NDArray[np.int64]], Any]


def up_to_damage(read: Read, numbers: NDArray[np.int64]) -> tuple[Any, Exception | None]:
    """Return frames, and nothing; or those before one that cannot be read, and why it cannot.

    Parameters
    ----------
    read : callable
        Reads frames; its errors may be of any kind.
    numbers : ndarray of int
        Rising numbers of the frames.

    Raises
    ------
    Exception
        If the first one cannot be read: what was wrong with it.
    MemoryError
        If memory does not hold them.

    Examples
    --------
    >>> frames = {0: "a", 1: "b", 3: "d"}
    >>> up_to_damage(lambda numbers: [frames[number] for number in numbers], [0, 1, 2, 3])
    (['a', 'b'], KeyError(2))
    """
    whole, damage = _tried(read, numbers)
    if damage is None:
        return whole, None
    pixels, readable, damaged = None, 0, len(numbers)
    while damaged - readable > 1:
        middle = (readable + damaged) // 2
        # All of them again: how many are read together may decide whether they can be.
        part, error = _tried(read, numbers[:middle])
        if error is None:
            pixels, readable = part, middle
        else:
            damaged, damage = middle, error
    if not readable:
        raise damage
    return pixels, damage


def without_damage(
    read: Read, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return those of some frames that can be read: their numbers and pixels.

    Where not all can, each is read by itself, in the host's memory. Takes and raises what
    :func:`up_to_damage` does, the error only if none can be read.

    Examples
    --------
    >>> frames = {0: [5], 1: [6], 3: [8]}
    >>> def read(numbers):
    ...     return np.array([frames[number] for number in numbers.tolist()])
    >>> numbers, pixels = without_damage(read, np.arange(4))
    >>> numbers.tolist(), pixels.tolist()
    ([0, 1, 3], [[5], [6], [8]])
    """
    whole, damage = _tried(read, numbers)
    if damage is None:
        return numbers, whole
    found = [(number, _tried(read, numbers[i : i + 1])) for i, number in enumerate(numbers)]
    readable = {number: pixels for number, (pixels, error) in found if error is None}
    if not readable:
        raise damage
    return np.array(list(readable)), np.concatenate(list(readable.values()))


def _tried(read: Read, numbers: NDArray[np.int64]) -> tuple[Any, Exception | None]:
    """Return frames, or what was wrong; that memory is short is no damage."""
    try:
        return read(numbers), None
    except MemoryError:
        raise
    except Exception as error:
        return None, error
