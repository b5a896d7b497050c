"""Which pixels of one ROI its fit excludes, and why."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host, to_native
from ..images.frames import inside
from .block import Block, Positions
from .cpu.block_fits import CpuFitter
from .cpu.layouts import HOT_PIXEL, NEIGHBOUR_PIXEL, PADDING_PIXEL, SATURATED_PIXEL
from .cpu.library import load
from .fit_job import FitJob

Mask = NDArray[np.bool_]


class ExcludedPixels(NamedTuple):
    """Pixels of a ROI that its fit excludes, each under one reason."""

    #: First row and first column of the ROI, before these of a volume its first plane.
    corner: tuple[int, ...]
    #: Of the shape of the ROI: named bad by the caller, of weight 0, or no number; at the end of
    #: the camera's range; far above or below all around them; without data; nearer to another spot.
    bad: Mask
    saturated: Mask
    hot: Mask
    padding: Mask
    neighbour: Mask

    @property
    def pixels(self) -> Mask:
        """All of them."""
        return self.bad | self.saturated | self.hot | self.padding | self.neighbour


def excluded_pixels(
    job: FitJob,
    block: Block,
    positions: Positions,
    corner: tuple[int, ...] | None = None,
    bad: Mask | None = None,
) -> ExcludedPixels:
    """Return the pixels of the ROI around the first of some positions that its fit excludes.

    Parameters
    ----------
    job, block, positions
        As :meth:`~.backend.Backend.fit` takes them; one frame, and all of its positions.
    corner : tuple of int, optional
        First pixel of the ROI along each axis, if it is known.
    bad : ndarray of bool, optional
        Which pixels of the ROI are bad, if that is known of no others.
    """
    pixels, taken = (to_native(to_host(frames)) for frames in (block.pixels, block.taken))
    shape, places = job.roi_shape, np.ascontiguousarray(positions.places, float)
    # A position outside of the frame is no neighbour.
    places = places[inside(places, pixels.shape[1:])]
    if corner is not None and not len(places):
        places = np.array([corner], float)
    known = Block(pixels, taken)
    given = None if corner is None else np.array([[0, *corner]])
    corners, all_reasons = CpuFitter(load(), job).explain(known, Positions(places), given)
    first, reasons = tuple(corners[0, 1:].tolist()), all_reasons[0]
    bad = _bad(job, block, first) if bad is None else bad
    found = [bad | ~np.isfinite(pixels[0][_at(first, shape)])]
    for reason in (SATURATED_PIXEL, PADDING_PIXEL, HOT_PIXEL, NEIGHBOUR_PIXEL):
        found.append(((reasons & reason) != 0) & ~np.logical_or.reduce(found))
    bad, saturated, padding, hot, neighbour = found
    return ExcludedPixels(first, bad, saturated, hot, padding, neighbour)


def _at(first: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + side) for begin, side in zip(first, shape, strict=True))


def _bad(job: FitJob, block: Block, first: tuple[int, ...]) -> Mask:
    """Return which pixels of a ROI the caller excludes, as bad or by their weights."""
    bad, here = np.zeros(job.roi_shape, bool), _at(first, job.roi_shape)
    if block.bad is not None:
        bad |= np.asarray(to_host(block.bad)[0])[here]
    if block.planes is not None:
        values = np.asarray(to_host(block.planes.values)[0])[here]
        is_variance = job.settings.estimator_kind.is_likelihood
        bad |= np.isnan(values) if is_variance else values == 0
    return bad
