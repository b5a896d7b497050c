"""Where a fit with a calibration lies on its curves."""

from __future__ import annotations

import math

import numpy as np
import pyqtgraph as pg

from ...models.astigmatism import AstigmatismCalibration
from ...models.measured_psf import MeasuredPsf
from ...settings.settings import Settings
from ..parts.layout import explain
from ..parts.plots import BLUE, GREY, ORANGE, Plot
from .spot import Spot

#: Points of a curve, the size of the spot's own in pixels, and the least height of the plot.
_POINTS, _DOT, _LEAST = 100, 9, 110
_WIDTHS = (
    "<p>The calibration's widths along x (blue) and y (orange) against z, and those of this spot "
    "(dots) at its z. Dots beside the curves: more than one spot, or another PSF.</p>"
)
_ERRORS = (
    "<p>The least possible error of z of a spot with this light and background against z (line), "
    "and that of this spot (dot).</p>"
)


class DepthCurve(Plot):
    """The curves of a calibration against z, and a spot on them."""

    def __init__(self) -> None:
        super().__init__("z (nm)", "σ (px)")
        self.setMinimumHeight(_LEAST)
        self.curves = {color: self.plot(pen=color) for color in (BLUE, ORANGE)}
        self.dots = pg.ScatterPlotItem(size=_DOT, pen=pg.mkPen(GREY))
        self.addItem(self.dots)

    def show_spot(self, spot: Spot) -> None:
        """Draw the curves of a spot's calibration; hide the plot without one."""
        model, z = Settings(**spot.settings).model, spot.values.get("z", math.nan)
        limits = model.range if isinstance(model, (AstigmatismCalibration, MeasuredPsf)) else None
        self.setVisible(limits is not None)
        if limits is None:
            return
        at = np.linspace(*limits, _POINTS)
        if isinstance(model, AstigmatismCalibration):
            names = ["sigma_x", "sigma_y"]
            lines = [curve(at / model.index_factor) for curve in (model.x, model.y)]
            self.setLabel("left", "σ (px)")
            explain(self, "Widths against z", _WIDTHS)
        else:
            assert isinstance(model, MeasuredPsf)
            light = spot.values["photons"]
            background = spot.values["background"] / (spot.settings.get("gain") or 1.0)
            bound = model.precision(max(light, 1.0), max(background, 0.01), z=at)
            names, lines = ["z_stderr"], [bound.z_stderr]
            self.setLabel("left", "error of z (nm)")
            explain(self, "Error of z", _ERRORS)
        own = [spot.values.get(name, math.nan) for name in names]
        self.dots.setData(
            [z] * len(own), own, brush=[pg.mkBrush(c) for c in self.curves][: len(own)]
        )
        for curve, values in zip(
            self.curves.values(), [*lines, np.full(_POINTS, np.nan)], strict=False
        ):
            curve.setData(at, values)
