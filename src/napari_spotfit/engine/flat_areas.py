"""Which ROIs are suspected of pixels that were saturated, or that are no data; most often none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import is_on_device, to_host
from ..settings.validation import ROI_MAX
from . import threads
from .cpu.layouts import FLAT_TOP, FlatAreaRule
from .cpu.library import load
from .kernel_arguments import PIXEL_TYPES, address
from .own_pixels import Lost, cut_out

#: Of a ROI's pixels, or of 3×3 of them, how many must have one value for a flat top, and the least
#: value of whole numbers there: few counts are often equal.
PLATEAU, LEAST_COUNT = 5, 255
#: How far the lowest value is below all others, at least: so many times what lies between these and
#: their median, and so many steps, as the least of their differences is one.
GAP, STEPS = 0.5, 4
#: ROIs of a thread's share, and pixels that are looked at more closely at a time.
_SHARE, _AT_A_TIME = 1 << 14, 1 << 22


def rule_for(dtype: np.dtype[Any]) -> FlatAreaRule:
    """Return what makes pixels of a type suspect."""
    if dtype.kind in "iu":
        return FlatAreaRule(float(np.iinfo(dtype).max), LEAST_COUNT, STEPS, GAP, PLATEAU)
    return FlatAreaRule(np.inf, -np.inf, 0.0, GAP, PLATEAU)


def flat_areas(
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    rule: FlatAreaRule,
    workers: int | None,
) -> NDArray[np.uint8]:
    """Return what each ROI of frames, wherever these lie, is suspected of.

    In large ones no padding is looked for: most of a laser beam's image is of one value.
    """
    is_large = max(roi_shape) > ROI_MAX
    if is_on_device(frames):
        if is_large:  # a thread would look at each for long
            return np.where(corners[:, 0] >= 0, np.uint8(FLAT_TOP), np.uint8(0))
        from .cuda.flat_areas import flat_areas_there

        return flat_areas_there(frames, corners, roi_shape, rule)
    found, library = np.zeros(len(corners), np.uint8), load()

    def work(first: int, last: int) -> None:
        library.functions.spotfit_find_flat_areas(
            library.index, address(frames), PIXEL_TYPES[frames.dtype.str[1:]], *frames.shape[1:],
            address(corners), first, last, *roi_shape, ctypes.byref(rule), address(found),
        )  # fmt: skip

    threads.in_pieces(work, len(corners), _SHARE, workers)
    if is_large:
        found &= FLAT_TOP
    return found


def lost_among(
    suspect: NDArray[np.int64],
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    look: Callable[[Any, NDArray[np.int64]], Any],
) -> Lost | None:
    """Return the pixels of suspect ROIs that a closer look finds; None if it finds none.

    Parameters
    ----------
    suspect : ndarray of int64
        Which ROIs, by number.
    frames : array, shape (n, Y, X)
        As the camera took them, wherever they lie.
    corners : ndarray of int64, shape (n, 3)
        Frame, first row and first column of each ROI.
    roi_shape : (int, int)
        Rows and columns of the ROIs.
    look : callable
        Takes some of the ROIs, shape (n, rows, columns), where the frames lie, and their numbers;
        returns a mask of their pixels.
    """
    if not len(suspect):  # as most often
        return None
    found, masks = [suspect[:0]], [np.empty((0, *roi_shape), bool)]
    step = max(_AT_A_TIME // (roi_shape[0] * roi_shape[1]), 1)
    for first in range(0, len(suspect), step):
        rows = suspect[first : first + step]
        mask = look(cut_out(frames, corners[rows], roi_shape), rows)
        some = mask.any(axis=(1, 2))
        found.append(rows[to_host(some)])
        masks.append(to_host(mask[some]))
    lost = Lost(np.concatenate(found), np.concatenate(masks))
    return lost if len(lost.rois) else None
