"""The columns of fits: immutable, of one length, with units, and alike or not in two fits."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..models.calibration import Calibration
from ..models.columns import COLUMNS, Column
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


def columns_explained() -> str:
    """Return the columns of fits as entries of a docstring."""
    return "\n    ".join(
        _explained(one) for one in COLUMNS.values()
        if one.group in ("position", "shape", "light", "fit", "quality", "roi") and not one.error_of
    )  # fmt: skip


def _explained(column: Column) -> str:
    lines = textwrap.wrap(column.meaning, 88)
    unit = f" [{column.unit}]" if column.unit else ""
    head = f"{column.name} : ndarray of {column.type}{unit}"
    return "\n".join([head, *(f"        {line}" for line in lines)])


class Meaning(NamedTuple):
    """What the columns of some fits mean."""

    columns: frozenset[str]
    index_names: tuple[str, ...]
    units: dict[str, str]
    settings: Settings | None
    #: Names of the steps of analysis that the fits went through.
    steps: tuple[str, ...]

    def check_alike(self, other: Meaning) -> None:
        """Raise a ValueError unless the columns of other fits have the same meaning."""
        only = sorted(self.columns ^ other.columns)
        if only:
            raise ValueError(
                f"fits with different columns cannot be joined: some have no {only[0]}"
            )
        if self.index_names != other.index_names:
            raise ValueError(
                "fits of images with different axes cannot be joined: "
                f"{self.index_names} and {other.index_names}"
            )
        if self.steps != other.steps:
            raise ValueError(
                "fits that went through different steps of analysis cannot be joined: "
                f"{', '.join(self.steps) or 'none'}, and {', '.join(other.steps) or 'none'}. Do "
                "the same steps with all"
            )
        if self.units != other.units and None in (self.settings, other.settings):
            raise ValueError(
                "fits whose columns have different units cannot be joined: "
                f"{self.units} and {other.units}"
            )
        one, two = self.settings, other.settings
        if one is two or one is None or two is None:
            return
        for name in _MEANINGFUL:
            values = getattr(one, name), getattr(two, name)
            if values[0] != values[1]:
                raise ValueError(
                    f"fits of a different {name} cannot be joined: {values[0]!r} and "
                    f"{values[1]!r}. Join their tables: pandas.concat"
                )


class Columns:
    """Named arrays of one length, which are attributes and cannot be replaced."""

    _columns: dict[str, NDArray[Any]]

    def __init__(self, columns: Mapping[str, NDArray[Any]], **others: Any) -> None:
        shapes: set[tuple[int, ...]] | None = None
        if isinstance(columns, Mapping):
            shapes = {getattr(values, "shape", ()) for values in columns.values()}
        if shapes is None or any(len(shape) != 1 for shape in shapes):
            raise TypeError("fits are made of columns: a mapping of names to arrays of one axis")
        if len(shapes) != 1:
            lengths = sorted(shape[0] for shape in shapes)
            raise ValueError(f"all columns must have one length; got {lengths}")
        # Assignment is refused by __setattr__.
        self.__dict__.update(_columns=dict(columns), **others)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{name} cannot be set, as fits are immutable. Make new ones, "
            "fits.with_columns(fits.columns | {…}), or a table"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be deleted, as fits are immutable")

    def __getattr__(self, name: str) -> NDArray[Any]:
        columns: dict[str, NDArray[Any]] = self.__dict__.get("_columns", {})
        if name in columns:
            return columns[name]
        raise AttributeError(f"these fits have no column {name!r}; they have {', '.join(columns)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._columns]

    def __len__(self) -> int:
        return len(self._columns["y"])

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return name in self._columns

    def __iter__(self) -> Iterator[Self]:
        return (self[i : i + 1] for i in range(len(self)))

    def __getitem__(self, rows: Any) -> Self:
        """Select fits by a mask, a slice, an array of row numbers, or one row number."""
        if rows is None or isinstance(rows, (str, tuple, float, bool, np.bool_)):
            raise TypeError(
                f"fits are chosen by a mask, a slice, row numbers or one of them; got {rows!r}"
                + (f". The column is fits.{rows}" if rows in self else "")
            )
        if isinstance(rows, (int, np.integer)):
            rows = [rows]
        if "numpy.ma" in sys.modules and np.ma.is_masked(rows):
            raise ValueError("some rows are masked (numpy.ma); select fits by a plain array")
        if self._columns["y"][rows].ndim != 1:
            raise IndexError(
                f"fits are chosen by one mask or one row of numbers; got shape {np.shape(rows)}"
            )
        chosen = type(self).__new__(type(self))
        own = {name: values[rows] for name, values in self._columns.items()}
        chosen.__dict__.update(self.__dict__ | {"_columns": own})
        return chosen
