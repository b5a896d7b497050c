"""Data, model and residual of a spot, side by side."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import QRectF, QSize, Qt
from qtpy.QtWidgets import QHBoxLayout, QLabel, QWidget

from ..parts.color_legend import Gradient
from ..parts.layout import fill
from ..parts.messages import plain
from ..parts.plots import Plot
from .pixel_axis import PixelAxis
from .sample import Roi, SpotSample

#: Colour maps of the counts and of the residual: 0 is white, less blue, more red.
_COUNTS, _RESIDUAL = "viridis", "CET-D1"
#: The centre and the ring of one σ on either map.
_ON_COUNTS, _ON_RESIDUAL = "#ff4fa3", "#202020"
_TIPS = (
    "<p>The image's pixels in the region of interest (ROI) that was fitted. The cross is the "
    "fitted centre, the circle has the radius σ. Rows and columns are those of the image.</p>",
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
#: Stripes over pixels that the fit has left out: so many points a pixel, in dark and light.
_STRIPES = 12
_DARK, _LIGHT = (20, 20, 20, 190), (235, 235, 235, 110)
LEFT_OUT_TIP = (
    "<p>Striped pixels have not counted in the fit: they are nearer to another spot, saturated, "
    "bad, or lone ones that are hot or dead. Its χ², its errors and the scale of the residual do "
    "not heed them.</p>"
)
#: Half the cross in image pixels.
_ARM = 0.5
#: Room in pixels for the rows' and columns' numbers, for a title, for a scale, and between.
_LEFT, _BOTTOM, _TITLE, _SCALE, _GAP = 34, 20, 20, 20, 10
#: So far in pixels may the first row's number reach above a picture.
_OVER = 5
#: Side of a picture in pixels: at least, and to ask for.
_LEAST, _ASKED = 60, 90
#: Digits of the scales' limits.
_DIGITS = 3
#: Qt's largest width, which is no limit.
_NO_LIMIT = 16777215


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
        for item in (self.image, self.stripes, self._cross, self._ring):
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
        self.stripes.setVisible(bool(sample.left_out.pixels.any()))
        self.stripes.setImage(_striped(sample.left_out.pixels), levels=(0, 255))
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
        self.low, self.high = QLabel(), QLabel()
        fill(QHBoxLayout(self), self.low, (strip, 1), self.high, spacing=4)
        self.low.setHidden(both_ways)
        self.setToolTip(tip)

    def show_limits(self, low: float, high: float) -> None:
        """Show what the scale's ends are."""
        least, most = (plain(limit, digits=_DIGITS) for limit in (low, high))
        self.low.setText(least)
        self.high.setText(f"{'±' * self._both_ways}{most} counts")


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
        self._titles = [QLabel(text, self) for text in titles]
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
        """Ask for pictures in which pixels can be told apart."""
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
            self.setMaximumWidth(max(pictures, self._scales_width()))

    def _size(self, side: int) -> QSize:
        return QSize(_LEFT + 3 * side + 2 * _GAP, _TITLE + side + _BOTTOM + _SCALE)

    def _scales_width(self) -> int:
        scales = (self.counts, self.around_zero)
        return sum(scale.sizeHint().width() for scale in scales) + _GAP

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
