"""Pixels at which the camera had counted all it can: no fit may take them for what was there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import is_on_device, like
from .flat_areas import LEAST_COUNT, PLATEAU, lost_among, rule_for
from .own_pixels import Lost


class Highest(NamedTuple):
    """The largest number of a frame of which a part has been read."""

    #: That of the part, and what returns that of all.
    here: float
    of_all: Callable[[], float]


def saturated_among(
    suspect: NDArray[np.int64],
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    highest: Highest | None = None,
) -> Lost | None:
    """Return the saturated pixels of suspect ROIs; None if none has any.

    They have the largest value of the pixels' whole-numbered type. Or they have the largest
    value of their frame, and it is that of a plateau in the ROI: as noise makes none, the
    camera's converter has ended there.

    Parameters
    ----------
    suspect : ndarray of int64
        Which ROIs have a flat top, by number.
    frames : array, shape (n, Y, X)
        As the camera took them.
    corners : ndarray of int64, shape (n, 3)
        Frame, first row and first column of each ROI.
    roi_shape : tuple of int
        Rows and columns of the ROIs.
    highest : Highest, optional
        What there is to know of the one frame that there is a part of; asked for all only where
        it makes a difference.

    Examples
    --------
    >>> frames = np.arange(49, dtype=np.uint8).reshape(1, 7, 7)
    >>> frames[0, 3, 3] = 255
    >>> both = np.array([[0, 0, 0], [0, 1, 1]])
    >>> lost = saturated_among(np.array([0, 1]), frames, both, (5, 5))
    >>> lost.rois, [np.argwhere(one).tolist() for one in lost.pixels]
    (array([0, 1]), [[[3, 3]], [[2, 2]]])
    """
    largest = rule_for(frames.dtype).largest

    def look(rois: Any, rows: NDArray[np.int64]) -> Any:
        if highest is None:
            return _at_the_top(rois, _highest_of_frames(frames, corners[rows, 0]), largest)
        mask = _at_the_top(rois, _everywhere(highest.here, rois), largest)
        if highest.here < largest and mask.any():
            mask = _at_the_top(rois, _everywhere(highest.of_all(), rois), largest)
        return mask

    return lost_among(suspect, frames, corners, roi_shape, look)


def _everywhere(value: float, rois: Any) -> Any:
    """Return a number for each ROI, where these are."""
    return like(np.full(len(rois), value, rois.dtype), rois)


def _highest_of_frames(frames: Any, frame: NDArray[np.int64]) -> Any:
    """Return the largest number of each ROI's frame."""
    if is_on_device(frames):  # where each call waits longer than for all frames at once
        return np.nanmax(frames, axis=(1, 2))[like(frame, frames)]
    which, back = np.unique(frame, return_inverse=True)
    return np.array([np.nanmax(frames[number]) for number in which], frames.dtype)[back]


def _at_the_top(rois: Any, highest: Any, largest: float) -> Any:
    """Return which pixels of ROIs, of NumPy or CuPy, are saturated."""
    at_end = rois >= largest
    level = highest[:, np.newaxis, np.newaxis]
    with np.errstate(invalid="ignore"):  # an infinite one
        top = (rois == level) & ((level >= LEAST_COUNT) | (level % 1 != 0)) & np.isfinite(level)
    padded = np.pad(top, ((0, 0), (1, 1), (1, 1))).astype(np.int8)
    rows, columns = rois.shape[1:]
    around: Any
    around = sum(padded[:, v : v + rows, u : u + columns] for v in range(3) for u in range(3))
    plateau = (around >= PLATEAU).any(axis=(1, 2), keepdims=True)
    return at_end | (top & plateau)
