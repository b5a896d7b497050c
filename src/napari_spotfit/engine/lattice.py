"""Measured PSFs for the kernels: the coefficients that ROIs of a size may reach, and start values."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.measured_psf import MeasuredPsf
from .cpu.layouts import PsfLattice, PsfTemplate
from .kernel_arguments import address

#: Places along z where a search may begin: how far apart in nm at most, and how many.
_STEP, _FEWEST, _MOST = 100.0, 8, 16
#: How far the middle of the light is from the centre, in pixels, before searches begin there too.
_OFF = 1.0
#: Numbers behind the coefficients that vectors may read.
_SLACK = 64


class EncodedPsf(NamedTuple):
    """A measured PSF for ROIs of one size, as the kernels take it."""

    coefficients: NDArray[np.float32]
    templates: NDArray[np.void]
    program: PsfLattice
    #: Memory that it needs on a CPU, in lanes.
    lanes: int


@lru_cache(maxsize=16)
def encode(psf: MeasuredPsf, roi_shape: tuple[int, ...], lane_width: int) -> EncodedPsf:
    """Return a PSF for ROIs of one size.

    Parameters
    ----------
    psf : MeasuredPsf
        The PSF.
    roi_shape : (int, int)
        Rows and columns of the ROIs. A centre may lie anywhere in them.
    lane_width : int
        How many fits a CPU works on side by side.
    """
    own, centers = psf.coefficients / np.float32(psf.height), []
    for axis, center, size in ((1, psf.y, roi_shape[0]), (2, psf.x, roi_shape[1])):
        before = size - int(center)
        places = np.arange(2 * size + 5) - before
        own = own.take(np.clip(places, 0, own.shape[axis] - 1), axis)
        centers.append(center + before)
    planes, rows, columns = own.shape
    coefficients = np.concatenate([own.ravel(), np.zeros(_SLACK, np.float32)])
    templates = _templates(psf)
    program = PsfLattice(
        address(coefficients), planes, rows, columns, columns, rows * columns,
        centers[1], centers[0], psf.plane, 1 / psf.nm_per_plane, 1 / psf.height,
        address(templates), len(templates),
    )  # fmt: skip
    nodes = -(-(roi_shape[1] + 3) // lane_width) * lane_width
    return EncodedPsf(coefficients, templates, program, 13 * nodes)


def _templates(psf: MeasuredPsf) -> NDArray[np.void]:
    """Return where searches may begin, and where the light is brightest there."""
    low, high = psf.z_range
    count = int(np.clip(np.ceil((high - low) / _STEP), _FEWEST, _MOST))
    reach = psf.roi_size // 2
    y, x = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    templates = np.zeros(count, np.dtype(PsfTemplate))
    templates["z"] = low + (np.arange(count) + 0.5) * (high - low) / count
    for template in templates:
        plane = np.pad(psf.sample(template["z"], y, x), 1)
        windows = np.lib.stride_tricks.sliding_window_view(plane, (3, 3)).sum(axis=(2, 3))
        row, column = np.unravel_index(windows.argmax(), windows.shape)
        if max(abs(row - reach), abs(column - reach)) > _OFF:
            template["y"], template["x"] = row - reach, column - reach
    return templates
