"""Fit ROIs by the library alone, without positions, masks and flags."""

from __future__ import annotations

import ctypes

import numpy as np

from napari_spotfit.engine.cpu.fit_kind import fit_kind
from napari_spotfit.engine.cpu.layouts import HostRois
from napari_spotfit.engine.kernel_arguments import (
    PIXEL_TYPES,
    Results,
    address,
    fit_results,
    frame_sizes,
    pixel_map,
    row_bytes,
    shape_of_roi,
)


def fit_rois(frames, corners, roi_shape, settings, start=None, *, planes=None, variance_map=None):
    """Fit ROIs of any size in frames, like the GPU's function."""
    count = len(frames) if corners is None else len(corners)
    memory = np.empty(row_bytes(settings) * count, np.uint8)
    target = fit_results(address(memory), count, settings)
    kind = fit_kind(settings, roi_shape, planes is not None)
    source = HostRois(
        address(frames), **frame_sizes(frames.shape[1:]), corners=address(corners),
        start=address(start), planes=pixel_map(planes), variance=pixel_map(variance_map),
        constants=ctypes.addressof(kind.encoded.program) if kind.encoded else 0,
        pixel_type=PIXEL_TYPES[frames.dtype.str[1:]],
    )  # fmt: skip
    work = np.empty(kind.work_bytes, np.uint8)
    kind.library.functions.spotfit_fit(
        kind.library.index, kind.profile, kind.estimator, ctypes.byref(source), 0, count,
        ctypes.byref(shape_of_roi(roi_shape)), ctypes.byref(kind.numbers), address(work),
        ctypes.byref(target),
    )  # fmt: skip
    return Results.within(memory, count, settings).columns(settings.profile)
