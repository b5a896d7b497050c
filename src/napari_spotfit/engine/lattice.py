"""Measured PSFs for the kernels: coefficients as far as ROIs of a size reach, and start values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.lattice import Lattice
from .cpu.layouts import PsfLattice
from .kernel_arguments import address

#: Numbers behind an array that vectors may read.
_SLACK = 64


class EncodedPsf(NamedTuple):
    """A measured PSF for ROIs of one size, as the kernels take it."""

    arrays: tuple[NDArray[Any], ...]
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
    places, images = templates(psf, roi_shape)
    arrays = places, padded(reached.coefficients), images
    nodes = -(-(roi_shape[1] + 3) // lane_width) * lane_width
    return EncodedPsf(arrays, program_of(psf, reached, *arrays), 13 * nodes)


def program_of(
    psf: Lattice, reached: Reached, places: Any, coefficients: Any, images: Any
) -> PsfLattice:
    """Return the constants of a PSF, given its arrays on a CPU or a GPU."""
    planes, rows, columns = reached.coefficients.shape
    return PsfLattice(
        address(coefficients), planes, rows, columns, columns, rows * columns, reached.x, reached.y,
        psf.plane, 1 / psf.nm_per_plane, 1 / psf.height, address(places), address(images),
        len(places), psf.lobes > 0,
    )  # fmt: skip


def templates(
    psf: Lattice, roi_shape: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return where searches may begin: z in nm, and x and y of the light from the centre.

    And images of the PSF at each of these z, of height 1 at most.
    """
    starts = psf.starts
    y, x = (np.arange(-size, size + 1) for size in roi_shape)
    images = psf.sample(starts[:, 0, None, None], y[:, None], x) / psf.height
    places = np.ascontiguousarray(starts[:, [0, 2, 1]], np.float32)
    return places, padded(images.astype(np.float32))


def padded(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return numbers in one line, with those behind them that vectors may read."""
    return np.concatenate([numbers.ravel(), np.zeros(_SLACK, np.float32)])
