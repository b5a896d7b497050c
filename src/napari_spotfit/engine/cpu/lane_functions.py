"""Functions of sixteen numbers at once, to the last digits of single precision.

The polynomials are made here, when the module is imported: by interpolation at
Chebyshev's nodes, for a form of the function that has no zero within the interval, so
that the relative error is small everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfcx

from .lanes import Vector, absolute, maximum, minimum, multiply_add, select, square_root
from .unroll import unrolled


def _interpolated(
    function: Callable[[NDArray[Any]], NDArray[Any]], low: float, high: float, degree: int
) -> tuple[float, ...]:
    """Return a polynomial's coefficients, the constant first."""
    nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    nodes = (low + high) / 2 + (high - low) / 2 * nodes
    powers = nodes[:, None] ** np.arange(degree + 1)
    return tuple(float(c) for c in np.linalg.solve(powers, function(nodes)))


def _polynomial(coefficients: tuple[float, ...], x: Vector) -> Vector:
    """Return Σ cₖ xᵏ by Horner's rule."""
    total = multiply_add(x, coefficients[-1], coefficients[-2])
    for coefficient in coefficients[-3::-1]:
        total = multiply_add(total, x, coefficient)
    return total


def _halves(number: float) -> tuple[float, float]:
    """Return a number as a sum of two: few bits, which multiply exactly, and the rest."""
    high = float(np.float32(round(number * 2**10) / 2**10))
    return high, number - high


_EXP2 = _interpolated(np.exp2, -0.5, 0.5, 5)
_LN2_HIGH, _LN2_LOW = _halves(math.log(2))


def _times_power_of_two(x: Vector, whole: Vector) -> Vector:
    """Return 2**(x + whole) for |x| ≤ ½ and a whole number within ±126."""
    scale = ((whole.to_whole() + 127) << 23).as_number()
    p = multiply_add(x, _EXP2[5], _EXP2[4])
    for coefficient in _EXP2[3::-1]:
        p = multiply_add(p, x, coefficient)
    return p * scale


@unrolled
def exp2_negative(x: Vector) -> Vector:
    """Return 2**x for x ≤ 0, with a relative error below 2.5e-7; x below -126 counts as -126."""
    x = maximum(x, -126.0)
    nearest = x.function("rint")
    return _times_power_of_two(x - nearest, nearest)


@unrolled
def exp(x: Vector) -> Vector:
    """Return the exponentials; below -87 they are 1e-38, above 87 infinite."""
    within = maximum(minimum(x, 87.0), -87.0)
    whole = (within * (1 / math.log(2))).function("rint")
    rest = multiply_add(whole, -_LN2_LOW, multiply_add(whole, -_LN2_HIGH, within))
    result = _times_power_of_two(rest * (1 / math.log(2)), whole)
    result = select(x > 87.0, math.inf, result)
    return select(x == x, result, math.nan)


_ROOT_HALF_BITS, _ROOT_HALF = 0x3F3504F3, math.sqrt(0.5)
_LOG1P = _interpolated(lambda x: np.log1p(x) / x, _ROOT_HALF - 1, 1 / _ROOT_HALF - 1, 9)


@unrolled
def log_ratio(ratio: Vector, excess: Vector) -> Vector:
    """Return the logarithm of 1 + excess = ratio ≥ 0, to the last digits also near 1.

    Of ratio 0 it is -88, which times 0 is 0.
    """
    bits = ratio.as_whole()
    exponent = (bits - _ROOT_HALF_BITS) >> 23
    mantissa = (bits - (exponent << 23)).as_number()
    near_one = (ratio > 1.001 * _ROOT_HALF) & (ratio < 0.999 / _ROOT_HALF)
    x = select(near_one, excess, mantissa - 1)
    return multiply_add(exponent.to_number(), math.log(2), x * _polynomial(_LOG1P, x))


@unrolled
def log(x: Vector) -> Vector:
    """Return the natural logarithms; NaN for negative numbers."""
    result = select(x < math.inf, log_ratio(x, x - 1), math.inf)
    return select(x > 0, result, select(x == 0, -math.inf, math.nan))


