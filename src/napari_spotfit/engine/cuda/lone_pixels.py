"""Find hot or dead pixels in ROIs, GPU version of kernels/cpu/vectorized/lone_pixels.cpp."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ..cpu.layouts import DetectionSettings, LoneWork
from ..detection.band import make_bands
from ..detection.detection_settings import make_detection_settings
from .compile import PIXEL_TYPES
from .device import Device

#: Threads of a block and of a warp; largest number of pixels of a launch.
THREADS, _WARP, _MOST_PIXELS = 256, 32, 1 << 28


@lru_cache(maxsize=16)
def _made(
    settings: Settings, shape: tuple[int, int], level: float | None = None
) -> DetectionSettings:
    """Return the kernel's settings, read-only, without bands, which it does not use."""
    bands = make_bands(settings.known_sigma, shape)
    return make_detection_settings(settings, bands, lambda _: None, level=level)


class Look:
    """Looks for hot or dead pixels in ROIs of frames on a device.

    Parameters
    ----------
    device : Device
        The device.
    frames : array, shape (n, Y, X)
        The frames on it.
    roi_shape : (int, int)
        Rows and columns of the ROIs.
    settings : Settings
        The settings of detection.
    level : float, optional
        Level of the whole frame, if these are parts of it.
    """

    def __init__(
        self,
        device: Device,
        frames: Any,
        roi_shape: tuple[int, ...],
        settings: Settings,
        level: float | None = None,
    ) -> None:
        self._device, self._frames, self._roi_shape = device, frames, roi_shape
        self._made = _made(settings, frames.shape[1:], level)
        pixel = PIXEL_TYPES[frames.dtype.str[1:]]
        self._kernel = device.kernel(
            "cuda/lone_pixels.cu", "find_lone_pixels", THREADS=THREADS, PIXEL=pixel
        )

    def find(self, commands: Any, corners: Any, pixels: Any = None) -> NDArray[np.bool_]:
        """Return host memory for which ROIs have such pixels, which running the commands fills.

        The corners lie on the device, as does optional memory for a mask of the pixels.
        """
        device, count = self._device, len(corners)
        found = device.allocate(count)
        work = LoneWork(
            self._made, device.address(self._frames), device.address(corners),
            device.address(found), None if pixels is None else device.address(pixels),
            count, *self._roi_shape,
        )  # fmt: skip
        commands.keep(corners, pixels)
        given, own, size = bytes(work), THREADS // _WARP, math.prod(self._roi_shape)
        blocks, share = -(-count // own), max(_MOST_PIXELS // (own * size), 1)
        for first in range(0, blocks, share):
            grid = (min(share, blocks - first),)
            commands.launch(self._kernel, grid, (THREADS,), (given, np.int32(first)))
        suspect: NDArray[np.bool_] = commands.download(found).view(bool)
        return suspect
