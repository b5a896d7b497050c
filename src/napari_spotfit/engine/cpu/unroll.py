"""Straight-line code for lanes, written as plain Python functions.

Numba does not compile a function marked with :func:`unrolled`: it is run once while the
compiled code that calls it is made, with symbols for its values, and each operation adds
its instruction. So loops and tuples cost nothing later, and the same text serves three
shape parameters or eight. Loops over pixels are left to Numba.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, type_callable

from .vectors import (
    FLOATS,
    INTS,
    WIDTH,
    Constant,
    Known,
    as_vector_pointer,
    element_pointer,
    lanes_type,
    mask_type,
    splat,
)

#: What LLVM may do with the arithmetic. Nothing here lets it assume that there are
#: no NaNs or infinities: bad pixels must end as a stop condition.
_FLAGS = ("contract",)
_INDEX = ir.IntType(64)


class Maker(NamedTuple):
    """What makes code: Numba's context and LLVM's builder."""

    context: Any
    builder: Any


class Symbol:
    """A value of the code that is made; without a maker, only its type counts."""

    def __init__(self, maker: Maker | None, value: Any):
        self.maker, self.value = maker, value

    def make(self, kind: type[Any], instruction: Callable[[Any], Any]) -> Any:
        """Return the symbol of an instruction's result."""
        return kind(self.maker, None if self.maker is None else instruction(self.maker.builder))


class Number(Symbol):
    """Sixteen numbers; a plain number beside them stands for sixteen equal ones."""

    __hash__ = None  # type: ignore[assignment]

    def _with(self, other: Any, name: str, swapped: bool = False) -> Any:
        def instruction(builder: Any) -> Any:
            values = (_lanes(other), self.value) if swapped else (self.value, _lanes(other))
            return getattr(builder, name)(*values, flags=_FLAGS)

        return self.make(Number, instruction)

    def __add__(self, other: Any) -> Any:
        return self._with(other, "fadd")

    def __radd__(self, other: Any) -> Any:
        return self._with(other, "fadd", True)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, "fsub")

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, "fsub", True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, "fmul")

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, "fmul", True)

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, "fdiv")

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, "fdiv", True)

    def __pow__(self, exponent: int) -> Any:
        power = functools.reduce(operator.mul, [self] * abs(exponent), 1)
        return power if exponent >= 0 else 1 / power

    def __neg__(self) -> Any:
        return self.make(Number, lambda builder: builder.fneg(self.value))

    def _compared(self, sign: str, other: Any) -> Any:
        return self.make(Truth, lambda b: b.fcmp_ordered(sign, self.value, _lanes(other)))

    def __lt__(self, other: Any) -> Any:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(">=", other)

    def __eq__(self, other: Any) -> Any:
        return self._compared("==", other)

    def function(self, name: str, *others: Any) -> Any:
        """Return what one of LLVM's vector functions makes of this number and others."""

        def instruction(builder: Any) -> Any:
            values = [self.value, *map(_lanes, others)]
            kind = ir.FunctionType(FLOATS, [FLOATS] * len(values))
            full_name = f"llvm.{name}.v{WIDTH}f32"
            declared = cgutils.get_or_insert_function(builder.module, kind, full_name)
            return builder.call(declared, values)

        return self.make(Number, instruction)

    def to_whole(self) -> Whole:
        """Return sixteen whole numbers, rounded towards zero."""
        return self.make(Whole, lambda b: b.fptosi(self.value, INTS))

    def as_whole(self) -> Whole:
        """Return the bits of these numbers."""
        return self.make(Whole, lambda b: b.bitcast(self.value, INTS))


class Whole(Symbol):
    """Sixteen whole numbers of 32 bits."""

    def _with(self, name: str, other: Any) -> Any:
        def instruction(builder: Any) -> Any:
            is_plain = isinstance(other, int)
            value = ir.Constant(INTS, [other] * WIDTH) if is_plain else other.value
            return getattr(builder, name)(self.value, value)

        return self.make(Whole, instruction)

    def __add__(self, other: Any) -> Any:
        return self._with("add", other)

    def __sub__(self, other: Any) -> Any:
        return self._with("sub", other)

    def __and__(self, other: Any) -> Any:
        return self._with("and_", other)

    def __lshift__(self, other: int) -> Any:
        return self._with("shl", other)

    def __rshift__(self, other: int) -> Any:
        return self._with("ashr", other)

    def to_number(self) -> Any:
        """Return these as floating-point numbers."""
        return self.make(Number, lambda b: b.sitofp(self.value, FLOATS))

    def as_number(self) -> Any:
        """Return the numbers that have these bits."""
        return self.make(Number, lambda b: b.bitcast(self.value, FLOATS))


class Truth(Symbol):
    """Sixteen truth values."""

    def __and__(self, other: Truth) -> Any:
        return self.make(Truth, lambda builder: builder.and_(self.value, other.value))

    def __or__(self, other: Truth) -> Any:
        return self.make(Truth, lambda builder: builder.or_(self.value, other.value))

    def __invert__(self) -> Any:
        return self.make(Truth, lambda builder: builder.not_(self.value))

    def select(self, yes: Any, no: Any) -> Any:
        """Return one number where this is true and the other where it is not."""
        return self.make(Number, lambda b: b.select(self.value, _lanes(yes), _lanes(no)))

    def count(self) -> Any:
        """Return in how many lanes this is true."""

        def instruction(builder: Any) -> Any:
            bits = builder.bitcast(self.value, ir.IntType(WIDTH))
            return builder.ctpop(builder.zext(bits, _INDEX))

        return self.make(Index, instruction)


