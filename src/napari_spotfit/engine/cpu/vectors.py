"""Numba types: explicit LLVM vectors, and objects that are known while code is made.

A :class:`Lanes` value is LLVM's ``<16 x float>`` and a :class:`LaneMask` value is
``<16 x i1>``. LLVM maps them to AVX-512, AVX2, SSE or NEON alike, so that sixteen
spots are fitted in lockstep on any CPU.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

#: Spots that are fitted in lockstep.
WIDTH = 16

FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
INTS = ir.VectorType(ir.IntType(32), WIDTH)
BITS = ir.VectorType(ir.IntType(1), WIDTH)


class Lanes(types.Type):  # type: ignore[misc]
    """Numba's type of sixteen single-precision numbers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


class LaneMask(types.Type):  # type: ignore[misc]
    """Numba's type of sixteen truth values."""

    def __init__(self) -> None:
        super().__init__(name="LaneMask")


class Known(types.Type):  # type: ignore[misc]
    """Numba's type of an object that unrolled functions see as it is."""

    def __init__(self, known: Constant) -> None:
        self.known = known
        super().__init__(name=f"Known({known!r})")


class Constant:
    """Base of what compiled code takes as a type: each has code of its own.

    ``repr`` must tell any two of them apart.
    """


lanes_type = Lanes()
mask_type = LaneMask()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


@register_model(LaneMask)
class _LaneMaskModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, BITS)


register_model(Known)(models.OpaqueModel)


@typeof_impl.register(Constant)
def _known(value: Constant, _: Any) -> Known:
    return Known(value)


@unbox(Known)
def _unbox(kind: Known, value: Any, c: Any) -> Any:
    return NativeValue(c.context.get_dummy_value())


def splat(builder: Any, scalar: Any) -> Any:
    """Put a scalar into every lane."""
    kind = ir.VectorType(scalar.type, WIDTH)
    index = ir.Constant(ir.IntType(32), 0)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, index)
    return builder.shuffle_vector(one, one, ir.Constant(INTS, [0] * WIDTH))


def element_pointer(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    """Return a pointer to an element of a flat array."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [offset])


def as_vector_pointer(builder: Any, pointer: Any) -> Any:
    """Return a pointer to sixteen numbers from a pointer to the first of them."""
    return builder.bitcast(pointer, FLOATS.as_pointer())
