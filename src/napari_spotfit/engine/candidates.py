"""Hold detected spots, and choose among maxima on one plateau or too close to each other.

Maxima are an array of :data:`~.detection_settings.MAXIMUM` in the order of frame, y and x. The
library processes them: NumPy takes many steps, each of which waits for the interpreter.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cpu.layouts import DetectionSettings, DetectionSource, Mark, SpotChoice
from .cpu.library import load
from .detection_settings import MAXIMUM, detection_source, shares_of_depth
from .kernel_arguments import address


class Candidates(NamedTuple):
    """Pixels on which a spot was detected, ordered by frame, z, y and x."""

    frame: NDArray[np.int64]
    y: NDArray[np.int64]
    x: NDArray[np.int64]
    #: The normal deviate that is as rare as the height in the noise, at most the largest float32.
    score: NDArray[np.float32]
    #: Height in the wide band, in counts.
    height: NDArray[np.float32]
    #: The plane, of volumes.
    z: NDArray[np.int64] | None = None

    def rows(self, which: Any) -> Candidates:
        """Return those of some rows, in any order."""
        return Candidates._make(column if column is None else column[which] for column in self)

    def places(self) -> NDArray[np.float64]:
        """Return the pixels, shape (n, axes), in the order of the array."""
        axes = (self.y, self.x) if self.z is None else (self.z, self.y, self.x)
        return np.column_stack(axes).astype(float)


def nothing(dimensions: int = 2) -> Candidates:
    """Return no candidates, in planes or volumes."""
    none = np.empty(0, np.int64)
    zero = np.empty(0, np.float32)
    return Candidates(none, none, none, zero, zero, none if dimensions > 2 else None)


def joined(parts: list[Candidates]) -> Candidates:
    """Return the candidates of several parts as one."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*parts, strict=True)
    return Candidates._make(None if one[0] is None else np.concatenate(one) for one in columns)


def masks_of(mask: Any, shape: tuple[int, ...]) -> Any:
    """Return a mask as one for each plane or for all, (planes or 1, Y, X); None stays None.

    Those of volumes that are alike have the planes of one.

    Raises
    ------
    ValueError
        If the mask does not fit frames of the shape (n, Y, X), or volumes of (n, Z, Y, X).
    """
    if mask is None:
        return None
    if mask.shape not in (shape[1:], shape):
        raise ValueError(f"mask must have the shape {shape[1:]} or {shape}; got {mask.shape}")
    return mask.reshape(-1, *shape[-2:]) if mask.size else None


Maxima = NDArray[np.void]

#: Spots are never closer than this.
_LEAST_DISTANCE = 1.0


def join_bands(maxima: Maxima, settings: DetectionSettings, distance: float) -> None:
    """Mark which maxima of both bands are separate spots, at least a distance apart."""
    library = load()
    row_starts = _memory_for_rows(maxima, int(settings.height))
    partners = np.empty(len(maxima), np.int32)
    # Maxima of two bands may be closer to others than maxima of one are.
    others = Mark.CROWDED if distance > _LEAST_DISTANCE else Mark.ALONE
    library.functions.spotfit_join_bands(
        library.index, ctypes.byref(settings), address(maxima), len(maxima), address(row_starts),
        address(partners), others,
    )  # fmt: skip


def choose_spots(
    maxima: Maxima,
    settings: DetectionSettings,
    masks: NDArray[np.bool_] | None,
    distance: float,
    merge: Callable[[Maxima], Maxima],
) -> Candidates:
    """Return marked maxima as spots, in the masks, without those too close.

    Of those too close to each other the higher stays; of equal ones, the first.

    Parameters
    ----------
    maxima : ndarray of MAXIMUM
        In the order of frame, y and x, with marks for bands. They are changed.
    settings : DetectionSettings
        Sizes of a frame, and of a volume; the PSF's width, and the score of dark spots.
    masks : ndarray of bool, shape (1 or n, Y, X), optional
        Where to look for spots.
    distance : float
        Maxima closer than this are one spot.
    merge : callable
        Makes those on one flat area one, if there are any.

    Examples
    --------
    >>> maxima = np.zeros(3, MAXIMUM)
    >>> maxima["x"], maxima["height"], maxima["band"] = [0, 3, 6], [1, 2, 1], Mark.CROWDED
    >>> planes = DetectionSettings(height=1, width=7, depth=1, planes_per_pixel=1.0)
    >>> choose_spots(maxima, planes, None, 4.0, merge=np.copy).x
    array([3])
    """
    found, count = _chosen(maxima, settings, masks, distance, merged=False)
    if count < 0:
        maxima = merge(maxima[: -1 - count])
        # The middles of plateaus may be closer to others than maxima are.
        maxima["band"] = Mark.CROWDED
        found, count = _chosen(maxima, settings, masks, distance, merged=True)
    found = found.rows(slice(count))
    if not settings.volume:
        return found
    frame, z = np.divmod(found.frame, settings.depth)
    return found._replace(frame=frame, z=z)


