"""Noise and PSF of an image, measured once for fits, previews and clicks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from ..images.arrays import is_on_device
from ..images.frames import FrameReader
from ..images.pixel_calibration import detection_calibration
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from .estimates import estimated
from .image_noise import noise_doubts
from .psf_width import with_psf

#: Settings on which the PSF's width depends, and those on which all estimates depend.
_OF_WIDTH = ("pixel", "offset", "gain", "variance", "emccd", "noise")
_OF_ALL = (*_OF_WIDTH, "sigma", "sigma_z", "roi_size", "model", "voxel_size")


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
        return self._known.get(_values(settings, _OF_ALL))

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
        key = _values(settings, _OF_ALL)
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
            key = _values(settings, (*_OF_WIDTH, "sigma", "sigma_z", "dimensions"))
            if key not in self._widths:
                warnings: list[str] = []
                wide = with_psf(reader, calibration, warn=warnings.append).settings
                self._widths[key] = wide.known_sigma, wide.sigma_z, " ".join(warnings)
            sigma, sigma_z, warning = self._widths[key]
            calibration = calibration.with_settings(sigma=sigma, sigma_z=sigma_z)
        calibration = estimated(reader, calibration)
        found, doubts = calibration.settings, noise_doubts(reader, calibration, settings)
        assert found.roi_size is not None
        warning = "; ".join(filter(None, (warning, doubts)))
        return ImageEstimates(
            found.noise, found.known_sigma, found.sigma_z, found.roi_size, warning
        )


def _values(settings: Settings, names: tuple[str, ...]) -> Hashable:
    return tuple(getattr(settings, name) for name in names)


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
