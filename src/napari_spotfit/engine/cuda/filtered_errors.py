"""Standard errors of filtered images on the GPU, where the fits lie."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from .compile import as_argument, kernel

#: Threads of a block.
THREADS = 256


def correct_errors(
    noise: ctypes.Structure,
    columns: ctypes.Structure,
    count: int,
    kernel: Callable[..., Callable[..., None]] = kernel,
) -> None:
    """Correct the errors of so many fits on CuPy's current stream.

    Parameters
    ----------
    noise, columns : ctypes.Structure
        FilteredNoise and ErrorColumns, as kernels/filtered_errors.h declares them.
    count : int
        Number of fits.
    kernel : callable
        Returns a kernel by its file and name.
    """
    if not count:
        return
    correct = kernel("cuda/filtered_errors.cu", "correct_errors_of_fits", THREADS=THREADS)
    given = as_argument(noise), as_argument(columns), np.int64(count)
    correct((-(-count // THREADS),), (THREADS,), given)
