"""Plots in the viewer's colours, and the colours of what is drawn in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyqtgraph as pg
from qtpy.QtGui import QColor
from qtpy.QtWidgets import QWidget

from ..napari_compat import theme_of

if TYPE_CHECKING:
    from napari import Viewer

#: Colours that show on dark and on light; after Okabe & Ito, for all kinds of colour vision.
BLUE, ORANGE = "#56b4e9", "#e69f00"
GREY = QColor(128, 128, 128)
#: What is there but does not count at the moment.
DIM = QColor(128, 128, 128, 110)


class Plot(pg.PlotWidget):  # type: ignore[misc]
    """A plot in the colours of the viewer's theme, which the mouse neither moves nor scales.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose theme counts.
    x, y : str
        Labels of the axes.
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, viewer: Viewer, x: str = "", y: str = "", parent: QWidget | None = None):
        super().__init__(parent)
        self._viewer = viewer
        self.setMouseEnabled(False, False)
        self.setMenuEnabled(False)
        self.hideButtons()
        for axis, text in (("bottom", x), ("left", y)):
            # The units are in the labels: 0.13, not 130 (×0.001).
            self.getAxis(axis).enableAutoSIPrefix(False)
            if text:
                self.setLabel(axis, text)
        self.paint_theme()

    def bind(self) -> None:
        """Follow the viewer's theme."""
        self._viewer.events.theme.connect(self.paint_theme)
        self.paint_theme()

    def unbind(self) -> None:
        """Stop following it."""
        self._viewer.events.theme.disconnect(self.paint_theme)

    def paint_theme(self, event: Any = None) -> None:
        """Take the colours of the viewer's theme."""
        background, text = theme_colors(self._viewer)
        self.setBackground(background)
        for name in ("bottom", "left"):
            axis = self.getAxis(name)
            axis.setPen(text)
            axis.setTextPen(text)


def theme_colors(viewer: Viewer) -> tuple[QColor, QColor]:
    """Return the colours of background and text in the viewer's theme."""
    theme = theme_of(viewer)
    return theme.background, theme.text


def faint(color: str, alpha: int) -> QColor:
    """Return a colour that lets through what is behind it."""
    result = QColor(color)
    result.setAlpha(alpha)
    return result
