"""Lone pixels in ROIs on the GPU, the twin of :mod:`napari_spotfit.engine.cpu.lone_pixels`."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ..c_types import fields
from ..detection.band import make_bands
from ..detection.detection_settings import DetectionSettings, make_detection_settings
from ..own_pixels import Lost
from .compile import PIXEL_TYPES
from .detect import Device, current_device

#: Threads of a block and of a warp; pixels that a launch looks at, at most.
THREADS, _WARP, _MOST_PIXELS = 256, 32, 1 << 28


@lru_cache(maxsize=16)
def _made(settings: Settings, shape: tuple[int, int]) -> DetectionSettings:
    """Return what the kernel is told, only to be read; it uses none of the bands."""
    bands = make_bands(settings.known_sigma, shape)
    return make_detection_settings(settings, bands, lambda _: None)


class LoneWork(ctypes.Structure):
    """The kernel's argument, as kernels/cuda/lone_pixels.cu declares it."""

    _fields_ = (
        ("settings", DetectionSettings),
        *fields("pointer frames corners found pixels", "int count rows columns"),
    )


def lone_pixels(
    frames: Any, corners: NDArray[np.int64], roi_shape: tuple[int, int], settings: Settings
) -> Lost | None:
    """Return the lone pixels of ROIs of frames on the current device; None if none has any."""
    return lone_pixels_on(current_device(), frames, corners, roi_shape, settings)


def lone_pixels_on(
    device: Device,
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, int],
    settings: Settings,
) -> Lost | None:
    """Return the lone pixels of ROIs of frames in the memory of a device."""
    made = _made(settings, frames.shape[1:])
    pixel = PIXEL_TYPES[frames.dtype.str[1:]]
    kernel = device.kernel("cuda/lone_pixels.cu", "find_lone_pixels", THREADS=THREADS, PIXEL=pixel)
    size = roi_shape[0] * roi_shape[1]

    def look(corners: NDArray[np.int64], pixels: Any) -> NDArray[np.bool_]:
        orders = device.orders()
        found, there = device.allocate(len(corners)), orders.send(corners)
        work = LoneWork(
            made, device.address(frames), device.address(there), device.address(found),
            None if pixels is None else device.address(pixels), len(corners), *roi_shape,
        )  # fmt: skip
        given, own = bytes(work), THREADS // _WARP
        blocks, share = -(-len(corners) // own), max(_MOST_PIXELS // (own * size), 1)
        for first in range(0, blocks, share):
            grid = (min(share, blocks - first),)
            orders.launch(kernel, grid, (THREADS,), (given, np.int32(first)))
        suspect: NDArray[np.bool_] = orders.fetch(found).view(bool)
        orders.carry_out()
        return suspect

    if not len(corners):
        return None
    rois = np.flatnonzero(look(corners, None))
    if not len(rois):
        return None
    pixels = device.allocate(len(rois) * size)
    look(corners[rois], pixels)
    return Lost(rois, device.fetch(pixels).view(bool).reshape(len(rois), *roi_shape))
