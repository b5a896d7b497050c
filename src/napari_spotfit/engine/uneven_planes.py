"""Volumes whose planes differ in background: from one to the next, or more than a slope does.

Points one above the other explain such planes better than a background with slopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
    return np.array(
        [_is_uneven(one) for (one,) in _off_the_mean(block, scale, [_BESIDE])], np.bool_
    )


def differing_volumes(block: Block, scale: Scale, sigma_z: float) -> NDArray[np.bool_]:
    """Return which volumes of a block are uneven, or have a background that no slope explains.

    Block and scale are those of :func:`uneven_volumes`; ``sigma_z`` is the PSF's, in planes.
    """
    found = _off_the_mean(block, scale, [_BESIDE, _far(sigma_z)])
    return np.array([_is_uneven(beside) or _is_bent(far) for beside, far in found], np.bool_)


class _Look(NamedTuple):
    """With planes how far away one is compared, and by which part of its pixels in order."""

    away: int
    part: tuple[float, float]


#: Planes are compared with those on both sides.
_BESIDE = _Look(1, _MIDDLE)


def _far(sigma_z: float) -> _Look:
    return _Look(max(round(_DEEP * sigma_z), 1), _DARK)


def _is_uneven(off: NDArray[np.float64]) -> bool:
    return len(off) > 0 and bool(np.median(off) > _UNEVEN)


def _is_bent(off: NDArray[np.float64]) -> bool:
    return bool(off.max(initial=0.0) > _BENT)


def _off_the_mean(
    block: Block, scale: Scale, looks: Sequence[_Look]
) -> list[list[NDArray[np.float64]]]:
    """Return how far planes are off the mean of those on both sides, of each volume and look.

    In units of a pixel's noise; nothing of small planes, and of too few of them.
    """
    count, depth, *plane = block.pixels.shape
    found = [[np.empty(0) for _ in looks] for _ in range(count)]
    if depth <= 2 * min(look.away for look in looks) or np.prod(plane) < _FEWEST:
        return found
    step = max(int((np.prod(plane) / _MOST) ** 0.5), 1)
    for number in range(count):
        some = to_host(block.pixels[number, :, ::step, ::step]).reshape(depth, -1)
        if some.dtype.kind == "f":
            some = some[:, np.isfinite(some).all(axis=0)]
        if some.shape[1] < _FEWEST / step**2:
            continue
        levels = _means_in_order(some, [look.part for look in looks])
        for own, (look, level) in enumerate(zip(looks, levels, strict=True)):
            away = look.away
            if depth > 2 * away:
                noise = np.maximum(level / scale.unit + scale.shift, scale.least)
                inner = slice(away, -away)
                off = abs(level[inner] - (level[: -2 * away] + level[2 * away :]) / 2)
                unit = scale.unit * np.sqrt(noise[inner])
                found[number][own] = off / np.maximum(unit, 1e-30)
    return found


def _means_in_order(
    planes: NDArray[Any], parts: Sequence[tuple[float, float]]
) -> list[NDArray[np.float64]]:
    """Return the means of parts of the pixels of each plane in order, part by part.

    Examples
    --------
    >>> planes = np.array([[5, 1, 4, 2, 3], [9, 7, 9, 7, 0]], np.uint16)
    >>> [_means_in_order(own, [(0.2, 0.8)])[0].round(2).tolist() for own in (planes, planes / 2)]
    [[3.0, 7.67], [1.5, 3.83]]
    """
    places = [tuple(int(share * planes.shape[1]) for share in part) for part in parts]
    if planes.dtype.kind not in "iu" or planes.dtype.itemsize > _COUNTED_BYTES:
        ordered = np.sort(planes, axis=1)
        return [ordered[:, first:last].mean(axis=1, dtype=float) for first, last in places]
    # Few values differ, so that to count them takes a tenth of the time.
    lowest, found = int(planes.min()), np.empty((len(places), len(planes)))
    unsigned = np.dtype(f"u{planes.dtype.itemsize}")
    for number, plane in enumerate(planes):
        up_to = np.cumsum(np.bincount((plane - plane.dtype.type(lowest)).view(unsigned)))
        for own, (first, last) in enumerate(places):
            # Each pixel of the part is above as many values as its own is above the lowest.
            above = last - np.minimum(np.maximum(up_to, first), last)
            total = lowest * (last - first) + int(above.sum())
            found[own, number] = total / max(last - first, 1)
    return list(found)
