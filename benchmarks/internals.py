"""The private names of the engine that benchmarks use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets of this processor, the widest last."""
    from napari_spotfit.engine.cpu.library import load

    return tuple(load().instruction_sets)


def library() -> str:
    """Return version and instruction set of the compiled library."""
    from napari_spotfit.engine.cpu.library import load

    return str(load().description)


class LibraryCall:
    """A prepared call of the compiled library."""

    def __init__(self, spots: np.ndarray, settings: Any) -> None:
        from napari_spotfit.engine.cpu.fit_kind import fit_kind
        from napari_spotfit.engine.cpu.layouts import HostRois
        from napari_spotfit.engine.kernel_arguments import (
            PIXEL_TYPES,
            address,
            fit_results,
            frame_sizes,
            row_bytes,
            shape_of_roi,
        )

        count, rows, columns = spots.shape
        kind = fit_kind(settings, (rows, columns), False)
        memory = np.empty(row_bytes(settings) * count, np.uint8)
        work = np.empty(kind.work_bytes, np.uint8)
        source = HostRois(
            address(spots), **frame_sizes((rows, columns)), pixel_type=PIXEL_TYPES["u2"]
        )
        results = fit_results(address(memory), count, settings)
        roi = shape_of_roi((rows, columns))
        self._kept = spots, memory, work, source, roi, results
        self._call = kind.library.functions.spotfit_fit
        self._arguments = (
            kind.library.index, kind.profile, kind.estimator, ctypes.byref(source), 0, count,
            ctypes.byref(roi), ctypes.byref(kind.numbers), address(work), ctypes.byref(results),
        )  # fmt: skip

    def __call__(self) -> None:
        self._call(*self._arguments)


def layer_files(fits: Any, path: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return functions that save fits as napari saves their layer, and open the file."""
    from napari_spotfit import to_points_layer
    from napari_spotfit.widgets.saved_layers import (
        attributes_of,
        read_layer,
        write_csv,
        write_parquet,
    )

    layer = to_points_layer(fits)
    write = write_parquet if path.endswith("parquet") else write_csv
    return partial(write, path, layer.data, attributes_of(layer)), partial(read_layer, path)
