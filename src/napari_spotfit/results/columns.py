"""The columns of fits: their names, order and units."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def errors_of(profile: Profile) -> tuple[str, ...]:
    """Return the columns of standard errors, which come after the values."""
    names = ("x", "y", *profile.widths, "amplitude", "background", "photons")
    return tuple(f"{name}_stderr" for name in names)


def numbers_per_fit(settings: Settings) -> int:
    """Return how many single-precision numbers a fit has."""
    profile = settings.profile
    return len(values_of(profile)) + (len(errors_of(profile)) if settings.errors else 0)


def invalid_columns(count: int, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the columns of so many fits that are INVALID, as the backends order them.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> invalid_columns(2, Settings())["stop_condition"]
    array([5, 5], dtype=uint8)
    """
    columns: dict[str, NDArray[Any]] = {name: np.full(count, np.nan) for name in ("y", "x")}
    nothing = np.full(count, np.nan, np.float32)
    columns |= {name: nothing.copy() for name in values_of(settings.profile)}
    columns["iterations"] = np.zeros(count, np.uint16)
    columns["stop_condition"] = np.full(count, StopCondition.INVALID, np.uint8)
    if settings.errors:
        columns |= {name: nothing.copy() for name in errors_of(settings.profile)}
    return columns


#: Units of the columns that every model has, and of the rest where they do not depend on it.
_UNITS = {
    "y": "px",
    "x": "px",
    "amplitude": "counts",
    "background": "counts/px",
    "photons": "photons",
    "roi_y": "px",
    "roi_x": "px",
}


def units_of(settings: Settings | None) -> dict[str, str]:
    """Return the unit of every column that has one.

    Parameters
    ----------
    settings : Settings or None
        What the fits were made with; None stands for the defaults.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> units_of(Settings(model="gaussian_rotated"))["angle_stderr"]
    '°'
    >>> units_of(Settings())["photons"], units_of(Settings(gain=2.0))["photons"]
    ('counts', 'photons')
    """
    settings = settings or Settings()
    shape = {parameter.name: parameter.unit for parameter in settings.profile.shape}
    units = {name: unit for name, unit in (_UNITS | shape).items() if unit}
    if settings.gain is None:
        units["photons"] = "counts"
    units |= {f"{name}_stderr": unit for name, unit in units.items() if "roi" not in name}
    if settings.estimator == "lse":
        units |= {"chi_square": "counts²", "reduced_chi_square": "counts²"}
    return units
