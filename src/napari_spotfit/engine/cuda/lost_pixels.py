"""Pixels of ROIs on the GPU that count in no fit.

The twin of :mod:`napari_spotfit.engine.lost_pixels`. Most often there are few of either kind: one
wait tells so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from ..flat_areas import rule_for
from ..lost_pixels import LostPixels, in_flat_areas, lost_in
from ..saturation import Highest
from . import flat_areas, lone_pixels
from .device import Device, current_device


def lost_pixels(
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    workers: int | None = None,
    *,
    detection: Settings | None = None,
    taken: Any = None,
    highest: Highest | None = None,
    level: float | None = None,
) -> LostPixels:
    """Return the pixels of ROIs of frames on the current device that count in no fit."""
    if taken is not None or detection is None or max(roi_shape) > ROI_MAX or not len(corners):
        as_taken = frames if taken is None else taken
        saturated, padding = in_flat_areas(as_taken, corners, roi_shape, workers, highest)
        lone = None
        if detection is not None:
            lone = lone_pixels.lone_pixels(frames, corners, roi_shape, detection, level)
        return LostPixels(saturated, lone, padding)
    return lost_pixels_on(current_device(), frames, corners, roi_shape, detection, highest, level)


def lost_pixels_on(
    device: Device,
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    detection: Settings,
    highest: Highest | None = None,
    level: float | None = None,
) -> LostPixels:
    """Return the same of frames in the memory of a device, as the camera took them."""
    orders = device.orders()
    there, rule = orders.send(corners), rule_for(frames.dtype)
    look = lone_pixels.Look(device, frames, roi_shape, detection, level)
    areas = flat_areas.order(device, orders, frames, there, roi_shape, rule)
    lone = look.order(orders, there)
    orders.carry_out()
    if _is_empty(areas) and _is_empty(lone):
        return LostPixels(None, None, None)
    saturated, padding = lost_in(areas, frames, corners, roi_shape, highest)
    return LostPixels(saturated, look.closely(np.flatnonzero(lone), corners), padding)


def _is_empty(found: NDArray[Any]) -> bool:
    """Whether all is 0. NumPy would let other threads have the interpreter, and wait for it."""
    return found.tobytes() == bytes(found.nbytes)
