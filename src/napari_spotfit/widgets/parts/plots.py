"""Plots in the viewer's colours, and the colours of curves and points in them."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, Signal
from qtpy.QtGui import QColor

from .layout import explain

#: Colours that show on dark and on light; after Okabe & Ito, for all kinds of colour vision.
BLUE, ORANGE, GREEN = "#56b4e9", "#e69f00", "#009e73"
GREY = QColor(128, 128, 128)
#: Of data that do not count at the moment.
DIM = QColor(128, 128, 128, 110)
#: How opaque the band around a line is.
_BAND = 70
#: Qt's events of another theme, and of a plot put into a window with a theme.
_COLORS = (QEvent.Type.StyleChange, QEvent.Type.PaletteChange)


class Plot(pg.PlotWidget):  # type: ignore[misc]
    """A plot in the colours of the window's theme, which the mouse neither moves nor scales.

    Parameters
    ----------
    x, y : str
        Labels of the axes.
    name, tip : str
        Its name for screen readers, and its tooltip.
    height : int
        The least height in pixels, with axes.
    """

    #: Text has another colour.
    inked = Signal(QColor)
    #: Whether there are axes: Qt sends events of colours before.
    _made = False

    def __init__(self, x: str = "", y: str = "", name: str = "", tip: str = "", height: int = 0):
        super().__init__(enableMenu=False)  # which takes half of the time
        explain(self, name, tip)
        self.setMinimumHeight(height)
        self._painted: tuple[QColor, QColor] | None = None
        self._made = True
        self.setMouseEnabled(False, False)
        self.hideButtons()
        # Half of the topmost number stands above its axis, and a label's foot below it.
        self.plotItem.layout.setContentsMargins(0, 6, 0, 5)
        for axis, text in (("bottom", x), ("left", y)):
            # The units are in the labels: 0.13, not 130 (×0.001).
            self.getAxis(axis).enableAutoSIPrefix(False)
            if text:
                self.setLabel(axis, text)
        self._paint()

    def changeEvent(self, event: QEvent | None) -> None:
        """Take the colours of another theme."""
        super().changeEvent(event)
        if self._made and event is not None and event.type() in _COLORS:
            self._paint()

    def _paint(self) -> None:
        palette = self.palette()
        ground, ink = (
            palette.color(role) for role in (palette.ColorRole.Window, palette.ColorRole.WindowText)
        )
        if (ground, ink) == self._painted:  # Qt sends many of these events, and axes are slow
            return
        self._painted = ground, ink
        self.setBackground(ground)
        for name in ("bottom", "left"):
            axis = self.getAxis(name)
            axis.setPen(ink)
            axis.setTextPen(ink)
        self.inked.emit(ink)


def faint(color: str | QColor, alpha: int) -> QColor:
    """Return a colour that lets through what is behind it."""
    result = QColor(color)
    result.setAlpha(alpha)
    return result


class Band:
    """A line with a band around it, such as of standard errors.

    Parameters
    ----------
    plot : Plot
        Where it is drawn.
    color : str
        The colour of the line; the band lets through what is behind it.
    width : float
        The line's, in pixels of the screen; 1 is drawn faster.
    """

    def __init__(self, plot: Plot, color: str, width: float = 1.5):
        self.line = pg.PlotDataItem(pen=pg.mkPen(color, width=width), connect="finite")
        self._edges = [pg.PlotDataItem(pen=None) for _ in range(2)]
        band = pg.FillBetweenItem(*self._edges, brush=faint(color, _BAND))
        for item in (band, *self._edges, self.line):
            plot.addItem(item)

    def show(
        self, x: NDArray[np.float64], y: NDArray[np.float64], errors: NDArray[np.float64]
    ) -> None:
        """Draw values, and the band where they and their errors are known."""
        known = np.isfinite(y) & np.isfinite(errors)
        self.line.setData(x, y)
        for edge, sign in zip(self._edges, (-1, 1), strict=True):
            edge.setData(x[known], (y + sign * errors)[known])
