"""Which points have another one near, in the same frame, among millions."""

from __future__ import annotations

import ctypes
import math

import numpy as np
from numpy.typing import NDArray

from .c_types import fields
from .cpu.library import load
from .kernel_arguments import address


class _NearPoints(ctypes.Structure):
    """Points of frames, as kernels/cpu/near.cpp explains them."""

    _fields_ = fields(
        "pointer frame y x rank asked", "long count cells down across", "double side",
        "double reach_y reach_x", "pointer starts by_cell",
    )  # fmt: skip


def has_near(
    frame: NDArray[np.int64],
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    shape: tuple[int, int],
    reach: tuple[float, float],
    rank: NDArray[np.float64] | None = None,
    asked: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Say which points have another one in reach, in their frame.

    Points are sorted into cells, about one to each: only those of a point's own cell and of the
    ones that its reach touches are looked at, until one is in reach. So the time follows the
    number of points, however many lie at one place.

    Parameters
    ----------
    frame : ndarray of int64, shape (n,)
        The points' frames, 0 or above.
    y, x : ndarray of float64, shape (n,)
        Where they lie; what is NaN is near to none.
    shape : (int, int)
        Rows and columns of a frame, in which most of them are.
    reach : (float, float)
        Greatest distance along y and x, where there is no rank.
    rank : ndarray of float64, shape (n,), optional
        Only a point of lower rank counts; of points of the same rank that of the lower y,
        then x, then the earlier one. The reach, that along y, is then that of the distance.
    asked : ndarray of bool, optional
        Which points are asked for; False is said of the others.

    Examples
    --------
    >>> frame, y = np.array([0, 0, 0, 1]), np.array([5.0, 7.0, 9.0, 5.0])
    >>> has_near(frame, y, y, (16, 16), (2.0, 2.0))
    array([ True,  True,  True, False])
    >>> has_near(frame, y, y, (16, 16), (3.0, 3.0), rank=y)
    array([False,  True,  True, False])
    """
    count = len(frame)
    if count < 2:
        return np.zeros(count, bool)
    near = np.empty(count, bool)
    frames = int(frame.max()) + 1
    # No more cells than points, about, and none smaller than the reach.
    side = max(*reach, math.sqrt(frames * shape[0] * shape[1] / count))
    down, across = (math.ceil(size / side) for size in shape)
    cells = frames * down * across
    starts, by_cell = np.empty(cells + 1, np.int64), np.empty(count, np.int64)
    given = [
        None if one is None else np.ascontiguousarray(one) for one in (frame, y, x, rank, asked)
    ]
    points = _NearPoints(
        *map(address, given), count, cells, down, across, side, *reach, address(starts),
        address(by_cell),
    )  # fmt: skip
    load().functions.spotfit_find_near(ctypes.byref(points), address(near))
    return near
