"""Pixels of ROIs that count in no fit, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..settings.settings import Settings
from .cpu.lone_pixels import lone_pixels
from .own_pixels import Lost, joined
from .saturation import Highest, saturated_pixels


class LostPixels(NamedTuple):
    """Pixels of ROIs that count in no fit; None where none has any."""

    saturated: Lost | None
    lone: Lost | None

    def all(self) -> Lost | None:
        """Return those that are lost for any reason."""
        return joined(*self)


def lost_pixels(
    frames: NDArray[Any],
    corners: NDArray[np.int64],
    roi_shape: tuple[int, int],
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
        As :func:`~.saturation.saturated_pixels` takes it.
    level : float, optional
        That of a frame of which they are a part.
    """
    taken = frames if taken is None else taken
    saturated = saturated_pixels(taken, corners, roi_shape, workers, highest)
    lone = None
    if detection is not None:
        lone = lone_pixels(frames, corners, roi_shape, detection, level)
    return LostPixels(saturated, lone)
