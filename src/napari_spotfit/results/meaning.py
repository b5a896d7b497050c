"""What the columns of fits mean: their units, and whether those of two fits are alike."""

from __future__ import annotations

from typing import Any

from ..models.calibration import Calibration
from ..models.columns import COLUMNS
from ..settings.settings import Settings

#: Settings on which the meaning of columns depends.
_MEANINGFUL = ("model", "pixel", "estimator", "offset", "gain")


def units_of(settings: Settings | None) -> dict[str, str]:
    """Return the unit of every column that has one.

    Parameters
    ----------
    settings : Settings or None
        The settings of the fits; None stands for the defaults.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> units_of(Settings(model="gaussian_rotated"))["angle_stderr"]
    '°'
    >>> units_of(Settings())["photons"], units_of(Settings(gain=2.0))["photons"]
    ('counts', 'photons')
    """
    settings = settings or Settings()
    shape = [parameter.column for parameter in settings.profile.shape]
    axes = ("", *settings.profile.axes)
    fixed = [
        one for one in COLUMNS.values() if one.group not in ("shape", "other") and one.axis in axes
    ]
    known = [*fixed, *shape, *(one.standard_error() for one in shape)]
    if isinstance(settings.model, Calibration):
        known += settings.model.columns
    units = {one.name: one.unit for one in known if one.unit}
    if settings.gain is None:
        units = {name: "counts" if unit == "photons" else unit for name, unit in units.items()}
    chi_unit = settings.estimator_kind.chi_unit
    units = {name: chi_unit if unit == "counts²" else unit for name, unit in units.items()}
    return {name: unit for name, unit in units.items() if unit}


def check_alike(first: Any, other: Any) -> None:
    """Raise a ValueError unless two SpotFits have the same columns with the same meaning."""
    only = sorted(set(first.columns) ^ set(other.columns))
    if only:
        raise ValueError(f"fits with different columns cannot be joined: some have no {only[0]}")
    if first.index_names != other.index_names:
        raise ValueError(
            "fits of images with different axes cannot be joined: "
            f"{first.index_names} and {other.index_names}"
        )
    done = [", ".join(step.name for step in fits.history) or "none" for fits in (first, other)]
    if done[0] != done[1]:
        raise ValueError(
            "fits that went through different steps of analysis cannot be joined: "
            f"{done[0]}, and {done[1]}. Do the same steps with all"
        )
    if first.units != other.units and None in (first.settings, other.settings):
        raise ValueError(
            "fits whose columns have different units cannot be joined: "
            f"{first.units} and {other.units}"
        )
    one, two = first.settings, other.settings
    if one is two or one is None or two is None:
        return
    for name in _MEANINGFUL:
        values = getattr(one, name), getattr(two, name)
        if values[0] != values[1]:
            raise ValueError(
                f"fits of a different {name} cannot be joined: {values[0]!r} and {values[1]!r}. "
                "Join their tables: pandas.concat"
            )
