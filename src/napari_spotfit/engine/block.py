"""Fits of the ROIs around positions in a block of frames, from pixels to judged columns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host
from ..images.pixel_calibration import PixelCalibration, Planes
from ..settings.settings import Settings
from .backend import Backend
from .quality.verdicts import Origin, judge_in_image
from .rois import rois_around
from .saturation import Highest


class Block(NamedTuple):
    """Some frames on the way to their fits."""

    #: Where the backend reads them, and where they came from.
    frames: Any
    pixels: Any
    planes: Planes | None
    #: Read-out variances, for the standard errors.
    variances: Planes | None
    #: As the camera took them, and which of their pixels are bad.
    taken: Any
    bad: Any
    #: What there is to know of the light of a frame that there is a part of, and its level.
    highest: Highest | None = None
    level: float | None = None
    #: The row of the image with which the backend's frames, and the planes, begin.
    first_row: int = 0


def upload(
    backend: Backend,
    calibration: PixelCalibration,
    numbers: NDArray[np.int64],
    pixels: Any,
) -> Block:
    """Take frames, corrected, to where the backend reads them, with what is known of them.

    Bad pixels are NaN there, so that neither spots nor lone pixels are found beside them.

    Parameters
    ----------
    backend : Backend
        Where to.
    calibration : PixelCalibration
        What is known of the pixels.
    numbers : ndarray of int
        The frames' numbers.
    pixels : array, shape (n, Y, X)
        The frames.
    """
    planes, variances = calibration.planes(numbers, pixels), calibration.variances(numbers, pixels)
    taken, bad = pixels, calibration.bad_pixels(numbers)
    pixels = calibration.corrected(numbers, pixels, mark_bad=True)
    frames = backend.upload(pixels)
    known = beside(frames, planes), beside(frames, variances)
    return Block(frames, pixels, *known, taken, bad)


def beside(frames: Any, planes: Planes | None) -> Planes | None:
    """Return what is known of the pixels in the host's memory if uploaded frames are there."""
    if planes is None or not isinstance(frames, np.ndarray):
        return planes
    return Planes(to_host(planes.values))


def fit_block(
    backend: Backend,
    block: Block,
    calibration: PixelCalibration,
    frame: NDArray[Any],
    places: NDArray[np.float64],
    sigma: float | None,
    detection: Settings | None = None,
) -> dict[str, NDArray[Any]]:
    """Fit the ROIs around places (y, x) in frames of a block; return columns in image pixels.

    The frames are in rising order, and the places of one frame are all there. The PSF's σ, where
    it is known, is what the fits are judged by. Lone pixels are left out by the settings of
    detection; without, or where these know no σ, they count.
    """
    settings, frame_shape = calibration.fitted, block.pixels.shape[1:]
    rois = rois_around(frame, places, frame_shape, settings.roi_shape, len(settings.profile.shape))
    corners = rois.corners
    calibration.check_counts(block.pixels, corners)
    # As the backend has them.
    there, places_there = corners, places
    if block.first_row:
        there, places_there = (
            corners - (0, block.first_row, 0),
            places - (block.first_row, 0),
        )
    # Side by side with other blocks, each is worked on by one thread.
    here = settings if backend.workers == 1 else _by_one_thread(settings)
    known: dict[str, Any] = {}
    if block.highest is not None:
        known = {"highest": block.highest, "level": block.level}
    if block.pixels is not block.taken:
        known["taken"] = block.taken
    if detection is not None and detection.sigma is not None:
        known["detection"] = detection
    lost = backend.lost_pixels(block.frames, there, settings.roi_shape, here.threads, **known)
    columns = backend.fit_rois(
        block.frames, there, settings.roi_shape, here, rois.start, planes=block.planes,
        variance_map=block.variances, lost=lost.all(),
        places=places_there if settings.neighbours == "leave out" else None,
    )  # fmt: skip
    origin = Origin(corners, places, frame_shape, sigma, block.bad, lost.saturated, lost.bad)
    judge_in_image(columns, here, origin)
    return columns


@lru_cache(maxsize=16)
def _by_one_thread(settings: Settings) -> Settings:
    return settings.changed(threads=1)
