"""Correct standard errors for filtered images on the GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..cpu.layouts import ErrorColumns, FilteredNoise
from .compile import as_argument, kernel

#: Threads of a block.
THREADS = 256


def correct_errors(
    noise: FilteredNoise,
    columns: ErrorColumns,
    count: int,
    kernel: Callable[..., Callable[..., None]] = kernel,
) -> None:
    """Correct the errors of fits on the device, on CuPy's current stream.

    Parameters
    ----------
    noise : FilteredNoise
        The effect of the filter on errors.
    columns : ErrorColumns
        Addresses of the columns.
    count : int
        Number of fits.
    kernel : callable
        Returns a kernel by file and name.
    """
    if not count:
        return
    correct = kernel("cuda/filtered_errors.cu", "correct_errors_of_fits", THREADS=THREADS)
    given = as_argument(noise), as_argument(columns), np.int64(count)
    correct((-(-count // THREADS),), (THREADS,), given)
