"""Which fitted spots are longer in one direction than across, where the frames lie on a GPU.

The CPU flags them in the library, by the same formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compile import PIXEL_TYPES
from .device import Device

#: Threads of a block.
THREADS = 128


def long_spots(
    device: Device, frames: Any, spots: NDArray[np.uint8], count: int, sigma: float
) -> NDArray[np.uint32]:
    """Return the flags of the spots that are long, 0 of others.

    Parameters
    ----------
    device : Device
        Where the frames lie.
    frames : array, shape (n, Y, X)
        The frames.
    spots : ndarray of uint8
        So many spots, at least one, as the library lists them.
    count : int
        Their number.
    sigma : float
        The PSF's.
    """
    orders, found = device.orders(), device.allocate(count * np.dtype(np.uint32).itemsize)
    pixel = PIXEL_TYPES[frames.dtype.str[1:]]
    kernel = device.kernel("cuda/elongation.cu", "find_long_spots", THREADS=THREADS, PIXEL=pixel)
    given = (
        frames, *map(np.int64, frames.shape[1:]), orders.send(spots), np.int64(count),
        np.float64(sigma), found,
    )  # fmt: skip
    orders.launch(kernel, (-(-count // THREADS),), (THREADS,), given)
    flags: NDArray[np.uint8] = orders.fetch(found)
    orders.carry_out()
    return flags.view(np.uint32)
