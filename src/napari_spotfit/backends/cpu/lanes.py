"""Sixteen numbers side by side: a Numba type for explicit LLVM vectors.

A :class:`Lanes` value is LLVM's ``<16 x float>`` and a :class:`LaneMask` value is
``<16 x i1>``. LLVM maps them to AVX-512, AVX2, SSE or NEON alike, so that sixteen
spots are fitted in lockstep on any CPU. Operators work lane by lane; a Python or
NumPy scalar beside a vector is first spread over the lanes with :func:`spread`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import (
    intrinsic,
    lower_builtin,
    models,
    register_model,
)

#: Spots that are fitted in lockstep.
WIDTH = 16

_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_INTS = ir.VectorType(ir.IntType(32), WIDTH)
_BITS = ir.VectorType(ir.IntType(1), WIDTH)

#: What LLVM may do with the arithmetic. Nothing here lets it assume that there are
#: no NaNs or infinities: bad pixels must end as a stop condition.
_FLAGS = ("contract",)


class Lanes(types.Type):  # type: ignore[misc]
    """Numba's type of sixteen single-precision numbers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


class LaneMask(types.Type):  # type: ignore[misc]
    """Numba's type of sixteen truth values."""

    def __init__(self) -> None:
        super().__init__(name="LaneMask")


lanes_type = Lanes()
mask_type = LaneMask()

#: Names for annotations inside compiled functions.
Vector: TypeAlias = Any
Mask: TypeAlias = Any


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)


@register_model(LaneMask)
class _LaneMaskModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _BITS)


Emit = Callable[..., Any]


def _operator(
    function: Any, result: types.Type, operands: tuple[types.Type, ...], emit: Emit
) -> None:
    """Make an operator known to Numba for lanes, with the LLVM code that does it."""

    class Template(ConcreteTemplate):  # type: ignore[misc]
        cases = (signature(result, *operands),)

    infer_global(function)(Template)

    @lower_builtin(function, *operands)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, *args)


_TWO = (lanes_type, lanes_type)
_operator(operator.add, lanes_type, _TWO, lambda b, x, y: b.fadd(x, y, flags=_FLAGS))
_operator(operator.sub, lanes_type, _TWO, lambda b, x, y: b.fsub(x, y, flags=_FLAGS))
_operator(operator.mul, lanes_type, _TWO, lambda b, x, y: b.fmul(x, y, flags=_FLAGS))
_operator(operator.truediv, lanes_type, _TWO, lambda b, x, y: b.fdiv(x, y, flags=_FLAGS))
_operator(operator.neg, lanes_type, (lanes_type,), lambda b, x: b.fneg(x))
_operator(operator.lt, mask_type, _TWO, lambda b, x, y: b.fcmp_ordered("<", x, y))
_operator(operator.le, mask_type, _TWO, lambda b, x, y: b.fcmp_ordered("<=", x, y))
_operator(operator.gt, mask_type, _TWO, lambda b, x, y: b.fcmp_ordered(">", x, y))
_operator(operator.eq, mask_type, _TWO, lambda b, x, y: b.fcmp_ordered("==", x, y))
_operator(operator.ge, mask_type, _TWO, lambda b, x, y: b.fcmp_ordered(">=", x, y))
_operator(operator.and_, mask_type, (mask_type, mask_type), lambda b, x, y: b.and_(x, y))
_operator(operator.or_, mask_type, (mask_type, mask_type), lambda b, x, y: b.or_(x, y))
_operator(operator.invert, mask_type, (mask_type,), lambda b, x: b.not_(x))


def _llvm(builder: Any, name: str, *values: Any) -> Any:
    """Call one of LLVM's vector functions."""
    kinds = [value.type for value in values]
    declared = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kinds[0], kinds), f"llvm.{name}.v{WIDTH}f32"
    )
    return builder.call(declared, values)


def _splat(builder: Any, scalar: Any) -> Any:
    kind = ir.VectorType(scalar.type, WIDTH)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, _index(0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, [0] * WIDTH))


def _index(i: int) -> Any:
    return ir.Constant(ir.IntType(32), i)


