"""Which ROIs are suspected of pixels that were saturated, or that are no data; most often none."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import is_on_device
from ..settings.validation import ROI_MAX
from . import threads
from .c_types import fields
from .cpu.interface import PIXEL_TYPES
from .cpu.library import load
from .kernel_arguments import address

#: What a ROI is suspected of, as kernels/flat_areas.h has it.
TOP, GROUND = 1, 2
#: ROIs of a thread's share.
_SHARE = 1 << 14


class FlatTops(ctypes.Structure):
    """What makes the highest pixels suspect, as kernels/flat_areas.h explains it."""

    _fields_ = fields("double largest least", "int count")


def flat_areas(
    frames: Any,
    corners: NDArray[np.int64],
    roi_shape: tuple[int, int],
    tops: FlatTops,
    workers: int | None,
) -> NDArray[np.uint8]:
    """Return what each ROI of frames, wherever these lie, is suspected of."""
    if is_on_device(frames):
        if max(roi_shape) > ROI_MAX:  # a thread would look at each for long
            return np.where(corners[:, 0] >= 0, np.uint8(TOP | GROUND), np.uint8(0))
        from .cuda.flat_areas import flat_areas_there

        return flat_areas_there(frames, corners, roi_shape, tops)
    found, library = np.zeros(len(corners), np.uint8), load()

    def work(first: int, last: int) -> None:
        library.functions.spotfit_find_flat_areas(
            library.index, address(frames), PIXEL_TYPES[frames.dtype.str[1:]], *frames.shape[1:],
            address(corners), first, last, *roi_shape, ctypes.byref(tops), address(found),
        )  # fmt: skip

    threads.in_pieces(work, len(corners), _SHARE, workers)
    return found
