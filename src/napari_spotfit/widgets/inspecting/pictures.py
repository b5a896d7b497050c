"""Data, model and residual of a spot, side by side; and where it lies on a calibration of z."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import QRectF, QSize, Qt
from qtpy.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from ...analysis.spot_sample import Line, Roi, SpotSample
from ...models.astigmatism import AstigmatismCalibration
from ...models.measured_psf import MeasuredPsf
from ...results.formatting import plain
from ...settings.settings import Settings
from ..parts.color_legend import Gradient
from ..parts.layout import Label, explain, fill
from ..parts.plots import BLUE, GREY, ORANGE, Plot
from .spot import Spot

#: Colour maps of the counts and of the residual: 0 is white, less blue, more red.
_COUNTS, _RESIDUAL = "viridis", "CET-D1"
#: The centre and the ring of one σ on either map.
_ON_COUNTS, _ON_RESIDUAL = "#ff4fa3", "#202020"
_TIPS = (
    "<p>The image's pixels in the region of interest (ROI) that was fitted. The cross is the "
    "fitted centre, the circle has the radius σ; dotted ones are spots that were fitted together "
    "with it. Rows and columns are those of the image.</p>",
    "<p>The fitted model at the centres of the pixels, with the camera offset, on the same "
    "scale as the data.</p>",
    "<p>Data minus model: red where the image is brighter, blue where it is darker. A good "
    "fit leaves noise without a shape.</p>",
)
_COUNTS_TIP = "<p>The counts between which the colours of data and model run.</p>"
_RESIDUAL_TIP = (
    "<p>The largest residual of any pixel. The colours run from minus that much, blue, over 0, "
    "white, to plus that much, red.</p>"
)
_TITLES = ("data", "model", "residual")
#: Those of a fit that is shown beside another one.
NEW_TITLES = ("new data", "model", "residual")
#: Stripes over excluded pixels: points per pixel, and dark and light colours.
_STRIPES = 12
_DARK, _LIGHT = (20, 20, 20, 190), (235, 235, 235, 110)
EXCLUDED_TIP = (
    "<p>Striped pixels are excluded from the fit: they are nearer to another spot, saturated, bad, "
    "hot or dead. Its χ², its errors and the scale of the residual ignore them.</p>"
)
#: Half the cross in image pixels.
_ARM = 0.5
#: Room in pixels for the rows' and columns' numbers, for a title, for a scale, and between.
_LEFT, _BOTTOM, _TITLE, _SCALE, _GAP = 34, 18, 16, 18, 10
#: So far in pixels may the first row's number reach above a picture.
_OVER = 5
#: Side of a picture in pixels: at least, and to ask for.
_LEAST, _ASKED = 52, 90
#: Digits of the scales' limits.
_DIGITS = 3
#: Qt's largest width, which is no limit.
_NO_LIMIT = 16777215
_STEPS = (1, 2, 3, 4, 5, 10, 20, 50)
#: Width of a digit, and of the gap between two numbers, in pixels of the screen.
_DIGIT, _DIGIT_GAP = 7, 6
#: Height of a line.
_LINE = 22
_CURVE = "#e8761c"
_DOT = 5
_PROFILE_TIP = (
    "<p>Dots: the image's pixels along the {line} that is nearest to the centre. Curve: the "
    "fitted model along the same {line}, with the camera offset; of spots that were fitted "
    "together, that of all, and dashed that of this one. The dotted line is the fitted centre.</p>"
)
#: Room in pixels for the numbers and the label on the left and below.
_COUNTS_WIDTH, _LABEL_HEIGHT = 56, 36
#: Room above and below the counts, as a fraction of them.
_MARGIN = 0.06
#: Points of a curve, the size of the spot's own in pixels, and the least height of the plot.
_POINTS, _CURVE_DOT, _CURVE_HEIGHT = 100, 9, 110
_WIDTHS = (
    "<p>The calibration's widths along x (blue) and y (orange) against z, and those of this spot "
    "(dots) at its z. Dots beside the curves: more than one spot, or another PSF.</p>"
)
_ERRORS = (
    "<p>The least possible error of z of a spot with this light and background against z (line), "
    "and that of this spot (dot).</p>"
)


class Picture(Plot):
    """One of the pictures, with rows and columns in image pixels.

    Parameters
    ----------
    colors : str
        Name of the colour map.
    mark : str
        Colour of centre and σ.
    rows : bool
        Whether the rows' numbers are shown.
    """

    def __init__(self, colors: str, mark: str, rows: bool):
        super().__init__()
        self.setAxisItems({side: PixelAxis(side) for side in ("left", "bottom")})
        self.image = pg.ImageItem(axisOrder="row-major")
        self.image.setColorMap(pg.colormap.get(colors))
        self.stripes = pg.ImageItem(axisOrder="row-major")
        pen = pg.mkPen(mark, width=1.5)
        self._cross = pg.PlotCurveItem(pen=pen, connect="pairs")
        self._ring = pg.PlotCurveItem(pen=pen, antialias=True)
        #: Where others are that were fitted together with the spot.
        thin = pg.mkPen(mark, width=1.2, style=Qt.PenStyle.DotLine)
        self.others = pg.PlotCurveItem(pen=thin, antialias=True, connect="finite")
        for item in (self.image, self.stripes, self.others, self._cross, self._ring):
            self.addItem(item)
        self.getViewBox().invertY(True)
        self.getViewBox().disableAutoRange()
        self.getAxis("left").setWidth(_LEFT)
        self.showAxis("left", rows)
        self.getAxis("bottom").setHeight(_BOTTOM)
        self.plotItem.layout.setContentsMargins(0, _OVER, 0, 0)
        self.setMinimumSize(1, 1)

    def show_pixels(
        self, pixels: NDArray[np.float64], levels: tuple[float, float], sample: SpotSample
    ) -> None:
        """Show pixels of a spot's ROI between two levels, its centre and its σ."""
        roi = sample.roi
        box = QRectF(roi.x - 0.5, roi.y - 0.5, roi.columns, roi.rows)
        self.image.setImage(pixels, levels=levels)
        self.image.setRect(box)
        self.stripes.setVisible(bool(sample.excluded.pixels.any()))
        self.stripes.setImage(_striped(sample.excluded.pixels), levels=(0, 255))
        self.stripes.setRect(box)
        self.getViewBox().setRange(box, padding=0)
        arm = np.array([-_ARM, _ARM, 0, 0])
        self._cross.setData(sample.x + arm, sample.y + arm[::-1])
        around, turn = np.linspace(0, 2 * np.pi, 61), np.radians(sample.width.angle)
        along, across = sample.width.along * np.cos(around), sample.width.across * np.sin(around)
        self._ring.setData(
            sample.x + along * np.cos(turn) - across * np.sin(turn),
            sample.y + along * np.sin(turn) + across * np.cos(turn),
        )
        places = np.array(sample.others, float).reshape(-1, 2, 1)
        x, y = (np.append(one, np.nan) for one in self._ring.getData())  # a gap between rings
        self.others.setData(
            (places[:, 1] - sample.x + x).ravel(), (places[:, 0] - sample.y + y).ravel()
        )
        # Now rather than while it is drawn, which would draw it twice.
        self.scene().prepareForPaint()


