"""Plots of a calibration: widths, errors of z, and shifts of the centre, against z."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QGridLayout, QWidget

from ...models.astigmatism import AstigmatismCalibration
from ..parts.layout import explain
from ..parts.plots import BLUE, GREY, ORANGE, Plot, faint

#: Points of a curve, their size in pixels, how opaque the range is, and the least height of a plot.
_POINTS, _DOT, _RANGE, _LEAST = 200, 4, 40, 110
_WIDTHS_TIP = (
    "<p>Widths of the beads along x (blue) and y (orange), averaged, and the curves. z is 0 where "
    "both are equal; the range in which they determine z is shaded.</p>"
)
_ERRORS_TIP = (
    "<p>Error of z of each bead by the calibration of the others: its mean (line), and its "
    "standard deviation (blue) beside what the fits' errors say (grey).</p>"
)
_WOBBLE_TIP = (
    "<p>How far spots appear along x (blue) and y (orange) from where they are at z = 0: it is "
    "taken from the fits.</p>"
)


class CalibrationPlots(QWidget):
    """All plots of an astigmatism calibration."""

    def __init__(self) -> None:
        super().__init__()
        self.widths = Plot("z [nm]", "σ [px]")
        self.errors = Plot("z [nm]", "error of z [nm]")
        self.wobble = Plot("z [nm]", "shift [px]")
        for plot, name, tip in (
            (self.widths, "Widths", _WIDTHS_TIP),
            (self.errors, "Error of z", _ERRORS_TIP),
            (self.wobble, "Shift", _WOBBLE_TIP),
        ):
            explain(plot, name, tip)
            plot.setMinimumHeight(_LEAST)
        self.range = pg.LinearRegionItem(
            movable=False, brush=faint(GREY, _RANGE), pen=pg.mkPen(None)
        )
        self.range.hide()
        self.widths.addItem(self.range)
        dots = {"pen": None, "symbolSize": _DOT, "symbolPen": None}
        self.points = {
            axis: self.widths.plot(symbol="o", symbolBrush=color, **dots)
            for axis, color in (("x", BLUE), ("y", ORANGE))
        }
        self.curves = {axis: self.widths.plot(pen=color) for axis, color in _COLORS}
        self.shifts = {axis: self.wobble.plot(pen=color) for axis, color in _COLORS}
        bound = pg.mkPen(GREY, style=Qt.PenStyle.DashLine)
        self.bias = self.errors.plot(pen=pg.mkPen(GREY, width=1))
        self.scatter = self.errors.plot(pen=BLUE)
        self.bound = self.errors.plot(pen=bound)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.addWidget(self.widths, 0, 0, 1, 2)
        grid.addWidget(self.errors, 1, 0)
        grid.addWidget(self.wobble, 1, 1)
        grid.setRowStretch(0, 3)
        grid.setRowStretch(1, 2)

    def show_calibration(self, lens: AstigmatismCalibration | None) -> None:
        """Draw a calibration; nothing for none."""
        z = np.empty(0) if lens is None else np.linspace(lens.low, lens.high, _POINTS)
        self.range.setVisible(lens is not None)
        points = np.reshape(() if lens is None else lens.points, (-1, 4)).T
        for place, axis in enumerate("xy", 1):
            self.points[axis].setData(points[0], points[place])
            curve = None if lens is None else getattr(lens, axis)
            self.curves[axis].setData(z, z if curve is None else curve(z))
            shift = None if lens is None else getattr(lens, f"wobble_{axis}")
            self.shifts[axis].setData(z, np.zeros(z.shape) if shift is None else shift(z))
        if lens is not None:
            self.range.setRegion((lens.low, lens.high))
        quality = None if lens is None else lens.quality
        rows = ((),) * 4 if quality is None else quality
        for curve, values in zip((self.bias, self.scatter, self.bound), rows[1:], strict=True):
            curve.setData(np.array(rows[0], float), np.array(values, float))


_COLORS = (("x", BLUE), ("y", ORANGE))
