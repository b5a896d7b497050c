"""Separable profiles at a point, for pixels of large ROIs: f and its derivatives."""

from __future__ import annotations

import math

from .kinds import Kind
from .lane_functions import exp2_negative
from .lanes import Vector, multiply_add, select
from .profiles import at_edge, gaussian, integrated_gaussian, lorentzian, widths_of

_HALF_LOG2_E = 0.5 / math.log(2)

#: From this σ on a Gaussian averaged over a pixel is known better by its curvature than by
#: the difference of two error functions; what is neglected is below single precision.
_WIDE = 8.0


def at_point(
    kind: Kind, x: Vector, y: Vector, shape: tuple[Vector, ...]
) -> tuple[Vector, tuple[Vector, ...]]:
    """Return f and its derivatives in the order of the shape; for unrolled functions."""
    width_x, width_y = widths_of(kind, shape)
    u, u_center, u_width = _along(kind, x - shape[0], width_x)
    v, v_center, v_width = _along(kind, y - shape[1], width_y)
    center = u_center * v, u * v_center
    if kind.shapes == 3:
        return u * v, (*center, multiply_add(u_width, v, u * v_width))
    return u * v, (*center, u_width * v, u * v_width)


def _along(kind: Kind, distance: Vector, width: Vector) -> tuple[Vector, Vector, Vector]:
    """Return the profile along one axis and its derivatives by centre and width."""
    inverse = 1 / width
    q = distance * inverse
    if kind.integrated:
        half = 0.5 * inverse
        exact = integrated_gaussian(at_edge(q - half), at_edge(q + half), width)
        values = select(width > _WIDE, _curved(q, inverse), exact)
    else:
        values = lorentzian(q) if kind.model == "lorentzian" else gaussian(q)
    return values[0], values[1] * inverse, values[2] * inverse


def _curved(q: Vector, inverse: Vector) -> tuple[Vector, Vector, Vector]:
    """Return u, u', u° of exp(-q²/2) averaged over a pixel, up to its second derivative."""
    share, qq = inverse * inverse * (1 / 24), q * q
    g = exp2_negative(qq * -_HALF_LOG2_E)
    return (
        g * multiply_add(share, qq - 1, 1.0),
        q * g * multiply_add(share, qq - 3, 1.0),
        g * multiply_add(share, multiply_add(qq, qq - 5, 2.0), qq),
    )
