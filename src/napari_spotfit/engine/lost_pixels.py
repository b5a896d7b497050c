"""Pixels of ROIs that count in no fit, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import is_on_device, to_host
from ..settings.settings import Settings
from .cpu.layouts import FLAT_GROUND, FLAT_TOP
from .cpu.lone_pixels import lone_pixels
from .flat_areas import flat_areas, rule_for
from .own_pixels import Lost, joined
from .padding import padding_among
from .saturation import Highest, saturated_among


class LostPixels(NamedTuple):
    """Pixels of ROIs that count in no fit; None where none has any."""

    saturated: Lost | None
    lone: Lost | None
    padding: Lost | None

    @property
    def bad(self) -> Lost | None:
        """Those that tell nothing of the light there."""
        return joined(self.lone, self.padding)

    def all(self) -> Lost | None:
        """Return those that are lost for any reason."""
        return joined(*self)


def lost_pixels(
    frames: NDArray[Any],
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    workers: int | None = None,
    *,
    detection: Settings | None = None,
    taken: Any = None,
    highest: Highest | None = None,
    level: float | None = None,
) -> LostPixels:
    """Return the pixels of ROIs that count in no fit.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        As detection takes them.
    corners : ndarray of int64, shape (n, 3)
        Frame, first row and first column of each ROI; a negative frame stands for none.
    roi_shape : (int, int)
        Rows and columns of the ROIs.
    workers : int, optional
        Threads to use.
    detection : Settings, optional
        By which pixels are lone: ``sigma``, ``noise`` and ``threads``; without, none is looked for.
    taken : array, shape (n, Y, X), optional
        The frames as the camera took them, where these are others.
    highest : Highest, optional
        As :func:`~.saturation.saturated_among` takes it.
    level : float, optional
        That of a frame of which they are a part.
    """
    taken = frames if taken is None else taken
    saturated, padding = in_flat_areas(taken, corners, roi_shape, workers, highest)
    lone = None
    if detection is not None:
        lone = lone_pixels(frames, corners, roi_shape, detection, level)
    return LostPixels(saturated, lone, padding)


def in_flat_areas(
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    workers: int | None = None,
    highest: Highest | None = None,
) -> tuple[Lost | None, Lost | None]:
    """Return the saturated pixels of ROIs, and those that are no data, wherever the frames lie.

    Examples
    --------
    >>> frames = np.random.default_rng(1).poisson(100, (1, 20, 20)).astype(np.uint16)
    >>> frames[0, :, :9] = 0
    >>> saturated, padding = in_flat_areas(frames, np.array([[0, 5, 6], [0, 5, 9]]), (9, 9))
    >>> saturated, padding.rois
    (None, array([0]))
    """
    if is_on_device(frames):
        from .errors import cuda_errors

        try:
            return _in_flat_areas(frames, corners, roi_shape, workers, highest)
        except cuda_errors():  # the GPU has no memory left
            frames = to_host(frames)
    return _in_flat_areas(frames, corners, roi_shape, workers, highest)


def _in_flat_areas(
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    workers: int | None,
    highest: Highest | None,
) -> tuple[Lost | None, Lost | None]:
    areas = flat_areas(frames, corners, roi_shape, rule_for(frames.dtype), workers)
    return lost_in(areas, frames, corners, roi_shape, highest)


def lost_in(
    areas: NDArray[np.uint8],
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    highest: Highest | None,
) -> tuple[Lost | None, Lost | None]:
    """Return the same of ROIs of which is known what they are suspected of."""
    saturated = saturated_among(
        np.flatnonzero(areas & FLAT_TOP), frames, corners, roi_shape, highest
    )
    padding = padding_among(np.flatnonzero(areas & FLAT_GROUND), frames, corners, roi_shape)
    return saturated, padding
