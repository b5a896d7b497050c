"""Which pixels of one ROI its fit excludes, and why."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host, to_native
from ..images.frames import inside
from .block import Block, Positions
from .fit_job import FitJob
from .lost_pixels import lost_pixels
from .own_pixels import Lost, Spots
from .rois import rois_around

Mask = NDArray[np.bool_]


class ExcludedPixels(NamedTuple):
    """Pixels of a ROI that its fit excludes, each under one reason."""

    #: First row and first column of the ROI.
    corner: tuple[int, int]
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
    corner: tuple[int, int] | None = None,
    bad: Mask | None = None,
) -> ExcludedPixels:
    """Return the pixels of the ROI around the first of some positions that its fit excludes.

    Parameters
    ----------
    job, block, positions
        As :meth:`~.backend.Backend.fit` takes them; one frame, and all of its positions.
    corner : (int, int), optional
        First row and first column of the ROI, if they are known.
    bad : ndarray of bool, optional
        Which pixels of the ROI are bad, if that is known of no others.
    """
    pixels, taken = (to_native(to_host(frames)) for frames in (block.pixels, block.taken))
    shape, yx = job.roi_shape, np.ascontiguousarray(positions.yx, float)
    # A position outside of the frame is nobody's neighbour.
    yx = yx[inside(yx, pixels.shape[1:])]
    positions = Positions(yx)
    rois = rois_around(positions.frames, yx, pixels.shape[1:], shape, len(job.model.shape))
    first = (int(rois.corners[0, 1]), int(rois.corners[0, 2])) if corner is None else corner
    corners = np.array([[0, *first]], np.int64)
    bad = _bad(job, block, first) if bad is None else bad
    bad = bad | ~np.isfinite(pixels[0][_at(first, shape)])
    known = None if job.detection is None or job.detection.sigma is None else job.detection
    lost = lost_pixels(pixels, corners, shape, 1, detection=known, taken=taken)
    found = [bad]
    for one in (lost.saturated, lost.padding, lost.lone, _of_others(job, corners, yx, taken)):
        mask = np.zeros(shape, bool) if one is None else one.pixels[0]
        found.append(mask & ~np.logical_or.reduce(found))
    bad, saturated, padding, hot, neighbour = found
    return ExcludedPixels(first, bad, saturated, hot, padding, neighbour)


def _at(first: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + side) for begin, side in zip(first, shape, strict=True))


def _bad(job: FitJob, block: Block, first: tuple[int, int]) -> Mask:
    """Return which pixels of a ROI the caller excludes, as bad or by their weights."""
    bad, here = np.zeros(job.roi_shape, bool), _at(first, job.roi_shape)
    if block.bad is not None:
        bad |= np.asarray(to_host(block.bad)[0])[here]
    if block.planes is not None:
        values = np.asarray(to_host(block.planes.values)[0])[here]
        is_variance = job.settings.estimator_kind.is_likelihood
        bad |= np.isnan(values) if is_variance else values == 0
    return bad


def _of_others(
    job: FitJob, corners: NDArray[np.int64], yx: NDArray[np.float64], frames: NDArray[np.generic]
) -> Lost | None:
    """Return the pixels that are nearer to other positions than the first."""
    if not job.masks_neighbours or len(yx) < 2:
        return None
    spots = Spots(np.repeat(corners, len(yx), axis=0), yx, job.roi_shape, (1, *frames.shape[1:]))
    rois = np.array([0])
    return Lost(rois, spots.own_pixels(rois) == 0)