def _striped(pixels: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return a picture in colours, with stripes over some pixels."""
    large = pixels.repeat(_STRIPES, axis=0).repeat(_STRIPES, axis=1)
    y, x = np.indices(large.shape)
    dark = np.expand_dims((x + y) % _STRIPES < _STRIPES // 2, -1)
    stripes = np.where(dark, _DARK, _LIGHT)
    return np.where(np.expand_dims(large, -1), stripes, 0).astype(np.uint8)


class Scale(QWidget):
    """The two values between which the colours of a picture run.

    Parameters
    ----------
    colors : str
        Name of the colour map.
    tip : str
        Explanation.
    both_ways : bool
        Whether the scale runs around 0 and needs one value only.
    parent : QWidget
        Qt parent.
    """

    def __init__(self, colors: str, tip: str, both_ways: bool, parent: QWidget):
        super().__init__(parent)
        self._both_ways = both_ways
        strip = Gradient(height=8)
        strip.show_map(partial(pg.colormap.get(colors).map, mode="float"))
        strip.setMinimumWidth(12)
        self.low, self.high = Label(), Label()
        fill(QHBoxLayout(self), self.low, (strip, 1), self.high, spacing=4)
        self._most, self._whole = "", QSize(0, 0)
        self.low.setHidden(both_ways)
        self.setToolTip(tip)

    def show_limits(self, low: float, high: float) -> None:
        """Show what the scale's ends are."""
        least, most = (plain(limit, digits=_DIGITS) for limit in (low, high))
        self.low.setText(least)
        self._most = f"{'±' * self._both_ways}{most}"
        self.high.setText(f"{self._most} counts")
        self._whole = super().sizeHint()
        self._show_unit()

    def sizeHint(self) -> QSize:
        """Ask for room for the unit, too."""
        return self._whole

    def resizeEvent(self, event: Any) -> None:
        """Leave the unit out rather than cut it off."""
        super().resizeEvent(event)
        self._show_unit()

    def _show_unit(self) -> None:
        has_room = self._whole.width() <= self.width()
        self.high.setText(f"{self._most}{' counts' * has_room}")


class Pictures(QWidget):
    """Data and model on one scale of counts, the residual around 0.

    Parameters
    ----------
    titles : tuple of str
        What stands above the pictures.
    """

    def __init__(self, titles: tuple[str, str, str] = _TITLES):
        super().__init__()
        self._roi = Roi(0, 0, 1, 1)
        self._below = False
        self.data = Picture(_COUNTS, _ON_COUNTS, rows=True)
        self.model = Picture(_COUNTS, _ON_COUNTS, rows=False)
        self.residual = Picture(_RESIDUAL, _ON_RESIDUAL, rows=False)
        self._all = (self.data, self.model, self.residual)
        self._titles = [Label(text, self) for text in titles]
        self.counts = Scale(_COUNTS, _COUNTS_TIP, False, self)
        self.around_zero = Scale(_RESIDUAL, _RESIDUAL_TIP, True, self)
        for picture, title, tip in zip(self._all, self._titles, _TIPS, strict=True):
            picture.setParent(self)
            picture.setAccessibleName(title.text())
            title.setAlignment(Qt.AlignmentFlag.AlignCenter)
            title.raise_()
            for widget in (picture, title):
                widget.setToolTip(tip)

    def show_sample(self, sample: SpotSample, beside: SpotSample | None = None) -> None:
        """Show a spot, in the colours of another fit beside which it is shown, if there is one."""
        both = [sample] if beside is None else [sample, beside]
        lows, highs = zip(*(one.levels for one in both), strict=True)
        levels, largest = (min(lows), max(highs)), max(one.largest for one in both)
        self._roi = sample.roi
        self.counts.show_limits(*levels)
        self.around_zero.show_limits(-largest, largest)
        self._fit()
        self.data.show_pixels(sample.data, levels, sample)
        self.model.show_pixels(sample.model, levels, sample)
        # Some width where there is no residual at all.
        around = largest or 1.0
        self.residual.show_pixels(sample.residual, (-around, around), sample)
        self._place()

    def go(self, *, below: bool) -> None:
        """Be as high as the width asks for, or as wide as the height allows."""
        self._below = below
        self._fit()

    def sizeHint(self) -> QSize:
        """Ask for the width in which pixels can be seen well; more height is taken if there."""
        return QSize(self._size(_ASKED).width(), self._size(_LEAST).height())

    def minimumSizeHint(self) -> QSize:
        """Ask for pictures in which single pixels can be seen."""
        return self._size(_LEAST)

    def resizeEvent(self, event: Any) -> None:
        """Make the pictures as large as they can be."""
        super().resizeEvent(event)
        self._fit()
        self._place()

    def _fit(self) -> None:
        """Take no more room than the pictures fill."""
        roi, rest = self._roi, self._size(0)
        if self._below:
            side = (self.width() - rest.width()) / 3 * roi.rows / roi.columns
            self.setMaximumWidth(_NO_LIMIT)
            self.setFixedHeight(rest.height() + max(int(side), _LEAST))
        else:
            side = (self.height() - rest.height()) * roi.columns / roi.rows
            self.setMinimumHeight(0)
            self.setMaximumHeight(_NO_LIMIT)
            pictures = rest.width() + 3 * max(int(side), _LEAST)
            scales = sum(one.sizeHint().width() for one in (self.counts, self.around_zero))
            self.setMaximumWidth(max(pictures, scales + _GAP))

    def _size(self, side: int) -> QSize:
        return QSize(_LEFT + 3 * side + 2 * _GAP, _TITLE + side + _BOTTOM + _SCALE)

    def _place(self) -> None:
        """Lay the pictures side by side, their pixels square."""
        wide = (self.width() - _LEFT - 2 * _GAP) / (3 * self._roi.columns)
        high = (self.height() - _TITLE - _BOTTOM - _SCALE) / self._roi.rows
        pixel = max(min(wide, high), 1.0)
        width, height = round(pixel * self._roi.columns), round(pixel * self._roi.rows)
        top = max(self.height() - _TITLE - height - _BOTTOM - _SCALE, 0) // 2
        below = top + _TITLE + height + _BOTTOM
        spare = max(self.width() - _LEFT - 3 * width - 2 * _GAP, 0) // 2
        lefts = [spare + _LEFT + number * (width + _GAP) for number in range(3)]
        for picture, title, left in zip(self._all, self._titles, lefts, strict=True):
            title.setGeometry(left, top, width, _TITLE)
            rows, above = _LEFT if picture is self.data else 0, top + _TITLE - _OVER
            picture.setGeometry(left - rows, above, width + rows, _OVER + height + _BOTTOM)
        self._place_scales(lefts[0], lefts[2], lefts[2] + width, below)

    def _place_scales(self, start: int, residual: int, end: int, top: int) -> None:
        """Lay one scale below data and model and one below the residual, or closer together."""
        around = max(end - residual, self.around_zero.sizeHint().width())
        # Below narrow pictures the scales are wider than these.
        lack = self.counts.sizeHint().width() + _GAP + around - (end - start)
        to_left = min(max(lack, 0), start)
        to_right = min(max(lack - to_left, 0), max(self.width() - end, 0))
        start, end = start - to_left, end + to_right
        self.counts.setGeometry(start, top, end - around - _GAP - start, _SCALE)
        self.around_zero.setGeometry(end - around, top, around, _SCALE)


class PixelAxis(pg.AxisItem):  # type: ignore[misc]
    """An axis that numbers pixels, as many as have room for their numbers; "left" or "bottom"."""

    def tickSpacing(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, float]]:
        """Return the distance between numbers, and that they are multiples of it."""
        digits = len(str(max(abs(int(minVal)), abs(int(maxVal)))))
        room = _LINE if self.orientation == "left" else _DIGIT * digits + _DIGIT_GAP
        least = abs(maxVal - minVal) * room / max(size, 1.0)
        return [(next((step for step in _STEPS if step >= least), _STEPS[-1]), 0)]


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
        self.title = Label()
        self.title.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.title.setFixedHeight(_TITLE)
        self.plot = Plot(y="counts")
        self.plot.setAxisItems({"bottom": PixelAxis("bottom")})
        self.plot.setLabel("bottom", f"{axis} [px]")
        self.plot.setMinimumSize(110, 80)
        self.plot.getViewBox().disableAutoRange()
        self.plot.getAxis("left").setStyle(hideOverlappingLabels=True, maxTickLevel=0)
        self.plot.getAxis("left").setWidth(_COUNTS_WIDTH)
        self.plot.getAxis("bottom").setHeight(_LABEL_HEIGHT)
        # The label hangs over its axis.
        self.plot.plotItem.layout.setContentsMargins(0, 0, 4, 5)
        self.curve = pg.PlotCurveItem(pen=pg.mkPen(_CURVE, width=2), antialias=True)
        self.dots = pg.ScatterPlotItem(size=_DOT, pen=None)
        #: One of several spots that were fitted together.
        self.own = pg.PlotCurveItem(
            pen=pg.mkPen(_CURVE, width=1.5, style=Qt.PenStyle.DashLine), antialias=True
        )
        self._center = pg.InfiniteLine(angle=90)
        for item in (self._center, self.own, self.curve, self.dots):
            self.plot.addItem(item)
        fill(QVBoxLayout(self), self.title, (self.plot, 1), spacing=0)
        self.setToolTip(_PROFILE_TIP.format(line=line))
        self.plot.setAccessibleName(f"Profile along {axis}")
        self.plot.inked.connect(self._on_inked)

    def show_line(self, line: Line, center: float, levels: tuple[float, float]) -> None:
        """Show a row or a column between two counts."""
        self.title.setText(f"{self._line} {line.at}")
        self.dots.setData(line.places, line.data)
        self.curve.setData(line.fine, line.curve)
        self.own.setVisible(line.own is not None)
        if line.own is not None:
            self.own.setData(line.fine, line.own)
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
        return QSize(160, 100)

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


