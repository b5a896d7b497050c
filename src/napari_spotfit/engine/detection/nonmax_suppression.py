"""Which maxima of a frame are one spot: those on one plateau, and those too close.

Maxima are an array of :data:`~.detection_settings.MAXIMUM` in the order of frame, y and x. Some are
chosen by ``compress`` and ``take``, which copy records whole: indexing copies field by field.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.interface import DetectionSource
from ..cpu.library import load
from ..kernel_arguments import address
from .candidates import Candidates
from .detection_settings import MAXIMUM, DetectionSettings

Maxima = NDArray[np.void]

#: Spots are never closer than this.
_LEAST_DISTANCE = 1.0


def spots_of(
    maxima: Maxima,
    frames: NDArray[Any],
    settings: DetectionSettings,
    masks: NDArray[np.bool_] | None,
    distance: float,
) -> Candidates:
    """Return the spots that maxima of both bands are, in the masks, less those too close.

    Parameters
    ----------
    maxima : ndarray of MAXIMUM
        In the order of frame, y and x.
    frames : ndarray, shape (n, Y, X)
        Where they were found; with ``maxima`` counting from the first.
    settings : DetectionSettings
        With which they were found.
    masks : ndarray of bool, shape (1 or n, Y, X), optional
        Where to look for spots.
    distance : float
        Maxima closer than this are one spot.
    """
    maxima = join_bands(maxima, settings)
    merged = has_plateaus(maxima)
    if merged:
        maxima = merge_plateaus(maxima, frames)
    return one_per_spot(maxima, masks, int(settings.height), distance, merged)


def join_bands(maxima: Maxima, settings: DetectionSettings) -> Maxima:
    """Drop those maxima of both bands that are no spots of their own."""
    library = load()
    row_starts = _memory_for_rows(maxima, int(settings.height))
    dropped = np.zeros(len(maxima), np.bool_)
    library.functions.spotfit_join_bands(
        library.index, ctypes.byref(settings), address(maxima), len(maxima), address(row_starts),
        address(dropped),
    )  # fmt: skip
    return maxima.compress(~dropped)


def has_plateaus(maxima: Maxima) -> bool:
    """Whether there are maxima on flat areas."""
    return bool(maxima["on_flat_area"].any())


def merge_plateaus(maxima: Maxima, frames: NDArray[Any]) -> Maxima:
    """Make the maxima on one flat area of a frame one, in the middle of the area.

    The band-pass of a saturated spot is highest along the edge of what is saturated.

    Parameters
    ----------
    maxima : ndarray of MAXIMUM
        Their frames count from the first of the given ones.
    frames : ndarray, shape (n, Y, X)
        Pixels, C-contiguous.
    """
    library = load()
    height, width = frames.shape[1:]
    source = DetectionSource.of(frames, DetectionSettings(height=height, width=width))
    row_starts = _memory_for_rows(maxima, height)
    # A bit for each pixel, and the places that are still to be visited: few, but who knows.
    visited = np.empty(-(-frames[0].size // 64), np.uint64)
    room = 4 * (height + width)
    merged = np.empty(len(maxima), MAXIMUM)
    left = -1
    while left < 0:
        visited[:] = 0
        given, queue = maxima.copy(), np.empty(room, np.int64)
        left = library.functions.spotfit_merge_plateaus(
            library.index, ctypes.byref(source), address(given), len(given), address(row_starts),
            address(visited), address(queue), room, address(merged),
        )  # fmt: skip
        room *= 4
    return in_order(merged[:left])


def in_order(maxima: Maxima) -> Maxima:
    """Return maxima in the order of frame, y and x."""
    if not len(maxima):
        return maxima
    frame, y, x = (maxima[name].astype(np.int64) for name in ("frame", "y", "x"))
    # One sort, which is quick where most are in order.
    place = (frame * (y.max() + 1) + y) * (x.max() + 1) + x
    return maxima.take(np.argsort(place, kind="stable"))


def one_per_spot(
    maxima: Maxima,
    masks: NDArray[np.bool_] | None,
    height: int,
    distance: float,
    merged: bool,
) -> Candidates:
    """Return the maxima that are in the mask, less those too close, as candidates.

    ``height`` is that of the frames; ``merged`` says whether plateaus were merged.
    """
    if masks is not None:
        inside = masks[np.minimum(maxima["frame"], len(masks) - 1), maxima["y"], maxima["x"]]
        maxima = maxima.compress(inside)
    # Maxima of two bands, and middles of plateaus, may be closer to others than maxima of one are.
    if distance > _LEAST_DISTANCE or merged:
        maxima = drop_neighbours(maxima, height, distance)
    frame, y, x = (maxima[name].astype(np.int64) for name in ("frame", "y", "x"))
    return Candidates(frame, y, x, maxima["score"].copy(), maxima["height"].copy())


def drop_neighbours(maxima: Maxima, height: int, distance: float) -> Maxima:
    """Drop maxima that are too close to a higher one that stays; of equal ones, the later.

    Examples
    --------
    >>> maxima = np.zeros(3, MAXIMUM)
    >>> maxima["x"], maxima["height"] = [0, 3, 6], [1, 2, 1]
    >>> drop_neighbours(maxima, height=1, distance=4.0)["x"]
    array([3], dtype=int32)
    """
    library = load()
    maxima = np.ascontiguousarray(maxima)
    # Heights are positive: as whole numbers they have the same order.
    falling = np.uint64(0xFFFFFFFF) - maxima["height"].view(np.uint32)
    order = np.sort(falling << np.uint64(32) | np.arange(len(maxima), dtype=np.uint64))
    row_starts = _memory_for_rows(maxima, height)
    dropped = np.zeros(len(maxima), np.bool_)
    library.functions.spotfit_drop_neighbours(
        library.index, address(maxima), len(maxima), address(order), height, address(row_starts),
        distance, address(dropped),
    )  # fmt: skip
    return maxima.compress(~dropped)


def _memory_for_rows(maxima: Maxima, height: int) -> NDArray[np.int64]:
    """Return memory for where the maxima of each row of each frame begin."""
    frames = int(maxima["frame"][-1] - maxima["frame"][0]) + 1 if len(maxima) else 0
    return np.empty(frames * height + 1, np.int64)
