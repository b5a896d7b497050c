"""ROIs of frames on the GPU, cut out; the CPU's twin is part of the library."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .device import Device
from .orders import Orders

#: Threads of a block; numbers of so many bytes.
THREADS = 256
NUMBERS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}


def cut_out_on(
    device: Device,
    values: Any,
    corners: NDArray[np.int64] | Any,
    roi_shape: tuple[int, ...],
    orders: Orders | None = None,
) -> Any:
    """Return ROIs of frames in the memory of a device, or of a map that all frames share.

    They are there when the orders are carried out, soon without.
    """
    count = len(corners)
    size = count * roi_shape[0] * roi_shape[1]
    rois = device.allocate(size * values.itemsize)
    if size:
        own = orders or device.orders()
        kernel = device.kernel(
            "cuda/cut_out.cu", "cut_out", THREADS=THREADS, PIXEL=NUMBERS[values.itemsize]
        )
        given = (
            values, *map(np.int64, values.shape[1:]), np.int32(len(values) == 1),
            own.send(corners),
            np.int64(count), *map(np.int32, roi_shape), rois,
        )  # fmt: skip
        own.launch(kernel, (-(-size // THREADS),), (THREADS,), given)
        if orders is None:
            own.carry_out(wait=False)
    return rois.view(values.dtype).reshape(count, *roi_shape)
