"""The GPU's kernels of large ROIs on the host, with fibers as threads."""

from __future__ import annotations

import numpy as np
import on_host

from napari_spotfit.engine.cpu.layouts import LargePixels
from napari_spotfit.engine.cuda import large_rois


def machine(settings, pixel):
    """Return a Machine for arrays of the host."""
    return large_rois.Machine(settings, pixel, _launch, lambda count: np.full(count, np.nan))


def pixels(frames, planes=None, variances=None):
    """Return the pixels of a frame as one ROI."""
    arrays = (None if array is None else array.ctypes.data for array in (frames, planes, variances))
    return LargePixels(*arrays, frames.shape[-1])


def _launch(text, name, warps, *arguments):
    blocks = -(-warps * large_rois.WARP // large_rois.THREADS)
    on_host.launch(text, name, (blocks,), (large_rois.THREADS,), arguments)
