"""Plots of a session: displacement, power spectrum, Allan deviation, and each fiducial's health."""

from __future__ import annotations

import math
from importlib import import_module
from threading import Thread

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtWidgets import QGridLayout, QWidget

from ..tracking.displacement import allan_deviation, power_spectrum
from ..tracking.session import Snapshot
from .parts.plots import BLUE, GREEN, ORANGE, Band, Plot

#: Frames that are drawn, and those of a spectrum: at most and at least.
_DRAWN, _OF_SPECTRUM, _LEAST = 2000, 8192, 16
#: Decades below which twos and fives have numbers, too, and the most numbers above.
_FEW_DECADES, _MOST_NUMBERS = 1.2, 4
#: Heights in pixels below which a label along an axis is cut, of the plot above and those below.
_LEAST_ABOVE, _LEAST_BELOW = 110, 120
_COLORS = (("y", BLUE), ("x", ORANGE), ("z", GREEN))


class TrackPlots(QWidget):
    """All plots of a session."""

    def __init__(self) -> None:
        super().__init__()
        # The import takes a second, in which the first spectrum would delay the tracking.
        Thread(target=import_module, args=("scipy.signal",), daemon=True).start()
        self.displacement = Plot("time [s]", "drift [nm]", "Displacement", _DISPLACEMENT_TIP)
        self.spectrum = Plot("f [Hz]", "nm²/Hz", "Power spectrum", _SPECTRUM_TIP)
        self.allan = Plot("τ [s]", "Allan [nm]", "Allan deviation", _ALLAN_TIP)
        self.health = Plot("fiducial", "used [%]", "Fiducials", f"<p>{_HEALTH_TIP}</p>")
        self._bands = {name: Band(self.displacement, color, 1) for name, color in _COLORS}
        self.lines = {name: band.line for name, band in self._bands.items()}
        self._spectra = {name: self.spectrum.plot(pen=color) for name, color in _COLORS}
        self._allans = {name: self.allan.plot(pen=color) for name, color in _COLORS}
        for plot in (self.spectrum, self.allan):
            plot.setLogMode(True, True)
            # Half of the last number stands beside its axis.
            plot.plotItem.layout.setContentsMargins(0, 6, 12, 5)
        self.bars = pg.BarGraphItem(x=[], height=[], width=0.8, brush=BLUE)
        self.health.addItem(self.bars)
        self.health.setYRange(0, 100)
        self._lay_out()

    def _lay_out(self) -> None:
        for plot in (self.displacement, self.spectrum, self.allan, self.health):
            above = plot is self.displacement
            plot.setMinimumHeight(_LEAST_ABOVE if above else _LEAST_BELOW)
            for axis in ("bottom", "left"):  # numbers of nothing, until there is something
                plot.getAxis(axis).setTicks([])
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(0)
        grid.addWidget(self.displacement, 0, 0, 1, 3)
        for column, plot in enumerate((self.spectrum, self.allan, self.health)):
            grid.addWidget(plot, 1, column)
        grid.setRowStretch(0, 3)
        grid.setRowStretch(1, 2)

    def show_displacement(self, seen: Snapshot, pixel_size: float) -> None:
        """Draw the last displacements and how many fiducials took part; nanometres a pixel."""
        time = seen.time[-_DRAWN:]
        if not len(time):
            return
        self._number()
        time = time - seen.time[0]
        for name, band in self._bands.items():
            values = _nanometres(seen, name, pixel_size)[-_DRAWN:]
            band.show(time, values, _nanometres(seen, f"{name}_stderr", pixel_size)[-_DRAWN:])
        share = 100.0 * seen.taking_part
        left_out = {} if seen.last is None else seen.last.left_out
        colors = [ORANGE if number in left_out else BLUE for number in range(len(share))]
        self.bars.setOpts(x=np.arange(len(share)), height=share, brushes=colors)
        words = "<br>".join(f"{number} {why}" for number, why in left_out.items())
        self.health.setToolTip(f"<p>{_HEALTH_TIP}</p><p>{words}</p>")

    def _number(self) -> None:
        """Let pyqtgraph number the linear axes."""
        for axis in (self.displacement.getAxis("bottom"), self.displacement.getAxis("left")):
            axis.setTicks(None)
        self.health.getAxis("bottom").setTicks(None)
        self.health.getAxis("left").setTicks([[(share, str(share)) for share in (0, 50, 100)]])

    def show_spectra(self, seen: Snapshot, pixel_size: float) -> None:
        """Draw power spectrum and Allan deviation."""
        if seen.rate <= 0:
            return
        for plot, curves, transform in (
            (self.spectrum, self._spectra, power_spectrum),
            (self.allan, self._allans, allan_deviation),
        ):
            drawn = []
            for name, curve in curves.items():
                values = _nanometres(seen, name, pixel_size)[-_OF_SPECTRUM:]
                if np.count_nonzero(np.isfinite(values)) >= _LEAST:
                    drawn.append(_above_0(*transform(values, seen.rate)))
                    curve.setData(*drawn[-1])
            for axis, numbers in zip(("bottom", "left"), zip(*drawn, strict=True), strict=False):
                plot.getAxis(axis).setTicks([_decades(np.concatenate(numbers))])


def _nanometres(seen: Snapshot, name: str, pixel_size: float) -> NDArray[np.float64]:
    """Return displacements, or errors, in nm: z has them already."""
    values: NDArray[np.float64] = getattr(seen, name)
    return values if name.startswith("z") else values * pixel_size


def _decades(values: NDArray[np.float64]) -> list[tuple[float, str]]:
    """Return the numbers of a logarithmic axis, few enough not to overlap."""
    if not len(values):
        return []
    least, most = math.log10(values.min()), math.log10(values.max())
    steps = (1, 2, 5) if most - least < _FEW_DECADES else (1,)
    apart = math.ceil((most - least) / _MOST_NUMBERS) or 1
    marks = [step * 10.0**power for power in range(-12, 13, apart) for step in steps]
    return [(math.log10(mark), f"{mark:g}") for mark in marks]


def _above_0(
    x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points that logarithmic axes can show."""
    return x[y > 0], y[y > 0]


_DISPLACEMENT_TIP = (
    "<p>By how much the sample has moved since the first frame, along y (blue), x (orange) and, "
    "with a calibration, z (green), in nanometres, with the band of one standard error.</p>"
)
_SPECTRUM_TIP = (
    "<p>Power spectrum of the last frames, along y (blue), x (orange) and z (green): a vibration "
    "is a peak at its frequency f.</p>"
)
_ALLAN_TIP = (
    "<p>Allan deviation: by how much means over a time τ differ from the next. Where it falls, "
    "averaging longer helps; where it rises, the sample drifts meanwhile.</p>"
)
_HEALTH_TIP = (
    "In how many of the last hundred frames or so each fiducial took part; orange takes none now."
)
