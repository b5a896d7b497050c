"""The widths that spots are expected to have, and the ROI that suits a width."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from .validation import PLANES_MIN, ROI_MAX, ROI_MIN

#: The ROI's side in σ, and the least one in pixels and in planes, where there are as many.
ROI_SIGMAS, _ROI_LEAST, _ROI_PLANES = 6.0, 9, 5
#: Refractive indices of immersions, and the highest aperture of usual objectives for each.
_IMMERSIONS = ((1.0, 0.95), (1.333, 1.27), (1.518, 1.49))


class HasOptics(Protocol):
    """The settings of the optics, such as :class:`~.settings.Settings`."""

    @property
    def voxel_size(self) -> tuple[float, float, float] | None:
        """Distance of planes, rows and columns in nm."""

    @property
    def numerical_aperture(self) -> float | None:
        """That of the objective."""

    @property
    def wavelength(self) -> float | None:
        """That of the light in nm."""

    @property
    def refractive_index(self) -> float | None:
        """That of the immersion."""


class Widths(NamedTuple):
    """Standard deviations of a spot: in the plane in pixels, along z in planes."""

    sigma: float
    sigma_z: float


def check_aperture(settings: HasOptics) -> None:
    """Raise a ValueError if an aperture is as high as the refractive index or higher."""
    aperture, index = settings.numerical_aperture, settings.refractive_index
    if aperture is not None and index is not None and aperture >= index:
        raise ValueError(
            f"numerical_aperture must be below the refractive_index, {index:g}; got {aperture:g}"
        )


def optics_of(settings: HasOptics) -> tuple[float, float, float] | None:
    """Return aperture, wavelength and refractive index, if known; by default the usual index."""
    aperture, wavelength = settings.numerical_aperture, settings.wavelength
    if aperture is None or wavelength is None:
        return None
    index = settings.refractive_index or _immersion(aperture)
    return aperture, wavelength, index


def expected_widths(settings: HasOptics) -> Widths | None:
    """Return the widths of a point in a widefield microscope; None where too little is known.

    They are those of the Gaussian with the image's curvature at its top, without the paraxial
    approximation (Zhang, Zerubia and Olivo-Marin 2007).

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> oil = Settings(voxel_size=(254, 93, 93), numerical_aperture=1.4, wavelength=600)
    >>> [round(width, 2) for width in expected_widths(oil)]
    [1.0, 1.0]
    """
    voxel, optics = settings.voxel_size, optics_of(settings)
    if voxel is None or optics is None:
        return None
    aperture, wavelength, index = optics
    c, wave = math.sqrt(1 - (aperture / index) ** 2), 2 * math.pi * index / wavelength
    s = c**1.5
    lateral = math.sqrt(7 * (1 - s) / (4 - 7 * s + 3 * c**3.5)) / wave
    curvature = 4 * c**5 - 25 * c**3.5 + 42 * c**2.5 - 25 * s + 4
    axial = 5 * math.sqrt(7 / (6 * curvature)) * (1 - s) / wave
    return Widths(lateral / math.sqrt(voxel[1] * voxel[2]), axial / voxel[0])


def _immersion(aperture: float) -> float:
    """Return the refractive index of the usual immersion of an objective."""
    known = (index for index, highest in _IMMERSIONS if aperture <= highest)
    return next(known, 1.05 * aperture)


def roi_for(
    sigma: float, shape: tuple[int, ...], sigma_z: float | None = None
) -> int | tuple[int, ...]:
    """Return the ROI's size that suits spots of a width, as far as frames of a shape hold it.

    Examples
    --------
    >>> roi_for(1.3, (512, 512)), roi_for(3.0, (512, 512)), roi_for(3.0, (14, 512))
    (9, 19, (13, 19))
    >>> roi_for(1.3, (40, 512, 512), 1.5), roi_for(1.3, (6, 512, 512), 1.5)
    ((9, 9, 9), (6, 9, 9))
    """
    if sigma_z is not None:
        in_plane = roi_for(sigma, shape[1:])
        planes = max(2 * int(ROI_SIGMAS * sigma_z / 2) + 1, _ROI_PLANES)
        planes = max(min(planes, shape[0], ROI_MAX), PLANES_MIN)
        return (planes, *(in_plane if isinstance(in_plane, tuple) else (in_plane, in_plane)))
    side = max(2 * int(ROI_SIGMAS * sigma / 2) + 1, _ROI_LEAST)
    sides = tuple(max(min(side, (n - 1) // 2 * 2 + 1), ROI_MIN + 1) for n in shape)
    return sides[0] if len(set(sides)) == 1 else sides
