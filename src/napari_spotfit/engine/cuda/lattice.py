"""Upload measured PSFs to a GPU."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ...models.lattice import Lattice
from ..lattice import Reached, program_of, templates
from .compile import as_argument
from .fit_kernel import WARP


class PsfOnDevice(NamedTuple):
    """The constants of a PSF, and the arrays that they refer to."""

    constants: Any
    kept: tuple[Any, ...]


@lru_cache(maxsize=16)
def psf_on_device(psf: Lattice, roi_shape: tuple[int, ...], _device: int) -> PsfOnDevice:
    """Return a PSF for ROIs of one size on the current device, which is `_device`."""
    import cupy

    return laid_out(psf, roi_shape, cupy.asarray)


def laid_out(psf: Lattice, roi_shape: tuple[int, ...], upload: Any) -> PsfOnDevice:
    """Return a PSF in the layout of kernels/cuda/lattice.h, with arrays from ``upload``."""
    reached = Reached.of(psf, roi_shape)
    places, images = templates(psf, roi_shape)
    taps = taps_of(reached.coefficients)
    pixels = 2 * roi_shape[-1] + 1  # of a line of an image
    arrays = (
        upload(places),
        upload(_and_past(taps, taps[0, 0].size)),
        upload(_and_past(images, pixels)),
    )
    numbers = as_argument(program_of(psf, reached, *arrays)).reshape(1).view(np.uint8)
    return PsfOnDevice(upload(numbers), arrays)


def taps_of(coefficients: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each voxel's coefficient and the next ones in z, by planes, rows and columns."""
    return sliding_window_view(coefficients, 4, axis=0)


def _and_past(numbers: NDArray[np.float32], line: int) -> NDArray[np.float32]:
    """Return numbers, and the lines after them that threads with fewer lines read in vain."""
    return np.concatenate([numbers.ravel(), np.zeros(WARP * line, np.float32)])
