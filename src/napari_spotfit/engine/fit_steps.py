"""Fits around positions in a block of frames, step by step: on GPUs, and of large ROIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host
from ..images.frames import inside
from ..images.pixel_calibration import Planes
from .block import Block, Positions, in_order, outside
from .fit_job import FitJob
from .quality.verdicts import Origin, judge_in_image
from .rois import rois_around


def fit_in_steps(
    fit_rois: Callable[..., dict[str, Any]],
    lost_pixels: Callable[..., Any],
    frames: Any,
    job: FitJob,
    block: Block,
    positions: Positions,
) -> dict[str, NDArray[Any]]:
    """Fit the ROIs around positions by a backend's functions; return columns in image pixels.

    Parameters
    ----------
    fit_rois, lost_pixels : callable
        Fit ROIs, and find their pixels that do not count.
    frames : Any
        The block's frames where these functions read them.
    job, block, positions
        As :meth:`~.backend.Backend.fit` takes them.
    """
    settings, roi_shape, frame_shape = job.settings, job.roi_shape, block.frame_shape
    yx, parameters = positions.yx, len(job.model.shape)
    rois = rois_around(positions.frames, yx, frame_shape, roi_shape, parameters)
    # As the backend has them.
    there, places_there = rois.corners, yx
    if block.first_row:
        there, places_there = there - (0, block.first_row, 0), yx - (block.first_row, 0)
    known: dict[str, Any] = {}
    if block.highest is not None:
        known = {"highest": block.highest, "level": block.level}
    if block.pixels is not block.taken:
        known["taken"] = block.taken
    if job.detection is not None and job.detection.sigma is not None:
        known["detection"] = job.detection
    lost = lost_pixels(frames, there, roi_shape, job.threads, **known)
    columns = fit_rois(
        frames, there, roi_shape, settings, rois.start, planes=beside(frames, block.planes),
        variance_map=beside(frames, block.variances), lost=lost.all(),
        places=places_there if job.masks_neighbours else None,
    )  # fmt: skip
    origin = Origin(rois.corners, yx, frame_shape, job.sigma, block.bad, lost.saturated, lost.bad)
    judge_in_image(columns, settings, origin)
    return columns


def fit_inside(
    fit: Callable[[Block, Positions], dict[str, Any]],
    job: FitJob,
    block: Block,
    positions: Positions,
) -> dict[str, NDArray[Any]]:
    """Fit at positions, of which those of a single frame may lie outside of it."""
    if positions.frame is not None:
        return fit(block, positions)
    there = inside(positions.yx, block.pixels.shape[1:])
    if there.all():
        return fit(block, positions)
    columns = fit(block, Positions(positions.yx[there]))
    others = outside(int((~there).sum()), job.settings)
    order = np.argsort(there, kind="stable")
    return {name: in_order([others[name], column], order) for name, column in columns.items()}


def beside(frames: Any, planes: Planes | None) -> Planes | None:
    """Return what is known of the pixels in the host's memory if the frames are there."""
    if planes is None or not isinstance(frames, np.ndarray):
        return planes
    return Planes(to_host(planes.values))
