"""Profiles: one function per separable model, along one axis.

A profile writes, for each pixel of the axis, its value u and its derivatives with
respect to the centre (u') and to σ (u°), both times σ. Times σ they need no division,
and the steps that follow from them are steps in units of σ.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .lanes import Vector, exp2_negative, load, multiply_add, spread, store
from .tile import Tile

_HALF_LOG2_E = 0.5 / math.log(2)


@njit(forceinline=True)
def gaussian(profile: Tile, first: int, size: int, center: Vector, sigma: Vector) -> None:
    """Write u, u', u° of exp(-(i - center)²/2σ²) to the rows from ``first`` on."""
    inverse = spread(1) / sigma
    begin = -center * inverse
    for i in range(size):
        q = multiply_add(spread(np.float32(i)), inverse, begin)
        u = exp2_negative(q * q * spread(-_HALF_LOG2_E))
        qu = q * u
        store(profile, first + 3 * i, u)
        store(profile, first + 3 * i + 1, qu)
        store(profile, first + 3 * i + 2, q * qu)


@njit(forceinline=True)
def sums(profile: Tile, first: int, size: int) -> tuple[Vector, ...]:
    """Return Σ of u, u', u°, uu, uu', uu°, u'u', u'u°, u°u° along an axis."""
    s0 = s1 = s2 = s00 = s01 = s02 = s11 = s12 = s22 = spread(0)
    for i in range(first, first + 3 * size, 3):
        u, du, ds = load(profile, i), load(profile, i + 1), load(profile, i + 2)
        s0, s1, s2 = s0 + u, s1 + du, s2 + ds
        s00 = multiply_add(u, u, s00)
        s01 = multiply_add(u, du, s01)
        s02 = multiply_add(u, ds, s02)
        s11 = multiply_add(du, du, s11)
        s12 = multiply_add(du, ds, s12)
        s22 = multiply_add(ds, ds, s22)
    return s0, s1, s2, s00, s01, s02, s11, s12, s22
