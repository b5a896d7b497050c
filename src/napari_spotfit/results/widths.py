"""How wide spots are, whatever model they were fitted with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

#: The half width at half maximum of a Gaussian with σ = 1.
_HALF_WIDTH = math.sqrt(2 * math.log(2))


def mean_sigma(columns: Mapping[str, Any], gain: float = 1.0) -> Any:
    """Return the width of each spot in pixels; NaN where the columns do not tell it.

    The σ of a round Gaussian; the geometric mean of an elliptical one's; that of the round
    Gaussian which is as wide at half maximum as a Moffat profile, whose wings may have
    much of its light; else that of the round Gaussian with the same height and the same
    light, which for models of one's own is that in the ROI. In one table, spots may differ in
    that.

    Parameters
    ----------
    columns : mapping of str to array
        Columns of fits, by name; they may lie on a GPU.
    gain : float
        Counts per photon with which the photons were computed.

    Examples
    --------
    >>> float(mean_sigma({"sigma_x": np.float64(1), "sigma_y": np.float64(4)}))
    2.0
    """
    width: Any = None
    with np.errstate(divide="ignore", invalid="ignore"):  # spots of no height
        for way in _ways(columns, gain):
            width = way if width is None else np.where(np.isnan(width), way, width)
            if not np.isnan(width).any():
                break
    return np.nan if width is None else width


def _ways(columns: Mapping[str, Any], gain: float) -> Iterator[Any]:
    """Yield the widths that columns tell, the better known ones first."""
    if "sigma" in columns:
        yield columns["sigma"]
    if "sigma_x" in columns and "sigma_y" in columns:
        yield (columns["sigma_x"] * columns["sigma_y"]) ** 0.5
    if "width" in columns and "exponent" in columns:
        half = (2.0 ** (1.0 / columns["exponent"]) - 1.0) ** 0.5 * columns["width"]
        yield half / _HALF_WIDTH
    if "photons" in columns and "amplitude" in columns:
        area = abs(columns["photons"] / columns["amplitude"]) * gain
        yield (area / (2 * math.pi)) ** 0.5
