"""Pages with plots: two features against each other with a lasso, and sub-pixel positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QRectF, Qt, Signal
from qtpy.QtGui import QPainter, QPolygonF
from qtpy.QtWidgets import QHBoxLayout, QLabel

from ...analysis.filters import Filters, Gate
from ..parts.layout import Label, fill
from ..parts.messages import number
from ..parts.plots import BLUE, DIM, GREY, ORANGE, Plot, faint
from .shown_spots import FeatureChoice, Page, ShownSpots

#: Distance between corners along the way of the mouse, in pixels of the screen.
_STEP = 4.0
#: More spots than this are drawn as an image of how many there are.
_MOST_POINTS = 20_000
#: More selected spots than this are not marked.
_MOST_MARKS = 5000
_PIXELS = 200
#: Approximate number of spots that percentiles are computed from.
_SAMPLE = 100_000
#: Percentiles between which the axes run.
_PERCENTILES = (0.1, 99.9)
#: How near in pixels of the screen a click must be to a spot.
_NEAR = 10
_PLOT_TIP = (
    "<p>The spots that are shown; those that are selected are marked in orange. Click a spot to "
    "select it. Drag around some to show only them: those outside stay here in grey, and the list "
    "of filters takes the outline away. More than 20 000 spots are drawn as an image: the "
    "brighter, the more.</p>"
)
_HINT_TIP = (
    "<p>The axes run from the 0.1th to the 99.9th percentile of the spots that are shown, a "
    "little wider.</p>"
)
_ACROSS, _UP = "along the horizontal axis", "along the vertical axis"
_COLORS = {"y": BLUE, "x": ORANGE}
_LEAST, _MOST = 10, 50
#: Least number of spots per bin, if there are enough.
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
    "the pixels can resolve.</p>"
)


class Lasso(pg.GraphicsObject):  # type: ignore[misc]
    """Draws a closed outline over all of a plot."""

    #: The corners of a new outline, one row (x, y) each.
    drawn = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._kept: NDArray[np.float64] = np.zeros((0, 2))
        self._new: list[tuple[float, float]] = []
        self._covered = QRectF()
        self.setZValue(10)

    def put(self, corners: Any) -> None:
        """Show an outline, or none where there are no corners."""
        self._kept = np.reshape(np.asarray(corners, float), (-1, 2))
        self.update()

    def boundingRect(self) -> QRectF:
        """Cover all that the plot shows, so that a drag may begin anywhere."""
        return self._covered

    def cover(self, *_: Any) -> None:
        """Cover what the plot shows now."""
        self.prepareGeometryChange()
        self._covered = QRectF(self.getViewBox().viewRect())

    def paint(self, painter: QPainter, *_: Any) -> None:
        """Draw the outline that is being drawn, or else the one that stays."""
        corners = self._new or self._kept.tolist()
        painter.setPen(pg.mkPen(ORANGE, width=2))
        painter.setBrush(faint(ORANGE, 30))
        painter.drawPolygon(QPolygonF([QPointF(x, y) for x, y in corners]))

    def mouseDragEvent(self, event: Any) -> None:
        """Set corners along the way; the outline is ready when the button is let go."""
        if event.button() != Qt.MouseButton.LeftButton:
            event.ignore()
            return
        event.accept()
        if event.isStart():
            self._new = [_xy(event.buttonDownPos())]
        pixel = np.array(self.getViewBox().viewPixelSize())
        place = _xy(event.pos())
        if np.hypot(*((np.array(place) - self._new[-1]) / pixel)) >= _STEP:
            self._new.append(place)
        if event.isFinish():
            corners, self._new = self._new, []
            if len(corners) >= 3:
                self.drawn.emit(np.array(corners))
        self.update()


def _xy(point: Any) -> tuple[float, float]:
    return float(point.x()), float(point.y())


class ScatterPage(Page):
    """A scatter plot of any two features of the spots that are shown.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots)
        self.across, self.up = (
            FeatureChoice(spots, first, f"Feature {along}", f"<p>The feature {along}.</p>")
            for first, along in (("sigma", _ACROSS), ("photons", _UP))
        )
        self.hint, self.plot = Label(), Plot(tip=_PLOT_TIP, height=74)
        self.points = pg.ScatterPlotItem(size=4, pen=None, brush=faint(BLUE, 150))
        self.image = pg.ImageItem(axisOrder="row-major", autoDownsample=False)
        self.marks = pg.ScatterPlotItem(size=11, pen=pg.mkPen(ORANGE, width=2), brush=None)
        self.outside = pg.ScatterPlotItem(size=4, pen=None, brush=DIM)
        self.lasso = Lasso()
        for item in (self.image, self.outside, self.points, self.marks):
            self.plot.addItem(item)
        self.plot.addItem(self.lasso, ignoreBounds=True)
        self._rows: NDArray[np.intp] = np.zeros(0, np.intp)
        self._places: NDArray[np.float64] = np.zeros((0, 2))
        self._beyond: NDArray[np.float64] = np.zeros((0, 2))
        self._lay_out()
        self.across.chosen.connect(self.show_rows)
        self.up.chosen.connect(self.show_rows)
        spots.selected.connect(self._mark)
        self.plot.getViewBox().sigRangeChanged.connect(self.lasso.cover)
        self.lasso.drawn.connect(self._on_lasso)
        self.plot.scene().sigMouseClicked.connect(self._on_click)

    def show_table(self) -> None:
        """List the features."""
        self.across.show_features()
        self.up.show_features()

    def show_rows(self) -> None:
        """Draw the spots that are shown, and faintly what the lasso hides."""
        self._collect()
        drawn = np.concatenate([self._places, self._beyond])
        count = inside = len(drawn)
        if count:
            sample = drawn[:: max(1, count // _SAMPLE)]
            low, high = np.percentile(sample, _PERCENTILES, axis=0)
            margin = np.where(high > low, 0.05 * (high - low), 0.05 * np.abs(low) + 1e-9)
            low, high = low - margin, high + margin
            within = np.all((drawn >= low) & (drawn <= high), axis=1)
            inside = int(np.count_nonzero(within))
            self.plot.setRange(xRange=(low[0], high[0]), yRange=(low[1], high[1]), padding=0)
        many = count > _MOST_POINTS
        self.image.setVisible(many)
        self.points.setVisible(not many)
        if many:
            self._paint(drawn[within], low, high)
        self.points.setData(pos=np.zeros((0, 2)) if many else self._places)
        self.outside.setData(pos=np.zeros((0, 2)) if many else self._beyond)
        self._mark()
        beyond = f", {number(count - inside)} beyond the axes" if inside < count else ""
        gated = f", {number(len(self._places))} within the lasso" if len(self._beyond) else ""
        self.hint.setText(f"{number(count)} spots{beyond}{gated}")

    def _collect(self) -> None:
        """Take the two features of the spots that are shown, as far as they are numbers."""
        columns = [one.column for one in (self.across, self.up) if one.column is not None]
        self._rows, self._places = np.zeros(0, np.intp), np.zeros((0, 2))
        self._beyond, filters = np.zeros((0, 2)), self._spots.filters
        gate = filters.gate(self.across.name, self.up.name)
        self.lasso.put(() if gate is None else np.array(gate.corners) * self._factors())
        if len(columns) == 2:
            shown = self._spots.shown
            if gate is not None:
                shown = shown | self._spots.passing(filters.without(Filters(gates=[gate])))
            rows = np.flatnonzero(shown)
            places = np.column_stack([one.values[rows] for one in columns]) * self._factors()
            finite, inside = np.isfinite(places).all(axis=1), self._spots.shown[rows]
            self._rows, self._places = rows[finite & inside], places[finite & inside]
            self._beyond = places[finite & ~inside]

    def _factors(self) -> NDArray[np.float64]:
        """Return what the two features are multiplied by before they are shown."""
        return np.array([self._spots.units.factor(one.name) for one in (self.across, self.up)])

    def _on_lasso(self, corners: NDArray[np.float64]) -> None:
        """Show only what lies within a new outline."""
        own = (corners / self._factors()).tolist()
        gate = Gate(self.across.name, self.up.name, [(x, y) for x, y in own])
        self._spots.set_filters(self._spots.filters.with_gate(gate))

    def _paint(self, places: NDArray[np.float64], low: Any, high: Any) -> None:
        cells = ((places - low) * (_PIXELS / (high - low))).astype(np.intp)
        np.clip(cells, 0, _PIXELS - 1, out=cells)
        flat = np.bincount(cells[:, 1] * _PIXELS + cells[:, 0], minlength=_PIXELS**2)
        density = np.log1p(flat.reshape(_PIXELS, _PIXELS))
        table = pg.colormap.get("viridis").getLookupTable(nPts=256, alpha=True)
        table[0, 3] = 0  # Where no spot is, the plot's own background shows.
        self.image.setImage(density, levels=(0, density.max()), lut=table)
        (left, bottom), (width, height) = low, high - low
        self.image.setRect(float(left), float(bottom), float(width), float(height))

    def _mark(self) -> None:
        if not self._on_top:
            self._new_rows = True
            return
        selected = self._spots.selection()
        if len(selected) > _MOST_MARKS:
            selected = selected[:0]
        self.marks.setData(pos=self._places[np.isin(self._rows, selected)])

    def _on_click(self, event: Any) -> None:
        """Select the nearest spot, if it is near on the screen."""
        if event.button() != Qt.MouseButton.LeftButton or not len(self._places):
            return
        box = self.plot.getViewBox()
        clicked, pixel = box.mapSceneToView(event.scenePos()), box.viewPixelSize()
        away = (self._places - (clicked.x(), clicked.y())) / pixel
        distance = np.hypot(*away.T)
        nearest = int(np.argmin(distance))
        if distance[nearest] <= _NEAR:
            self._spots.select(self._rows[nearest : nearest + 1])

    def _lay_out(self) -> None:
        self.hint.setToolTip(_HINT_TIP)
        row = fill(QHBoxLayout(), (self.up, 1), Label("against"), (self.across, 1))
        self.fill(row, (self.plot, 1), self.hint, spacing=2)


class SubpixelPage(Page):
    """Histograms of the sub-pixel positions of the spots that are shown.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots)
        self.plot = Plot(tip=_TIP, height=60)
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
        self.legend, self.words = QLabel(), Label(_WHAT)
        for label in (self.legend, self.words):
            label.setWordWrap(True)
            label.setToolTip(_TIP)
        self.fill(self.legend, (self.plot, 1), self.words, spacing=2)

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
