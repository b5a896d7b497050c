"""Profiles: one function per separable model, along one axis.

For a pixel at the distance q from the centre, in units of σ, a profile returns its value
u and its derivatives with respect to the centre (u') and to σ (u°), both times σ. Times
σ they need no division, and the steps that follow from them are steps in units of σ.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .lanes import Vector, exp2_negative, multiply_add, spread, store
from .tile import Tile

_HALF_LOG2_E = 0.5 / math.log(2)


@njit(forceinline=True)
def gaussian(q: Vector) -> tuple[Vector, Vector, Vector]:
    """Return u, u', u° of exp(-q²/2)."""
    u = exp2_negative(q * q * spread(-_HALF_LOG2_E))
    qu = q * u
    return u, qu, q * qu


@njit(forceinline=True)
def along_axis(
    profile: Tile, first: int, size: int, center: Vector, sigma: Vector
) -> tuple[Vector, ...]:
    """Write u, u', u° of an axis' pixels to the rows from ``first`` on, and sum them up.

    Returns
    -------
    Σ of u, u', u°, uu, uu', uu°, u'u', u'u°, u°u°
    """
    inverse = spread(1) / sigma
    begin = -center * inverse
    s0 = s1 = s2 = s00 = s01 = s02 = s11 = s12 = s22 = spread(0)
    for i in range(size):
        u, du, ds = gaussian(multiply_add(spread(np.float32(i)), inverse, begin))
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
