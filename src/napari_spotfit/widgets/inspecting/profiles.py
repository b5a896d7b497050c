"""The pixels along the row and the column through a spot's centre, and the model's curve."""

from __future__ import annotations

from typing import Any

import pyqtgraph as pg
from qtpy.QtCore import QSize, Qt
from qtpy.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from ..parts.layout import fill
from ..parts.plots import Plot
from .pixel_axis import PixelAxis
from .sample import Line, SpotSample

_CURVE = "#e8761c"
_DOT = 5
_TIP = (
    "<p>Dots: the image's pixels along the {line} that is nearest to the centre. Curve: the "
    "fitted model along the same {line}, with the camera offset. The dotted line is the fitted "
    "centre.</p>"
)
#: Room in pixels for the numbers and the label on the left and below.
_LEFT, _BOTTOM = 56, 36
#: Room above and below the counts, as a fraction of them.
_MARGIN = 0.06


class Profile(QWidget):
    """One profile.

    Parameters
    ----------
    line, axis : str
        What the pixels lie along: a row along x, or a column along y.
    """

    def __init__(self, line: str, axis: str):
        super().__init__()
        self._line = line
        self.title = QLabel()
        self.title.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.title.setFixedHeight(20)
        self.plot = Plot(y="counts")
        self.plot.setAxisItems({"bottom": PixelAxis("bottom")})
        self.plot.setLabel("bottom", f"{axis} (px)")
        self.plot.setMinimumSize(110, 80)
        self.plot.getViewBox().disableAutoRange()
        self.plot.getAxis("left").setStyle(hideOverlappingLabels=True, maxTickLevel=0)
        self.plot.getAxis("left").setWidth(_LEFT)
        self.plot.getAxis("bottom").setHeight(_BOTTOM)
        # The label hangs over its axis.
        self.plot.plotItem.layout.setContentsMargins(0, 0, 4, 5)
        self.curve = pg.PlotCurveItem(pen=pg.mkPen(_CURVE, width=2), antialias=True)
        self.dots = pg.ScatterPlotItem(size=_DOT, pen=None)
        self._center = pg.InfiniteLine(angle=90)
        for item in (self._center, self.curve, self.dots):
            self.plot.addItem(item)
        fill(QVBoxLayout(self), self.title, (self.plot, 1), spacing=0)
        self.setToolTip(_TIP.format(line=line))
        self.plot.setAccessibleName(f"Profile along {axis}")
        self.plot.inked.connect(self._on_inked)

    def show_line(self, line: Line, center: float, levels: tuple[float, float]) -> None:
        """Show a row or a column between two counts."""
        self.title.setText(f"{self._line} {line.at}")
        self.dots.setData(line.places, line.data)
        self.curve.setData(line.fine, line.curve)
        self._center.setPos(center)
        margin = _MARGIN * ((levels[1] - levels[0]) or 1.0)
        self.plot.getViewBox().setRange(
            xRange=(line.fine[0], line.fine[-1]),
            yRange=(levels[0] - margin, levels[1] + margin),
            padding=0,
        )
        # Now rather than while it is drawn, which would draw it twice.
        self.plot.scene().prepareForPaint()

    def sizeHint(self) -> QSize:
        """Ask for little; there may be more."""
        return QSize(160, 120)

    def _on_inked(self, ink: Any) -> None:
        self.dots.setBrush(ink)
        self._center.setPen(pg.mkPen(ink, style=Qt.PenStyle.DotLine))


class Profiles(QWidget):
    """The profiles along the row and the column, on one scale."""

    def __init__(self) -> None:
        super().__init__()
        self.row, self.column = Profile("row", "x"), Profile("column", "y")
        fill(QHBoxLayout(self), (self.row, 1), (self.column, 1))

    def show_sample(self, sample: SpotSample) -> None:
        """Show a spot."""
        levels = (
            min(sample.levels[0], sample.row.curve.min(), sample.column.curve.min()),
            max(sample.levels[1], sample.row.curve.max(), sample.column.curve.max()),
        )
        self.row.show_line(sample.row, sample.x, levels)
        self.column.show_line(sample.column, sample.y, levels)
