"""The maxima of a filtered image: the one near a place, and the heights of all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.detection.band import RATIO, kernel_radius
from ..images.camera import Camera
from ..images.frames import HeldFrame
from ..images.pixel_calibration import detection_calibration
from ..settings.settings import Settings
from .detect_spots import find


def peak_near(
    held: HeldFrame,
    place: ArrayLike,
    settings: Settings,
    *,
    bad_pixels: Any = None,
    camera: Camera | None = None,
) -> NDArray[np.float64]:
    """Return the brightest maximum of the filtered frame within half a ROI of a place.

    It is the pixel on which the detection finds the spot, so that a fit there is the fit
    of :func:`~napari_spotfit.localize`.

    Parameters
    ----------
    held : HeldFrame
        The frame.
    place : array, shape (2,)
        y and x in pixels.
    settings : Settings
        ``sigma``, ``min_distance`` and the ROI's size count; the threshold does not.
    bad_pixels, camera : optional
        As :func:`~napari_spotfit.detect_spots` takes them.

    Returns
    -------
    ndarray of float64, shape (2,)
        y and x of the pixel; the place itself where there is no maximum.
    """
    place = np.asarray(place, float)
    reach = np.array(settings.roi_shape) / 2
    margin = kernel_radius(RATIO * settings.sigma) + math.ceil(settings.min_distance) + 2
    size = np.minimum(2 * np.ceil(reach + margin).astype(int) + 1, held.pixels.shape)
    corner = np.clip(np.rint(place).astype(int) - size // 2, 0, held.pixels.shape - size)
    rows, columns = (slice(first, first + n) for first, n in zip(corner, size, strict=True))
    every = settings.changed(threshold=0.0, backend="cpu", threads=1)
    calibration = detection_calibration(held.shape, settings, bad_pixels, camera)
    frame = calibration.corrected(np.array([held.number]), held.pixels[np.newaxis], mark_bad=True)[
        0
    ]
    places, found = find(frame[rows, columns], every)
    distance = (places + corner - place) / reach
    near = np.flatnonzero((distance**2).sum(axis=1) <= 1)
    return places[near[np.argmax(found.height[near])]] + corner if len(near) else place


def peak_heights(image: Any, settings: Settings, **where: Any) -> NDArray[np.float32]:
    """Return the height of every maximum, in the unit of the threshold.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        As :func:`~napari_spotfit.detect_spots` takes it.
    settings : Settings
        Those of the detection; the threshold itself does not count, its unit does.
    **where
        Its ``frames``, ``mask``, ``bad_pixels`` and ``camera``.

    Returns
    -------
    ndarray of float32, shape (n,)
        Multiples of the noise, or counts. Those above the threshold are the spots
        that are detected with it.
    """
    _, found = find(image, settings.changed(threshold=0.0), **where)
    return found.score if settings.threshold_unit == "noise" else found.height
