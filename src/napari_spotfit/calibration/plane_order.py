"""Check that the planes of a bead stack follow each other in height."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Pixels that show beads are this part of the way from the background to the highest.
_LIGHT = 0.1
#: Median deviations of the background beyond which the highest pixel is a bead's.
_BEAD = 12.0
#: The most pixels that are compared, and the fewest.
_PIXELS, _FEWEST = 20_000, 9
#: Most difference of a plane from its neighbours' mean, in units of theirs, with which it lies
#: between them; of noise alone, it is 0.75.
_BETWEEN = 1.6
#: The share of such planes that is a stack out of order, and how many are named.
_MANY, _NAMED = 0.25, 5


def check_order(planes: NDArray[Any]) -> None:
    """Raise a ValueError if planes are not in the order of their heights.

    Parameters
    ----------
    planes : ndarray, shape (planes, rows, columns)
        The stack.
    """
    odd = odd_planes(planes)
    if len(odd) > _MANY * len(planes):
        raise ValueError(
            f"planes {', '.join(map(str, odd[:_NAMED]))} … do not lie between those beside them: "
            "the planes are not in the order of their heights, or are several stacks. Order them: "
            "stack[numpy.argsort(z)]"
        )


def odd_planes(planes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the numbers of the planes that do not lie between those beside them.

    Examples
    --------
    >>> z, x = np.arange(12.0)[:, None, None], np.arange(21.0) - 10
    >>> width = 2 + z / 2
    >>> stack = 1000 * np.exp(-(x**2 + x[:, None] ** 2) / width**2) / width**2
    >>> odd_planes(stack), odd_planes(stack[[0, 1, 2, 9, 4, 5, 6, 7, 8, 3, 10, 11]])
    (array([], dtype=int64), array([4, 9]))
    """
    top = planes.max(axis=0).astype(float)
    level = float(np.median(top))
    if top.max() - level < _BEAD * float(np.median(np.abs(top - level))):
        return np.empty(0, np.int64)  # noise alone has no order
    bright = np.flatnonzero(top.ravel() > level + _LIGHT * (top.max() - level))
    if len(bright) < _FEWEST:
        return np.empty(0, np.int64)
    bright = bright[:: -(-len(bright) // _PIXELS)]
    light = planes.reshape(len(planes), -1)[:, bright].astype(float)
    light -= np.median(planes.reshape(len(planes), -1)[:, :: max(top.size // _PIXELS, 1)])
    before, own, after = light[:-2], light[1:-1], light[2:]
    middle = (before + after) / 2
    # Lamps flicker: a plane may have more light than those beside it.
    scale = (own * middle).sum(axis=1) / np.maximum((middle**2).sum(axis=1), 1e-30)
    other = (before * after).sum(axis=1) / np.maximum((after**2).sum(axis=1), 1e-30)
    off = ((own - scale[:, None] * middle) ** 2).sum(axis=1)
    apart = ((before - other[:, None] * after) ** 2).sum(axis=1)
    return np.flatnonzero(~(off <= _BETWEEN * np.maximum(apart, 1e-30)) | (scale <= 0)) + 1