class Index(Symbol):
    """A whole number, such as a row's."""

    def __add__(self, other: Any) -> Any:
        return self.make(Index, lambda builder: builder.add(self.value, _index(other)))

    def __mul__(self, other: Any) -> Any:
        return self.make(Index, lambda builder: builder.mul(self.value, _index(other)))

    __radd__, __rmul__ = __add__, __mul__

    def to_number(self) -> Any:
        """Return sixteen times this."""
        return self.make(Number, lambda b: splat(b, b.sitofp(self.value, ir.FloatType())))


class Rows(Symbol):
    """A flat array of single-precision numbers, as rows of sixteen."""

    def __init__(self, maker: Maker | None, value: Any, kind: Any):
        super().__init__(maker, value)
        self.kind = kind

    def _pointer(self, builder: Any, row: Any) -> Any:
        assert self.maker is not None
        offset = builder.mul(_index(row), ir.Constant(_INDEX, WIDTH))
        pointer = element_pointer(self.maker.context, builder, self.kind, self.value, offset)
        return as_vector_pointer(builder, pointer)

    def __getitem__(self, row: Any) -> Any:
        return self.make(Number, lambda b: b.load(self._pointer(b, row), align=4, typ=FLOATS))

    def __setitem__(self, row: Any, value: Any) -> None:
        def instruction(builder: Any) -> None:
            builder.store(_lanes(value), self._pointer(builder, row), align=4)

        self.make(Number, instruction)


def _lanes(value: Any) -> Any:
    if isinstance(value, Number):
        return value.value
    return ir.Constant(FLOATS, [float(value)] * WIDTH)


def _index(value: Any) -> Any:
    return value.value if isinstance(value, Index) else ir.Constant(_INDEX, int(value))


Function = TypeVar("Function", bound=Callable[..., Any])


def unrolled(function: Function) -> Function:
    """Let compiled code call a function that is run while that code is made.

    It takes and returns lanes, masks, whole numbers and nested tuples of these; flat
    float32 arrays are rows of lanes; floating-point numbers are spread over lanes; a
    :class:`~.vectors.Constant` comes as the object that it is.
    """

    @type_callable(function)
    def callable_type(context: Any) -> Any:
        @functools.wraps(function)
        def kind_of(*kinds: Any) -> Any:
            return _kind(function(*(_symbol(None, kind, None) for kind in kinds)))

        return kind_of

    @lower_builtin(function, types.VarArg(types.Any))
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        maker = Maker(context, builder)
        symbols = [_symbol(maker, *pair) for pair in zip(sig.args, args, strict=True)]
        return _value(maker, sig.return_type, function(*symbols))

    return function


def _symbol(maker: Maker | None, kind: Any, value: Any) -> Any:
    """Return what an unrolled function sees of an argument."""
    if isinstance(kind, Known):
        return kind.known
    if isinstance(kind, types.Array):
        return Rows(maker, value, kind)
    if isinstance(kind, types.BaseTuple):
        items = [
            _symbol(maker, item, None if maker is None else maker.builder.extract_value(value, i))
            for i, item in enumerate(kind)
        ]
        return kind.instance_class(*items) if hasattr(kind, "instance_class") else tuple(items)
    for type_, symbol in ((lanes_type, Number), (mask_type, Truth)):
        if kind == type_:
            return symbol(maker, value)
    return _scalar(maker, kind, value)


def _scalar(maker: Maker | None, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Boolean):
        return Truth(maker, None if maker is None else splat(maker.builder, value))
    if isinstance(kind, types.Integer):
        if maker is None:
            return Index(None, None)
        return Index(maker, maker.context.cast(maker.builder, value, kind, types.int64))
    if isinstance(kind, types.Float):
        if maker is None:
            return Number(None, None)
        single = maker.context.cast(maker.builder, value, kind, types.float32)
        return Number(maker, splat(maker.builder, single))
    raise TypeError(f"unrolled functions take no {kind}")


def _kind(result: Any) -> Any:
    """Return Numba's type of what an unrolled function returns."""
    if result is None:
        return types.none
    if isinstance(result, Constant):
        return Known(result)
    if isinstance(result, tuple):
        return types.Tuple([_kind(item) for item in result])
    for symbol, kind in ((Number, lanes_type), (Truth, mask_type)):
        if isinstance(result, symbol):
            return kind
    if isinstance(result, bool):
        return types.boolean
    if isinstance(result, (Index, int)):
        return types.int64
    return lanes_type  # a plain number


def _value(maker: Maker, kind: Any, result: Any) -> Any:
    """Return the value of what an unrolled function returns."""
    if isinstance(kind, types.BaseTuple):
        pairs = zip(kind, result, strict=True)
        return maker.context.make_tuple(
            maker.builder, kind, [_value(maker, item, part) for item, part in pairs]
        )
    if isinstance(result, Symbol):
        return result.value
    if kind == lanes_type:
        return _lanes(result)
    if kind == types.none or isinstance(kind, Known):
        return maker.context.get_dummy_value()
    return maker.context.get_constant(kind, result)


def _operator(function: Any, result: types.Type, operand: types.Type, count: int = 2) -> None:
    """Make an operator on lanes known to Numba."""
    operands = (operand,) * count

    class Template(ConcreteTemplate):  # type: ignore[misc]
        cases = (signature(result, *operands),)

    infer_global(function)(Template)

    @lower_builtin(function, *operands)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        maker = Maker(context, builder)
        return function(*(_symbol(maker, operand, value) for value in args)).value


for _function in (operator.add, operator.sub, operator.mul, operator.truediv):
    _operator(_function, lanes_type, lanes_type)
for _function in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq):
    _operator(_function, mask_type, lanes_type)
for _function in (operator.and_, operator.or_):
    _operator(_function, mask_type, mask_type)
_operator(operator.neg, lanes_type, lanes_type, 1)
_operator(operator.invert, mask_type, mask_type, 1)
