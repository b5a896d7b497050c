"""Curves against the height of a spot, and the range in which two widths determine it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Number of heights at which curves are tabulated.
TABLE = 4001


class Curve(NamedTuple):
    """A width, or a shift, in pixels against z in nm.

    ``"huang"``: σ0 √(1 + u² + A u³ + B u⁴) with u = (z - c) / d, of σ0, c, d, A and B.
    ``"polynomial"``: its coefficients, the highest power first.
    ``"spline"``: a cubic spline through values at nodes.
    """

    kind: str
    numbers: tuple[float, ...]
    nodes: tuple[float, ...] = ()

    def __call__(self, z: Any) -> Array:
        """Return the width at heights.

        Examples
        --------
        >>> float(Curve("huang", (1.3, 0.0, 400.0, 0.0, 0.0))(0.0))
        1.3
        """
        z = np.asarray(z, float)
        if self.kind == "polynomial":
            return np.asarray(np.polyval(self.numbers, z))
        if self.kind == "huang":
            least, center, depth, cubic, quartic = self.numbers
            u = (z - center) / depth
            square = 1 + u**2 * (1 + cubic * u + quartic * u**2)
            return np.asarray(least * np.sqrt(np.maximum(square, 0)))
        from scipy.interpolate import CubicSpline  # here, as SciPy takes its time to import

        return np.asarray(CubicSpline(self.nodes, self.numbers)(z))

    def checked(self, name: str) -> Curve:
        """Return it, or raise a ValueError if it is no curve."""
        count = {"huang": len(self.numbers) == 5, "polynomial": len(self.numbers) > 0}.get(
            self.kind, self.kind == "spline" and len(self.nodes) == len(self.numbers) > 1
        )
        finite = all(map(math.isfinite, (*self.numbers, *self.nodes)))
        if not (count and finite and all(np.diff(self.nodes) > 0)):
            raise ValueError(
                f"the curve {name} must be 'huang' with 5 numbers, a 'polynomial', or a 'spline' "
                f"with a value at each of its rising nodes; got {self!r}"
            )
        return Curve(self.kind, tuple(map(float, self.numbers)), tuple(map(float, self.nodes)))


def unique_range(
    x: Curve, y: Curve, low: float, high: float, least: float = 0.0
) -> tuple[float, float]:
    """Return the part of a range, around the least difference of both widths, where they tell z.

    The difference of the widths has to rise, or fall, all the way; with `least`, by so much of
    what it does at its steepest.

    Examples
    --------
    >>> x, y = (Curve("polynomial", (1e-6, -2e-6 * focus, 2.0)) for focus in (250.0, -250.0))
    >>> unique_range(x, y, -600.0, 600.0)
    (-600.0, 600.0)
    """
    z = np.linspace(low, high, TABLE)
    difference = x(z) - y(z)
    middle = min(int(np.argmin(np.abs(difference))), len(z) - 2)
    slope = np.diff(difference)
    slope = slope * np.sign(slope[middle])
    wrong = np.flatnonzero(slope <= least * slope.max())
    before, after = wrong[wrong < middle], wrong[wrong >= middle]
    first, last = before[-1] + 1 if len(before) else 0, after[0] if len(after) else len(z) - 1
    return float(z[first]), float(z[last])
