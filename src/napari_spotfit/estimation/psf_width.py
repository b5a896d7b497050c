"""Estimate the width of the PSF from the spots of an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..images.camera import Camera, PerPixel
from ..images.channels import Maps, channel_of
from ..images.frames import FrameReader, FrameSelection
from ..images.pixel_calibration import PixelCalibration, detection_calibration
from ..models.columns import IN_PLANE
from ..settings.optics import expected_widths
from ..settings.options import Options, merged, takes_settings
from ..settings.settings import DEFAULT_FALSE_SPOTS, Settings
from .width_search import TOO_FEW, NoWidthError, PsfWidth, roi_for, samples, width_of

__all__ = ["PsfWidth", "estimate_sigma", "with_psf"]

#: Used where it cannot be estimated from an image.
FALLBACK_SIGMA = 1.3


@takes_settings("detection", "camera", "run")
def estimate_sigma(
    image: Any,
    *,
    frames: FrameSelection = None,
    channel: int | str | None = None,
    mask: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> PsfWidth:
    """Estimate the PSF's width by fits of bright spots.

    It is the width that the round Gaussian has in the fits: that of the light with
    ``pixel="integrated"``, and with the default, ``"sampled"``, √(σ² + 1/12 px²) of it, as pixels
    widen what they sample. Spots that stand alone show it or, in a crowd, fits that leave out the
    pixels of neighbours. Those that are not good or are of several spots do not count.

    It is measured in frames evenly spread over the image: as many as make a quarter of a million
    pixels or, of a larger frame, its middle. Where 30 such spots do not show it to within 1 %
    there, in as many as make a million and, where these show fewer than 30, 4 million.

    Parameters
    ----------
    image : array, shape (…, Y, X), or path
        NumPy, CuPy, Dask or Zarr array of any real number type, or an image file, see
        :func:`~napari_spotfit.open_image`.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames to choose from; by default all.
    channel : int or str, optional
        Number or name of the channel, where the image has an axis c of several.
    mask : array of bool, shape (Y, X) or (…, Y, X), optional
        Where to search.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Offset and gain, of all pixels or of each.
    settings : Settings, optional
        All settings at once; ``options`` change single ones. ``sigma`` is the first guess, which
        need not be near.

    Returns
    -------
    PsfWidth
        The median ``sigma`` and its ``scatter`` from spot to spot in pixels, and the
        number of ``spots``.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above, or if fewer
        than three spots are usable.

    Examples
    --------
    >>> from napari_spotfit import estimate_sigma, simulate_movie
    >>> movie, truth = simulate_movie(5, sigma=1.8, photons=5000, spots_per_frame=10, seed=1)
    >>> abs(estimate_sigma(movie).sigma - 1.8) < 0.05
    True
    """
    settings = merged(settings, options, estimate_sigma)
    one = channel_of(image, channel, Maps(mask, None, bad_pixels, camera))
    reader, maps = FrameReader(one.image, spatial=settings.dimensions), one.maps
    calibration = detection_calibration(reader.shape, settings, maps.bad_pixels, maps.camera)
    masks = PerPixel.of_mask(maps.mask, reader)
    read_mask = None if masks is None else masks.read
    looked_at = samples(reader, calibration, reader.select(frames), read_mask=read_mask)
    return width_of(looked_at, calibration, settings.sigma)


def with_psf(
    reader: FrameReader,
    calibration: PixelCalibration,
    *,
    places: NDArray[np.float64] | None = None,
    warn: bool | Callable[[str], object] = True,
) -> PixelCalibration:
    """Return a calibration whose settings hold the PSF's σ and the ROI's size.

    They are what the settings say, or else estimated in a few frames evenly spread over the whole
    image, whichever of them, and wherever, is fitted and whatever spots are asked for.

    Parameters
    ----------
    reader : FrameReader
        The image.
    calibration : PixelCalibration
        What is known of its pixels, and the settings.
    places : ndarray, shape (n, 1 + axes), optional
        Number of the frame, and the position in it, of all spots. Without a width of theirs, σ
        stays None: only detection needs one.
    warn : bool or callable, default True
        Warn if it cannot be estimated; a function is called with the sentence instead.
    """
    sigma, roi = calibration.settings.sigma, calibration.settings.roi_size
    if calibration.settings.dimensions > len(IN_PLANE):
        return _in_volumes(reader, calibration, needed=places is None)
    if sigma is not None and roi is not None:
        return calibration
    if sigma is None:
        plain = calibration.with_settings(false_spots=DEFAULT_FALSE_SPOTS, threshold=None)
        numbers = np.arange(reader.count) if reader.held is None else np.array([reader.held])
        if places is not None:
            numbers = np.unique(places[:, 0]).astype(np.int64)
        try:
            sigma = _estimated(reader, plain, numbers, places)
        except NoWidthError as error:
            # One or two spots are not asked for their width.
            if warn and len(numbers) and (places is None or len(places) >= TOO_FEW):
                taken = (
                    f"{FALLBACK_SIGMA} px is taken" if places is None else "widths are not judged"
                )
                why = f"{error.why}; set σ by hand if you know it"
                text = f"the image does not tell the PSF's σ, so that {taken}: {why}"
                (warn_caller if warn is True else warn)(text)
            if places is None:
                sigma = FALLBACK_SIGMA
    if roi is None:
        roi = roi_for(sigma or FALLBACK_SIGMA, reader.frame_shape)
    return calibration.with_settings(sigma=sigma, roi_size=roi)


def _in_volumes(
    reader: FrameReader, calibration: PixelCalibration, *, needed: bool
) -> PixelCalibration:
    """Return the same of volumes, with the widths that the optics give where none are known."""
    known, planes = calibration.settings, reader.frame_shape[0]
    expected = expected_widths(known) or (None, None)
    sigma, sigma_z = known.sigma or expected[0], known.sigma_z or expected[1]
    if needed and (sigma is None or sigma_z is None):
        raise ValueError(
            "spots in volumes are found by their widths: give sigma in px and sigma_z in planes, "
            "or voxel_size, numerical_aperture and wavelength"
        )
    roi = known.roi_size
    if roi is None:
        roi = roi_for(sigma or FALLBACK_SIGMA, reader.frame_shape, sigma_z)
    elif known.roi_shape[0] > planes:  # a thin stack
        roi = planes, *known.roi_shape[1:]
    return calibration.with_settings(sigma=sigma, sigma_z=sigma_z, roi_size=roi)


def _estimated(
    reader: FrameReader,
    calibration: PixelCalibration,
    numbers: NDArray[np.int64],
    places: NDArray[np.float64] | None,
) -> float:
    if places is not None and len(places) < TOO_FEW:
        raise NoWidthError(f"{TOO_FEW} spots are needed")
    sigma = width_of(samples(reader, calibration, numbers, places=places), calibration).sigma
    return round(min(max(sigma, 0.5), 10.0), 3)
