"""A histogram of one feature, with handles that limit it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtGui import QResizeEvent
from qtpy.QtWidgets import QBoxLayout, QHBoxLayout, QVBoxLayout, QWidget

from ...analysis.filters import Filters
from ...settings.validation import Parameter
from ..parts.boxes import NumberBox
from ..parts.layout import Label, explain, fill
from ..parts.messages import number
from ..parts.plots import BLUE, DIM, ORANGE, Plot, faint
from .features import Feature
from .shown_spots import FeatureChoice, ShownSpots

#: Percentiles that the axis runs between, so that a few outliers do not rule it.
_PERCENTILES = (0.5, 99.5)
_BINS = 100
#: Number of positions of a handle between the ends, about.
_PLACES = 500

Limits = tuple[float | None, float | None]
_OPEN = Parameter("Limit", "", "fit", none_means="open", step=0)
#: Below this width in pixels the limits stand below the feature.
_WIDE = 380
_FEATURE_TIP = "<p>The feature whose histogram is drawn and whose range limits what is shown.</p>"
_LOW_TIP = (
    "<p>Spots below this value are hidden. Empty it for no lower limit. The unit is that of the "
    "feature on the left.</p>"
)
_HIGH_TIP = (
    "<p>Spots above this value are hidden. Empty it for no upper limit. The unit is that of the "
    "feature on the left.</p>"
)
_PLOT_TIP = (
    "<p>Drag the two lines to hide spots outside the range, or drag what is between them. A line "
    "at the end of the axis limits nothing.</p><p>Grey: all spots. Blue: those that pass the "
    "other filters.</p>"
)
_OUTSIDE_TIP = (
    "<p>The axis runs from the 0.5th to the 99.5th percentile, a little wider. Spots beyond it "
    "are hidden only where the line is not at the end.</p>"
)


@dataclass(frozen=True, eq=False)
class Bins:
    """Equal steps along a feature, in its own unit.

    Parameters
    ----------
    edges : ndarray
        The edges of the steps.
    outside : int
        How many values lie beyond the ends.
    usual : (float, float)
        What the axis shows where no limit sticks out.
    shows : (float, float)
        What it shows now.
    """

    edges: NDArray[np.float64]
    outside: int
    usual: tuple[float, float] = (0.0, 1.0)
    shows: tuple[float, float] = (0.0, 1.0)

    @property
    def low(self) -> float:
        """The lower end."""
        return float(self.edges[0])

    @property
    def high(self) -> float:
        """The upper end."""
        return float(self.edges[-1])

    def fit(self, limits: Limits) -> bool:
        """Whether the axis is as long as limits ask for, and no longer."""
        return self.shows == _reach(self.usual, limits)

    def count(self, values: NDArray[np.floating]) -> NDArray[np.intp]:
        """Return how many values lie in every step."""
        return np.histogram(values, self.edges.size - 1, (self.low, self.high))[0]


def make_bins(column: Feature, limits: Limits) -> Bins:
    """Return the bins of a feature, from which the limits of a filter stick out nowhere."""
    values = column.values[np.isfinite(column.values)]
    if not len(values):
        return Bins(np.array([0.0, 1.0]), 0)
    first, last = (float(end) for end in np.percentile(values, _PERCENTILES))
    low, high = shows = _reach((first, last), limits)
    edges = _whole_edges(low, high) if column.whole else _edges(low, high)
    outside = np.count_nonzero((values < edges[0]) | (values > edges[-1]))
    return Bins(edges, int(outside), (first, last), shows)


def _reach(usual: tuple[float, float], limits: Limits) -> tuple[float, float]:
    """Return what an axis shows so that limits are on it."""
    low, high = usual
    given = [limit for limit in limits if limit is not None]
    if given and (min(given) < low or max(given) > high):
        # A little farther, as a handle at the very end limits nothing.
        margin = 0.05 * (max(high, *given) - min(low, *given))
        return min(low, min(given) - margin), max(high, max(given) + margin)
    return usual


def decimals_between(low: float, high: float) -> int:
    """Return how many decimal places a handle's value needs between two ends."""
    return max(0, -math.floor(math.log10((high - low) / _PLACES)))


def _edges(low: float, high: float) -> NDArray[np.float64]:
    margin = 0.02 * (high - low) or 0.05 * abs(low) or 0.5
    return np.linspace(low - margin, high + margin, _BINS + 1)


def _whole_edges(low: float, high: float) -> NDArray[np.float64]:
    """Return edges between whole numbers, so that every step has equally many of them."""
    low, high = math.floor(low), math.ceil(high)
    step = max(1, math.ceil((high - low + 1) / _BINS))
    steps = math.ceil((high - low + 1) / step)
    return low - 0.5 + step * np.arange(steps + 1, dtype=float)


