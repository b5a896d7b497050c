"""Cut ROIs out of frames on the GPU, GPU version of a function of the library."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .command_list import CommandList
from .device import Device

#: Threads of a block; C++ types by size in bytes.
THREADS = 256
NUMBERS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}


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