#: erf(z) is z times a polynomial of z² up to 1; beyond, 1 - exp(-z²) erfcx(z), and erfcx
#: is nearly a polynomial of t = 1/(1 + _STRETCH z).
_ERF = _interpolated(lambda x: erf(np.sqrt(x)) / np.sqrt(x), 0, 1, 5)
_STRETCH = 0.7
_ERFCX = _interpolated(
    lambda t: erfcx((1 / t - 1) / _STRETCH), 1 / (1 + 4.2 * _STRETCH), 1 / (1 + _STRETCH), 4
)


@unrolled
def error_function(z: Vector, gauss: Vector) -> Vector:
    """Return erf(z) from z and exp(-z²), with an absolute error below 2e-7."""
    size = absolute(z)
    tail = gauss * _polynomial(_ERFCX, 1 / multiply_add(size, _STRETCH, 1.0))
    far = select(z < 0, tail - 1, 1 - tail)
    return select(size < 1, z * _polynomial(_ERF, z * z), far)


_HALF_PI_HIGH, _HALF_PI_LOW = _halves(math.pi / 2)
_SIN = _interpolated(lambda x: np.sin(np.sqrt(x)) / np.sqrt(x), 0, (math.pi / 4) ** 2, 4)
_COS = _interpolated(lambda x: np.cos(np.sqrt(x)), 0, (math.pi / 4) ** 2, 4)


def _sine(x: Vector, quarter_turns: int) -> Vector:
    """Return sin(x + quarter_turns · π/2), for |x| up to some thousands."""
    whole = (x * (2 / math.pi)).function("rint")
    rest = multiply_add(whole, -_HALF_PI_LOW, multiply_add(whole, -_HALF_PI_HIGH, x))
    square = rest * rest
    sine, cosine = rest * _polynomial(_SIN, square), _polynomial(_COS, square)
    turns = whole.to_whole() + quarter_turns
    odd = (turns & 1).to_number() > 0
    back = (turns & 2).to_number() > 0
    value = select(odd, cosine, sine)
    return select(back, -value, value)


@unrolled
def sin(x: Vector) -> Vector:
    """Return the sines of angles in radians."""
    return _sine(x, 0)


@unrolled
def cos(x: Vector) -> Vector:
    """Return the cosines of angles in radians."""
    return _sine(x, 1)


@unrolled
def tan(x: Vector) -> Vector:
    """Return the tangents of angles in radians."""
    return _sine(x, 0) / _sine(x, 1)


#: atan(x) for |x| ≤ 1 is x times a polynomial of x².
_ATAN = _interpolated(lambda x: np.arctan(np.sqrt(x)) / np.sqrt(x), 0, 1, 10)


@unrolled
def arctan2(y: Vector, x: Vector) -> Vector:
    """Return the angle of (x, y) from the x axis, -π to π; 0 for (0, 0)."""
    far, near = maximum(absolute(x), absolute(y)), minimum(absolute(x), absolute(y))
    ratio = select(far > 0, near / far, 0.0)
    angle = ratio * _polynomial(_ATAN, ratio * ratio)
    angle = select(absolute(y) > absolute(x), math.pi / 2 - angle, angle)
    angle = select(x < 0, math.pi - angle, angle)
    return select(y < 0, -angle, angle)


#: tanh(x) near 0 is x times a polynomial of x².
_SMALL = 0.6
_TANH = _interpolated(lambda x: np.tanh(np.sqrt(x)) / np.sqrt(x), 0, _SMALL**2, 5)


@unrolled
def tanh(x: Vector) -> Vector:
    """Return the hyperbolic tangents."""
    decay = exp2_negative(absolute(x) * (-2 / math.log(2)))
    large = (1 - decay) / (1 + decay)
    small = absolute(x) * _polynomial(_TANH, minimum(x * x, _SMALL**2))
    result = select(absolute(x) < _SMALL, small, large)
    return select(x == x, select(x < 0, -result, result), math.nan)


@unrolled
def sqrt(x: Vector) -> Vector:
    """Return the square roots; NaN for negative numbers."""
    return square_root(x)