class Histogram(QWidget):
    """Filter spots by the range of one feature after the other.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__()
        self._spots = spots
        self._bins: Bins | None = None
        self._factor, self._decimals = 1.0, 3
        self._drawn_for: Filters | None = None
        self.feature = FeatureChoice(spots, "sigma", "Feature of the histogram", _FEATURE_TIP)
        self.low, self.high, self.outside = _limit(), _limit(), Label()
        self.plot = Plot(tip=_PLOT_TIP, height=90)
        empty = {"stepMode": "center", "fillLevel": 0, "pen": None}
        self.all = pg.PlotCurveItem([0, 1], [0], brush=DIM, **empty)
        self.passing = pg.PlotCurveItem([0, 1], [0], brush=BLUE, **empty)
        self.region = pg.LinearRegionItem(
            brush=faint(ORANGE, 40), hoverBrush=faint(ORANGE, 70), pen=pg.mkPen(ORANGE, width=2),
            hoverPen=pg.mkPen(ORANGE, width=4),
        )  # fmt: skip
        for item in (self.all, self.passing, self.region):
            self.plot.addItem(item)
        self._lay_out()
        self.feature.chosen.connect(self.show_feature)
        self.region.sigRegionChanged.connect(self._on_region)
        self.region.sigRegionChangeFinished.connect(self.show_rows)
        self.low.changed.connect(self._on_box)
        self.high.changed.connect(self._on_box)

    def show_table(self) -> None:
        """List the features and draw the chosen one."""
        self.feature.show_features()
        self.show_feature()

    def show_feature(self) -> None:
        """Draw the chosen feature with its limits."""
        column, units = self.feature.column, self._spots.units
        self._bins = self._drawn_for = None
        for widget in (self.plot, self.low, self.high):
            widget.setEnabled(column is not None)
        self.outside.hide()
        if column is None:
            for curve in (self.all, self.passing):
                curve.setData([0, 1], [0])
            return
        self._bins = bins = make_bins(column, self._limits())
        self._factor = units.factor(column.name)
        low, high = bins.low * self._factor, bins.high * self._factor
        whole = column.whole and self._factor == 1
        self._decimals = 0 if whole else decimals_between(low, high)
        counts = bins.count(column.values)
        self.all.setData(bins.edges * self._factor, counts)
        self.plot.setXRange(low, high, padding=0.01)
        self.plot.setYRange(0, 1.15 * max(counts.max(), 1), padding=0)
        for box, start in ((self.low, low), (self.high, high)):
            box.begin = round(start, self._decimals)
            box.setSingleStep(10.0**-self._decimals * (1 if whole else 5))
        if bins.outside:
            share = 100 * bins.outside / len(column.values)
            self.outside.setText(f"{number(bins.outside)} ({share:.1g} %) beyond the axis")
            self.outside.show()
        self.show_rows()

    def show_rows(self) -> None:
        """Draw what passes the other filters, and where this feature's limits are."""
        column, bins = self.feature.column, self._bins
        if column is None or bins is None:
            return
        limits = self._limits()
        # A shorter axis would move the handle away from the mouse.
        if not bins.fit(limits) and not self._is_dragged():
            self.show_feature()
            return
        others = self._spots.filters.without(Filters({column.name: (0, 0)}))
        if others != self._drawn_for:
            self._drawn_for = others
            values = column.values[self._spots.passing(others)] if others else column.values
            self.passing.setData(bins.edges * self._factor, bins.count(values))
        low, high = limits
        self.low.show_number(None if low is None else round(low * self._factor, 12))
        self.high.show_number(None if high is None else round(high * self._factor, 12))
        self.region.blockSignals(True)
        ends = (bins.low if low is None else low, bins.high if high is None else high)
        self.region.setBounds((bins.low * self._factor, bins.high * self._factor))
        self.region.setRegion([end * self._factor for end in ends])
        self.region.blockSignals(False)

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        """Put the limits beside the feature where there is room."""
        super().resizeEvent(event)
        direction = QBoxLayout.Direction
        wide = self.width() >= _WIDE
        self._row.setDirection(direction.LeftToRight if wide else direction.TopToBottom)

    def _limits(self) -> tuple[float | None, float | None]:
        return self._spots.filters.ranges.get(self.feature.name, (None, None))

    def _is_dragged(self) -> bool:
        """Whether the mouse drags a handle."""
        return bool(self.region.moving or any(line.moving for line in self.region.lines))

    def _on_region(self) -> None:
        if self._bins is None:
            return
        low, high = (float(end) for end in self.region.getRegion())
        margin = 1e-6 * (self._bins.high - self._bins.low) * self._factor
        at_low = low <= self._bins.low * self._factor + margin
        at_high = high >= self._bins.high * self._factor - margin
        self._filter(
            None if at_low else round(low, self._decimals),
            None if at_high else round(high, self._decimals),
        )

    def _on_box(self) -> None:
        low, high = self.low.get(), self.high.get()
        if low is not None and high is not None and low > high:
            # The limit that was typed counts; the other one gives way.
            low, high = (low, low) if self.sender() is self.low else (high, high)
        self._filter(low, high)

    def _filter(self, low: float | None, high: float | None) -> None:
        """Limit the feature; the numbers are in the unit in which it is shown."""
        limits = (None if end is None else end / self._factor for end in (low, high))
        self._spots.set_filters(self._spots.filters.with_range(self.feature.name, *limits))

    def _lay_out(self) -> None:
        explain(self.low, "Lower limit", _LOW_TIP)
        explain(self.high, "Upper limit", _HIGH_TIP)
        self.outside.hide()
        self.outside.setToolTip(_OUTSIDE_TIP)
        limits = fill(QHBoxLayout(), (self.low, 1), Label("to"), (self.high, 1))
        self._row = fill(
            QBoxLayout(QBoxLayout.Direction.LeftToRight), (self.feature, 1), limits, spacing=4
        )
        self.setMinimumWidth(200)
        fill(QVBoxLayout(self), self._row, (self.plot, 1), self.outside, spacing=2)


def _limit() -> NumberBox:
    """Return a limit's box; what buttons would do, the handles in the histogram and keys do."""
    box = NumberBox(_OPEN, optional=True, sample="-1.234e+05")
    box.digits = 6
    return box
