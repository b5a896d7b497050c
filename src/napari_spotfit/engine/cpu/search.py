"""The Levenberg-Marquardt search: what is tried next, what is taken, and when it ends.

All that is said here of χ² also holds for the deviance of maximum likelihood, for which
amplitude and background are parameters of the search.
"""

from __future__ import annotations

from typing import Any

from ...models.stopping import (
    DAMPING_DECREASE,
    DAMPING_INCREASE,
    LEAST_CURVATURE,
    LONGEST_STRETCH,
    MAX_DAMPING,
    ROUNDING,
    ROUNDING_FLOOR,
    SHORTEST_STRETCH,
    SINGULAR,
    SKIPPED_DAMPING,
    SKIPPED_STEP,
)
from ...models.stopping import StopCondition as Stop
from . import rotated
from .kinds import Kind
from .lanes import Mask, Vector, absolute, clamp, maximum, multiply_add, select, square_root
from .unroll import unrolled

_MAX_ITERATIONS, _MAX_ERROR = int(Stop.MAX_ITERATIONS), int(Stop.MAX_ERROR)
_MIN_DELTA, _MIN_STEP = int(Stop.MIN_DELTA), int(Stop.MIN_STEP)
_NO_DECREASE = int(Stop.NO_DECREASE)


@unrolled
def amplitude_bounds(limits: Any, scale: Vector, level: Vector) -> tuple[Vector, ...]:
    """Return the bounds of amplitude and background in each lane's own units."""
    return (
        limits.amplitude_min * scale,
        limits.amplitude_max * scale,
        (limits.background_min - level) * scale,
        (limits.background_max - level) * scale,
    )


@unrolled
def box(
    kind: Kind, limits: Any, amplitudes: tuple[Vector, ...], floor: Vector
) -> tuple[tuple[Vector, ...], ...]:
    """Return the lower and upper bounds of what is searched."""
    low, high = limits.low, limits.high
    if kind.likelihood:
        a_min, a_max, _, b_max = amplitudes
        low, high = (*low, a_min, floor), (*high, a_max, b_max)
    return low, high


@unrolled
def moved(
    kind: Kind,
    point: tuple[Vector, ...],
    step: tuple[Vector, ...],
    course: tuple[Vector, ...],
    low: tuple[Vector, ...],
    high: tuple[Vector, ...],
) -> tuple[Vector, ...]:
    """Return where a step leads; that of a product's shape is in units of its widths."""
    values = []
    for i in range(kind.searched):
        stride = step[i] * course[4] if kind.likelihood else step[i]
        if kind.separable and i < kind.shapes:
            stride = stride * (point[kind.shapes - 1] if i == 1 else point[max(i, 2)])
        values.append(point[i] + stride)
    if rotated.sheared(kind):
        values[2:5] = rotated.stepped((*values[2:4], point[4]), values[4] - point[4])
    return tuple(clamp(*three) for three in zip(values, low, high, strict=True))


@unrolled
def hold(
    kind: Kind,
    limits: Any,
    trial: tuple[Vector, ...],
    low: tuple[Vector, ...],
    high: tuple[Vector, ...],
    normal: tuple[Vector, ...],
    gradient: tuple[Vector, ...],
) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
    """Take out of the next step what is held, or is at a bound and pushed outwards."""
    n = kind.searched
    out = [_is_pushed_out(*four) for four in zip(trial[:n], gradient, low, high, strict=True)]
    for i in range(kind.shapes):
        out[i] = out[i] | limits.held[i]
    matrix, k = [], 0
    for i in range(n):
        for j in range(i, n):
            if j > i:
                value = select(out[i] | out[j], 0, normal[k])
            else:
                value = select(limits.held[i], 1, normal[k]) if i < kind.shapes else normal[k]
            matrix.append(value)
            k += 1
    return tuple(matrix), tuple(select(o, 0, g) for o, g in zip(out, gradient, strict=True))


def _is_pushed_out(value: Vector, push: Vector, low: Vector, high: Vector) -> Mask:
    return ((value <= low) & (push < 0)) | ((value >= high) & (push > 0))


