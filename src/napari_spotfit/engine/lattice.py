"""Measured PSFs for the kernels: coefficients as far as ROIs of a size reach, and start values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.lattice import Lattice
from .cpu.layouts import PsfLattice, PsfTemplate
from .kernel_arguments import address

#: Numbers behind the coefficients that vectors may read.
_SLACK = 64


class EncodedPsf(NamedTuple):
    """A measured PSF for ROIs of one size, as the kernels take it."""

    coefficients: NDArray[np.float32]
    templates: NDArray[np.void]
    program: PsfLattice
    #: Memory that it needs on a CPU, in lanes.
    lanes: int


class Reached(NamedTuple):
    """The coefficients of a PSF that ROIs of a size may reach, and where its centre is."""

    coefficients: NDArray[np.float32]
    y: float
    x: float

    @classmethod
    def of(cls, psf: Lattice, roi_shape: tuple[int, ...]) -> Reached:
        """Return those of a PSF of height 1; a spot's centre may lie anywhere in the ROI."""
        own: NDArray[Any] = psf.coefficients / np.float32(psf.height)
        centers = []
        for axis, center, size in ((1, psf.y, roi_shape[0]), (2, psf.x, roi_shape[1])):
            before = size - int(center)
            places = np.arange(2 * size + 5) - before
            own = own.take(np.clip(places, 0, own.shape[axis] - 1), axis)
            centers.append(center + before)
        return cls(own, *centers)


@lru_cache(maxsize=16)
def encode(psf: Lattice, roi_shape: tuple[int, ...], lane_width: int) -> EncodedPsf:
    """Return a PSF for ROIs of one size, for a CPU with lanes of this width."""
    reached = Reached.of(psf, roi_shape)
    coefficients = np.concatenate([reached.coefficients.ravel(), np.zeros(_SLACK, np.float32)])
    found = templates(psf)
    program = program_of(psf, reached, address(coefficients), address(found), len(found))
    nodes = -(-(roi_shape[1] + 3) // lane_width) * lane_width
    return EncodedPsf(coefficients, found, program, 13 * nodes)


def program_of(
    psf: Lattice, reached: Reached, coefficients: int, starts: int, count: int
) -> PsfLattice:
    """Return the constants of a PSF, given where coefficients and templates are."""
    planes, rows, columns = reached.coefficients.shape
    return PsfLattice(
        coefficients, planes, rows, columns, columns, rows * columns, reached.x, reached.y,
        psf.plane, 1 / psf.nm_per_plane, 1 / psf.height, starts, count,
    )  # fmt: skip


def templates(psf: Lattice) -> NDArray[np.void]:
    """Return where searches may begin."""
    return np.array([(z, x, y) for z, y, x, _ in psf.starts], np.dtype(PsfTemplate))
