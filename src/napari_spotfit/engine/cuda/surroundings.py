"""Flag spots on a GPU by the pixels around them: elongated ones, and those out of focus.

GPU version of the flags that the library sets on the CPU, by the same formulas.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.layouts import VerdictSettings
from .compile import PIXEL_TYPES, Device
from .roi_kernels import SPOT_THREADS


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
