"""Colours of what is drawn in the plots; they show on dark and on light."""

from __future__ import annotations

from qtpy.QtGui import QColor

#: After Okabe & Ito, for all kinds of colour vision.
BLUE, ORANGE = "#56b4e9", "#e69f00"
#: What is there but does not count at the moment.
DIM = QColor(128, 128, 128, 110)
GREY = QColor(128, 128, 128)


def faint(color: str, alpha: int) -> QColor:
    """Return a colour that lets through what is behind it."""
    result = QColor(color)
    result.setAlpha(alpha)
    return result
