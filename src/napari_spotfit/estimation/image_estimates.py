"""Estimate once what settings leave open, for fits, previews and clicks."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..images.arrays import is_on_device
from ..images.frames import FrameReader
from ..images.pixel_calibration import PixelCalibration, detection_calibration
from ..models.columns import IN_PLANE
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings, has_shot_noise
from .held_widths import held_width_doubts
from .image_noise import measured_noise, noise_doubts, sample_frames
from .psf_width import with_psf
from .uneven_stacks import with_plane_light, without_copies
from .width_samples import glance_frames
from .width_search import refines_in_crowds

#: Settings on which the PSF's width depends, and those on which all estimates depend.
_OF_WIDTH = ("pixel", "offset", "gain", "variance", "emccd", "noise")
_OF_ALL = (*_OF_WIDTH, "sigma", "sigma_z", "roi_size", "model", "voxel_size", "fixed")


def estimated(
    reader: FrameReader,
    calibration: PixelCalibration,
    *,
    places: NDArray[np.float64] | None = None,
) -> PixelCalibration:
    """Return a calibration whose settings hold the PSF and the noise.

    They are what the settings hold, the noise the camera's where all of it is known, or else they
    are measured in a few frames evenly spread over the whole image, whichever of them are fitted:
    given the settings of a result, all is as before, to the bit, and nothing is measured. Those of
    the few that cannot be read are left out.

    Parameters
    ----------
    reader : FrameReader
        The image.
    calibration : PixelCalibration
        What is known of its pixels, and the settings.
    places : ndarray, shape (n, 1 + axes), optional
        Frame number and position of the spots from which the PSF is estimated: all that will be
        fitted.
    """
    with_widths = partial(with_psf, reader, places=places)
    if len(reader.frame_shape) == len(IN_PLANE) or not len(numbers := sample_frames(reader)):
        return _with_noise(reader, with_widths(calibration))
    calibration = without_copies(reader, calibration, numbers)
    warnings: list[str] = []
    found = _with_noise(reader, with_widths(calibration, warn=warnings.append))

    def again(known: PixelCalibration) -> PixelCalibration:
        warnings.clear()
        return with_widths(known, warn=warnings.append)

    found = with_plane_light(reader, calibration, found, numbers, again)
    for text in warnings:
        warn_caller(text)
    return found


def _with_noise(reader: FrameReader, calibration: PixelCalibration) -> PixelCalibration:
    settings = calibration.settings
    # Where only shot noise is known, the image shows what there is besides: what looks for spots
    # and for hot pixels goes by all.
    if settings.gain is not None and calibration.knows_variance:
        return calibration.with_noise(calibration.camera_noise)
    if settings.noise is not None:
        return calibration
    return calibration.with_noise(measured_noise(reader, calibration))


@contextmanager
def frames_of_estimates(reader: FrameReader, settings: Settings) -> Iterator[None]:
    """Read the frames of all estimates once."""
    asked = [np.empty(0, np.int64)]
    if reader.held is None and settings.noise is None:
        asked.append(sample_frames(reader))
    if reader.held is None and settings.sigma is None:
        asked.append(glance_frames(reader))
    with reader.keeping(np.unique(np.concatenate(asked))):
        yield


def warn_of_gain(given: Settings, found: Settings | None) -> None:
    """Warn of maximum likelihood without a gain."""
    if found is None or found.gain is not None:
        return
    if not given.estimator_kind.is_likelihood or given.noise is not None:
        return
    noise = found.noise
    if noise is None or not has_shot_noise(noise):
        text = "takes a count for a photo-electron, as the image does not show the camera's gain"
    else:
        text = f"takes what the image suggests, {noise.slope:.3g} counts per photo-electron"
    warn_caller(
        f"estimator={given.estimator!r} needs {given.estimator_kind.needs}; without, it {text}. "
        "Give gain=… and offset=…; the result's settings.noise holds what was taken"
    )


class ImageEstimates(NamedTuple):
    """Noise and PSF that were estimated from an image, or defaults instead."""

    noise: NoiseModel | None
    sigma: float
    sigma_z: float | None
    roi_size: int | tuple[int, ...]
    #: Why σ is a default, and doubts about the noise or the camera; sentences, or nothing.
    warning: str


class MeasuredNoise:
    """Noise and PSF of an image, from the same frames whichever of its frames are fitted.

    A preview or a click with the noise of its own frame would find other spots than a fit. Any
    thread may ask; it waits while another one measures.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[Hashable, ImageEstimates] = {}
        self._widths: dict[Hashable, tuple[float, float | None, str]] = {}
        self._image: Any = None

    def known(self, settings: Settings) -> ImageEstimates | None:
        """Return what was estimated already, without waiting; None if nothing was."""
        return self._known.get(_key_of(settings, _OF_ALL))

    def put_into(self, settings: Settings, image: Any, known: Mapping[str, Any]) -> Settings:
        """Return settings with noise and PSF, measured unless they were before.

        Parameters
        ----------
        settings : Settings
            Those of the fits.
        image : array, shape (…, Y, X)
            The whole image, the same each time.
        known : mapping
            Its ``bad_pixels`` and ``camera``, the same each time; else there may be more.
        """
        key = _key_of(settings, _OF_ALL)
        with self._lock:
            if key not in self._known:
                if self._image is None:
                    at_hand = isinstance(image, np.ndarray) or is_on_device(image)
                    self._image = image if at_hand else _KeptFrames(image)
                self._known[key] = self._measured(settings, known)
            found = self._known[key]
        return settings.changed(
            noise=found.noise, sigma=found.sigma, sigma_z=found.sigma_z, roi_size=found.roi_size
        )

    def _measured(self, settings: Settings, known: Mapping[str, Any]) -> ImageEstimates:
        reader = FrameReader(self._image, spatial=settings.dimensions, checked=False)
        calibration = detection_calibration(
            reader.shape, settings, known.get("bad_pixels"), known.get("camera")
        )
        warning = ""
        if settings.sigma is None or (settings.dimensions > 2 and settings.sigma_z is None):
            key = _key_of(settings, (*_OF_WIDTH, "sigma", "sigma_z", "dimensions"))
            if key not in self._widths:
                warnings: list[str] = []
                wide = with_psf(reader, calibration, warn=warnings.append).settings
                self._widths[key] = wide.known_sigma, wide.sigma_z, " ".join(warnings)
            sigma, sigma_z, warning = self._widths[key]
            calibration = calibration.with_settings(sigma=sigma, sigma_z=sigma_z)
        calibration = estimated(reader, calibration)
        found, doubts = calibration.settings, noise_doubts(reader, calibration, settings)
        assert found.roi_size is not None
        held = held_width_doubts(reader, calibration, settings)
        warning = "; ".join(filter(None, (warning, doubts, held)))
        return ImageEstimates(
            found.noise, found.known_sigma, found.sigma_z, found.roi_size, warning
        )


def _key_of(settings: Settings, names: tuple[str, ...]) -> Hashable:
    """Return what an estimate depends on."""
    of_crowds = None
    if settings.sigma is None and refines_in_crowds(settings):
        # The width of a crowd's spots is that of joint fits, where these can be made.
        of_crowds = Settings(model=settings.model, fixed=settings.fixed, bounds=settings.bounds)
    return tuple(getattr(settings, name) for name in names), of_crowds


class _KeptFrames:
    """An image whose frames are read once: to measure with another σ takes the same ones."""

    def __init__(self, image: Any) -> None:
        self.shape, self.dtype = image.shape, image.dtype
        self._image = image
        self._read: dict[str, Any] = {}

    def __getitem__(self, index: Any) -> Any:
        name = repr(index)
        if name not in self._read:
            self._read[name] = np.asarray(self._image[index])
        return self._read[name]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self[...], dtype)