def _chosen(
    maxima: Maxima,
    settings: DetectionSettings,
    masks: NDArray[np.bool_] | None,
    distance: float,
    *,
    merged: bool,
) -> tuple[Candidates, int]:
    """Return columns, and how many spots are in them, or -1 less those that are to be merged."""
    library, count = load(), len(maxima)
    masks = None if masks is None else np.ascontiguousarray(masks, np.bool_)
    row_starts, order = _memory_for_rows(maxima, settings.height), np.empty(2 * count, np.uint64)
    places, light = np.empty((3, count), np.int64), np.empty((2, count), np.float32)
    found = Candidates(*places, *light)
    dark = shares_of_depth(float(settings.sigma) or 1.0)
    choice = SpotChoice(
        settings.height, settings.width, settings.depth, settings.planes_per_pixel,
        address(masks), 0 if masks is None else len(masks), distance, merged,
        address(row_starts), address(order),
        settings.dark_score, dark.dark_reach, address(dark.shares), dark.reach,
        *map(address, found[:-1]),
    )  # fmt: skip
    return found, library.functions.spotfit_choose_spots(
        library.index, ctypes.byref(choice), address(maxima), count
    )


def merge_plateaus(
    maxima: Maxima,
    frames: NDArray[Any],
    level: float | None = None,
    planes_per_pixel: float = 1.0,
) -> Maxima:
    """Merge the maxima on one flat area of a frame to one in its middle, or to none.

    The band-pass of a saturated spot is highest along the edge of what is saturated. Large areas
    that are no brighter than the level have no spots.

    Parameters
    ----------
    maxima : ndarray of MAXIMUM
        Their frames count from the first of the given ones.
    frames : ndarray, shape (n, Y, X) or (n, Z, Y, X)
        Pixels, C-contiguous.
    level : float, optional
        That of the whole frame, if these are parts of it.
    planes_per_pixel : float
        How many planes are as far apart as pixels.
    """
    library, source = load(), _source(frames, level, planes_per_pixel)
    row_starts = _memory_for_rows(maxima, frames.shape[-2])
    merged = np.empty(len(maxima), MAXIMUM)

    def merge(*memory: int | None) -> int:
        given = maxima.copy()
        left: int = library.functions.spotfit_merge_plateaus(
            library.index, ctypes.byref(source), address(given), len(given), address(row_starts),
            *memory, address(merged),
        )  # fmt: skip
        return left

    return in_order(merged[: _with_memory(merge, frames)])


def _source(frames: NDArray[Any], level: float | None, planes_per_pixel: float) -> DetectionSource:
    *depth, height, width = frames.shape[1:]
    settings = DetectionSettings(
        height=height, width=width, depth=math.prod(depth), planes_per_pixel=planes_per_pixel,
        level=level or 0.0, level_known=level is not None,
    )  # fmt: skip
    return detection_source(frames, settings)


def _with_memory(walk: Callable[..., int], frames: NDArray[Any]) -> int:
    """Call what walks over equal pixels with the memory for that; it returns -1 if it is too short.

    That is a bit for each pixel, and the places that are still to be visited: few, but who knows.
    """
    size, room, result = math.prod(frames.shape[1:]), 4 * sum(frames.shape[1:]), -1
    visited = np.empty(-(-size // 64), np.uint64)
    while result < 0:
        visited[:] = 0
        queue = np.empty(room, np.int64)
        result = walk(address(visited), address(queue), room)
        room *= 4
    return result


def strips_in_order(maxima: Maxima, height: int) -> Maxima:
    """Return the maxima of a frame's strips, one after the other as they lie, in order."""
    library, ordered = load(), np.empty(len(maxima), MAXIMUM)
    row_starts = np.empty(height + 1, np.int64)
    library.functions.spotfit_order_maxima(
        library.index, address(maxima), len(maxima), address(row_starts), height, address(ordered)
    )
    return ordered


def in_order(maxima: Maxima) -> Maxima:
    """Return maxima in the order of frame, y and x."""
    if not len(maxima):
        return maxima
    frame, y, x = (maxima[name].astype(np.int64) for name in ("frame", "y", "x"))
    # One sort, which is quick where most are in order.
    place = (frame * (y.max() + 1) + y) * (x.max() + 1) + x
    return maxima.take(np.argsort(place, kind="stable"))


def _memory_for_rows(maxima: Maxima, height: int) -> NDArray[np.int64]:
    """Return memory for the first maximum of each row of each frame."""
    frames = int(maxima["frame"][-1] - maxima["frame"][0]) + 1 if len(maxima) else 0
    return np.empty(frames * height + 1, np.int64)
