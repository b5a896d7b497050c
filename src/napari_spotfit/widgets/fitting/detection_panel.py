"""The spots of one frame, found and fitted when settings change, and the threshold among them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import QSignalBlocker, Qt
from qtpy.QtGui import QColor
from qtpy.QtWidgets import QSlider, QVBoxLayout, QWidget

from ...engine.detection_settings import expected_false_spots, score_for
from ...estimation.image_estimates import MeasuredNoise
from ...estimation.psf_width import FALLBACK_SIGMA
from ...images.frames import HeldFrame
from ...localization.detect_spots import peak_heights
from ...localization.localize import localize_parts
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers.appearance import Look
from ..layers.maps import NO_MAPS, LayerMaps, frame_of
from ..layers.points import points_arguments
from ..parts.form import Number, SettingsForm
from ..parts.layout import explain, fill, guard_wheel, sentence
from ..parts.messages import number
from ..parts.plots import DIM, Plot, faint

#: The settings on which the maxima depend; false spots and a threshold only choose among them.
_OF_MAXIMA = ("sigma", "sigma_z", "min_distance", "noise", "backend", "devices", "threads")

Thing = TypeVar("Thing")
_SLIDER_TIP = (
    "<p>Where noise ends. To the left dimmer spots are found, and more that are false; to the "
    "right only those that noise hardly ever makes. Spots and fits of the frame follow.</p>"
)
_COUNT_TIP = (
    "<p>Spots that are found in the frame, and how many of their fits are good: nothing speaks "
    "against them.</p><p>How many false spots noise alone makes in the pixels that are searched, "
    "on the average. Edges and bright structures may make more: most of those are not good.</p>"
)
_PLOT_TIP = (
    "<p>The maxima of the filtered frame by their height: the hump on the left is noise, what "
    "lies right of it is spots. Those right of the line, in colour, are fitted. Drag the line "
    "to the gap between the two. It ends where noise never comes; a threshold in counts "
    "(More settings) can be higher. Both scales are logarithmic.</p>"
)
_BINS = 80
#: pyqtgraph puts the name of an axis so far below it.
_HEIGHT, _AXIS_HEIGHT, _BELOW = 112, 36, 5
#: Steps of the slider from one end to the other.
_STEPS = 1000
#: Share of the maxima that are lower than the scale's lower end, and the most decades there are.
_CUT, _DECADES = 0.02, 4
_ABOVE, _LINE, _HOVER = "#2a9d8f", "#f4a261", "#e76f51"


@dataclass(frozen=True, eq=False)
class PreviewJob:
    """A request for a preview; made on the GUI thread, used in the worker."""

    image: Any
    index: tuple[int, ...]
    #: Another number whenever the pixels change.
    version: int
    settings: Settings
    #: Replaced whenever the maps change.
    maps: LayerMaps = NO_MAPS
    #: Replaced whenever the image or its maps change.
    noise: MeasuredNoise = field(default_factory=MeasuredNoise)
    look: Look = field(default_factory=Look)


class Previewed(NamedTuple):
    """The fits of a frame, the arguments of a Points layer of them, and all maxima."""

    job: PreviewJob
    fits: SpotFits
    points: dict[str, Any]
    #: Score of every maximum; with a threshold its height in counts.
    heights: NDArray[np.float32]
    #: The PSF's σ with which they were found.
    sigma: float
    #: How many pixels were searched.
    searched: int


class Previewer:
    """Does one job after the other, never two at once, and caches what the next can use.

    The fits are those of :func:`~napari_spotfit.localize`. The frame and its maps are read
    again only when another one is requested, and the maxima are searched only when something
    other than the number of false spots, or the threshold, has changed.
    """

    def __init__(self) -> None:
        self._frame: _Kept[HeldFrame] = _Kept()
        self._maps: _Kept[dict[str, Any]] = _Kept()
        self._mask: _Kept[NDArray[np.bool_]] = _Kept()
        self._heights: _Kept[NDArray[np.float32]] = _Kept()

    def __call__(self, job: PreviewJob) -> Previewed:
        """Find and fit the spots of a frame."""
        frame_key = (job.version, job.index)
        axes = job.settings.dimensions
        frame = self._frame.get(frame_key, lambda: HeldFrame(job.image, job.index, axes))
        maps = {"frames": job.index or None, **self._maps.get(job.maps, job.maps.read)}
        if "mask" in maps:
            key, whole = (job.maps, job.index), maps["mask"]
            maps["mask"] = self._mask.get(key, lambda: frame_of(whole, job.index))
        settings = job.noise.put_into(job.settings, job.image, maps)
        parts = list(localize_parts(frame, settings, **maps))
        maps.pop("weights", None)
        values = (*(getattr(settings, name) for name in _OF_MAXIMA), settings.threshold is None)
        heights = self._heights.get(
            (frame_key, job.maps, values), lambda: peak_heights(frame, settings, **maps)
        )
        fits = SpotFits.concatenate([part.fits for part in parts])
        points = points_arguments(fits, job.look.face, job.look.colormap, job.maps)
        return Previewed(job, fits, points, heights, settings.known_sigma, _searched(frame, maps))


def _searched(frame: HeldFrame, maps: dict[str, Any]) -> int:
    """Return how many pixels of a frame spots are searched in."""
    bad = maps.get("bad_pixels")
    good = np.ones(frame.pixels.shape, bool) if bad is None else ~frame_of(bad, frame.index)
    return int(np.count_nonzero(good & maps["mask"] if "mask" in maps else good))


class _Kept(Generic[Thing]):
    """The last thing that was made, and what it was made for."""

    def __init__(self) -> None:
        self._key: Any = None
        self._thing: Thing | None = None

    def get(self, key: Any, make: Callable[[], Thing]) -> Thing:
        """Return the thing for a key, made again only if the key is another one."""
        if self._thing is None or key != self._key:
            self._thing = None  # so that there are never two
            self._key, self._thing = key, make()
        return self._thing


class CountsAxis:
    """A threshold in counts on the scale of heights.

    Parameters
    ----------
    control : Number
        The control of the threshold.
    """

    title = "height in the filtered image [counts]"

    def __init__(self, control: Number):
        self.control = control

    def height_of(self, value: float) -> float:
        """Return the height on the scale of a value of the control."""
        return value

    def value_at(self, height: float) -> float:
        """Return the value of the control at a height."""
        return height

    def limits(self) -> tuple[float, float]:
        """Return the least and the largest height that the control can have."""
        return 0.0, math.inf


class ScoreAxis(CountsAxis):
    """A number of false spots on the scale of scores: the fewer, the higher."""

    title = "score (how far out of the noise)"
    #: The PSF's width in pixels with which the maxima were found.
    sigma = FALLBACK_SIGMA

    def height_of(self, value: float) -> float:
        """Return the score that this number of maxima of noise exceed."""
        return score_for(value, self.sigma)

    def value_at(self, height: float) -> float:
        """Return how many maxima of noise exceed a score."""
        return expected_false_spots(height, self.sigma)

    def limits(self) -> tuple[float, float]:
        """Return the scores of the most and of the fewest false spots."""
        box = self.control.box
        return self.height_of(box.maximum()), self.height_of(box.minimum())


class DetectionPanel(QWidget):
    """A slider and a histogram that show and change how many false spots there may be.

    Where there is a threshold in counts, they show and change that.

    Parameters
    ----------
    controls : SettingsForm
        Those of false spots and threshold, with which slider and line keep step.
    """

    def __init__(self, controls: SettingsForm):
        super().__init__()
        self._scores = ScoreAxis(controls.number("false_spots"))
        self._counts = CountsAxis(controls.number("threshold"))
        self._axis: CountsAxis = self._scores
        self._heights = np.empty(0, np.float32)
        #: Logarithms of the ends of the scale, and of where slider and line end.
        self._low, self._high = -1.0, 2.0
        self._first, self._last = -1.0, 2.0
        self.slider, self.count = QSlider(Qt.Orientation.Horizontal), sentence()
        self.slider.setRange(0, _STEPS)
        self.slider.setPageStep(_STEPS // 20)
        self.slider.setSingleStep(_STEPS // 200)
        explain(self.slider, "Where noise ends, logarithmic", _SLIDER_TIP)
        guard_wheel(self.slider)
        explain(self.count, "Spots of the frame", _COUNT_TIP)
        self.plot = Plot(self._axis.title, "", "Heights of the maxima", _PLOT_TIP)
        self.line = pg.InfiniteLine(
            angle=90, movable=True, pen=pg.mkPen(_LINE, width=2), hoverPen=pg.mkPen(_HOVER, width=4)
        )
        self._below, self._above = _bars(DIM), _bars(_ABOVE)
        self.plot.inked.connect(lambda ink: self._below.setBrush(faint(ink, 80)))
        self._lay_out()
        self.slider.valueChanged.connect(self._on_slider)
        self.line.sigPositionChanged.connect(lambda: self._choose(float(self.line.value())))
        for axis in (self._scores, self._counts):
            axis.control.changed.connect(self._show_place)
        self.clear()

    def show_found(self, result: Previewed) -> None:
        """Show a frame's fits as numbers, and all of its maxima as a histogram."""
        settings, false = result.job.settings, None
        self._scores.sigma = result.sigma
        if settings.threshold is None:
            self._axis = self._scores
            false = settings.false_spots * result.searched / 1e6
        else:
            self._axis = self._counts
        self.count.setText(_in_words(result.fits, false))
        self.plot.setLabel("bottom", self._axis.title)
        if result.heights is not self._heights:
            self._heights = result.heights
            self._set_range()
        self._show_place()

    def clear(self) -> None:
        """Show an empty histogram."""
        self.count.setText("–")
        self._heights = np.empty(0, np.float32)
        self.plot.getAxis("bottom").setTicks([])  # without maxima there is no scale
        self._draw()

    def _set_range(self) -> None:
        """Let the scale run from the lowest maxima, but for a few, to the highest."""
        positive = self._heights[self._heights > 0]
        if not len(positive):
            return
        low, high = np.log10(np.quantile(positive, _CUT)), np.log10(positive.max())
        low = max(low, high - _DECADES)
        margin = max(0.03 * (high - low), 0.05)
        self._low, self._high = float(low - margin), float(high + margin)
        self.plot.setXRange(self._low, self._high, padding=0)
        self.plot.getAxis("bottom").setTicks(_ticks(self._low, self._high))

    def _set_ends(self) -> None:
        """Let slider and line go as far as both the scale and their control do."""
        low, high = (math.log10(end) if end > 0 else -math.inf for end in self._axis.limits())
        self._first = min(max(self._low, low), self._high)
        self._last = max(min(self._high, high), self._first + 1e-6)
        with QSignalBlocker(self.line):
            self.line.setBounds((self._first, self._last))

    def _show_place(self) -> None:
        """Put slider and line where the control is, or at the end beyond which it is."""
        if (self._counts.control.value is not None) != (self._axis is self._counts):
            return  # the maxima of the other scale are still to come
        self._set_ends()
        place = self._place()
        share = (place - self._first) / (self._last - self._first)
        with QSignalBlocker(self.slider), QSignalBlocker(self.line):
            self.slider.setValue(round(_STEPS * share))
            self.line.setValue(place)
        self._draw()

    def _place(self) -> float:
        """Return the logarithm of where on the scale the control is."""
        height = self._axis.height_of(self._axis.control.value or 0.0)
        place = math.log10(height) if height > 0 else self._first
        return min(max(place, self._first), self._last)

    def _draw(self) -> None:
        """Draw the maxima left of the line dim and those right of it in colour."""
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
        self._choose(self._first + (self._last - self._first) * step / _STEPS)

    def _choose(self, place: float) -> None:
        value = self._axis.value_at(10.0 ** min(max(place, self._first), self._last))
        self._axis.control.value = float(f"{value:.3g}")

    def _lay_out(self) -> None:
        self.plot.setFixedHeight(_HEIGHT)
        self.plot.hideAxis("left")
        self.plot.getAxis("bottom").setStyle(tickLength=4, tickTextOffset=4)
        self.plot.getAxis("bottom").setHeight(_AXIS_HEIGHT)
        self.plot.getPlotItem().layout.setContentsMargins(1, 1, 1, _BELOW)
        self.line.setCursor(Qt.CursorShape.SizeHorCursor)
        for item in (self._below, self._above, self.line):
            self.plot.addItem(item)
        fill(QVBoxLayout(self), self.slider, self.plot, self.count, spacing=2)


def _bars(brush: str | QColor) -> pg.PlotCurveItem:
    """Return bars of a histogram, as yet without any."""
    return pg.PlotCurveItem([0, 1], [0], stepMode="center", fillLevel=0, pen=None, brush=brush)


def _ticks(low: float, high: float) -> list[list[tuple[float, str]]]:
    """Return the marks of a logarithmic scale: decades with numbers, others without.

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


def _in_words(fits: SpotFits, false: float | None) -> str:
    """Return how many spots were found, how many are good, and how many noise makes."""
    total = len(fits)
    if not total:
        return "no spots"
    good = int(fits.good.sum())
    # Not 100 % unless it is all of them.
    share = min(round(100 * good / total), 99) if good < total else 100
    spots = f"{number(total)} spot{'' if total == 1 else 's'} · {share}\u202f% good"
    return spots if false is None else f"{spots} · {_false_in_words(false)}"


def _false_in_words(false: float) -> str:
    if false < 0.1:
        return "less than 0.1 false"
    if false < 0.95:
        return f"about {false:.1f} false"
    # No more digits than an expectation deserves.
    return f"about {number(round(float(f'{false:.2g}')))} false"
