"""The outline of a spot, whatever model it was fitted with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...widths import mean_sigma

__all__ = ["Ellipse", "mean_sigma", "outline"]


class Ellipse(NamedTuple):
    """Half axes in pixels, and the angle of the first from x towards y in degrees."""

    along: float
    across: float
    angle: float


def outline(values: Mapping[str, float]) -> Ellipse:
    """Return the ellipse of one σ of a spot, or the circle where it has one width."""
    along, across = values.get("sigma_x", math.nan), values.get("sigma_y", math.nan)
    if math.isfinite(along) and math.isfinite(across):
        return Ellipse(along, across, values.get("angle", 0.0))
    sigma = float(mean_sigma({name: np.float64(value) for name, value in values.items()}))
    return Ellipse(sigma, sigma, 0.0)
