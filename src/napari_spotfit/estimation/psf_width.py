"""Estimate the width of the PSF from the spots of an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..images.camera import Camera, PerPixel
from ..images.channels import Maps, channel_of
from ..images.frames import FrameReader, FrameSelection
from ..images.pixel_calibration import PixelCalibration, detection_calibration
from ..settings.fields import DEFAULT_FALSE_SPOTS
from ..settings.optics import expected_widths, roi_for
from ..settings.options import Options, in_dimensions, merged, takes_settings
from ..settings.settings import Settings
from .volume_widths import Guess, volume_width_of, within_limits
from .width_search import TOO_FEW, NoWidthError, PsfWidth, samples, width_of

__all__ = ["PsfWidth", "estimate_sigma", "with_psf"]

#: Used where they cannot be estimated from an image, nor follow from the optics.
FALLBACK_SIGMA, FALLBACK_SIGMA_Z = 1.3, 1.5


@takes_settings("detection", "camera", "optics", "run", also=("model",), volumes=True)
def estimate_sigma(
    image: Any,
    *,
    dimensions: Literal[2, 3] | None = None,
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

    Spots in volumes have a second width, along z in planes. Both are measured by fits of Gaussians
    in three dimensions to spots that are not at an end of their stack, where too few planes show
    it, in all planes of 16 times as many pixels.

    Parameters
    ----------
    image : array, shape (…, Y, X) or (…, Z, Y, X), or path
        NumPy, CuPy, Dask or Zarr array of any real number type, or an image file, see
        :func:`~napari_spotfit.open_image`.
    dimensions : int, optional
        3 for spots in volumes; by default those of the model.
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
        All settings at once; ``options`` change single ones. ``sigma`` and ``sigma_z`` are first
        guesses, which need not be near; voxel size, aperture and wavelength give others.

    Returns
    -------
    PsfWidth
        The median ``sigma`` and its ``scatter`` from spot to spot in pixels, and the
        number of ``spots``; in volumes ``sigma_z`` and ``scatter_z`` in planes, too.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above, if fewer than three spots
        are usable, or if a stack has fewer than three planes.

    Examples
    --------
    >>> from napari_spotfit import estimate_sigma, simulate_movie
    >>> movie, truth = simulate_movie(5, sigma=1.8, photons=5000, spots_per_frame=10, seed=1)
    >>> abs(estimate_sigma(movie).sigma - 1.8) < 0.05
    True
    """
    settings = in_dimensions(merged(settings, options, estimate_sigma), dimensions, options)
    one = channel_of(image, channel, Maps(mask, None, bad_pixels, camera))
    reader, maps = FrameReader(one.image, spatial=settings.dimensions), one.maps
    calibration = detection_calibration(reader.shape, settings, maps.bad_pixels, maps.camera)
    masks = PerPixel.of_mask(maps.mask, reader)
    read_mask = None if masks is None else masks.read
    looked_at = samples(reader, calibration, reader.select(frames), read_mask=read_mask)
    if settings.dimensions > 2:
        return volume_width_of(looked_at, calibration, settings)
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
    settings, shape = calibration.settings, reader.frame_shape
    is_volume = len(shape) > 2
    widths = Guess(settings.sigma, settings.sigma_z)
    is_open = widths.sigma is None or (is_volume and widths.sigma_z is None)
    changed: dict[str, Any] = {}
    if is_volume and settings.roi_size is not None and settings.roi_shape[0] > shape[0]:
        changed["roi_size"] = shape[0], *settings.roi_shape[1:]  # a thin stack
    if not is_open and settings.roi_size is not None:
        return calibration.with_settings(**changed) if changed else calibration
    if is_open:
        numbers = np.arange(reader.count) if reader.held is None else np.array([reader.held])
        if places is not None:
            numbers = np.unique(places[:, 0]).astype(np.int64)
        try:
            plain = calibration.with_settings(false_spots=DEFAULT_FALSE_SPOTS, threshold=None)
            widths = widths.filled(_estimated(reader, plain, numbers, places))
        except NoWidthError as error:
            if places is None:
                widths = widths.filled(_usual(settings))
            # One or two spots are not asked for their width.
            if warn and len(numbers) and (places is None or len(places) >= TOO_FEW):
                taken = widths.in_words(is_volume) if places is None else "widths are not judged"
                named = "σ and σz" if is_volume else "σ"
                text = (
                    f"the image does not tell the PSF's {named}, so that {taken}: {error.why}; set "
                    f"{named} by hand if you know {'them' if is_volume else 'it'}"
                )
                (warn_caller if warn is True else warn)(text)
    changed["sigma"] = widths.sigma
    if is_volume:
        changed["sigma_z"] = widths.sigma_z
    if settings.roi_size is None:
        sigma, sigma_z = widths.filled(_usual(settings))
        changed["roi_size"] = roi_for(
            sigma or FALLBACK_SIGMA, shape, sigma_z if is_volume else None
        )
    return calibration.with_settings(**changed)


def _usual(settings: Settings) -> Guess:
    """Return what is taken for unknown widths: those of the optics, where they are known."""
    optics = expected_widths(settings) if settings.dimensions > 2 else None
    if optics is None:
        return Guess(FALLBACK_SIGMA, FALLBACK_SIGMA_Z)
    return within_limits(Guess(*optics))


def _estimated(
    reader: FrameReader,
    calibration: PixelCalibration,
    numbers: NDArray[np.int64],
    places: NDArray[np.float64] | None,
) -> Guess:
    if places is not None and len(places) < TOO_FEW:
        raise NoWidthError(f"{TOO_FEW} spots are needed")
    looked_at = samples(reader, calibration, numbers, places=places)
    if calibration.settings.dimensions == 2:
        return within_limits(Guess(width_of(looked_at, calibration).sigma))
    width = volume_width_of(looked_at, calibration, calibration.settings)
    return within_limits(Guess(width.sigma, width.sigma_z))
