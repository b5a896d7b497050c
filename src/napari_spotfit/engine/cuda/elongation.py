"""Flag elongated spots in frames on a GPU.

GPU version of the flag that the library sets on the CPU, by the same formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compile import PIXEL_TYPES, Device

#: Threads of a block.
THREADS = 128


def long_spots(
    device: Device, frames: Any, spots: NDArray[np.uint8], count: int, sigma: float
) -> NDArray[np.uint32]:
    """Return the flags of elongated spots, 0 for others.

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
    """
    commands, found = device.commands(), device.allocate(count * np.dtype(np.uint32).itemsize)
    pixel = PIXEL_TYPES[frames.dtype.str[1:]]
    kernel = device.kernel("cuda/elongation.cu", "find_long_spots", THREADS=THREADS, PIXEL=pixel)
    given = (
        frames, *map(np.int64, frames.shape[1:]), commands.upload(spots), np.int64(count),
        np.float64(sigma), found,
    )  # fmt: skip
    commands.launch(kernel, (-(-count // THREADS),), (THREADS,), given)
    flags: NDArray[np.uint8] = commands.download(found)
    commands.run()
    return flags.view(np.uint32)
