"""Profiles: one function per separable model, along one axis.

For a pixel at the distance q from the centre, in units of the width, a profile returns its
value u and its derivatives with respect to the centre (u') and to the width (u°), both
times the width. Times it they need no division, and the steps that follow from them are
steps in units of the width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiled import inner
from .kinds import Kind
from .lane_functions import error_function, exp2_negative
from .lanes import Vector, multiply_add, spread, store
from .tile import Tile
from .unroll import unrolled

_HALF_LOG2_E = 0.5 / math.log(2)


def gaussian(q: Vector) -> tuple[Vector, Vector, Vector]:
    """Return u, u', u° of exp(-q²/2)."""
    u = exp2_negative(q * q * -_HALF_LOG2_E)
    qu = q * u
    return u, qu, q * qu


def lorentzian(q: Vector) -> tuple[Vector, Vector, Vector]:
    """Return u, u', u° of 1/(1 + q²)."""
    u = 1 / multiply_add(q, q, 1.0)
    quu = 2 * q * u * u
    return u, quu, q * quu


def integrated_gaussian(
    before: tuple[Vector, ...], after: tuple[Vector, ...], sigma: Vector
) -> tuple[Vector, Vector, Vector]:
    """Return u, u', u° of exp(-q²/2) averaged over a pixel, from what is at its edges."""
    error, slope, moment = (b - a for a, b in zip(before, after, strict=True))
    u = sigma * math.sqrt(math.pi / 2) * error
    return u, -sigma * slope, u - sigma * moment


def at_edge(q: Vector) -> tuple[Vector, Vector, Vector]:
    """Return erf(q/√2), exp(-q²/2) and q times that at an edge between pixels."""
    gauss = exp2_negative(q * q * -_HALF_LOG2_E)
    return error_function(q * math.sqrt(0.5), gauss), gauss, q * gauss


@unrolled
def _first_edge(kind: Kind, begin: Vector, inverse: Vector) -> Any:
    """Return what is at the first pixel's outer edge, where the profile needs it."""
    return at_edge(begin - 0.5 * inverse) if kind.integrated else ()


@unrolled
def _at_pixel(
    kind: Kind, i: Vector, begin: Vector, inverse: Vector, width: Vector, before: Any
) -> tuple[Vector, Vector, Vector, Any]:
    """Return u, u', u° at pixel i, and what is at its far edge."""
    q = multiply_add(i, inverse, begin)
    if kind.integrated:
        after = at_edge(q + 0.5 * inverse)
        return *integrated_gaussian(before, after, width), after
    return *(lorentzian(q) if kind.model == "lorentzian" else gaussian(q)), ()


@inner(forceinline=True)
def along_axis(
    kind: Kind, profile: Tile, first: int, size: int, center: Vector, width: Vector
) -> tuple[Vector, ...]:
    """Write u, u', u° of an axis' pixels to the rows from ``first`` on, and sum them up.

    Returns
    -------
    Σ of u, u', u°, uu, uu', uu°, u'u', u'u°, u°u°
    """
    inverse = spread(1) / width
    begin = -center * inverse
    s0 = s1 = s2 = s00 = s01 = s02 = s11 = s12 = s22 = spread(0)
    edge = _first_edge(kind, begin, inverse)
    for i in range(size):
        u, du, ds, edge = _at_pixel(kind, spread(np.float32(i)), begin, inverse, width, edge)
        store(profile, first + 3 * i, u)
        store(profile, first + 3 * i + 1, du)
        store(profile, first + 3 * i + 2, ds)
        s0, s1, s2 = s0 + u, s1 + du, s2 + ds
        s00 = multiply_add(u, u, s00)
        s01 = multiply_add(u, du, s01)
        s02 = multiply_add(u, ds, s02)
        s11 = multiply_add(du, du, s11)
        s12 = multiply_add(du, ds, s12)
        s22 = multiply_add(ds, ds, s22)
    return s0, s1, s2, s00, s01, s02, s11, s12, s22


@unrolled
def widths_of(kind: Kind, shape: tuple[Vector, ...]) -> tuple[Vector, Vector]:
    """Return the widths along x and along y."""
    return shape[2], shape[kind.shapes - 1]
