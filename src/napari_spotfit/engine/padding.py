"""Pixels that are no data: what an image was padded with, or masked, or what a threshold has left.

Spots beside such areas would be fitted with them: up to 4 px from zeros on a background of 100, a
spot seemed to have 1.3 times its light, or lay half a pixel off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host
from .flat_areas import GAP, STEPS, lost_among
from .own_pixels import Lost


def padding_among(
    suspect: NDArray[np.int64],
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
) -> Lost | None:
    """Return the pixels of suspect ROIs that are no data; None if none has any.

    They have the ROI's lowest value, are an area of their own in three quarters of it at most
    (kernels/flat_areas.h), and nothing lies between them and the others: these begin far above,
    by what they scatter.

    Parameters
    ----------
    suspect : ndarray of int64
        Which ROIs have such an area, by number.
    frames : array, shape (n, Y, X)
        As the camera took them.
    corners : ndarray of int64, shape (n, 3)
        Frame, first row and first column of each ROI.
    roi_shape : (int, int)
        Rows and columns of the ROIs.

    Examples
    --------
    >>> frames = np.random.default_rng(1).poisson(100, (1, 9, 9)).astype(np.uint16)
    >>> frames[:, :, :2] = 0
    >>> lost = padding_among(np.array([0]), frames, np.zeros((1, 3), np.int64), (9, 9))
    >>> int(lost.pixels.sum()), bool(lost.pixels[0, :, :2].all())
    (18, True)
    """
    return lost_among(suspect, frames, corners, roi_shape, lambda rois, _: _grounds(to_host(rois)))


def _grounds(rois: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which pixels of ROIs have the lowest value where that is no data."""
    pixels = rois.reshape(len(rois), -1).astype(float)
    with np.errstate(invalid="ignore"):  # an infinite one
        return _no_data(pixels).reshape(rois.shape)


def _no_data(rois: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the same of ROIs that are a row each."""
    ordered = np.sort(rois, axis=1)  # NaN are the last
    lowest = ordered[:, :1]
    # The others are ordered[first:last].
    first = (ordered == lowest).sum(axis=1, keepdims=True)
    last = (ordered == ordered).sum(axis=1, keepdims=True)
    place = np.arange(ordered.shape[1] - 1)
    steps = np.diff(ordered, axis=1)
    steps[(place < first) | (place >= last - 1) | ~(steps > 0)] = np.inf
    least = steps.min(axis=1, keepdims=True)

    def at(number: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.take_along_axis(ordered, np.minimum(number, last - 1), axis=1)

    begin, count = at(first), last - first
    middle = (at(first + (count - 1) // 2) + at(first + count // 2)) / 2
    gap = begin - lowest
    found: NDArray[np.bool_]
    found = (rois == lowest) & (gap > GAP * (middle - begin)) & (gap >= STEPS * least)
    return found
