"""Sixteen numbers side by side: what can be done with them.

All functions work lane by lane. In compiled code they take and give Numba's
:class:`~.vectors.Lanes`, in :func:`~.unroll.unrolled` functions the symbols for them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from .unroll import Index, Number, unrolled
from .vectors import WIDTH as WIDTH

#: Names for annotations.
Vector: TypeAlias = Any
Mask: TypeAlias = Any


@unrolled
def spread(value: Any) -> Vector:
    """Put one number into every lane."""
    if isinstance(value, Index):
        return value.to_number()
    return value


@unrolled
def load(rows: Any, row: Any) -> Vector:
    """Read one row of a flat float32 array."""
    return rows[row]


@unrolled
def store(rows: Any, row: Any, value: Any) -> None:
    """Write one row of a flat float32 array."""
    rows[row] = value


@unrolled
def multiply_add(a: Vector, b: Any, c: Any) -> Vector:
    """Return a·b + c, in one instruction where the CPU has it."""
    if not isinstance(a, Number):
        return b.function("fmuladd", a, c) if isinstance(b, Number) else c + a * b
    return a.function("fmuladd", b, c)


@unrolled
def square_root(x: Vector) -> Vector:
    """Return the square roots; NaN for negative numbers."""
    return x.function("sqrt")


@unrolled
def absolute(x: Vector) -> Vector:
    """Return the absolute values."""
    return x.function("fabs")


@unrolled
def select(mask: Mask, yes: Any, no: Any) -> Any:
    """Return ``yes`` in the lanes of the mask and ``no`` in the others; also of tuples."""
    if isinstance(yes, tuple):
        return tuple(select(mask, *pair) for pair in zip(yes, no, strict=True))
    return mask.select(yes, no)


@unrolled
def count(mask: Mask) -> int:
    """Return in how many lanes a mask is true."""
    return mask.count()


@unrolled
def minimum(a: Vector, b: Any) -> Vector:
    """Return the lower of each pair; b where a is NaN."""
    return select(a < b, a, b)


@unrolled
def maximum(a: Vector, b: Any) -> Vector:
    """Return the higher of each pair; b where a is NaN."""
    return select(a > b, a, b)


@unrolled
def clamp(value: Vector, low: Any, high: Any) -> Vector:
    """Return a value within bounds; NaN stays NaN."""
    return select(value < low, low, select(value > high, high, value))


def load_rows(rows: Any, first: Any, number: int) -> tuple[Vector, ...]:
    """Read rows that follow each other; for unrolled functions."""
    return tuple(rows[first + i] for i in range(number))


def store_rows(rows: Any, first: Any, values: tuple[Vector, ...]) -> None:
    """Write rows that follow each other; for unrolled functions."""
    for i, value in enumerate(values):
        rows[first + i] = value
