"""Volumes whose planes differ in background: from one to the next, or more than a slope does.

Points one above the other explain such planes better than a background with slopes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host
from .backend import Block
from .joint_fits import Scale

#: How far half of the planes are off the mean of both beside them, at least, in units of a pixel's
#: noise: where a lamp flickers by ± 10 % on a background of 100 it is 0.45, with dense spots less
#: than 0.1.
_UNEVEN = 0.3
#: How far away planes are that a spot's light reaches, in units of its width.
_DEEP = 1.5
#: How far any plane is off the mean of those as far away as a spot is deep, at least, in the same
#: units: with 10 + 30 exp(-z / 5) it is 0.64, with a third of that, which does no harm, and of
#: spots everywhere in some planes 0.3.
_BENT = 0.36
#: Which pixels of a plane are averaged, by their order: where spots are dense, the dark ones have
#: less of their light.
_MIDDLE, _DARK = (0.25, 0.75), (0.05, 0.25)
#: How many pixels a plane has at least, and how many are looked at, about, at most.
_FEWEST, _MOST = 1000, 10000
#: Bytes of whole numbers that are counted rather than sorted.
_COUNTED_BYTES = 2


def uneven_volumes(block: Block, scale: Scale) -> NDArray[np.bool_]:
    """Return which volumes of a block have planes that differ from one to the next.

    Parameters
    ----------
    block : Block
        The volumes.
    scale : Scale
        The noise of their pixels.
    """
    off = _off_the_mean(block, scale, 1, _MIDDLE)
    return np.array([len(one) > 0 and np.median(one) > _UNEVEN for one in off], np.bool_)


def bent_volumes(block: Block, scale: Scale, sigma_z: float) -> NDArray[np.bool_]:
    """Return which volumes of a block have a background that no slope along z explains.

    Block and scale are those of :func:`uneven_volumes`; ``sigma_z`` is the PSF's, in planes.
    """
    away = max(round(_DEEP * sigma_z), 1)
    off = _off_the_mean(block, scale, away, _DARK)
    return np.array([one.max(initial=0.0) > _BENT for one in off], np.bool_)


def _off_the_mean(
    block: Block, scale: Scale, away: int, part: tuple[float, float]
) -> list[NDArray[np.float64]]:
    """Return how far planes are off the mean of those on both sides, of each volume.

    In units of a pixel's noise, of the part of the pixels in order; nothing of small planes.
    """
    count, depth, *plane = block.pixels.shape
    found = [np.empty(0)] * count
    if depth <= 2 * away or np.prod(plane) < _FEWEST:
        return found
    step = max(int((np.prod(plane) / _MOST) ** 0.5), 1)
    for number in range(count):
        some = to_host(block.pixels[number, :, ::step, ::step]).reshape(depth, -1)
        if some.dtype.kind == "f":
            some = some[:, np.isfinite(some).all(axis=0)]
        if some.shape[1] < _FEWEST / step**2:
            continue
        first, last = (int(share * some.shape[1]) for share in part)
        level = _means_in_order(some, first, last)
        noise = scale.unit * np.sqrt(np.maximum(level / scale.unit + scale.shift, scale.least))
        inner = slice(away, -away)
        off = abs(level[inner] - (level[: -2 * away] + level[2 * away :]) / 2)
        found[number] = off / np.maximum(noise[inner], 1e-30)
    return found


def _means_in_order(planes: NDArray[Any], first: int, last: int) -> NDArray[np.float64]:
    """Return the mean of the pixels of each plane from one to another place in their order.

    Examples
    --------
    >>> planes = np.array([[5, 1, 4, 2, 3], [9, 7, 9, 7, 0]], np.uint16)
    >>> [_means_in_order(own, 1, 4).round(2).tolist() for own in (planes, planes / 2)]
    [[3.0, 7.67], [1.5, 3.83]]
    """
    if planes.dtype.kind not in "iu" or planes.dtype.itemsize > _COUNTED_BYTES:
        return np.sort(planes, axis=1)[:, first:last].mean(axis=1, dtype=float)
    # Few values differ, so that to count them takes a tenth of the time.
    found, lowest = np.empty(len(planes)), int(planes.min())
    for number, plane in enumerate(planes):
        counts = np.bincount(plane.astype(np.int64) - lowest)
        inside = np.diff(np.clip(np.cumsum(counts), first, last), prepend=first)
        total = int(inside @ np.arange(len(inside))) + lowest * (last - first)
        found[number] = total / max(last - first, 1)
    return found
