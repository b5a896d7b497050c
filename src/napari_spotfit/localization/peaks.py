"""The maxima of a filtered image: the one near a place, and how much all stand out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.detection.band import WIDTHS, kernel_radius
from ..estimation.estimates import estimated
from ..images.camera import Camera
from ..images.frames import FrameReader, HeldFrame
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
    """Return where the detection finds the brightest spot within half a ROI of a place.

    A fit there is the fit of :func:`~napari_spotfit.localize`. Where it finds none, it is the
    brightest maximum of the filtered frame.

    Parameters
    ----------
    held : HeldFrame
        The frame.
    place : array, shape (2,)
        y and x in pixels.
    settings : Settings
        Those of the detection, and the ROI's size.
    bad_pixels, camera : optional
        As :func:`~napari_spotfit.detect_spots` takes them.

    Returns
    -------
    ndarray of float64, shape (2,)
        y and x of the pixel; the place itself where there is no maximum at all.
    """
    place = np.asarray(place, float)
    calibration = detection_calibration(held.shape, settings, bad_pixels, camera)
    settings = estimated(FrameReader(held), calibration).settings
    reach = np.array(settings.roi_shape) / 2
    margin = 2 * kernel_radius(WIDTHS[-1] * settings.known_sigma) + 2
    margin += math.ceil(settings.min_distance)
    size = np.minimum(2 * np.ceil(reach + margin).astype(int) + 1, held.pixels.shape)
    corner = np.clip(np.rint(place).astype(int) - size // 2, 0, held.pixels.shape - size)
    rows, columns = (slice(first, first + n) for first, n in zip(corner, size, strict=True))
    settings = settings.changed(backend="cpu", threads=1)
    frame = calibration.corrected(np.array([held.number]), held.pixels[np.newaxis], mark_bad=True)
    for own in (settings, settings.changed(threshold=0.0)):
        places, found = find(frame[0][rows, columns], own)
        distance = (places + corner - place) / reach
        near = np.flatnonzero((distance**2).sum(axis=1) <= 1)
        if len(near):
            brightest: NDArray[np.float64] = places[near[np.argmax(found.height[near])]] + corner
            return brightest
    return place


#: So many false spots are expected in 10⁶ pixels where all maxima are asked for.
_ALL = 20_000.0


def peak_heights(image: Any, settings: Settings, **where: Any) -> NDArray[np.float32]:
    """Return how much maxima stand out, in the unit of the threshold.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        As :func:`~napari_spotfit.detect_spots` takes it.
    settings : Settings
        Those of the detection; with a threshold heights are asked for, whatever it is.
    **where
        Its ``frames``, ``mask``, ``bad_pixels`` and ``camera``.

    Returns
    -------
    ndarray of float32, shape (n,)
        Scores, those of noise among them; with a threshold heights, in counts.
    """
    if settings.threshold is None:
        return find(image, settings.changed(false_spots=_ALL), **where)[1].score
    return find(image, settings.changed(threshold=0.0), **where)[1].height
