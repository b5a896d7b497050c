"""Axes with whole numbers of pixels."""

from __future__ import annotations

import math

import pyqtgraph as pg

_STEPS = (1, 2, 3, 4, 5, 10, 20, 50)
#: Width of a digit, and of the gap between two numbers, in pixels of the screen.
_DIGIT, _GAP = 7, 6
#: Height of a line.
_LINE = 22


class PixelAxis(pg.AxisItem):  # type: ignore[misc]
    """An axis that numbers pixels, as many as have room for their numbers.

    Parameters
    ----------
    side : str
        "left" or "bottom".
    """

    def __init__(self, side: str):
        super().__init__(side)
        self.enableAutoSIPrefix(False)

    def tickValues(
        self, minVal: float, maxVal: float, size: float
    ) -> list[tuple[float, list[float]]]:
        """Return the distance of the numbers, and the numbers between two ends."""
        # Rows run downwards, from the larger end to the smaller.
        minVal, maxVal = sorted((minVal, maxVal))
        upright = self.orientation in ("left", "right")
        digits = len(str(max(abs(int(minVal)), abs(int(maxVal)))))
        room = _LINE if upright else _DIGIT * digits + _GAP
        least = (maxVal - minVal) * room / max(size, 1.0)
        step = next((step for step in _STEPS if step >= least), _STEPS[-1])
        first = math.ceil(minVal / step) * step
        return [(step, [float(at) for at in range(first, math.floor(maxVal) + 1, step)])]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        """Return the numbers as text."""
        return [f"{value:.0f}" for value in values]
