"""Which ROIs on the GPU may have saturated pixels, or such as are no data.

The CPU's twin is part of the library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.layouts import FlatAreaRule
from .compile import PIXEL_TYPES, as_argument
from .device import Device, current_device

#: Threads of a block.
THREADS = 128


def flat_areas_there(
    frames: Any, corners: NDArray[np.int64], roi_shape: tuple[int, ...], rule: FlatAreaRule
) -> NDArray[np.uint8]:
    """Return what each ROI of frames on a GPU is suspected of, as kernels/flat_areas.h has it."""
    with frames.device:
        return flat_areas_on(current_device(), frames, corners, roi_shape, rule)


def flat_areas_on(
    device: Device,
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    rule: FlatAreaRule,
) -> NDArray[np.uint8]:
    """Return the same of frames in the memory of a device."""
    if not len(corners):
        return np.zeros(0, np.uint8)
    orders = device.orders()
    suspect = order(device, orders, frames, orders.send(corners), roi_shape, rule)
    orders.carry_out()
    return suspect


def order(
    device: Device,
    orders: Any,
    frames: Any,
    corners: Any,
    roi_shape: tuple[int, ...],
    rule: FlatAreaRule,
) -> NDArray[np.uint8]:
    """Return memory for what ROIs are suspected of; it is filled when orders are carried out.

    The corners lie on the device; there is one at least.
    """
    count = len(corners)
    found = device.allocate(count)
    pixel = PIXEL_TYPES[frames.dtype.str[1:]]
    kernel = device.kernel("cuda/flat_areas.cu", "find_flat_areas", THREADS=THREADS, PIXEL=pixel)
    given = (
        frames, *map(np.int64, frames.shape[1:]), corners, np.int64(count),
        *map(np.int32, roi_shape), as_argument(rule), found,
    )  # fmt: skip
    orders.launch(kernel, (-(-count // THREADS),), (THREADS,), given)
    suspect: NDArray[np.uint8] = orders.fetch(found)
    return suspect
