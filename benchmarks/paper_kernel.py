"""The paper's own design, a thread per pixel, on the GPU (see paper_kernel.cu)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from napari_spotfit.engine.cuda.compile import options, with_includes
from napari_spotfit.models import stopping

FILE = Path(__file__).with_suffix(".cu")
#: Columns of the results, as the kernel writes them.
COLUMNS = ("y", "x", "sigma", "amplitude", "background", "chi_square")


def block_of(rows: int, columns: int) -> int:
    """Return how many threads a spot takes: one per pixel, in whole warps."""
    return -(-rows * columns // 32) * 32


def limits(max_iterations: int = stopping.MAX_ITERATIONS) -> tuple[Any, ...]:
    """Return the kernel's arguments that decide where a fit stops."""
    return (
        np.int32(max_iterations),
        np.float32(stopping.MIN_DELTA),
        np.float32(stopping.MIN_STEP),
    )


def text() -> str:
    """Return the kernel's C++, after our constants that decide where a fit stops."""
    constants = with_includes('#include "stopping.h"\n')
    return f"{constants}using namespace spotfit::SPOTFIT_ISA;\n{FILE.read_text('utf-8')}"


@lru_cache(maxsize=128)
def _kernel(pixel: str, rows: int, columns: int) -> Any:
    import cupy

    module = cupy.RawModule(code=text(), options=options(ROWS=rows, COLUMNS=columns))
    return module.get_function(f"fit_{pixel}")


def fit(spots: Any, start: Any) -> dict[str, Any]:
    """Fit cut-outs (n, rows, columns) on the device from start values (n, 3): y, x and σ.

    Both are C-contiguous CuPy arrays, uint16 or float32 and float32; so are the columns
    that are returned, once the current stream gets there.
    """
    import cupy

    count, rows, columns = spots.shape
    results = cupy.empty((len(COLUMNS), count), np.float32)
    iterations = cupy.empty(count, np.uint16)
    stop = cupy.empty(count, np.uint8)
    _kernel(spots.dtype.name, rows, columns)(
        (count,), (block_of(rows, columns),),
        (spots, start, np.int32(count), *limits(), results, iterations, stop),
    )  # fmt: skip
    named = dict(zip(COLUMNS, results, strict=True))
    return named | {"iterations": iterations, "stop_condition": stop}
