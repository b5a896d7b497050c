"""Resolve the settings of fits of one kind, and pass them as numbers to the kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ..images.arrays import native_type
from ..images.pixel_calibration import PixelCalibration
from ..models.calibration import Calibration
from ..models.profiles import Profile
from ..settings.bounds import bounds_of, light_ends
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings, electrons_of, noise_of
from .cpu.layouts import FitSettings

#: Voxels of a volume that every GPU's shared memory has room for, whatever the estimator.
GPU_VOXELS = 4096
_LIGHT = ("amplitude", "background")
SIGMA_Z = "sigma_z"


def step_order(profile: Profile) -> tuple[str, ...]:
    """Return the shape parameters in the order of a step, as kernels/profiles.h states it."""
    return (*reversed(profile.axes), *profile.widths)


@lru_cache(maxsize=64)
def make_fit_settings(settings: Settings, roi_shape: tuple[int, ...]) -> FitSettings:
    """Return the settings as numbers, read-only; open bounds become infinite.

    Maximum likelihood knows no negative light: there, amplitude and background are bounded
    by 0 where the settings leave them open.

    Parameters
    ----------
    settings : Settings
        The settings.
    roi_shape : tuple of int
        Pixels of the ROIs along each axis, in whose pixels the centre is.

    Examples
    --------
    >>> numbers = make_fit_settings(Settings(sigma_max=3.0), (9, 9))
    >>> numbers.high[2], numbers.background_min
    (3.0, -inf)
    """
    profile = settings.profile
    names = step_order(profile)
    shape = {parameter.name: parameter for parameter in profile.shape}
    ends = [_in_radians(name, bounds_of(name, settings, roi_shape)) for name in names]
    light = [end.value for light in _LIGHT for end in light_ends(settings, light)]
    offset, noise, electrons = settings.offset, noise_of(settings), electrons_of(settings)
    line = noise.correlation**2 if noise else 0.0
    # Maximum likelihood knows no light below that of a dark pixel.
    zero = electrons.dark if settings.estimator_kind.is_likelihood else offset
    return FitSettings(
        max_iterations=settings.max_iterations,
        max_error=settings.max_error,
        min_delta=settings.min_delta,
        min_step=settings.min_step,
        low=tuple(low for low, _ in ends),
        high=tuple(high for _, high in ends),
        start=tuple(shape[name].start[0] for name in names),
        start_per_sigma=tuple(shape[name].start[1] for name in names),
        sigma=settings.sigma or 0.0,
        sigma_z=settings.sigma_z or 0.0,
        amplitude_min=light[0],
        amplitude_max=light[1],
        background_min=light[2] + (zero if settings.background_min is None else offset),
        background_max=light[3] + offset,
        offset=offset,
        photon=settings.gain or 1.0,
        dark=electrons.dark,
        gain=electrons.gain,
        excess=electrons.excess,
        noise_slope=line * noise.slope if noise else 0.0,
        noise_at_offset=line * (noise.intercept + noise.slope * offset) if noise else 0.0,
        noise_least=line * noise.least if noise else 0.0,
        fitted=settings.fitted_parameters,
        held=held_shape(settings),
        bounded_amplitudes=any(math.isfinite(end) for end in light),
        noise_known=noise is not None,
        errors=settings.errors,
        angle_convention=_angle_convention(settings),
    )


def held_shape(settings: Settings) -> int:
    """Return a bit for each shape parameter that stays at its start value."""
    names = step_order(settings.profile)
    return sum((name in settings.fixed) << i for i, name in enumerate(names))


def _in_radians(name: str, ends: tuple[float, float]) -> tuple[float, float]:
    return (math.radians(ends[0]), math.radians(ends[1])) if name == "angle" else ends


def _angle_convention(settings: Settings) -> int:
    """Return how the axes of a rotated Gaussian are named, by what the caller fixes or bounds."""
    limited = {*settings.fixed, *settings.bounds}
    if "angle" in limited:
        return 0
    return 1 if limited & {"sigma_x", "sigma_y"} else 2


@dataclass(frozen=True)
class FitJob:
    """All settings of fits of one kind, resolved after estimation; the key of all caches.

    Attributes
    ----------
    settings : Settings
        Those of corrected frames, with limits, noise, neighbours, errors and threads.
    roi_shape : tuple of int
        Pixels of the ROIs along each axis; of cut-outs, even ones too.
    pixel_type : str
        That of the pixels as the kernels read them, as NumPy has it: ``"u2"``.
    sigma : float or None
        The PSF's, by which fits are flagged; None where it is unknown.
    detection : Settings or None
        What finds spots, and hot pixels among their ROIs. None: hot pixels count in fits.
    one_row_per_position : bool
        Whether each position yields one row, in order, as callers need who know the spots. Else
        spots may be dropped and added where several are fitted together.
    sigma_z : float or None
        The PSF's along z, in planes, of spots in volumes.
    of_widths : bool
        Whether the fits are those by which an astigmatism calibration finds z.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> job = FitJob.of_spots(Settings(estimator="mle"), (8, 9), np.dtype(">u2"))
    >>> job.estimator, job.roi_shape, job.axes, job.pixel_type
    ('mle', (8, 9), ('y', 'x'), 'u2')
    """

    settings: Settings
    roi_shape: tuple[int, ...]
    pixel_type: str
    sigma: float | None = None
    detection: Settings | None = None
    one_row_per_position: bool = True
    sigma_z: float | None = None
    of_widths: bool = False

    def __hash__(self) -> int:
        try:
            known: int = object.__getattribute__(self, "_hash")
        except AttributeError:
            kind = self.settings, self.roi_shape, self.pixel_type
            known = hash((kind, self.sigma, self.sigma_z, self.detection))
            object.__setattr__(self, "_hash", known)
        return known

    @classmethod
    def of_spots(
        cls, settings: Settings, roi_shape: tuple[int, ...], pixel_type: np.dtype[Any]
    ) -> FitJob:
        """Return the job of cut-outs of a type, which are fitted with all of their pixels."""
        return _job(settings, roi_shape, pixel_type, None, None)

    @classmethod
    def of(
        cls,
        calibration: PixelCalibration,
        pixel_type: np.dtype[Any],
        detection: Settings | None = None,
        *,
        one_row_per_position: bool = True,
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
        one_row_per_position : bool
            Whether no spots are dropped or added.
        """
        settings, known = calibration.fitted, calibration.settings
        kind, roi_shape = calibration.corrected_type(pixel_type), settings.roi_shape
        sigma, sigma_z = known.sigma, known.sigma_z
        return _job(settings, roi_shape, kind, sigma, detection, one_row_per_position, sigma_z)

    @cached_property
    def model(self) -> Profile:
        """The profile."""
        return self.settings.profile

    @property
    def is_calibrated(self) -> bool:
        """Whether the model is that of a calibration."""
        return self.of_widths or isinstance(self.settings.model, Calibration)

    @property
    def estimator(self) -> str:
        """What is minimised."""
        return self.settings.estimator

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes of the position, in the order of the array."""
        return self.model.axes

    @property
    def noise(self) -> NoiseModel | None:
        """The noise of the pixels, where it is known."""
        return self.settings.noise

    @property
    def masks_neighbours(self) -> bool:
        """Whether pixels nearer to other spots are excluded."""
        return self.settings.neighbours != "ignore"

    @property
    def per_plane(self) -> float:
        """How many pixels away a plane counts as, in units of the PSF's width."""
        if self.sigma is not None and self.sigma_z is not None:
            return self.sigma / self.sigma_z
        voxel = self.settings.voxel_size
        return 1.0 if voxel is None else voxel[0] / math.sqrt(voxel[1] * voxel[2])

    @cached_property
    def holding_sigma_z(self) -> Settings | None:
        """Settings of fits at the ends of stacks, which hold σ along z; None if none do."""
        settings = self.settings
        if self.sigma_z is None or SIGMA_Z not in self.model.widths or SIGMA_Z in settings.fixed:
            return None
        bounds = {name: ends for name, ends in settings.bounds.items() if name != SIGMA_Z}
        return settings.changed(fixed={**settings.fixed, SIGMA_Z: None}, bounds=bounds)

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
    roi_shape: tuple[int, ...],
    pixel_type: np.dtype[Any],
    sigma: float | None,
    detection: Settings | None,
    one_row_per_position: bool = True,
    sigma_z: float | None = None,
) -> FitJob:
    """Return the one job of its kind: caches that have it find it by identity."""
    kind = native_type(pixel_type).str[1:]
    return FitJob(settings, roi_shape, kind, sigma, detection, one_row_per_position, sigma_z)
