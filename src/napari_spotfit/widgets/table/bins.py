"""Histograms of features: over which range, in which steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .columns import Column

#: Percentiles that the axis runs between, so that a few outliers do not rule it.
_PERCENTILES = (0.5, 99.5)
_BINS = 100
#: A handle stands at one of about so many places between the ends.
_PLACES = 500

Limits = tuple[float | None, float | None]


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


def make_bins(column: Column, limits: Limits) -> Bins:
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
    """Return with how many decimal places a handle between two ends is told."""
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
