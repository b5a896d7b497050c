"""Cut out ROIs on a GPU, find pixels to exclude in them, and correct standard errors.

GPU versions of functions of the library, by the same formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ..bands import make_bands
from ..cpu.layouts import (
    DetectionSettings,
    ErrorColumns,
    FilteredNoise,
    FlatAreaRule,
    HotPixelWork,
    VerdictSettings,
)
from ..detection_settings import make_detection_settings
from .compile import PIXEL_TYPES, Device, as_argument, kernel
from .transfer import CommandList

#: Threads of a block: one a pixel or a fit; and one a spot, where each walks over its ROI.
THREADS, SPOT_THREADS = 256, 128
#: C++ types by size in bytes.
NUMBERS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
#: Threads of a warp; largest number of pixels of a launch.
_WARP, _MOST_PIXELS = 32, 1 << 28


def plane_corners(
    corners: NDArray[np.int64], depth: int, planes: int, *, shared: bool = False
) -> NDArray[np.int64]:
    """Return the corners of the planes of ROIs in volumes: plane, first row and first column.

    Parameters
    ----------
    corners : ndarray of int64, shape (n, 4)
        Corners of the ROIs.
    depth, planes : int
        Numbers of planes of a volume, and of a ROI.
    shared : bool
        Whether all share one volume.

    Examples
    --------
    >>> plane_corners(np.array([[1, 2, 30, 40]]), 10, 3).tolist()
    [[12, 30, 40], [13, 30, 40], [14, 30, 40]]
    """
    frame = 0 if shared else corners[:, :1]
    number = frame * depth + corners[:, 1:2] + np.arange(planes)
    number = np.where(corners[:, :1] < 0, -1, number)
    in_plane = np.repeat(corners[:, 2:], planes, axis=0)
    return np.column_stack([number.ravel(), in_plane])


def cut_out_on(
    device: Device,
    values: Any,
    corners: NDArray[np.int64] | Any,
    roi_shape: tuple[int, ...],
    commands: CommandList | None = None,
) -> Any:
    """Cut ROIs out of frames on a device, or out of a map that all frames share.

    They are filled when `commands` run, or without them soon. Corners may lie on the device only if
    frames are planes.
    """
    if values.ndim > 3:
        planes = plane_corners(corners, values.shape[1], roi_shape[0], shared=len(values) == 1)
        flat = cut_out_on(
            device, values.reshape(-1, *values.shape[-2:]), planes, roi_shape[1:], commands
        )
        return flat.reshape(len(corners), *roi_shape)
    count = len(corners)
    size = count * roi_shape[0] * roi_shape[1]
    rois = device.allocate(size * values.itemsize)
    if size:
        own = commands or device.commands()
        kernel = device.kernel(
            "cuda/cut_out.cu", "cut_out", THREADS=THREADS, PIXEL=NUMBERS[values.itemsize]
        )
        given = (
            values, *map(np.int64, values.shape[1:]), np.int32(len(values) == 1),
            own.upload(corners),
            np.int64(count), *map(np.int32, roi_shape), rois,
        )  # fmt: skip
        own.launch(kernel, (-(-size // THREADS),), (THREADS,), given)
        if commands is None:
            own.run(wait=False)
    return rois.view(values.dtype).reshape(count, *roi_shape)


def flags_by_surroundings(
    device: Device,
    frames: Any,
    spots: NDArray[np.uint8],
    count: int,
    sigma: float,
    verdicts: VerdictSettings,
) -> NDArray[np.uint32]:
    """Return the flags of elongated spots, or of those out of focus, 0 for others.

    Parameters
    ----------
    device : Device
        The device of the frames.
    frames : array, shape (n, Y, X)
        The frames.
    spots : ndarray of uint8
        The spots as the library lists them, at least one.
    count : int
        Number of spots.
    sigma : float
        The PSF's σ.
    verdicts : VerdictSettings
        What is looked for, and the shape of the ROIs.
    """
    commands, found = device.commands(), device.allocate(count * np.dtype(np.uint32).itemsize)
    pixel = PIXEL_TYPES[frames.dtype.str[1:]]
    kernel = device.kernel(
        "cuda/elongation.cu", "look_around_spots", THREADS=SPOT_THREADS, PIXEL=pixel
    )
    given = (
        frames, *map(np.int64, frames.shape[1:]), commands.upload(spots), np.int64(count),
        np.float64(sigma), bytes(verdicts.roi), np.int32(verdicts.around), found,
    )  # fmt: skip
    commands.launch(kernel, (-(-count // SPOT_THREADS),), (SPOT_THREADS,), given)
    flags: NDArray[np.uint8] = commands.download(found)
    commands.run()
    return flags.view(np.uint32)


def find_flat_areas(
    device: Device,
    commands: Any,
    frames: Any,
    corners: Any,
    roi_shape: tuple[int, ...],
    rule: FlatAreaRule,
) -> NDArray[np.uint8]:
    """Return host memory for the suspicions against ROIs, which running the commands fills.

    There is at least one corner; the corners lie on the device.
    """
    count = len(corners)
    found = device.allocate(count)
    pixel = PIXEL_TYPES[frames.dtype.str[1:]]
    kernel = device.kernel(
        "cuda/flat_areas.cu", "find_flat_areas", THREADS=SPOT_THREADS, PIXEL=pixel
    )
    given = (
        frames, *map(np.int64, frames.shape[1:]), corners, np.int64(count),
        *map(np.int32, roi_shape), as_argument(rule), found,
    )  # fmt: skip
    commands.launch(kernel, (-(-count // SPOT_THREADS),), (SPOT_THREADS,), given)
    suspect: NDArray[np.uint8] = commands.download(found)
    return suspect


@lru_cache(maxsize=16)
def _hot_settings(
    settings: Settings, shape: tuple[int, int], level: float | None = None
) -> DetectionSettings:
    """Return the kernel's settings, read-only, without bands, which it does not use."""
    bands = make_bands(settings.known_sigma, shape)
    return make_detection_settings(settings, bands, lambda _: None, level=level)


class HotPixelSearch:
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
        self._made = _hot_settings(settings, frames.shape[1:], level)
        pixel = PIXEL_TYPES[frames.dtype.str[1:]]
        self._kernel = device.kernel(
            "cuda/hot_pixels.cu", "find_hot_pixels", THREADS=THREADS, PIXEL=pixel
        )

    def find(self, commands: Any, corners: Any, pixels: Any = None) -> NDArray[np.bool_]:
        """Return host memory for which ROIs have such pixels, which running the commands fills.

        The corners lie on the device, as does optional memory for a mask of the pixels.
        """
        device, count = self._device, len(corners)
        found = device.allocate(count)
        work = HotPixelWork(
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


def correct_errors(
    noise: FilteredNoise,
    columns: ErrorColumns,
    count: int,
    kernel: Callable[..., Callable[..., None]] = kernel,
) -> None:
    """Correct the errors of fits on the device, on CuPy's current stream.

    Parameters
    ----------
    noise : FilteredNoise
        The effect of the filter on errors.
    columns : ErrorColumns
        Addresses of the columns.
    count : int
        Number of fits.
    kernel : callable
        Returns a kernel by file and name.
    """
    if not count:
        return
    correct = kernel("cuda/filtered_errors.cu", "correct_errors_of_fits", THREADS=THREADS)
    given = as_argument(noise), as_argument(columns), np.int64(count)
    correct((-(-count // THREADS),), (THREADS,), given)
