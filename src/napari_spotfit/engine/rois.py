"""Positions of spots, and rows of results put in place, by one call of the library each.

NumPy takes many steps, each of which waits for the interpreter, which the blocks of a GPU share.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cpu.layouts import FoundSpots
from .cpu.library import load
from .detection.candidates import Candidates
from .kernel_arguments import address


def places_of(
    found: Candidates, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number of each spot's frame, and its place in it, shape (n, axes).

    Parameters
    ----------
    found : Candidates
        The spots.
    numbers : ndarray of int64
        Those of the frames in which they were found.

    Examples
    --------
    >>> places, light = np.array([[0, 1], [3, 5], [4, 6]]), np.ones((2, 2), np.float32)
    >>> places_of(Candidates(*places, *light), np.array([7, 9]))
    (array([7, 9]), array([[3., 4.],
           [5., 6.]]))
    """
    if found.z is not None:
        return numbers[found.frame], found.places()
    count = len(found.frame)
    frame, y, x = (np.ascontiguousarray(one, np.int64) for one in found[:3])
    numbers = np.ascontiguousarray(numbers, np.int64)
    number, places = np.empty(count, np.int64), np.empty((count, 2))
    given = FoundSpots(
        address(frame), address(y), address(x), count,
        address(numbers), address(number), address(places),
    )  # fmt: skip
    load().functions.spotfit_place_spots(ctypes.byref(given))
    return number, places


def scatter_rows(
    part: Mapping[str, NDArray[Any]],
    rows: NDArray[np.int64] | None,
    columns: Mapping[str, NDArray[Any]],
) -> None:
    """Write columns of a part into rows of all columns, which are of the same types.

    All are C-contiguous. Without rows, the part is as long as the columns.

    Examples
    --------
    >>> columns = {"y": np.zeros(4), "iterations": np.zeros(4, np.uint16)}
    >>> part = {"y": np.array([1.5, 2.5]), "iterations": np.array([7, 8], np.uint16)}
    >>> scatter_rows(part, np.array([3, 0]), columns)
    >>> columns["y"], columns["iterations"]
    (array([2.5, 0. , 0. , 1.5]), array([8, 0, 0, 7], dtype=uint16))
    """
    places = np.array(
        [
            (address(part[name]), address(column), column.itemsize)
            for name, column in columns.items()
        ],
        np.int64,
    )
    count = len(next(iter(part.values())))
    load().functions.spotfit_put_rows(address(places), len(places), address(rows), count)
