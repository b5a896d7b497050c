"""The elliptical Gaussian in axes turned by an angle: its values, its start, its one name."""

from __future__ import annotations

import math

from .compiled import inner
from .kinds import Kind
from .lane_functions import arctan2, cos, exp2_negative, sin
from .lanes import Mask, Vector, absolute, clamp, load, multiply_add, select, spread, square_root
from .tile import Tile, weight_of
from .unroll import unrolled

#: Start values come from what stands out of the lower third of the range, within so many
#: σ of the centre.
_STANDS_OUT, _REACH = 0.33, 3.0
#: The ratio of both widths to begin with: above 1, since the angle of a round spot is
#: undetermined, and its derivative 0.
_LEAST_RATIO, _MOST_RATIO = 1.1, 3.0

_HALF_LOG2_E = 0.5 / math.log(2)


def constants(kind: Kind, shape: tuple[Vector, ...]) -> tuple[Vector, ...]:
    """Return what is the same for all pixels."""
    x, y, sigma_x, sigma_y, angle = shape
    inverse_x, inverse_y = 1 / sigma_x, 1 / sigma_y
    s, c = sin(angle), cos(angle)
    turn = inverse_x + inverse_y
    if not sheared(kind):
        turn = turn * (sigma_x - sigma_y)
    return (
        x, y, c * inverse_x, s * inverse_x, -s * inverse_y, c * inverse_y,
        inverse_x, inverse_y, turn,
    )  # fmt: skip


def at_pixel(
    column: Vector, row: Vector, known: tuple[Vector, ...]
) -> tuple[Vector, tuple[Vector, ...]]:
    """Return f = exp(-a²/2 - b²/2) and its derivatives by x, y, σx, σy and the last parameter.

    a = (dx cos + dy sin)/σx and b = (dy cos - dx sin)/σy. The last parameter is the angle,
    or a shear: see :func:`sheared`.
    """
    x, y, ax, ay, bx, by, inverse_x, inverse_y, turn = known
    dx, dy = column - x, row - y
    a, b = multiply_add(dx, ax, dy * ay), multiply_add(dx, bx, dy * by)
    f = exp2_negative(multiply_add(b, b, a * a) * -_HALF_LOG2_E)
    fa, fb = f * a, f * b
    return f, (
        multiply_add(fa, ax, fb * bx),
        multiply_add(fa, ay, fb * by),
        fa * a * inverse_x,
        fb * b * inverse_y,
        fa * b * turn,
    )


def sheared(kind: Kind) -> bool:
    """Whether the search steps along a shear instead of the angle.

    Widths and angle are polar coordinates of a symmetric matrix, R diag(σx, σy) Rᵀ. Where
    the spot is round, the angle has no derivative, and a search that gets there along a
    wrong axis does not get away. So a step adds ((δσx, e), (e, δσy)) within the axes, whose
    shear e = (σx - σy) δangle always has one. With bounds on widths or angle, there is no
    such freedom.
    """
    return kind.model == "gaussian_rotated" and kind.turns == 2 and not kind.for_errors


def stepped(shape: tuple[Vector, ...], shear: Vector) -> tuple[Vector, ...]:
    """Return widths and angle with a shear added; the axes keep their names."""
    along, across, angle = shape
    middle, half = 0.5 * (along + across), 0.5 * (along - across)
    size = square_root(half * half + shear * shear)
    turn = 0.5 * arctan2(shear, absolute(half))
    size, turn = select(half < 0, -size, size), select(half < 0, -turn, turn)
    return middle + size, middle - size, angle + turn


@unrolled
def is_rotated(kind: Kind) -> bool:
    """Whether this is the model."""
    return kind.model == "gaussian_rotated"


@inner()
def moments(
    kind: Kind, tile: Tile, rows: int, columns: int, low: Vector,
    x: Vector, y: Vector, sigma: Vector,
) -> tuple[Vector, Vector, Vector]:  # fmt: skip
    """Return Σ of dx², dx·dy and dy² over the light that stands out around a centre."""
    xx = xy = yy = spread(0)
    reach = sigma * spread(_REACH)
    for row in range(rows):
        for column in range(columns):
            i = row * columns + column
            dx, dy = spread(column) - x, spread(row) - y
            light = load(tile, i) - (low + spread(_STANDS_OUT))
            counted = (light > spread(0)) & (dx * dx + dy * dy <= reach * reach)
            counted = counted & (weight_of(kind, tile, rows * columns, i) > spread(0))
            light = select(counted, light, spread(0))
            xx, yy = multiply_add(light * dx, dx, xx), multiply_add(light * dy, dy, yy)
            xy = multiply_add(light * dx, dy, xy)
    return xx, xy, yy


@unrolled
def turned(
    kind: Kind,
    start: tuple[Vector, ...],
    sigma: Vector,
    held: tuple[Mask, ...],
    spread_of_light: tuple[Vector, Vector, Vector],
) -> tuple[Vector, ...]:
    """Give widths and angle their start values where there are none yet (NaN).

    Equal widths leave the angle open, unless it is held; then it is that of the data.
    """
    if kind.model != "gaussian_rotated":
        return start
    x, y, along, across, angle = start
    xx, xy, yy = spread_of_light
    is_open = ~((along == along) & (across == across))
    equal = along == across
    is_turned = (angle == angle) & (is_open | ~equal | held[4])
    difference = xx - yy
    slope = square_root(difference * difference + 4 * xy * xy)
    angle = select(is_turned, angle, 0.5 * arctan2(2 * xy, difference))
    c, s = cos(angle), sin(angle)
    part = c * c * difference * 2 + 4 * c * s * xy - difference
    part = select(is_turned, part, slope)
    ratio = square_root((xx + yy + part) / (xx + yy - part))
    ratio = select(ratio == ratio, clamp(ratio, 1 / _MOST_RATIO, _MOST_RATIO), 1.0)
    round_ = (ratio > 1 / _LEAST_RATIO) & (ratio < _LEAST_RATIO)
    ratio = select(round_, select(ratio < 1, 1 / _LEAST_RATIO, _LEAST_RATIO), ratio)
    angle = select(~is_turned & ~is_open & (along < across), angle + 0.5 * math.pi, angle)
    stretch = square_root(ratio)
    first = select(equal & ~held[2], along * stretch, along)
    second = select(equal & ~held[3], across / stretch, across)
    return (
        x,
        y,
        select(along == along, first, sigma * stretch),
        select(across == across, second, sigma / stretch),
        angle,
    )


@unrolled
def canonical(kind: Kind, shape: tuple[Vector, ...]) -> tuple[Vector, ...]:
    """Return the same spot with its first axis next to x: the angle within ±45°.

    Where a caller has set bounds to an axis, the axes keep their names and the angle is
    within ±90°; where to the angle, it stays as it is.
    """
    if kind.model != "gaussian_rotated" or kind.turns == 0:
        return shape
    turn = math.pi / kind.turns
    x, y, along, across, angle = shape
    turns = -((0.5 - angle * (1 / turn)).function("floor"))
    angle = angle - turns * turn
    if kind.turns == 1:
        return x, y, along, across, angle
    odd = absolute(turns - 2 * (turns * 0.5).function("rint")) > 0.5
    return x, y, select(odd, across, along), select(odd, along, across), angle
