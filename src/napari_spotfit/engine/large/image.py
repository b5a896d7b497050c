"""What the search in a large ROI asks of a backend."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...models.profiles import Profile

Array = NDArray[np.float64]


class Bins(NamedTuple):
    """Pixels in square cells; those that do not count are left out."""

    #: By rows and columns of cells: how many pixels count, their lowest, highest and mean.
    #: Where none counts, infinities and 0.
    pixels: Array
    low: Array
    high: Array
    mean: Array


class Sums(NamedTuple):
    """Sums over the pixels at one point, with d = (f_1, …, f_K, f, 1), x before y.

    Least squares, with weights w and the residuals r = g - amplitude·f - background of the
    amplitudes that are given: Σ w d dᵀ, Σ w r d and Σ w r².

    Maximum likelihood, with h = amplitude·f + background + v, data e and e' = max(e + v, 0):
    Σ d dᵀ/h, Σ (e'/h - 1) d and the Poisson deviance.
    """

    matrix: Array
    vector: Array
    total: float


def sums_of(shape: int) -> int:
    """Return how many numbers the sums are for so many shape parameters."""
    n = shape + 2
    return n * (n + 1) // 2 + n + 1


def to_sums(numbers: Array, shape: int) -> Sums:
    """Return sums from the matrix by rows of its upper triangle, the vector and the total."""
    n = shape + 2
    upper = np.triu_indices(n)
    matrix = np.empty((n, n))
    matrix[upper] = numbers[: len(upper[0])]
    matrix.T[upper] = matrix[upper]
    return Sums(matrix, numbers[-n - 1 : -1].copy(), float(numbers[-1]))


def origin_of(profile: Profile, shape: Array) -> Array:
    """Return the pixel from which x and y are counted, so that they are exact near the centre.

    It is the pixel at the centre, or the first one where the profile depends on where it is.
    """
    own = profile.expression
    return np.round(shape[:2]) if own is None or own.follows_center else np.zeros(2)


class Image(Protocol):
    """The pixels of one ROI, wherever they are."""

    def bins(self, top: int, left: int, cell: int, rows: int, columns: int) -> Bins:
        """Return the pixels from row ``top`` and column ``left`` on in cells of a side."""

    def set_unit(self, level: float, scale: float) -> None:
        """From now on pixels are (counts - level) · scale."""

    def least_squares(
        self, shape: Array, amplitude: float, background: float, weighted: bool = True
    ) -> Sums:
        """Return the sums at a shape, in the order of the kernels; the angle in radians."""

    def noise(self, shape: Array, amplitude: float, background: float, shot: float) -> Array:
        """Return Σ w² n d dᵀ with the variance n = shot · max(amplitude·f + background, 0)."""

    def likelihood(self, shape: Array, amplitude: float, background: float) -> Sums:
        """Return the sums of maximum likelihood; the variance v is in pixels' units."""
