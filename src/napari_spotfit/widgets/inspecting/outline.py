"""The outline of a spot, whatever model it was fitted with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...engine.quality.widths import mean_sigma


class Ellipse(NamedTuple):
    """Half axes in pixels, and the angle of the first from x towards y in degrees."""

    along: float
    across: float
    angle: float


def outline(values: Mapping[str, float], gain: float = 1.0) -> Ellipse:
    """Return the ellipse of one σ of a spot, or the circle where it has one width.

    Parameters
    ----------
    values : mapping of str to float
        The spot's columns.
    gain : float
        Counts per photon with which its photons were computed.
    """
    along, across = values.get("sigma_x", math.nan), values.get("sigma_y", math.nan)
    if math.isfinite(along) and math.isfinite(across):
        return Ellipse(along, across, values.get("angle", 0.0))
    columns = {name: np.float64(value) for name, value in values.items()}
    sigma = float(mean_sigma(columns, gain))
    return Ellipse(sigma, sigma, 0.0)
