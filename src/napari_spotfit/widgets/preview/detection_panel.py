"""Where the threshold lies among the maxima of the frame: slider, histogram, numbers."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import QSignalBlocker, Qt
from qtpy.QtGui import QColor
from qtpy.QtWidgets import QHBoxLayout, QLabel, QSlider, QVBoxLayout, QWidget

from ...results.spot_fits import SpotFits
from ..parts.number_box import NumberBox
from ..parts.plots import Plot, theme_colors
from ..parts.status import number
from ..parts.wheel import guard_wheel

if TYPE_CHECKING:
    from napari import Viewer

_SLIDER_TIP = (
    "<p>The threshold, from the height where noise begins to that of the brightest spot. "
    "Spots and fits of the frame follow.</p>"
)
_COUNT_TIP = (
    "<p>Spots of the frame that are above the threshold, and how many of their fits are good: "
    "nothing speaks against them.</p>"
)
_PLOT_TIP = (
    "<p>How high the maxima of the filtered frame are: the hump on the left is noise, what "
    "lies right of it is spots. Those above the threshold, in colour, are fitted. Drag the "
    "line to the gap between the two. Both scales are logarithmic.</p>"
)
_AXIS = {"noise": "score (× noise)", "counts": "height (counts)"}
_BINS = 80
_HEIGHT, _AXIS_HEIGHT = 108, 36
#: Steps of the slider from one end to the other.
_STEPS = 1000
#: Share of the maxima that are lower than the scale's lower end.
_CUT = 0.02
_ABOVE, _LINE, _HOVER = "#2a9d8f", "#f4a261", "#e76f51"


class ThresholdPanel(QWidget):
    """A slider and a histogram that show and change the threshold.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose theme counts.
    threshold : NumberBox
        The control of the threshold, with which slider and line keep step.
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, viewer: Viewer, threshold: NumberBox, parent: QWidget | None = None):
        super().__init__(parent)
        self._viewer, self._threshold = viewer, threshold
        self._heights = np.empty(0, np.float32)
        self._low, self._high = -1.0, 2.0
        self.slider, self.count = QSlider(Qt.Orientation.Horizontal), QLabel()
        self.slider.setRange(0, _STEPS)
        self.slider.setPageStep(_STEPS // 20)
        self.slider.setSingleStep(_STEPS // 200)
        self.slider.setToolTip(_SLIDER_TIP)
        self.slider.setAccessibleName("Threshold, logarithmic")
        guard_wheel(self.slider)
        self.count.setToolTip(_COUNT_TIP)
        self.count.setAccessibleName("Spots of the frame")
        self.plot = Plot(viewer, _AXIS["noise"])
        self.line = pg.InfiniteLine(angle=90, movable=True)
        self._below, self._above = _bars(), _bars()
        self._lay_out()
        self.slider.valueChanged.connect(self._on_slider)
        self.line.sigPositionChanged.connect(self._on_line)
        threshold.changed.connect(self._show_threshold)
        self.clear()

    def bind(self) -> None:
        """Follow the viewer's theme."""
        self.plot.bind()
        self._viewer.events.theme.connect(self._paint)
        self._paint()

    def unbind(self) -> None:
        """Stop following it."""
        self.plot.unbind()
        self._viewer.events.theme.disconnect(self._paint)

    def show_found(self, fits: SpotFits, heights: NDArray[np.float32], unit: str) -> None:
        """Show a frame's fits as numbers, and all of its maxima as a histogram.

        Parameters
        ----------
        fits : SpotFits
            The fits of the maxima above the threshold.
        heights : ndarray of float32, shape (n,)
            Height of every maximum.
        unit : str
            The unit of the threshold, "noise" or "counts".
        """
        self.count.setText(_in_words(fits))
        self.plot.setLabel("bottom", _AXIS[unit])
        if heights is not self._heights:
            self._heights = heights
            self._set_range()
        self._show_threshold()

    def clear(self) -> None:
        """Show that nothing is known of the frame."""
        self.count.setText("–")
        self._heights = np.empty(0, np.float32)
        self._draw()

    def _set_range(self) -> None:
        """Let the scale run from the lowest maxima, but for a few, to the highest."""
        positive = self._heights[self._heights > 0]
        if not len(positive):
            return
        low, high = np.log10(np.quantile(positive, _CUT)), np.log10(positive.max())
        margin = max(0.03 * (high - low), 0.05)
        self._low, self._high = float(low - margin), float(high + margin)
        self.plot.setXRange(self._low, self._high, padding=0)
        self.plot.getAxis("bottom").setTicks(_ticks(self._low, self._high))
        with QSignalBlocker(self.line):
            self.line.setBounds((self._low, self._high))

    def _show_threshold(self) -> None:
        """Put slider and line where the threshold is, or at the end beyond which it is."""
        place = self._place()
        share = (place - self._low) / (self._high - self._low)
        with QSignalBlocker(self.slider), QSignalBlocker(self.line):
            self.slider.setValue(round(_STEPS * share))
            self.line.setValue(place)
        self._draw()

    def _place(self) -> float:
        """Return where on the scale the threshold is."""
        value = self._threshold.value()
        place = math.log10(value) if value > 0 else self._low
        return min(max(place, self._low), self._high)

    def _draw(self) -> None:
        """Draw the maxima below the threshold dim and those above it in colour."""
        heights = self._heights[self._heights > 0]
        counts, edges = np.histogram(np.log10(heights), _BINS, (self._low, self._high))
        # So that one maximum is seen, too.
        bars = np.log10(counts + 1.0)
        place = self._place()
        begin = int(np.searchsorted(edges, place, "right"))
        above = np.concatenate([[place], edges[begin:]])
        self._below.setData(edges, bars)
        self._above.setVisible(len(above) > 1)
        if len(above) > 1:
            self._above.setData(above, bars[max(begin - 1, 0) :])
        self.plot.setYRange(0, max(float(bars.max()), 0.5), padding=0)

    def _on_slider(self, step: int) -> None:
        self._choose(self._low + (self._high - self._low) * step / _STEPS)

    def _on_line(self) -> None:
        self._choose(float(self.line.value()))

    def _choose(self, place: float) -> None:
        """Set the threshold, with three digits."""
        place = min(max(place, self._low), self._high)
        self._threshold.put(float(f"{10.0**place:.3g}"))

    def _paint(self, event: Any = None) -> None:
        """Take colours that are seen in the viewer's theme."""
        _, text = theme_colors(self._viewer)
        dim = QColor(text)
        dim.setAlpha(80)
        self._below.setPen(None)
        self._below.setBrush(dim)
        self._above.setPen(None)
        self._above.setBrush(_ABOVE)
        self.line.setPen(_LINE, width=2)
        self.line.setHoverPen(_HOVER, width=4)

    def _lay_out(self) -> None:
        self.plot.setFixedHeight(_HEIGHT)
        self.plot.setToolTip(_PLOT_TIP)
        self.plot.setAccessibleName("Heights of the maxima")
        self.plot.hideAxis("left")
        self.plot.getAxis("bottom").setStyle(tickLength=4, tickTextOffset=4)
        self.plot.getAxis("bottom").setHeight(_AXIS_HEIGHT)
        self.line.setCursor(Qt.CursorShape.SizeHorCursor)
        for item in (self._below, self._above, self.line):
            self.plot.addItem(item)
        row = QHBoxLayout()
        row.addWidget(self.slider, 1)
        row.addWidget(self.count)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addLayout(row)
        column.addWidget(self.plot)


def _bars() -> pg.PlotCurveItem:
    """Return bars of a histogram, as yet without any."""
    return pg.PlotCurveItem([0, 1], [0], stepMode="center", fillLevel=0)


def _ticks(low: float, high: float) -> list[list[tuple[float, str]]]:
    """Return the marks of a logarithmic scale: decades with numbers, what is between without.

    Where there are fewer than two decades, 2 and 5 have numbers, too.
    """
    decades = range(math.floor(low), math.ceil(high) + 1)
    numbered = (1, 2, 5) if high - low < 2 else (1,)
    marks: list[list[tuple[float, str]]] = [[], []]
    for decade, digit in itertools.product(decades, range(1, 10)):
        place = decade + math.log10(digit)
        if low <= place <= high:
            text = f"{digit * 10.0**decade:g}" if digit in numbered else ""
            marks[not text].append((place, text))
    return marks


def _in_words(fits: SpotFits) -> str:
    total = len(fits)
    if not total:
        return "no spots"
    good = int(fits.good.sum())
    # Not 100 % unless it is all of them.
    share = min(round(100 * good / total), 99) if good < total else 100
    spots = f"{number(total)} spot{'' if total == 1 else 's'}"
    return f"{spots} · {share}\u202f% good"
