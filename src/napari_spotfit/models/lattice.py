"""What fits ask of a profile that is a spline: its coefficients, and where its centre is."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Lattice(Hashable, Protocol):
    """A cubic B-spline in z, y and x; :class:`~.measured_psf.MeasuredPsf` explains the members."""

    @property
    def coefficients(self) -> NDArray[np.float32]:
        """Two more than knots along each axis."""

    @property
    def height(self) -> float:
        """The largest value at a knot."""

    @property
    def nm_per_plane(self) -> float:
        """Distance of two planes of knots in nm."""

    @property
    def plane(self) -> float:
        """The reference plane, where z = 0."""

    @property
    def y(self) -> float:
        """The centre's row among the knots."""

    @property
    def x(self) -> float:
        """The centre's column among the knots."""

    @property
    def starts(self) -> NDArray[np.float64]:
        """Where searches may begin: z in nm, y and x in pixels from the centre."""

    @property
    def lobes(self) -> float:
        """How far maxima of the light are from the centre, at most, in pixels."""
