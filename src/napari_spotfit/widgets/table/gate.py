"""An outline in the plane of two features: what lies within it is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_EXAMPLE = '{"across": "sigma", "up": "photons", "corners": [[1, 0], [2, 0], [2, 900]]}'


@dataclass(frozen=True)
class Gate:
    """A closed outline, drawn with a lasso.

    Parameters
    ----------
    across, up : str
        The features along the two axes.
    corners : sequence of (float, float)
        The outline's corners, in the features' own units.

    Raises
    ------
    ValueError
        If there are fewer than three corners, or not of two finite numbers each.

    Examples
    --------
    >>> gate = Gate("sigma", "photons", [(1, 0), (2, 0), (2, 900)])
    >>> gate.within(np.array([1.5, 1.5]), np.array([100.0, 800.0]))
    array([ True, False])
    """

    across: str
    up: str
    corners: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        corners = tuple((float(x), float(y)) for x, y in self.corners)
        if len(corners) < 3 or not all(math.isfinite(value) for xy in corners for value in xy):
            raise ValueError("a gate must have at least three corners of two finite numbers")
        object.__setattr__(self, "corners", corners)

    @property
    def features(self) -> tuple[str, str]:
        """The two features."""
        return self.across, self.up

    @property
    def words(self) -> str:
        """What is shown, in a few words."""
        return f"within the lasso of {self.across} and {self.up}"

    def within(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which places lie within the outline; where it crosses itself, every other part.

        A place that is NaN lies outside.
        """
        low, high = np.min(self.corners, axis=0), np.max(self.corners, axis=0)
        x, y = np.asarray(x, float), np.asarray(y, float)
        result = np.zeros(len(x), bool)
        near = np.flatnonzero((x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1]))
        rows = near[np.argsort(y[near], kind="stable")]
        x, y = x[rows], y[rows]
        inside = np.zeros(len(rows), bool)
        # Every edge turns what is on its left: sorted, each place is asked of few edges.
        for (x0, y0), (x1, y1) in zip(
            self.corners, (*self.corners[1:], self.corners[0]), strict=True
        ):
            if y0 != y1:
                beside = slice(*np.searchsorted(y, (min(y0, y1), max(y0, y1))))
                inside[beside] ^= x[beside] < x0 + (y[beside] - y0) * ((x1 - x0) / (y1 - y0))
        result[rows] = inside
        return result


def gate_from_dict(values: Any) -> Gate:
    """Return a gate from plain values.

    Raises
    ------
    ValueError
        If the values are something else; the message says what is accepted.
    """
    try:
        return Gate(str(values["across"]), str(values["up"]), values["corners"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"a gate looks like {_EXAMPLE}; got {values!r}") from None
