"""How wide spots are, whatever model they were fitted with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cpu.library import load
from ..kernel_arguments import address
from .verdict_settings import WIDTHS


def mean_sigma(columns: Mapping[str, Any], gain: float = 1.0) -> NDArray[np.float64]:
    """Return the width of each spot in pixels; NaN where the columns do not tell it.

    The σ of a round Gaussian; the geometric mean of an elliptical one's; that of the round
    Gaussian which is as wide at half maximum as a Moffat profile, whose wings may have
    much of its light; else that of the round Gaussian with the same height and the same
    light, which for models of one's own is that in the ROI. In one table, spots may differ in
    that. The formulas are in kernels/verdict.h.

    Parameters
    ----------
    columns : mapping of str to array
        Columns of fits, by name, or the numbers of one.
    gain : float
        Counts per photon with which the photons were computed.

    Examples
    --------
    >>> float(mean_sigma({"sigma_x": np.float64(1), "sigma_y": np.float64(4)}))
    2.0
    """
    given = {name: columns[name] for name in (*WIDTHS, "amplitude", "photons") if name in columns}
    shape = np.broadcast_shapes(*map(np.shape, (given or columns).values()))
    values = np.full((len(WIDTHS) + 2, *shape), np.nan)
    for place, name in enumerate((*WIDTHS, "amplitude", "photons")):
        if name in given:
            values[place] = given[name]
    values[-1] *= gain
    widths = np.empty(shape)
    library = load()
    library.functions.spotfit_mean_widths(
        library.index, address(values), widths.size, address(widths)
    )
    return widths