@unrolled
def damped_step(
    kind: Kind,
    normal: tuple[Vector, ...],
    gradient: tuple[Vector, ...],
    damping: Vector,
    point: tuple[Vector, ...],
    low: tuple[Vector, ...],
    high: tuple[Vector, ...],
    norm: Vector,
) -> tuple[Vector, ...]:
    """Solve (A + λ diag A) δ = b by its LDLᵀ factors; see also :func:`_damped`.

    Where the matrix may be singular (in all but separable least squares), a parameter to
    which the others leave no curvature stays where it is. Amplitude and background of
    maximum likelihood, which come last, go no further than to their bounds; then the rest
    of the step is the best for that.
    """
    n = len(gradient)
    a = _upper(normal, n)
    diagonal = _damped(kind, [a[i][i] for i in range(n)], point, norm)
    raised = 1 + damping
    inverse: list[Vector] = []
    factors: list[list[Vector]] = []  # factors[k][j] is L's row j, column k
    rows: list[list[Vector]] = []
    for i in range(n):
        row = list(a[i])
        row[i] = row[i] * raised if diagonal[i] is row[i] else row[i] + damping * diagonal[i]
        for k in range(i):
            for j in range(i, n):
                row[j] = row[j] - factors[k][i] * rows[k][j]
        pivot = 1 / row[i]
        if not kind.plain:
            pivot = select(row[i] > SINGULAR * a[i][i], pivot, 0)
        inverse.append(pivot)
        rows.append(row)
        factors.append([value * pivot for value in row])
    z: list[Vector] = []
    for i in range(n):
        value = gradient[i]
        for k in range(i):
            value = value - factors[k][i] * z[k]
        z.append(value)
    step: list[Vector] = [None] * n
    for i in reversed(range(n)):
        step[i] = z[i] * inverse[i]
        for j in range(i + 1, n):
            step[i] = step[i] - factors[i][j] * step[j]
        if i >= kind.shapes:
            step[i] = clamp(step[i], low[i] - point[i], high[i] - point[i])
    return tuple(step)


def _damped(
    kind: Kind, diagonal: list[Vector], point: tuple[Vector, ...], norm: Vector
) -> list[Vector]:
    """Return the curvatures that damp a step; of expressions, they are not too small."""
    if kind.program is None:
        return diagonal
    shapes = range(kind.shapes)
    least = [LEAST_CURVATURE * norm / maximum(point[i] * point[i], 1.0) for i in shapes]
    return [*map(maximum, diagonal, least), *diagonal[kind.shapes :]]


def _upper(triangle: tuple[Vector, ...], n: int) -> list[list[Vector]]:
    """Return a symmetric matrix from its upper triangle by rows; zeros below."""
    items = iter(triangle)
    return [[next(items) if j >= i else 0 for j in range(n)] for i in range(n)]


@unrolled
def judge(
    kind: Kind,
    point: tuple[Vector, ...],
    trial: tuple[Vector, ...],
    course: tuple[Vector, ...],
    stop: Vector,
    n: Vector,
    limits: Any,
    max_error: Vector,
) -> tuple[Mask, tuple[Vector, ...], Vector]:
    """Decide which trials are accepted, which fits stop, and how the others go on."""
    damping, decrease, iterations, *rest = course
    best, chi = point[-1], trial[-1]
    running = stop < 0
    better = chi < best
    accepted, worse = running & better, running & ~better
    # The first trial is the start itself, which is no step.
    stepped = running & (iterations >= 0)
    small = stepped & _is_small(kind, point, trial, limits)
    change = absolute(chi - best)
    rounding = _rounding(kind, trial)
    tiny = stepped & _settled(change, better, decrease, best, rounding, n, limits.min_delta)

    raised = damping * DAMPING_INCREASE
    lowered = damping * DAMPING_DECREASE
    if kind.likelihood:
        rest[1] = _next_stretch(rest[1], change / rest[0], accepted & stepped, damping)
    damping = select(accepted, lowered, select(worse, raised, damping))
    decrease = select(accepted, change, decrease)
    iterations = select(running, iterations + 1, iterations)

    # In rising order of precedence, so that the most telling condition is kept.
    used_up = running & (iterations >= limits.max_iterations)
    stop = select(used_up, _MAX_ITERATIONS, stop)
    stuck = worse & (small | (damping > MAX_DAMPING))
    stop = select(stuck, _NO_DECREASE, stop)
    stop = select(better & small, _MIN_STEP, stop)
    stop = select(tiny, _MIN_DELTA, stop)
    chi = select(better, chi, best)
    stop = select(running & (chi < max_error), _MAX_ERROR, stop)
    return accepted, (damping, decrease, iterations, *rest), stop


