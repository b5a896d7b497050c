"""Numbers below 1e-38 count as zero, as on the GPU.

They have too few digits for single precision, and the far tail of a profile is full of them. x86
processors need a hundred times as long for each; others need no more than for any number.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Bits of the control register: subnormal results become zero, subnormal operands count as zero.
_TO_ZERO = 0x8040
_NUMBER, _BYTES = ir.IntType(32), ir.IntType(8).as_pointer()


@intrinsic
def count_as_zero(typing: Any) -> Any:
    """Have these numbers count as zero in this thread; return what was the rule before."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if not _is_x86():
            return _NUMBER(0)
        before = _control(builder, "stmxcsr", None)
        _control(builder, "ldmxcsr", builder.or_(before, _NUMBER(_TO_ZERO)))
        return before

    return types.int32(), emit


@intrinsic
def count_as(typing: Any, before: Any) -> Any:
    """Go back to what was the rule before."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _is_x86():
            _control(builder, "ldmxcsr", args[0])
        return context.get_dummy_value()

    return types.void(types.int32), emit


def _is_x86() -> bool:
    return bool(binding.get_process_triple().startswith(("x86_64", "i386", "i686")))


def _control(builder: Any, name: str, value: Any) -> Any:
    """Read or write the register that controls floating-point arithmetic."""
    place = cgutils.alloca_once(builder, _NUMBER)
    if value is not None:
        builder.store(value, place)
    kind = ir.FunctionType(ir.VoidType(), [_BYTES])
    declared = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
    builder.call(declared, [builder.bitcast(place, _BYTES)])
    return builder.load(place)
