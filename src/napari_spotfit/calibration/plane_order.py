"""Check that the planes of a bead stack follow each other in height."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller

#: Pixels that show beads are this part of the way from the background to the highest.
_LIGHT = 0.1
#: Median deviations of the background beyond which the highest pixel is a bead's.
_BEAD = 12.0
#: The most pixels that are compared, and the fewest.
_PIXELS, _FEWEST = 20_000, 9
#: Most difference of a plane from its neighbours' mean, in units of theirs, with which it lies
#: between them; of noise alone, it is 0.75.
_BETWEEN = 1.6
#: Planes change from one to the next, if the nearest to most is nearer than this part of the usual
#: distance of two. They are shuffled if those beside each other are farther than this part.
_CHANGES, _SHUFFLED = 0.4, 0.7
#: Of planes that change little, by this part of the usual distance, two are a jump that are farther
#: than the second one.
_LITTLE, _JUMP = 0.1, 0.8
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
    named = f"planes {', '.join(map(str, odd[:_NAMED]))} … do not lie between those beside them: "
    if len(odd) <= _MANY * len(planes):
        named = "planes beside each other are as unlike as any two: "
        shuffled, jump = shuffled_or_jump(planes)
        if jump is not None:
            warn_caller(
                f"planes {jump} and {jump + 1} are as unlike as any two, and others beside each "
                "other are alike: if these are several stacks, give one; if the stage jumped, "
                "record the stack again"
            )
        if not shuffled:
            return
    raise ValueError(
        f"{named}the planes are not in the order of their heights, or are several stacks. Order "
        "them: stack[numpy.argsort(z)]"
    )


def shuffled_or_jump(planes: NDArray[Any]) -> tuple[bool, int | None]:
    """Whether planes beside each other are as unlike as any two; else the first of two that are.

    Examples
    --------
    >>> z, x = np.arange(12.0)[:, None, None], np.arange(21.0) - 10
    >>> width = 2 + z / 2
    >>> stack = 1000 * np.exp(-(x**2 + x[:, None] ** 2) / width**2) / width**2
    >>> shuffled_or_jump(stack)
    (False, None)
    >>> shuffled_or_jump(stack[[7, 0, 9, 2, 11, 4, 1, 8, 3, 10, 5, 6]])
    (True, None)
    """
    light = _light_of_beads(planes)
    if light is None:
        return False, None
    light /= np.maximum(np.linalg.norm(light, axis=1, keepdims=True), 1e-30)  # lamps flicker
    apart = 2 - 2 * light @ light.T
    usual = float(np.median(apart[np.triu_indices(len(apart), 1)]))
    beside = np.diagonal(apart, 1).copy()
    np.fill_diagonal(apart, np.inf)
    changes = float(np.median(apart.min(axis=0))) < _CHANGES * usual
    shuffled = changes and float(np.median(beside)) > _SHUFFLED * usual
    # A plane that is spoilt is far from both beside it.
    far = np.flatnonzero(beside > _JUMP * usual)
    jumps = len(far) == 1 and float(np.median(beside)) < _LITTLE * usual
    return shuffled, int(far[0]) if jumps else None


def _light_of_beads(planes: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return the pixels of each plane that show beads, less the background; None without beads."""
    top = planes.max(axis=0).astype(float)
    level = float(np.median(top))
    if top.max() - level < _BEAD * float(np.median(np.abs(top - level))):
        return None  # noise alone has no order
    bright = np.flatnonzero(top.ravel() > level + _LIGHT * (top.max() - level))
    if len(bright) < _FEWEST:
        return None
    bright = bright[:: -(-len(bright) // _PIXELS)]
    light: NDArray[np.float64] = planes.reshape(len(planes), -1)[:, bright].astype(float)
    light -= np.median(planes.reshape(len(planes), -1)[:, :: max(top.size // _PIXELS, 1)])
    return light


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
    light = _light_of_beads(planes)
    if light is None:
        return np.empty(0, np.int64)
    before, own, after = light[:-2], light[1:-1], light[2:]
    middle = (before + after) / 2
    # Lamps flicker: a plane may have more light than those beside it.
    scale = (own * middle).sum(axis=1) / np.maximum((middle**2).sum(axis=1), 1e-30)
    other = (before * after).sum(axis=1) / np.maximum((after**2).sum(axis=1), 1e-30)
    off = ((own - scale[:, None] * middle) ** 2).sum(axis=1)
    apart = ((before - other[:, None] * after) ** 2).sum(axis=1)
    return np.flatnonzero(~(off <= _BETWEEN * np.maximum(apart, 1e-30)) | (scale <= 0)) + 1
