"""The columns of fits: their names, order and units."""

from __future__ import annotations

from functools import cache, lru_cache
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
    return _errors_of(profile.widths)


@cache
def _errors_of(widths: tuple[str, ...]) -> tuple[str, ...]:
    names = ("x", "y", *widths, "amplitude", "background", "photons")
    return tuple(f"{name}_stderr" for name in names)


@lru_cache(maxsize=64)
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


#: Types of the columns that are not of single precision; ``axis_0``, … are as ``frame``.
_TYPES = {
    "y": np.float64,
    "x": np.float64,
    "frame": np.int64,
    "iterations": np.uint16,
    "stop_condition": np.uint8,
    "roi_y": np.int32,
    "roi_x": np.int32,
    "flags": np.uint32,
    "label": np.int64,
}


def as_column(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in the type that fits have them in, if that holds all of them exactly.

    Examples
    --------
    >>> import numpy as np
    >>> as_column("roi_y", np.array([3.0, 12.0])).dtype, as_column("roi_y", np.array([np.nan]))
    (dtype('int32'), array([nan]))
    """
    kind = np.dtype(_TYPES.get("frame" if name.startswith("axis_") else name, values.dtype))
    if kind == values.dtype or kind.kind == "f":
        return values
    ends = np.iinfo(kind)
    inside = (values >= ends.min) & (values <= ends.max)
    if not inside.all() or not (values == np.rint(values)).all():
        return values
    return values.astype(kind)


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
    if unit := settings.estimator_kind.chi_unit:
        units |= {"chi_square": unit, "reduced_chi_square": unit}
    return units
