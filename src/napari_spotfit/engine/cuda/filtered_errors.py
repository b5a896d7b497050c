"""Standard errors of filtered images on the GPU, where the fits lie."""

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
    """Correct the errors of so many fits on CuPy's current stream.

    Parameters
    ----------
    noise : FilteredNoise
        What the filter does to errors.
    columns : ErrorColumns
        Where these are.
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
