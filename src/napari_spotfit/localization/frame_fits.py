"""Fits at places of single frames, one after the other, by what is known of all of them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.select import select_backend, stays_on_cpu
from ..images.frames import as_array, check_real, is_on_device, to_host
from ..images.pixel_calibration import PixelCalibration
from ..results.spot_fits import SpotFits
from .estimates import for_detection
from .rois import equivalent_fits, fit_block, in_order, outside, upload

_FIRST = np.zeros(1, np.int64)


class FrameFits:
    """Fits at places of frames of one shape.

    Parameters
    ----------
    calibration : PixelCalibration
        What is known of the pixels of a frame, with all that is estimated.
    """

    def __init__(self, calibration: PixelCalibration) -> None:
        self.calibration = calibration
        self._detection, _ = for_detection(calibration)
        self._backends: dict[bool, Any] = {}

    def fit(self, pixels: Any, places: NDArray[np.float64]) -> SpotFits:
        """Return the fits around places.

        Parameters
        ----------
        pixels : array, shape (1, Y, X)
            A frame as backends read it.
        places : ndarray of float64, shape (n, 2)
            y and x in pixels.
        """
        calibration, settings = self.calibration, self.calibration.settings
        backend = self._backend(pixels, len(places))
        size = np.array(pixels.shape[1:])
        with np.errstate(invalid="ignore"):
            there = ((places >= -0.5) & (places <= size - 0.5)).all(axis=1)
        known = places if there.all() else places[there]
        block = upload(backend, calibration, _FIRST, pixels)
        columns = fit_block(
            backend, block, calibration, np.zeros(len(known), np.int64), known, settings.sigma,
            self._detection,
        )  # fmt: skip
        if known is not places:
            order = np.argsort(there, kind="stable")
            others = outside(len(places) - len(known), calibration.fitted)
            columns = {
                name: in_order([others[name], column], order) for name, column in columns.items()
            }
        return SpotFits(columns, (), settings)

    def _backend(self, pixels: Any, count: int) -> Any:
        settings = self.calibration.settings
        fits = None if is_on_device(pixels) else equivalent_fits(count, settings.roi_shape)
        on_cpu = stays_on_cpu(settings, fits)
        if on_cpu not in self._backends:
            self._backends[on_cpu] = select_backend(settings, fits)
        return self._backends[on_cpu]


def checked_places(centers: ArrayLike, axes: int) -> NDArray[np.float64]:
    """Return places in an image of so many axes, or raise an error that says what is accepted."""
    places = to_host(as_array(centers))
    if places.dtype == np.float64 and places.ndim == 2 and places.shape[1] == axes:
        known: NDArray[np.float64] = places
        return known
    if places.shape == (0,):
        places = np.empty((0, axes))
    if places.dtype == object:  # numbers, perhaps, as of a table whose columns have several types
        with contextlib.suppress(TypeError, ValueError):
            places = places.astype(float)
    check_real(places.dtype, "centers")
    if places.ndim != 2 or places.shape[1] != axes:
        raise ValueError(
            f"centers must have the shape (n, {axes}), one column per axis of the image; "
            f"got {places.shape}"
        )
    return np.asarray(places, float)
