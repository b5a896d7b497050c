"""How lanes come from memory and go to it: any number type, any place, transposed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import FLOATS, INTS, WIDTH, as_vector_pointer, element_pointer, lanes_type, splat


@intrinsic
def load_difference(typing: Any, array: Any, offset: Any, reference: Any) -> Any:
    """Read sixteen neighbours of a flat array of any number type, less a reference.

    The difference is taken before anything is rounded to single precision: in double
    precision for float64, exactly for integers of 16 bits or fewer.
    """

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.VectorType(context.get_value_type(sig.args[0].dtype), WIDTH)
        pointer = element_pointer(context, builder, sig.args[0], args[0], args[1])
        vector = builder.load(builder.bitcast(pointer, kind.as_pointer()), align=1, typ=kind)
        return _difference(builder, sig.args[0].dtype, vector, splat(builder, args[2]))

    return lanes_type(array, types.intp, array.dtype), emit


@intrinsic
def difference(typing: Any, value: Any, reference: Any) -> Any:
    """Return the same for one value."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _difference(builder, sig.args[0], *args)

    return types.float32(value, value), emit


def _difference(builder: Any, kind: types.Type, value: Any, reference: Any) -> Any:
    single = FLOATS if isinstance(value.type, ir.VectorType) else ir.FloatType()
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
        pointer = element_pointer(context, builder, sig.args[0], args[0], args[1])
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
        pointer = element_pointer(context, builder, sig.args[0], args[0], args[1])
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
        pointer = element_pointer(context, builder, sig.args[0], source, offset)
        rows = []
        for _ in range(WIDTH):
            rows.append(builder.load(as_vector_pointer(builder, pointer), align=4, typ=FLOATS))
            pointer = builder.gep(pointer, [stride])
        for half in (8, 4, 2, 1):
            _swap_blocks(builder, rows, half)
        first = builder.mul(row, ir.Constant(row.type, WIDTH))
        data = context.make_array(sig.args[3])(context, builder, target).data
        for i, vector in enumerate(rows):
            place = builder.gep(data, [builder.add(first, ir.Constant(row.type, i * WIDTH))])
            builder.store(vector, as_vector_pointer(builder, place), align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp), emit


def _swap_blocks(builder: Any, rows: list[Any], half: int) -> None:
    """Swap the off-diagonal quarters of every block of 2·half rows and lanes."""
    keep = [lane if not lane & half else WIDTH + lane - half for lane in range(WIDTH)]
    swap = [lane + half if not lane & half else WIDTH + lane for lane in range(WIDTH)]
    for i in range(WIDTH):
        if not i & half:
            a, b = rows[i], rows[i + half]
            rows[i] = builder.shuffle_vector(a, b, ir.Constant(INTS, keep))
            rows[i + half] = builder.shuffle_vector(a, b, ir.Constant(INTS, swap))
