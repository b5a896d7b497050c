"""Fits at places of single frames, one after the other, by what is known of all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.backend import Backend
from ..engine.block import fit_block, upload
from ..engine.choice import worth_for_fits
from ..engine.quality.verdicts import ImageVerdicts, Origin
from ..engine.select import select_backend
from ..estimation.estimates import for_detection
from ..images.arrays import as_array, check_real, is_on_device, to_host
from ..images.frames import inside
from ..images.pixel_calibration import PixelCalibration
from .prepared import prepared
from .rois import in_order, outside

_FIRST = np.zeros(1, np.int64)


class FrameFits:
    """Fits at places of frames of one shape.

    Parameters
    ----------
    calibration : PixelCalibration
        What is known of the pixels of a frame, with all that is estimated.
    """

    def __init__(self, calibration: PixelCalibration) -> None:
        self._detection, _ = for_detection(calibration)
        #: What fits few places, and by which backend.
        self._few: tuple[Backend, Callable[..., Any]] | None = None
        self._columns: dict[str, NDArray[Any]] | None = None
        self.begin(calibration)

    def begin(self, calibration: PixelCalibration) -> None:
        """Begin another run, with a calibration that says the same: its counts are looked at."""
        self.calibration = calibration
        self._backends: dict[bool, Backend] = {}

    def fit(
        self, backend: Backend, pixels: Any, places: NDArray[np.float64]
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of fits around places, which the next call may overwrite.

        Parameters
        ----------
        backend : Backend
            What makes them, of :meth:`backend`.
        pixels : array, shape (1, Y, X)
            A frame as backends read it.
        places : ndarray of float64, shape (n, 2)
            y and x in pixels.
        """
        if not is_on_device(pixels):
            columns = self._fit_few(backend, pixels, places)
            if columns is not None:
                return columns
        return self._fit_any(backend, pixels, places)

    def backend(self, pixels: Any, count: int) -> Backend:
        """Return what makes so many fits in a frame."""
        settings = self.calibration.settings
        worth = is_on_device(pixels) or worth_for_fits(
            settings, count, settings.roi_shape, weighted=self.calibration.is_weighted
        )
        if worth not in self._backends:
            self._backends[worth] = select_backend(settings, worth)
        return self._backends[worth]

    def _fit_few(
        self, backend: Backend, taken: Any, places: NDArray[np.float64]
    ) -> dict[str, NDArray[Any]] | None:
        """Fit few ROIs without further ado; None if there is more to it."""
        calibration, settings = self.calibration, self.calibration.fitted
        pixels = calibration.corrected(_FIRST, taken, mark_bad=True)
        if self._few is None or self._few[0] is not backend:
            self._few = backend, backend.prepare_places(
                settings, self._detection, pixels.shape[1:], calibration.planes(_FIRST, pixels),
                calibration.variances(_FIRST, pixels),
            )  # fmt: skip
        placed = self._few[1](pixels, taken, places)
        if placed is None:
            return None
        columns: dict[str, NDArray[Any]] = placed.columns
        corners = placed.corners
        calibration.check_counts(pixels, corners)
        if columns is not self._columns:
            self._columns, self._verdicts = columns, ImageVerdicts(columns, settings)
        shape, sigma = pixels.shape[1:], self.calibration.settings.sigma
        bad = calibration.bad_pixels(_FIRST)
        self._verdicts.judge(Origin(corners, places, shape, sigma, bad, None, placed.lone))
        return columns

    def _fit_any(
        self, backend: Backend, pixels: Any, places: NDArray[np.float64]
    ) -> dict[str, NDArray[Any]]:
        """Fit ROIs as those of any image are fitted."""
        calibration = self.calibration
        there = inside(places, pixels.shape[1:])
        known = places if there.all() else places[there]
        columns = fit_block(
            backend, upload(backend, calibration, _FIRST, pixels), calibration,
            np.zeros(len(known), np.int64), known, calibration.settings.sigma, self._detection,
        )  # fmt: skip
        if known is places:
            return columns
        others = outside(len(places) - len(known), calibration.fitted)
        order = np.argsort(there, kind="stable")
        return {name: in_order([others[name], column], order) for name, column in columns.items()}


def in_frame(
    calibration: PixelCalibration, pixels: Any, places: NDArray[np.float64]
) -> tuple[dict[str, NDArray[Any]], Backend]:
    """Return fits at places of one frame, in memory of their own, and what has made them."""
    if calibration.has_maps:
        fits = FrameFits(calibration)
        backend = fits.backend(pixels, len(places))
        return fits.fit(backend, pixels, places), backend

    def prepare() -> FrameFits:
        return FrameFits(calibration)

    kind = calibration.settings, pixels.shape, pixels.dtype
    with prepared(FrameFits, prepare, *kind) as fits:
        fits.begin(calibration)
        backend = fits.backend(pixels, len(places))
        found = fits.fit(backend, pixels, places)
        columns = {name: column.copy() for name, column in found.items()}
    return columns, backend


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
