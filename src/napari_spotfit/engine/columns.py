"""Define the columns of a fit, in the order in which the backends write them."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.calibration import Calibration
from ..models.columns import AXES, STDERR, STOP, describe
from ..models.profiles import Profile
from ..models.stopping import StopCondition
from ..settings.settings import Settings

#: The fitted light, and how well it fits: single-precision results after the widths.
_LIGHT = ("amplitude", "background", "photons", "chi_square", "reduced_chi_square")


def values_of(profile: Profile) -> tuple[str, ...]:
    """Return the columns of single-precision results, in the order of the backends.

    Examples
    --------
    >>> from napari_spotfit.models.profiles import GAUSSIAN
    >>> values_of(GAUSSIAN)
    ('sigma', 'amplitude', 'background', 'photons', 'chi_square', 'reduced_chi_square')
    """
    return profile.widths + _LIGHT


def roi_columns(axes: int) -> tuple[str, ...]:
    """Return the columns of the first pixel of ROIs along each axis.

    Examples
    --------
    >>> roi_columns(2)
    ('roi_y', 'roi_x')
    """
    return tuple(f"roi_{axis}" for axis in tuple(AXES)[-axes:])


def add_nanometres(columns: dict[str, Any], settings: Settings) -> None:
    """Add z in nm, and its error, of fits in volumes whose voxels have a known size.

    Columns that are there are overwritten in their place.

    Examples
    --------
    >>> columns = {"z": np.array([0.5, 2.0])}
    >>> add_nanometres(columns, Settings(model="gaussian_3d", voxel_size=(200, 100, 100)))
    >>> columns["z_nm"]
    array([100., 400.])
    """
    if settings.voxel_size is None or settings.profile.axes[0] != "z":
        return
    for suffix in ("", STDERR):
        if "z" + suffix in columns:
            name = "z_nm" + suffix
            along, size = columns["z" + suffix], settings.voxel_size[0]
            columns[name] = np.multiply(along, size, out=columns.get(name))


def errors_of(profile: Profile) -> tuple[str, ...]:
    """Return the columns of standard errors, which come after the values."""
    return _errors_of(profile.axes + profile.widths)


@cache
def _errors_of(shape: tuple[str, ...]) -> tuple[str, ...]:
    names = (*shape, "amplitude", "background", "photons")
    return tuple(name + STDERR for name in names)


@lru_cache(maxsize=64)
def numbers_per_fit(settings: Settings) -> int:
    """Return how many single-precision numbers a fit has."""
    profile = settings.profile
    return len(values_of(profile)) + (len(errors_of(profile)) if settings.errors else 0)


def invalid_columns(count: int, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the columns of invalid fits, in the order of the backends.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> invalid_columns(2, Settings())["stop_condition"]
    array([5, 5], dtype=uint8)
    """
    profile = settings.profile
    shape = [parameter.column for parameter in profile.shape]
    names = (*profile.axes, *values_of(profile), "iterations", STOP)
    names += errors_of(profile) if settings.errors else ()
    if isinstance(settings.model, Calibration):
        shape += settings.model.columns
        more = [one.name for one in settings.model.columns if settings.errors or not one.error_of]
        names += tuple(name for name in more if name not in names)
    values = {"iterations": 0, STOP: StopCondition.INVALID}
    return {
        name: np.full(count, values.get(name, np.nan), describe(name, shape).type) for name in names
    }
