"""From sums over the pixels to a trial's χ², amplitudes and normal equations."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...models.stopping import ROUNDING, SINGULAR
from .image import Array, Image, Sums
from .search import Point, Rules


class Box(NamedTuple):
    """Bounds of amplitude and background, in pixels' units."""

    amplitude: tuple[float, float]
    background: tuple[float, float]


def ends_of(rules: Rules, box: Box) -> tuple[Array, Array]:
    """Return the lower and upper bounds of the shape, amplitude and background."""
    (a_low, a_high), (b_low, b_high) = box
    return np.append(rules.low, (a_low, b_low)), np.append(rules.high, (a_high, b_high))


class LeastSquares:
    """Makes points of the shape alone: amplitude and background are implicit.

    Variable projection (Golub & Pereyra 1973) with Kaufman's (1975) Jacobian: the
    derivative of the profile less its projection on what the implicit parameters can take
    up. χ² is that of the best amplitudes, by a small correction from those of the best
    point so far, so that no digits are lost in differences of large sums.
    """

    def __init__(self, image: Image, box: Box, pixels: int) -> None:
        self._image, self._box, self._pixels = image, box, pixels

    def __call__(self, parameters: Array, best: Point | None) -> Point:
        """Return the point of a trial; ``best`` is the best one up to now."""
        if best is None:
            guess = _solved(self._image.least_squares(parameters, 0.0, 0.0), 0.0, 0.0, self._box)
            amplitude, background = guess[:2]
        else:
            amplitude, background = best.amplitude, best.background
        sums = self._image.least_squares(parameters, amplitude, background)
        return self._point(parameters, sums, amplitude, background)

    def _point(self, parameters: Array, sums: Sums, amplitude: float, background: float) -> Point:
        count = len(parameters)
        new, flat, free = _solved(sums, amplitude, background, self._box)
        change = np.array([new - amplitude, flat - background])
        matrix, push = sums.matrix[count:, count:], sums.vector[count:]
        chi = sums.total - 2 * change @ push + change @ matrix @ change
        cross = sums.matrix[:count, count:]
        gradient = new * (sums.vector[:count] - cross @ change)
        normal = sums.matrix[:count, :count].copy()
        if any(free):
            taken = cross[:, free]
            normal -= taken @ np.linalg.solve(matrix[np.ix_(free, free)], taken.T)
        weight = matrix[1, 1] / self._pixels
        return Point(
            parameters, new, flat, max(float(chi), 0.0) if chi == chi else math.nan,
            new * new * normal, gradient, new * new * float(matrix[0, 0]),
            ROUNDING * (1 + abs(new)) * math.sqrt(weight),
        )  # fmt: skip


def _solved(
    sums: Sums, amplitude: float, background: float, box: Box
) -> tuple[float, float, Array]:
    """Return the best amplitude and background, and which of them are not at a bound.

    The exact minimum of a quadratic in a box: a free minimum outside moves to an edge, the
    background's or the amplitude's, whichever is lower.
    """
    ff, f, n = (float(sums.matrix[i, j]) for i, j in ((-2, -2), (-2, -1), (-1, -1)))
    p, q = map(float, sums.vector[-2:])
    determinant = ff * n - f * f
    if not determinant > SINGULAR**2 * ff * n:
        return math.nan, math.nan, np.array([False, False])

    def best_amplitude(at: float) -> float:
        return amplitude + (p - f * (at - background)) / ff

    def best_background(at: float) -> float:
        return background + (q - f * (at - amplitude)) / n

    def misfit(a: float, b: float) -> float:
        a, b = a - amplitude, b - background
        return a * a * ff + 2 * a * b * f + b * b * n - 2 * (a * p + b * q)

    a = amplitude + (n * p - f * q) / determinant
    b = background + (ff * q - f * p) / determinant
    (a_low, a_high), (b_low, b_high) = box
    if not (a_low <= a <= a_high and b_low <= b <= b_high):
        b_edge = min(max(b, b_low), b_high)
        a_edge = min(max(a, a_low), a_high)
        on_background = min(max(best_amplitude(b_edge), a_low), a_high), b_edge
        on_amplitude = a_edge, min(max(best_background(a_edge), b_low), b_high)
        a, b = min(on_background, on_amplitude, key=lambda edge: misfit(*edge))
    return float(a), float(b), np.array([a_low < a < a_high, b_low < b < b_high])


class Likelihood:
    """Makes points of shape, amplitude and background together: Fisher scoring.

    The normal matrix is the Fisher information, which is positive semi-definite, so that
    no spot is too dim for a step (Laurence & Chromy 2010 minimise the same deviance).
    """

    def __init__(self, image: Image) -> None:
        self._image = image

    def __call__(self, parameters: Array, best: Point | None) -> Point:
        """Return the point of a trial."""
        shape, (amplitude, background) = parameters[:-2], map(float, parameters[-2:])
        sums = self._image.likelihood(shape, amplitude, background)
        unit = np.append(np.full(len(shape), amplitude), (1.0, 1.0))
        normal = sums.matrix * np.outer(unit, unit)
        brightness = max(amplitude + background, 0.0)
        return Point(
            parameters, amplitude, background, sums.total, normal, sums.vector * unit,
            amplitude**2 * float(sums.matrix[-2, -2]), ROUNDING * (1 + math.sqrt(brightness)),
        )  # fmt: skip