def _next_stretch(stretch: Vector, success: Vector, believed: Mask, damping: Vector) -> Vector:
    """Return by what the next step of maximum likelihood is to be multiplied.

    Fisher's matrix lacks the model's second derivatives, so that steps of maximum
    likelihood near its end are all too long or all too short. What the deviance fell by,
    over what was expected of a step that is not stretched (its success), tells the true
    curvature along it: it is (2 stretch - success)/stretch² times that of the model.
    """
    curvature = (2 * stretch - success) / (stretch * stretch)
    stretch = 1 / clamp(curvature, 1 / LONGEST_STRETCH, 1 / SHORTEST_STRETCH)
    # The first step's damping, too, whatever rounding makes of it.
    return select(believed & (damping < 2 * SKIPPED_DAMPING), stretch, 1.0)


def _is_small(
    kind: Kind, point: tuple[Vector, ...], trial: tuple[Vector, ...], limits: Any
) -> Mask:
    """Return where every parameter has moved by less than its share."""
    small = [
        absolute(trial[i] - point[i]) < limits.min_step * absolute(point[i])
        for i in range(kind.searched)
    ]
    small = [moved | limits.held[i] if i < kind.shapes else moved for i, moved in enumerate(small)]
    result = small[0]
    for other in small[1:]:
        result = result & other
    return result


def _rounding(kind: Kind, point: tuple[Vector, ...]) -> Vector:
    """Return the rounding error of a residual.

    Those of maximum likelihood are in units of their noise, which is the square root of
    the model; there it is that of the brightest pixel.
    """
    amplitude, background = point[-3:-1]
    if kind.likelihood:
        return ROUNDING * square_root(amplitude + background)
    return ROUNDING * (1 + absolute(amplitude))


def _settled(
    change: Vector, better: Mask, last: Vector, chi: Vector, rounding: Vector,
    n: Vector, min_delta: Vector,
) -> Mask:  # fmt: skip
    """Return where χ² has changed by less than ``min_delta`` of it, for good.

    Steps that shrink slowly add up: from a decrease and the one before it follows what
    is still to come (a geometric series), and that must be small as well. A change below
    what rounding makes of χ² is none, and a χ² of rounding alone gets no better.
    """
    enough = min_delta * chi
    slow = better & (change * last > enough * (last - change))
    floor = n * ROUNDING_FLOOR * rounding
    perfect = ~better & (chi <= floor * rounding)
    rounding = 2 * rounding * (square_root(chi) + floor)
    return ((change <= enough) & ~slow) | (change <= rounding) | perfect


@unrolled
def is_over(
    kind: Kind,
    point: tuple[Vector, ...],
    normal: tuple[Vector, ...],
    gradient: tuple[Vector, ...],
    step: tuple[Vector, ...],
    course: tuple[Vector, ...],
    norm: Vector,
    n: Vector,
    limits: Any,
) -> tuple[Mask, tuple[Vector, ...]]:
    """Return where the next step would settle the fit, were the model linear.

    That step is not worth an evaluation. The course, which is returned as well, keeps what
    it would lower χ² by.
    """
    damping, decrease = course[:2]
    diagonal = [row[i] for i, row in enumerate(_upper(normal, len(step)))]
    expected = None
    for s, a, g in zip(step, _damped(kind, diagonal, point, norm), gradient, strict=True):
        term = s * multiply_add(damping * a, s, g)
        expected = term if expected is None else expected + term
    if not kind.likelihood:
        expected = expected * (point[-3] * point[-3])
    enough = limits.min_delta * point[-1]
    slow = expected * decrease > enough * (decrease - expected)
    rounding = _rounding(kind, point)
    floor = n * (2 * ROUNDING_FLOOR) * rounding * rounding
    tiny = (expected <= enough) & ~slow | (expected <= floor)
    over = tiny & _is_short(kind, step, diagonal, norm) & (damping <= SKIPPED_DAMPING)
    return over, (*course[:3], expected, course[4]) if kind.likelihood else course


def _is_short(kind: Kind, step: tuple[Vector, ...], diagonal: list[Vector], norm: Vector) -> Mask:
    """Return where a step is so short that what the linear model says of it is believed.

    A step of a product is short in units of its widths, any other in what it changes the
    model by, compared to the norm of the profile.
    """
    result = None
    for s, a in zip(step, diagonal, strict=True):
        if kind.plain:
            short = absolute(s) < SKIPPED_STEP
        else:
            short = s * s * a <= SKIPPED_STEP * SKIPPED_STEP * norm
        result = short if result is None else result & short
    return result
