"""A cubic spline in z, y and x, kept as B-spline coefficients: the image of a spot against its z.

The kernels have the same in single precision (kernels/lattice.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .number_checks import one_of

Array = NDArray[np.float64]
#: Of each axis, the four coefficients that count, and the weights of these.
_Taps = list[list[tuple[NDArray[np.intp], Array]]]

#: Rows of a system for the coefficients at the ends of an axis, besides (1, 4, 1) / 6 at the knots.
_ENDS = {"natural": (1.0, -2.0, 1.0), "not-a-knot": (1.0, -4.0, 6.0, -4.0, 1.0)}
#: Places along z where a search may begin: how far apart in nm at most, and how many.
_STEP, _FEWEST, _MOST = 150.0, 8, 16
#: How far from the centre the light has a maximum, in pixels, and how high that is at least beside
#: the highest one, for searches to begin there too.
_OFF, _LOBE = 1.0, 0.7
#: Pixels around the centre that are searched for maxima, on each side.
_REACH = 6
#: How high the light is where spots are bright, beside the highest.
_BRIGHT = 0.5


@dataclass(frozen=True, eq=False)
class Lattice:
    """The fraction of a spot's light in a pixel, against the place of the spot.

    Threads: it does not change, so that any number may use one.

    Parameters
    ----------
    coefficients : ndarray of float32, shape (planes + 2, rows + 2, columns + 2)
        Those of the B-spline, with a knot in each voxel.
    plane, y, x : float
        Where the centre is among the knots.
    nm_per_plane : float
        Distance of two planes.
    """

    coefficients: NDArray[Any]
    plane: float
    y: float
    x: float
    nm_per_plane: float

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lattice):
            return NotImplemented
        return self is other or (
            self._numbers == other._numbers
            and np.array_equal(self.coefficients, other.coefficients)
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self._numbers, self.coefficients.tobytes()))

    @property
    def _numbers(self) -> tuple[float, ...]:
        return self.plane, self.y, self.x, self.nm_per_plane

    @property
    def range(self) -> tuple[float, float]:
        """The first and the last z that it has, in nm."""
        last = self.coefficients.shape[0] - 3
        return -self.plane * self.nm_per_plane, (last - self.plane) * self.nm_per_plane

    @cached_property
    def height(self) -> float:
        """The largest fraction of a spot's light in a pixel: what an amplitude of fits is of."""
        return float(self.voxels.max())

    @property
    def reach(self) -> int:
        """How many pixels it has on each side of the centre."""
        sizes = zip((self.y, self.x), self.coefficients.shape[1:], strict=True)
        return int(min(min(center, size - 3 - center) for center, size in sizes))

    @property
    def voxels(self) -> Array:
        """The fraction of a spot's light in each voxel, (planes, rows, columns)."""
        values: Array = self.coefficients.astype(float)
        for axis in range(3):
            first, middle, last = (
                values.take(range(i, values.shape[axis] - 2 + i), axis) for i in range(3)
            )
            values = (first + 4 * middle + last) / 6
        return values

    def sample(self, z: Any, y: Any, x: Any, derivative: str = "") -> Array:
        """Return the fraction of a spot's light in a pixel, in double precision.

        Parameters
        ----------
        z : array
            Where the spot is along z, in nm.
        y, x : array
            Where the pixel is, in pixels from the spot's centre. All are broadcast.
        derivative : {"", "z", "y", "x"}
            By which of them the derivative is returned, if by one.

        Returns
        -------
        ndarray of float64
            The fraction, or its derivative. Beyond its voxels, the PSF stays as it is there.
        """
        scale = 1 / self.nm_per_plane
        places = np.asarray(z) * scale + self.plane, np.asarray(y) + self.y, np.asarray(x) + self.x
        taps = []
        for axis, place, size in zip("zyx", places, self.coefficients.shape, strict=True):
            if axis == "z":
                place = np.clip(place, 0, size - 3)
            knot = np.floor(place)
            if axis == "z":
                knot = np.minimum(knot, size - 4)
            weights = _taps(place - knot, slope=axis == derivative)
            indices = np.clip(np.add.outer(np.arange(4), knot.astype(int)), 0, size - 1)
            taps.append(list(zip(indices, weights, strict=True)))
        shape = np.broadcast_shapes(*(place.shape for place in places))
        total = self._of_grid(taps) if _is_grid(places) else self._of_each(taps, shape)
        total = total.reshape(shape)
        return total * scale if derivative == "z" else total

    def _of_grid(self, taps: _Taps) -> Array:
        """Return the sums of a grid, one axis after another: 12 terms instead of 64."""
        light: Array = self.coefficients
        for axis, pairs in enumerate(taps):
            along = [-1 if axis == other else 1 for other in range(3)]
            terms = (light.take(index.ravel(), axis) * one.reshape(along) for index, one in pairs)
            light = sum(terms, np.zeros(()))
        return light

    def _of_each(self, taps: _Taps, shape: tuple[int, ...]) -> Array:
        """Return the sums of any places."""
        total, values = np.zeros(shape), self.coefficients.ravel()
        _, rows, columns = self.coefficients.shape
        for plane, by_z in taps[0]:
            for row, by_y in taps[1]:
                first, by_zy = (plane * rows + row) * columns, by_z * by_y
                for column, by_x in taps[2]:
                    total += values.take(first + column) * (by_zy * by_x)
        return total

    @cached_property
    def starts(self) -> Array:
        """Return where searches may begin: z in nm, y and x of maxima of the light from the centre.

        Of each z, the centre comes first. The last column is how high the light is there.
        """
        low, high = self.range
        count = int(np.clip(np.ceil((high - low) / _STEP), _FEWEST, _MOST))
        reach = min((min(self.coefficients.shape[1:]) - 4) // 2, _REACH)
        # No grid: rounding decides between lobes that are alike, by sums of the same order as ever.
        y, x = np.mgrid[-reach - 1 : reach + 2, -reach - 1 : reach + 2]
        found: list[tuple[float, float, float, float]] = []
        for z in low + (np.arange(count) + 0.5) * (high - low) / count:
            windows = sliding_window_view(self.sample(z, y, x), (3, 3)).sum(axis=(2, 3))
            around = sliding_window_view(np.pad(windows, 1), (3, 3)).max(axis=(2, 3))
            peaks = (windows >= around) & (windows >= _LOBE * windows.max())
            height = float(windows.max())
            found.append((z, 0.0, 0.0, height))
            lobes = np.argwhere(peaks) - reach
            found += [(z, *one, height) for one in lobes if abs(one).max() > _OFF]
        return np.array(found)

    @property
    def lobes(self) -> float:
        """How far from the centre bright spots have a maximum at most, in pixels; 0 where it is."""
        height = self.starts[:, 3]
        bright = self.starts[height >= _BRIGHT * height.max()]
        return float(np.hypot(bright[:, 1], bright[:, 2]).max())


def _is_grid(places: Sequence[Array]) -> bool:
    """Whether z, y and x each vary along an axis of their own, the last three in this order."""
    return all(
        place.size == (place.shape[-axis] if place.ndim >= axis else 1)
        for place, axis in zip(places, (3, 2, 1), strict=True)
    )


def _taps(t: Array, *, slope: bool) -> tuple[Array, Array, Array, Array]:
    """Return the four B-splines at a fraction behind a knot, or their derivatives."""
    s = 1 - t
    if slope:
        return -s * s / 2, t * (1.5 * t - 2), s * (2 - 1.5 * s), t * t / 2
    middle = 2 / 3 - t * t * (1 - t / 2), 2 / 3 - s * s * (1 - s / 2)
    return s**3 / 6, *middle, t**3 / 6


def spline_coefficients(values: Array, ends: str = "not-a-knot") -> Array:
    """Return the B-spline coefficients of values at knots, two more along each axis.

    Parameters
    ----------
    values : ndarray
        Values at the knots, with at least five along each axis.
    ends : {"not-a-knot", "natural"}
        Which condition each end of an axis has.

    Examples
    --------
    >>> import numpy as np
    >>> coefficients = spline_coefficients(np.linspace(0, 1, 6))
    >>> [round(float(one), 3) for one in coefficients[::2]]
    [-0.2, 0.2, 0.6, 1.0]
    """
    one_of("ends", ends, tuple(_ENDS))
    row = np.array(_ENDS[ends])
    for axis, size in enumerate(values.shape):
        system = np.zeros((size + 2, size + 2))
        system[0, : len(row)] = system[-1, -len(row) :] = row
        knots = np.arange(size)
        for place, weight in enumerate((1 / 6, 4 / 6, 1 / 6)):
            system[1 + knots, knots + place] = weight
        given = np.moveaxis(values, axis, 0)
        border = np.zeros((1, *given.shape[1:]))
        given = np.concatenate([border, given, border]).reshape(size + 2, -1)
        solved = np.linalg.solve(system, given).reshape(
            size + 2, *np.moveaxis(values, axis, 0).shape[1:]
        )
        values = np.moveaxis(solved, 0, axis)
    return values
