"""Pixels in a layer's physical unit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...models.columns import describe

if TYPE_CHECKING:
    from napari.layers import Layer

#: How the usual units are written.
_SYMBOLS = {"micrometer": "µm", "nanometer": "nm", "millimeter": "mm"}


class PixelSize(NamedTuple):
    """Height and width of a layer's pixels in a physical unit."""

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


def pixel_size(layer: Layer) -> PixelSize | None:
    """Return the size of a layer's pixels; None if the layer has no physical unit."""
    unit, other = (str(unit) for unit in layer.units[-2:])
    if unit != other or unit in ("pixel", "dimensionless"):
        return None
    corners = np.zeros((3, layer.ndim))
    corners[1, -2] = corners[2, -1] = 1
    origin, *ends = (np.asarray(layer.data_to_world(corner)) for corner in corners)
    y, x = (float(np.linalg.norm(end - origin)) for end in ends)
    return PixelSize(y, x, _SYMBOLS.get(unit, unit))
