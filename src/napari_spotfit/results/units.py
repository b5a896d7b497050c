"""Units in which numbers of fits are shown: those of the columns, or physical ones for pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..models.columns import describe


class PixelSize(NamedTuple):
    """Height and width of an image's pixels in a physical unit."""

    y: float
    x: float
    unit: str

    def factor(self, column: str) -> float | None:
        """Return what turns a column from pixels into the unit.

        None for columns that are not in pixels, and for those along neither axis where
        pixels are not square.
        """
        known = describe(column)
        if known.unit != "px" or known.group == "other":
            return None
        # An ellipse may be rotated: its widths are along no axis of the image.
        if known.axis and known.group != "shape":
            return self.y if known.axis == "y" else self.x
        return self.y if math.isclose(self.y, self.x, rel_tol=1e-6) else None


@dataclass(frozen=True)
class Units:
    """The units in which the numbers of a table are shown.

    Parameters
    ----------
    of : mapping of str to str
        The columns' own units.
    pixel : PixelSize, optional
        Turns pixels into a physical unit; pixels are shown without.
    names : mapping of str to str
        How columns are called where that is not by their names.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    pixel: PixelSize | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def factor(self, name: str) -> float:
        """Return what a column is multiplied by before it is shown."""
        factor = None if self.pixel is None else self.pixel.factor(name)
        return 1.0 if factor is None else factor

    def unit(self, name: str) -> str:
        """Return the unit in which a column is shown; nothing if it has none."""
        if self.pixel is not None and self.pixel.factor(name) is not None:
            return self.pixel.unit
        unit = self.of.get(name, "")
        # Photons are counted in photons: once is enough.
        return "" if unit == name else unit

    def title(self, name: str) -> str:
        """Return a column's name with its unit, such as ``sigma [px]``."""
        unit, name = self.unit(name), self.names.get(name, name)
        return f"{name} [{unit}]" if unit else name
