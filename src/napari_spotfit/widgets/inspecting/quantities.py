"""A spot's numbers as a table of texts."""

from __future__ import annotations

from typing import NamedTuple

from ...models.columns import COLUMNS, Column
from ..layers.images import PixelSize
from ..parts.messages import plain, with_error
from .sample import settings_of
from .spot import Spot

#: Digits after the point of a length without a standard error.
_DECIMALS = 3
#: What is listed besides the shape parameters, in order.
_BESIDES = tuple(
    one for one in COLUMNS.values() if one.group in ("light", "fit") and not one.error_of
)
_ERROR = "After ±, the standard error."
_PHYSICAL = (
    "On the right, in the layer's own unit, from the centre of the image's first pixel or as a "
    "length."
)


class Quantity(NamedTuple):
    """One row of the table."""

    name: str
    label: str
    #: Value, standard error and unit; and the same in the layer's physical unit, if any.
    text: str
    physical: str
    #: What it means.
    tip: str


def quantities(spot: Spot, size: PixelSize | None) -> list[Quantity]:
    """Return all numbers of a spot, with standard errors and units.

    Parameters
    ----------
    spot : Spot
        The spot.
    size : PixelSize or None
        The size of a pixel where the layer has a physical unit.
    """
    shape = [parameter.column for parameter in settings_of({}, spot.settings).profile.shape]
    return [
        _quantity(column, spot, size)
        for column in (*shape, *_BESIDES)
        if column.name in spot.values
    ]


def as_table(rows: list[Quantity], spot: Spot, size: PixelSize | None) -> str:
    """Return the numbers with all their digits, separated by tabs, for a spreadsheet."""
    unit = "" if size is None else f"\tvalue ({size.unit})\tstandard error ({size.unit})"
    lines = [f"quantity\tvalue\tstandard error\tunit{unit}"]
    for row in rows:
        error = spot.values.get(f"{row.name}_stderr")
        cells: list[object] = [row.name, spot.values[row.name], error, spot.units.get(row.name)]
        factor = None if size is None else size.factor(row.name)
        if size is not None:
            for number in (spot.values[row.name], error):
                cells.append(None if factor is None or number is None else number * factor)
        lines.append("\t".join("" if cell is None else str(cell) for cell in cells))
    lines.append(f"stop_condition\t{spot.stop}")
    return "\n".join(lines)


def _quantity(column: Column, spot: Spot, size: PixelSize | None) -> Quantity:
    name = column.name
    value, error = spot.values[name], spot.values.get(f"{name}_stderr")
    unit = spot.units.get(name, "")
    decimals = _DECIMALS if unit == "px" else None
    text = f"{value:.0f}" if column.is_whole else with_error(value, error, decimals)
    factor = None if size is None else size.factor(name)
    physical = ""
    if size is not None and factor is not None:
        scaled = None if error is None else error * factor
        number = plain(value * factor) if scaled is None else with_error(value * factor, scaled)
        physical = f"{number} {size.unit}"
    tips = [column.meaning] + [_ERROR] * (error is not None) + [_PHYSICAL] * bool(physical)
    return Quantity(name, column.label or name, f"{text} {unit}".rstrip(), physical, " ".join(tips))