def _element_pointer(context: Any, builder: Any, sig: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(sig.args[0])(context, builder, array).data
    return builder.gep(data, [offset])


def _as_vector_pointer(builder: Any, pointer: Any) -> Any:
    return builder.bitcast(pointer, _FLOATS.as_pointer())


@intrinsic
def spread(typing: Any, scalar: Any) -> Any:
    """Put one number into every lane."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        number = context.cast(builder, args[0], sig.args[0], types.float32)
        return _splat(builder, number)

    return lanes_type(scalar), emit


@intrinsic
def load(typing: Any, array: Any, row: Any) -> Any:
    """Read the sixteen numbers of one row of a flat float32 array."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        offset = builder.mul(args[1], ir.Constant(args[1].type, WIDTH))
        pointer = _element_pointer(context, builder, sig, args[0], offset)
        return builder.load(_as_vector_pointer(builder, pointer), align=4, typ=_FLOATS)

    return lanes_type(array, types.intp), emit


@intrinsic
def store(typing: Any, array: Any, row: Any, lanes: Any) -> Any:
    """Write sixteen numbers to one row of a flat float32 array."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        offset = builder.mul(args[1], ir.Constant(args[1].type, WIDTH))
        pointer = _element_pointer(context, builder, sig, args[0], offset)
        builder.store(args[2], _as_vector_pointer(builder, pointer), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes_type), emit


@intrinsic
def load_difference(typing: Any, array: Any, offset: Any, reference: Any) -> Any:
    """Read sixteen neighbours of a flat array of any number type, less a reference.

    The difference is taken before anything is rounded to single precision: in double
    precision for float64, exactly for integers of 16 bits or fewer.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.VectorType(context.get_value_type(sig.args[0].dtype), WIDTH)
        pointer = _element_pointer(context, builder, sig, args[0], args[1])
        vector = builder.load(builder.bitcast(pointer, kind.as_pointer()), align=1, typ=kind)
        return _difference(builder, sig.args[0].dtype, vector, _splat(builder, args[2]))

    return lanes_type(array, types.intp, array.dtype), emit


@intrinsic
def difference(typing: Any, value: Any, reference: Any) -> Any:
    """Return the same for one value."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _difference(builder, sig.args[0], *args)

    return types.float32(value, value), emit


def _difference(builder: Any, kind: types.Type, value: Any, reference: Any) -> Any:
    single = _FLOATS if isinstance(value.type, ir.VectorType) else ir.FloatType()
    if kind == types.float64:
        return builder.fptrunc(builder.fsub(value, reference), single)
    if isinstance(kind, types.Integer):
        convert = builder.sitofp if kind.signed else builder.uitofp
        value, reference = convert(value, single), convert(reference, single)
    return builder.fsub(value, reference)


@intrinsic
def prefetch(typing: Any, array: Any, offset: Any) -> Any:
    """Ask for an element of a flat array to be brought into the cache."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _element_pointer(context, builder, sig, args[0], args[1])
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        declared = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = number(0), number(3), number(1)
        builder.call(declared, [pointer, read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@intrinsic
def store_elements(typing: Any, array: Any, offset: Any, lanes: Any) -> Any:
    """Write sixteen numbers from any element of a flat array on, as its number type."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.args[0].dtype
        vector_kind = ir.VectorType(context.get_value_type(kind), WIDTH)
        pointer = _element_pointer(context, builder, sig, args[0], args[1])
        if kind == types.float64:
            vector = builder.fpext(args[2], vector_kind)
        elif isinstance(kind, types.Integer):
            vector = builder.fptoui(args[2], vector_kind)
        else:
            vector = args[2]
        builder.store(vector, builder.bitcast(pointer, vector_kind.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes_type), emit


@intrinsic
def transpose(typing: Any, source: Any, stride: Any, offset: Any, target: Any, row: Any) -> Any:
    """Turn sixteen runs of sixteen numbers into sixteen rows of lanes.

    Run i begins at ``source[i * stride + offset]`` and becomes lane i of the rows
    ``row`` … ``row + 15`` of ``target``.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, stride, offset, target, row = args
        pointer = _element_pointer(context, builder, sig, source, offset)
        rows = []
        for _ in range(WIDTH):
            rows.append(builder.load(_as_vector_pointer(builder, pointer), align=4, typ=_FLOATS))
            pointer = builder.gep(pointer, [stride])
        for half in (8, 4, 2, 1):
            _swap_blocks(builder, rows, half)
        first = builder.mul(row, ir.Constant(row.type, WIDTH))
        data = context.make_array(sig.args[3])(context, builder, target).data
        for i, vector in enumerate(rows):
            place = builder.gep(data, [builder.add(first, ir.Constant(row.type, i * WIDTH))])
            builder.store(vector, _as_vector_pointer(builder, place), align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp), emit


def _swap_blocks(builder: Any, rows: list[Any], half: int) -> None:
    """Swap the off-diagonal quarters of every block of 2·half rows and lanes."""
    keep = [lane if not lane & half else WIDTH + lane - half for lane in range(WIDTH)]
    swap = [lane + half if not lane & half else WIDTH + lane for lane in range(WIDTH)]
    for i in range(WIDTH):
        if not i & half:
            a, b = rows[i], rows[i + half]
            rows[i] = builder.shuffle_vector(a, b, ir.Constant(_INTS, keep))
            rows[i + half] = builder.shuffle_vector(a, b, ir.Constant(_INTS, swap))


@intrinsic
def multiply_add(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a·b + c, in one instruction where the CPU has it."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _llvm(builder, "fmuladd", *args)

    return lanes_type(lanes_type, lanes_type, lanes_type), emit


@intrinsic
def square_root(typing: Any, x: Any) -> Any:
    """Return the square roots; NaN for negative numbers."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _llvm(builder, "sqrt", *args)

    return lanes_type(lanes_type), emit


@intrinsic
def absolute(typing: Any, x: Any) -> Any:
    """Return the absolute values."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _llvm(builder, "fabs", *args)

    return lanes_type(lanes_type), emit


@intrinsic
def select(typing: Any, mask: Any, yes: Any, no: Any) -> Any:
    """Return ``yes`` in the lanes of the mask and ``no`` in the others."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(*args)

    return lanes_type(mask_type, lanes_type, lanes_type), emit


@intrinsic
def count(typing: Any, mask: Any) -> Any:
    """Return in how many lanes a mask is true."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], ir.IntType(WIDTH))
        return builder.ctpop(builder.zext(bits, ir.IntType(64)))

    return types.intp(mask_type), emit


@intrinsic
def _power_of_two(typing: Any, x: Any) -> Any:
    """Return 2**n and x - n for the whole number n nearest to x, -126 ≤ x ≤ 126."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        nearest = _llvm(builder, "rint", args[0])
        rest = builder.fsub(args[0], nearest)
        n = builder.fptosi(nearest, _INTS)
        bias = ir.Constant(_INTS, [127] * WIDTH)
        shift = ir.Constant(_INTS, [23] * WIDTH)
        scale = builder.bitcast(builder.shl(builder.add(n, bias), shift), _FLOATS)
        return context.make_tuple(builder, sig.return_type, (scale, rest))

    return types.UniTuple(lanes_type, 2)(lanes_type), emit


@njit(forceinline=True)
def load_three(array, row):  # type: ignore[no-untyped-def]
    """Read three rows that follow each other."""
    return load(array, row), load(array, row + 1), load(array, row + 2)


@njit(forceinline=True)
def load_six(array, row):  # type: ignore[no-untyped-def]
    """Read six rows that follow each other."""
    return load_three(array, row) + load_three(array, row + 3)


@njit(forceinline=True)
def store_three(array, row, values):  # type: ignore[no-untyped-def]
    """Write three rows that follow each other."""
    store(array, row, values[0])
    store(array, row + 1, values[1])
    store(array, row + 2, values[2])


@njit(forceinline=True)
def store_six(array, row, values):  # type: ignore[no-untyped-def]
    """Write six rows that follow each other."""
    store_three(array, row, values[:3])
    store_three(array, row + 3, values[3:])


@njit(forceinline=True)
def select_three(mask, yes, no):  # type: ignore[no-untyped-def]
    """Return what :func:`select` does, of three each."""
    return (
        select(mask, yes[0], no[0]),
        select(mask, yes[1], no[1]),
        select(mask, yes[2], no[2]),
    )


@njit(forceinline=True)
def select_six(mask, yes, no):  # type: ignore[no-untyped-def]
    """Return what :func:`select` does, of six each."""
    return select_three(mask, yes[:3], no[:3]) + select_three(mask, yes[3:], no[3:])


@njit(forceinline=True)
def minimum(a, b):  # type: ignore[no-untyped-def]
    """Return the lower of each pair; b where a is NaN."""
    return select(a < b, a, b)


@njit(forceinline=True)
def maximum(a, b):  # type: ignore[no-untyped-def]
    """Return the higher of each pair; b where a is NaN."""
    return select(a > b, a, b)


@njit(forceinline=True)
def clamp(value, low, high):  # type: ignore[no-untyped-def]
    """Return a value within bounds; NaN stays NaN."""
    return select(value < low, low, select(value > high, high, value))


@njit(forceinline=True)
def exp2_negative(x):  # type: ignore[no-untyped-def]
    """Return 2**x for x ≤ 0, with a relative error below 2e-7; x below -126 counts as -126."""
    scale, r = _power_of_two(maximum(x, spread(-126.0)))
    # Polynomial for 2**r on [-½, ½]: Chebyshev interpolation, relative error 1.9e-7
    # in exact arithmetic below the rounding of single precision.
    p = spread(EXP2[5])
    p = multiply_add(p, r, spread(EXP2[4]))
    p = multiply_add(p, r, spread(EXP2[3]))
    p = multiply_add(p, r, spread(EXP2[2]))
    p = multiply_add(p, r, spread(EXP2[1]))
    p = multiply_add(p, r, spread(EXP2[0]))
    return p * scale


def _exp2_polynomial(degree: int) -> tuple[float, ...]:
    """Return the coefficients of 2**r on [-½, ½], with the smallest relative error."""
    nodes = 0.5 * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    powers = nodes[:, None] ** np.arange(degree + 1)
    return tuple(float(c) for c in np.linalg.solve(powers, 2.0**nodes))


EXP2 = _exp2_polynomial(5)
