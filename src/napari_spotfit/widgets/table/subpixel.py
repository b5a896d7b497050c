"""Where in their pixel the spots lie: pixel locking shows as a bump."""

from __future__ import annotations

import math

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QLabel, QVBoxLayout

from ..parts.layout import fill
from ..parts.messages import number
from ..parts.plots import BLUE, GREY, ORANGE, Plot
from .page import Page
from .shown_spots import ShownSpots

_COLORS = {"y": BLUE, "x": ORANGE}
_LEAST, _MOST = 10, 50
#: So many spots per bin at least, if there are enough.
_PER_BIN = 50
_WHAT = (
    "Both curves should be flat but for noise; a bump at 0 means that fits are drawn to pixel "
    "centres (pixel locking), one at ±0.5 that they are drawn to the edges."
)
_TIP = (
    "<p>Histogram of the centres' distances from the centre of the pixel they lie in, along y and "
    "x, for the spots that are shown. Real spots lie anywhere in a pixel: the dashed line is what "
    "they would give, and two thirds of the steps should be within the dotted lines.</p><p>Where "
    "they do not, σ, the ROI size or the background may not suit, or the spots are narrower than "
    "the pixels can tell.</p>"
)


class SubpixelPage(Page):
    """Histograms of the sub-pixel positions of the spots that are shown.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots)
        self.plot = Plot()
        self.curves = {
            name: pg.PlotCurveItem([0, 1], [0], stepMode="center", pen=pg.mkPen(color, width=2))
            for name, color in _COLORS.items()
        }
        dashed = pg.mkPen(GREY, width=1, style=Qt.PenStyle.DashLine)
        dotted = pg.mkPen(GREY, width=1, style=Qt.PenStyle.DotLine)
        self.even = pg.InfiniteLine(angle=0, pen=dashed)
        self.noise = [pg.InfiniteLine(angle=0, pen=dotted) for _ in range(2)]
        for item in (*self.noise, self.even, *self.curves.values()):
            self.plot.addItem(item)
        self.plot.setToolTip(_TIP)
        self.plot.setMinimumHeight(60)
        self.legend, self.words = QLabel(), QLabel(_WHAT)
        for label in (self.legend, self.words):
            label.setWordWrap(True)
            label.setToolTip(_TIP)
        fill(
            QVBoxLayout(self),
            self.legend,
            (self.plot, 1),
            self.words,
            margins=(6, 6, 6, 6),
            spacing=2,
        )
        self.rows_due.connect(self.show_rows)

    def show_rows(self) -> None:
        """Draw the spots that are shown."""
        counts = {name: self._count(name) for name in self.curves}
        steps = len(counts["y"])
        total = int(counts["y"].sum())
        expected = total / steps
        for name, curve in self.curves.items():
            curve.setData(np.linspace(-0.5, 0.5, steps + 1), counts[name])
        self.even.setValue(expected)
        spread = math.sqrt(expected)
        for line, value in zip(self.noise, (expected - spread, expected + spread), strict=True):
            line.setValue(value)
        highest = max(*(int(count.max()) for count in counts.values()), expected + spread, 1)
        self.plot.setXRange(-0.5, 0.5, padding=0.01)
        self.plot.setYRange(0, 1.1 * highest, padding=0)
        marks = [f'<span style="color:{color}">▬</span> {name}' for name, color in _COLORS.items()]
        self.legend.setText(
            f"{number(total)} spots by distance from their pixel's centre [px]: "
            f"{'&nbsp;&nbsp;'.join(marks)}"
        )

    def _count(self, name: str) -> NDArray[np.intp]:
        spots, column = self._spots, self._spots.columns.get(name)
        values = np.zeros(0) if column is None else column.values[spots.shown].astype(float)
        steps = min(max(len(values) // _PER_BIN, _LEAST), _MOST)
        return subpixel_counts(values, steps)


def subpixel_counts(values: NDArray[np.floating], steps: int) -> NDArray[np.intp]:
    """Return the histogram of positions within their pixel, from -0.5 to 0.5."""
    values = values[np.isfinite(values)]
    return np.histogram(values - np.floor(values + 0.5), steps, (-0.5, 0.5))[0]
