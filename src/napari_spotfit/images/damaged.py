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
    try:
        return read(numbers), None
    except MemoryError:
        raise
    except Exception as error:
        damage = error
    pixels, readable, damaged = None, 0, len(numbers)
    while damaged - readable > 1:
        middle = (readable + damaged) // 2
        try:
            # All of them again: how many are read together may decide whether they can be.
            pixels, readable = read(numbers[:middle]), middle
        except MemoryError:
            raise
        except Exception as error:
            damaged, damage = middle, error
    if not readable:
        raise damage
    return pixels, damage


def without_damage(read: Read, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], Any]:
    """Return those of some frames that can be read: their numbers and pixels.

    Parameters
    ----------
    read : callable
        Reads frames; its errors may be of any kind.
    numbers : ndarray of int
        Rising numbers of the frames.

    Raises
    ------
    Exception
        If none of them can be read: what was wrong.
    MemoryError
        If memory does not hold them.
    """
    try:
        return numbers, read(numbers)
    except MemoryError:
        raise
    except Exception as error:
        damage = error
    found = [number for number in numbers if _can(read, number)]
    if not found:
        raise damage
    return np.array(found), read(np.array(found))


def _can(read: Read, number: np.int64) -> bool:
    try:
        read(np.array([number]))
    except MemoryError:
        raise
    except Exception:
        return False
    return True
