"""What decides where noise ends, and where that is on the scale of a frame's maxima."""

from __future__ import annotations

import math
from typing import Protocol

from ...engine.detection.false_spots import expected_false_spots, score_for
from ...estimation.psf_width import FALLBACK_SIGMA
from ..parts.form import Number


class Knob(Protocol):
    """A control, and the scale on which it lies."""

    #: The name of the scale.
    axis: str

    def place(self) -> float:
        """Return where on the scale the control is."""

    def limits(self) -> tuple[float, float]:
        """Return how low and how high it can be."""

    def choose(self, place: float) -> None:
        """Set the control, with three digits."""


class ByFalseSpots:
    """A number of false spots, on the scale of scores: the fewer, the higher.

    Parameters
    ----------
    false_spots : Number
        The control of their number.

    Attributes
    ----------
    sigma : float
        The PSF's width in pixels with which the maxima were found.
    """

    axis = "score (how far out of the noise)"

    def __init__(self, false_spots: Number):
        self._false_spots, self.sigma = false_spots, FALLBACK_SIGMA

    def place(self) -> float:
        """Return the score that so many maxima of noise exceed."""
        return score_for(self._false_spots.value or 0.0, self.sigma)

    def limits(self) -> tuple[float, float]:
        """Return the scores of the most and of the fewest."""
        box = self._false_spots.box
        most, fewest = box.maximum(), box.minimum()
        return score_for(most, self.sigma), score_for(fewest, self.sigma)

    def choose(self, place: float) -> None:
        """Set how many maxima of noise exceed a score."""
        self._false_spots.value = _rounded(expected_false_spots(place, self.sigma))


class ByThreshold:
    """A threshold in counts, on the scale of heights.

    Parameters
    ----------
    threshold : Number
        Its control.
    """

    axis = "height in the filtered image (counts)"

    def __init__(self, threshold: Number):
        self._threshold = threshold

    def place(self) -> float:
        """Return the threshold."""
        return self._threshold.value or 0.0

    def limits(self) -> tuple[float, float]:
        """Return that it can be anywhere."""
        return 0.0, math.inf

    def choose(self, place: float) -> None:
        """Set the threshold."""
        self._threshold.value = _rounded(place)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
