"""What a calibration shows: beads as a table, curves and errors, and the widths of beads."""

from __future__ import annotations

import math

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QGridLayout, QHBoxLayout, QTableWidgetItem, QVBoxLayout, QWidget

from ..calibration.microscope_quality import MicroscopeQuality
from ..models.astigmatism import AstigmatismCalibration, Bead
from ..results.formatting import MISSING, Units
from .parts.boxes import Choice
from .parts.layout import TextTable, fill
from .parts.messages import StatusLine
from .parts.plots import BLUE, GREY, ORANGE, Plot, faint
from .result_pages.export import NamedTable, TableExport
from .result_pages.tables import NumbersTable

_AXES, _DOT, _LEAST = "xyz", 12, 140
_MAP_TIP = (
    "<p>The full width at half maximum of each bead that is used, where it lies: yellow is wide, "
    "blue narrow. One side wider than the other: tilt, or a field that is not flat.</p>"
)
_TABLE_TIP = "<p>Where each bead lies, and its widths, or the reason why it is not used.</p>"
_BEAD_TITLES = dict.fromkeys(("bead", "z [nm]", "photons", "residual [px]", ""), "")
_UNTICKED = "unticked"
#: Pixels within which a bead is the same one.
_SAME = 2.0
#: Points of a curve, their size in pixels, how opaque the range is, and the least height of a plot.
_POINTS, _CURVE_DOT, _RANGE, _PLOT_HEIGHT = 200, 4, 40, 110
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


class QualityPage(QWidget):
    """Widths of beads: medians beside theory, a map over the field, a table, a CSV file."""

    def __init__(self) -> None:
        super().__init__()
        self.quality: MicroscopeQuality | None = None
        self.status = StatusLine()
        self.map = Plot("x [px]", "y [px]", "Map of widths", _MAP_TIP, _LEAST)
        self.map.invertY(True)
        self.map.setAspectLocked(True)
        self.dots = pg.ScatterPlotItem(size=_DOT, pen=None, hoverable=True, tip=_tip)
        self.map.addItem(self.dots)
        tip = "<p>Along which axis the map shows widths.</p>"
        self.axis = Choice("Axis of the map", tip, (f"width along {axis}" for axis in _AXES))
        self.export = TableExport(self._named, "all beads and theory")
        self.table = NumbersTable("Widths of beads", _TABLE_TIP)
        self.status.listen(self.export)
        self.axis.currentIndexChanged.connect(lambda: self._draw())
        row = fill(QHBoxLayout(), self.axis, self.export)
        fill(QVBoxLayout(self), self.status, row, (self.map, 2), (self.table, 1))

    def show_quality(self, quality: MicroscopeQuality) -> None:
        """Show what was measured."""
        self.quality = quality
        summary, beads = quality.summary(), quality.beads
        words = []
        for axis in _AXES:
            width, theory = summary.fwhm[axis], summary.theory[axis]
            known = f" (theory {theory:.0f})" if math.isfinite(theory) else ""
            words.append(f"{axis} {width:.0f} ± {summary.spread[axis]:.0f}{known}")
        text = f"Full widths at half maximum of {beads.used.sum()} beads in nm: {', '.join(words)}."
        if not np.isfinite(summary.theory).all():
            text += " Set numerical aperture and wavelength for theory."
        self.status.say(text)
        widths = [f"fwhm_{axis}" for axis in _AXES]
        table = beads[["y", "x", *widths, "reason"]].copy()
        table.loc[~beads.used, widths] = np.nan
        units = {"y": "px", "x": "px", **dict.fromkeys(widths, "nm")}
        self.table.show_frame(table, Units(units))
        self._draw()

    def _named(self) -> NamedTable | None:
        """Return the beads, with theory beside them."""
        if self.quality is None:
            return None
        theory = {f"theory_{axis}": width for axis, width in self.quality.theory.items()}
        return NamedTable("widths", "beads", self.quality.beads.assign(**theory))

    def _draw(self) -> None:
        if self.quality is None:
            return
        used = self.quality.beads[self.quality.beads.used]
        widths = used[f"fwhm_{_AXES[self.axis.currentIndex()]}"].to_numpy(float)
        low, high = widths.min(), widths.max()
        colors = pg.colormap.get("viridis").map((widths - low) / max(high - low, 1e-9))
        self.dots.setData(
            x=used.x.to_numpy(float), y=used.y.to_numpy(float), data=widths,
            brush=[pg.mkBrush(*color) for color in colors],
        )  # fmt: skip


def _tip(x: float, y: float, data: float) -> str:
    return f"y {y:.0f}, x {x:.0f}: {data:.0f} nm"


class BeadTable(TextTable):
    """Beads, each with a tick; one that is not used says why."""

    def __init__(self) -> None:
        super().__init__(_BEAD_TITLES)
        self.heading.setStretchLastSection(True)
        self._beads: list[Bead] = []

    @property
    def places(self) -> NDArray[np.float64]:
        """Y and x of all beads, in pixels."""
        return np.array([(bead.y, bead.x) for bead in self._beads], float).reshape(-1, 2)

    @property
    def ticked(self) -> NDArray[np.bool_]:
        """Which beads are ticked."""
        items = [self.item(row, 0) for row in range(self.rowCount())]
        return np.array(
            [item is not None and item.checkState() == Qt.CheckState.Checked for item in items],
            bool,
        )

    def show_beads(self, beads: tuple[Bead, ...], *, keep: bool = False) -> None:
        """Show the beads of a calibration; with ``keep`` those that were unticked before, too."""
        kept = []
        if keep:
            there = np.array([(one.y, one.x) for one in beads], float).reshape(-1, 2)
            for bead, place in zip(self._beads, self.places, strict=True):
                if not (np.hypot(*(there - place).T) < _SAME).any():
                    reason = _UNTICKED if bead.used else bead.reason
                    kept.append(bead._replace(used=False, reason=reason))
        self._beads = sorted([*beads, *kept])
        self.setRowCount(len(self._beads))
        for row, bead in enumerate(self._beads):
            texts = (
                f"{bead.y:.0f}, {bead.x:.0f}", _text(bead.z, 0), _text(bead.photons, 0),
                _text(bead.residual, 3), "" if bead.used else bead.reason,
            )  # fmt: skip
            for column, text in enumerate(texts):
                item = QTableWidgetItem(text)
                item.setToolTip(text)
                if not column:
                    state = Qt.CheckState.Checked if bead.used else Qt.CheckState.Unchecked
                    item.setFlags(item.flags() | Qt.ItemFlag.ItemIsUserCheckable)
                    item.setCheckState(state)
                self.setItem(row, column, item)
        self.resizeColumnsToContents()


def _text(number: float, digits: int) -> str:
    return f"{number:.{digits}f}" if math.isfinite(number) and number else MISSING


class CalibrationPlots(QWidget):
    """All plots of an astigmatism calibration."""

    def __init__(self) -> None:
        super().__init__()
        self.widths, self.errors, self.wobble = (
            Plot("z [nm]", y, name, tip, _PLOT_HEIGHT)
            for y, name, tip in (
                ("σ [px]", "Widths", _WIDTHS_TIP),
                ("error of z [nm]", "Error of z", _ERRORS_TIP),
                ("shift [px]", "Shift", _WOBBLE_TIP),
            )
        )
        self.range = pg.LinearRegionItem(
            movable=False, brush=faint(GREY, _RANGE), pen=pg.mkPen(None)
        )
        self.range.hide()
        self.widths.addItem(self.range)
        dots = {"pen": None, "symbolSize": _CURVE_DOT, "symbolPen": None}
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