class DepthCurve(Plot):
    """The curves of a calibration against z, and a spot on them."""

    def __init__(self) -> None:
        super().__init__("z [nm]", "σ [px]")
        self.setMinimumHeight(_CURVE_HEIGHT)
        self.curves = {color: self.plot(pen=color) for color in (BLUE, ORANGE)}
        self.dots = pg.ScatterPlotItem(size=_CURVE_DOT, pen=pg.mkPen(GREY))
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
            self.setLabel("left", "σ [px]")
            explain(self, "Widths against z", _WIDTHS)
        else:
            assert isinstance(model, MeasuredPsf)
            light = spot.values["photons"]
            background = spot.values["background"] / (spot.settings.get("gain") or 1.0)
            bound = model.precision(max(light, 1.0), max(background, 0.01), z=at)
            names, lines = ["z_stderr"], [bound.z_stderr]
            self.setLabel("left", "error of z [nm]")
            explain(self, "Error of z", _ERRORS)
        own = [spot.values.get(name, math.nan) for name in names]
        self.dots.setData(
            [z] * len(own), own, brush=[pg.mkBrush(c) for c in self.curves][: len(own)]
        )
        for curve, values in zip(
            self.curves.values(), [*lines, np.full(_POINTS, np.nan)], strict=False
        ):
            curve.setData(at, values)
