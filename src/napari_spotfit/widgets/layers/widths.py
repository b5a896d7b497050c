"""How wide spots are, whatever model they were fitted with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Ellipse(NamedTuple):
    """Half axes in pixels, and the angle of the first from x towards y in degrees."""

    along: float
    across: float
    angle: float


def mean_sigma(columns: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the width of each spot in pixels; NaN where the columns do not tell it.

    The σ of a round Gaussian, the geometric mean of an elliptical one's, else that of the
    round Gaussian with the same height and light. In one table, spots may differ in that.
    """

    def column(name: str) -> NDArray[np.float64]:
        return np.asarray(columns[name], float) if name in columns else np.asarray(np.nan)

    with np.errstate(divide="ignore", invalid="ignore"):
        sigma = column("sigma")
        mean = np.sqrt(column("sigma_x") * column("sigma_y"))
        same_light = np.sqrt(abs(column("photons") / column("amplitude")) / (2 * math.pi))
    known = np.where(np.isfinite(sigma), sigma, np.where(np.isfinite(mean), mean, same_light))
    return np.asarray(known, float)


def outline(values: Mapping[str, float]) -> Ellipse:
    """Return the ellipse of one σ of a spot, or the circle where it has one width."""
    along, across = values.get("sigma_x", math.nan), values.get("sigma_y", math.nan)
    if math.isfinite(along) and math.isfinite(across):
        return Ellipse(along, across, values.get("angle", 0.0))
    sigma = float(mean_sigma(values))
    return Ellipse(sigma, sigma, 0.0)
