"""All that is the same for fits of one kind, resolved: nothing is left to be found out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..images.arrays import native_type
from ..images.pixel_calibration import PixelCalibration
from ..models.profiles import Profile
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from .fit_settings import kernel_order


@dataclass(frozen=True)
class FitJob:
    """What fits are made with, made in one place when all is estimated; the key of all caches.

    Attributes
    ----------
    settings : Settings
        Those of corrected frames, with limits, noise, neighbours, errors and threads.
    roi_shape : (int, int)
        Rows and columns of the ROIs; of cut-outs, even ones too.
    pixel_type : str
        That of the pixels as the kernels read them, as NumPy has it: ``"u2"``.
    sigma : float or None
        The PSF's, by which fits are flagged; None where nobody has said it.
    detection : Settings or None
        What finds spots, and hot pixels among their ROIs. None: hot pixels count in fits.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> job = FitJob.of_spots(Settings(estimator="mle"), (8, 9), np.dtype(">u2"))
    >>> job.estimator, job.roi_shape, job.axes, job.pixel_type
    ('mle', (8, 9), ('x', 'y'), 'u2')
    """

    settings: Settings
    roi_shape: tuple[int, int]
    pixel_type: str
    sigma: float | None = None
    detection: Settings | None = None

    def __hash__(self) -> int:
        try:
            known: int = object.__getattribute__(self, "_hash")
        except AttributeError:
            kind = self.settings, self.roi_shape, self.pixel_type, self.sigma, self.detection
            known = hash(kind)
            object.__setattr__(self, "_hash", known)
        return known

    @classmethod
    def of_spots(
        cls, settings: Settings, roi_shape: tuple[int, int], pixel_type: np.dtype[Any]
    ) -> FitJob:
        """Return the job of cut-outs of a type, which are fitted with all of their pixels."""
        return _job(settings, roi_shape, pixel_type, None, None)

    @classmethod
    def of(
        cls,
        calibration: PixelCalibration,
        pixel_type: np.dtype[Any],
        detection: Settings | None = None,
    ) -> FitJob:
        """Return the job of an image.

        Parameters
        ----------
        calibration : PixelCalibration
            What is known of its pixels; its settings have all that was estimated.
        pixel_type : dtype
            That of its frames before they are corrected.
        detection : Settings, optional
            What finds its spots and hot pixels.
        """
        settings = calibration.fitted
        kind, sigma = calibration.corrected_type(pixel_type), calibration.settings.sigma
        return _job(settings, settings.roi_shape, kind, sigma, detection)

    @property
    def model(self) -> Profile:
        """The profile."""
        return self.settings.profile

    @property
    def estimator(self) -> str:
        """What is minimised."""
        return self.settings.estimator

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the position, in the order of the kernels."""
        return tuple(name for name in kernel_order(self.model) if name in ("x", "y"))

    @property
    def noise(self) -> NoiseModel | None:
        """The noise of the pixels, where it is known."""
        return self.settings.noise

    @property
    def masks_neighbours(self) -> bool:
        """Whether pixels nearer to other spots are excluded."""
        return self.settings.neighbours == "leave out"

    @property
    def threads(self) -> int | None:
        """How many threads the fits take; None: all."""
        return self.settings.threads

    def by_one_thread(self) -> FitJob:
        """Return the same for fits of blocks that are worked on side by side."""
        detection = self.detection and self.detection.changed(threads=1)
        return replace(self, settings=self.settings.changed(threads=1), detection=detection)


@lru_cache(maxsize=64)
def _job(
    settings: Settings,
    roi_shape: tuple[int, int],
    pixel_type: np.dtype[Any],
    sigma: float | None,
    detection: Settings | None,
) -> FitJob:
    """Return the one job of its kind: caches that have it find it by identity."""
    return FitJob(settings, roi_shape, native_type(pixel_type).str[1:], sigma, detection)
