"""A plot of drift over the frames."""

from __future__ import annotations

import numpy as np

from ...analysis.drift import Drift
from ...results.numbers import Units
from ..parts.layout import explain
from ..parts.plots import BLUE, ORANGE, Band, Plot

_TIP = (
    "<p>How far the sample has moved since the first frame, with a band of one standard error: "
    "y blue, x orange.</p>"
)
#: Width and height in pixels with axes, at least.
_LEAST = 140, 90


class DriftPlot(Plot):
    """Draws drift along y and x with its errors, and is hidden without one."""

    def __init__(self) -> None:
        super().__init__("frame", "drift [px]")
        self.curves = [Band(self, color) for color in (BLUE, ORANGE)]
        self.setMinimumSize(*_LEAST)
        explain(self, "Drift over the frames", _TIP)

    def show_drift(self, drift: Drift | None, units: Units) -> None:
        """Draw a drift in some units."""
        self.setVisible(drift is not None)
        if drift is None:
            return
        factor, unit = units.factor("x"), units.unit("x") or "px"
        self.setLabel("left", f"drift [{unit}]")
        for curve, axis in zip(self.curves, "yx", strict=True):
            values, errors = (getattr(drift, one) * factor for one in (axis, f"{axis}_stderr"))
            curve.show(np.arange(float(len(values))), values, np.nan_to_num(errors))
        self.autoRange()
