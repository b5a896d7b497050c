"""Find ROIs with possibly saturated or padding pixels on the GPU.

GPU version of a function of the library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.layouts import FlatAreaRule
from .compile import PIXEL_TYPES, as_argument
from .device import Device

#: Threads of a block.
THREADS = 128


def find(
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
    kernel = device.kernel("cuda/flat_areas.cu", "find_flat_areas", THREADS=THREADS, PIXEL=pixel)
    given = (
        frames, *map(np.int64, frames.shape[1:]), corners, np.int64(count),
        *map(np.int32, roi_shape), as_argument(rule), found,
    )  # fmt: skip
    commands.launch(kernel, (-(-count // THREADS),), (THREADS,), given)
    suspect: NDArray[np.uint8] = commands.download(found)
    return suspect
