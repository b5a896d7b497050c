"""Implicit amplitude and background, and the normal equations that are left.

For a given shape they follow in closed form (variable projection, Golub & Pereyra 1973).
The Jacobian is Kaufman's (1975): the derivative of the profile less its projection on
what the implicit parameters can take up.
"""

from __future__ import annotations

from .lanes import Mask, Vector, clamp, select
from .unroll import unrolled


@unrolled
def free_amplitudes(
    n: Vector, f: Vector, ff: Vector, fg: Vector
) -> tuple[Vector, Vector, Vector, Vector]:
    """Return amplitude, background and the weights of their projections; Σg is 0.

    n is the number of pixels, or the sum of their weights.
    """
    w_background = 1 / n
    w_amplitude = 1 / (ff - f * f * w_background)
    amplitude = fg * w_amplitude
    return amplitude, -amplitude * f * w_background, w_amplitude, w_background


@unrolled
def bounded_amplitudes(
    n: Vector, f: Vector, ff: Vector, fg: Vector, bounds: tuple[Vector, ...]
) -> tuple[Vector, Vector, Vector, Vector]:
    """Return the same within bounds: the exact minimum of the 2-D quadratic in a box.

    A free minimum outside the box moves to an edge: the background's or the
    amplitude's, whichever is lower. What lies at its bound projects nothing.
    """
    a_min, a_max, b_min, b_max = bounds
    amplitude, background, _, w_background = free_amplitudes(n, f, ff, fg)
    b1 = clamp(background, b_min, b_max)
    a1 = clamp((fg - b1 * f) / ff, a_min, a_max)
    a2 = clamp(amplitude, a_min, a_max)
    b2 = clamp(-a2 * f * w_background, b_min, b_max)
    first = _misfit(n, f, ff, fg, a1, b1) < _misfit(n, f, ff, fg, a2, b2)
    inside = _within(amplitude, a_min, a_max) & _within(background, b_min, b_max)
    amplitude = select(inside, amplitude, select(first, a1, a2))
    background = select(inside, background, select(first, b1, b2))
    w_background = select((background > b_min) & (background < b_max), w_background, 0)
    w_amplitude = 1 / (ff - f * f * w_background)
    w_amplitude = select((amplitude > a_min) & (amplitude < a_max), w_amplitude, 0)
    return amplitude, background, w_amplitude, w_background


def _misfit(n: Vector, f: Vector, ff: Vector, fg: Vector, a: Vector, b: Vector) -> Vector:
    """Return χ² less the data's own sum of squares; good enough to compare two edges."""
    return a * a * ff + b * (a * f * 2 + b * n) - a * fg * 2


def _within(value: Vector, low: Vector, high: Vector) -> Mask:
    return (value >= low) & (value <= high)


@unrolled
def normal_equations(
    f: Vector,
    slopes: tuple[Vector, ...],
    moments: tuple[Vector, ...],
    products: tuple[Vector, ...],
    data: tuple[Vector, ...],
    amplitudes: tuple[Vector, Vector, Vector, Vector],
) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    """Return JᵀJ/α² (its upper triangle, by rows) and Jᵀr/α².

    Parameters
    ----------
    f, slopes : Σf, Σ∂f/∂p for each shape parameter p
    moments, products : Σf·∂f/∂p, Σ∂f/∂p·∂f/∂q (upper triangle, by rows)
    data : Σg·∂f/∂p
    amplitudes : what :func:`free_amplitudes` returns
    """
    amplitude, background, w_amplitude, w_background = amplitudes
    rest = [h - f * s * w_background for h, s in zip(moments, slopes, strict=True)]
    taken_b = [s * w_background for s in slopes]
    taken_a = [c * w_amplitude for c in rest]
    normal, k = [], 0
    for i in range(len(slopes)):
        for j in range(i, len(slopes)):
            normal.append(products[k] - slopes[i] * taken_b[j] - rest[i] * taken_a[j])
            k += 1
    # The residual is orthogonal to what the implicit parameters take up, so the
    # projection drops out of the right-hand side.
    inverse = 1 / amplitude
    gradient = [
        (fg - background * s) * inverse - h for fg, s, h in zip(data, slopes, moments, strict=True)
    ]
    return tuple(normal), tuple(gradient)
