"""Own expressions for the compiled library: from a program to the steps that it interprets.

A step is done for as few places as it can be: once for a trial shape, for each column, for
each row, or for each pixel. ``kernels/cpu/expression.h`` does the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...models.expressions.custom import Expression
from ...models.expressions.grammar import Name, Node, Number
from ..kernel_arguments import address
from .layouts import EXPRESSION_SIZES, ExpressionProgram, ExpressionStep, Operation

#: Pixels of neighbouring rows that are computed at once: enough to outweigh the overhead of a step,
#: few enough for the processor's nearest cache.
_PIXELS_AT_ONCE = 32

#: Operations by their names in programs.
OPERATIONS = {
    "copy": Operation.COPY,
    "neg": Operation.NEGATE,
    "+": Operation.ADD,
    "-": Operation.SUBTRACT,
    "*": Operation.MULTIPLY,
    "/": Operation.DIVIDE,
    "a*b + c": Operation.MULTIPLY_ADD,
    "a*b - c": Operation.MULTIPLY_SUBTRACT,
    "c - a*b": Operation.SUBTRACT_PRODUCT,
    "exp": Operation.EXPONENTIAL,
    "log": Operation.LOGARITHM,
    "sqrt": Operation.SQUARE_ROOT,
    "abs": Operation.ABSOLUTE,
    "sign": Operation.SIGN,
    "nonzero": Operation.NONZERO,
    "sin": Operation.SINE,
    "cos": Operation.COSINE,
    "tan": Operation.TANGENT,
    "tanh": Operation.HYPERBOLIC_TANGENT,
    "erf": Operation.ERROR_FUNCTION,
    "atan2": Operation.ARCTANGENT,
}
#: A step of a program.
STEP = np.dtype(ExpressionStep)


class Encoded(NamedTuple):
    """A program for ROIs of one size, as the library takes it."""

    steps: NDArray[np.void]
    constants: NDArray[np.float32]
    program: ExpressionProgram
    #: Memory that it needs, in lanes.
    lanes: int


@lru_cache(maxsize=64)
def encode(expression: Expression, roi_shape: tuple[int, ...]) -> Encoded:
    """Return the program of an expression and its derivatives as the library interprets it.

    Parameters
    ----------
    expression : Expression
        The expression as it was written.
    roi_shape : (int, int)
        Rows and columns of the ROIs.

    Examples
    --------
    >>> from napari_spotfit import Profile
    >>> own = Profile.from_expression("exp(-abs(x-x0)/w - abs(y-y0)/w)", start={"w": "sigma"})
    >>> encoded = encode(own.expression, (9, 9))
    >>> encoded.program.by_column > 0
    True
    """
    encoded = _Places(_values_of(expression), roi_shape).encoded()
    encoded.program.fixed_origin = not expression.follows_center
    return encoded


class _On(IntFlag):
    """What a value depends on, besides the shape."""

    NOTHING, COLUMN, ROW, PIXEL = 0, 1, 2, 3


#: Of a sum or product, what varies within a row comes first.
_ORDER = (_On.PIXEL, _On.COLUMN, _On.ROW, _On.NOTHING)


class _Value(NamedTuple):
    """A constant, a parameter, a coordinate, or the result of an operation on other values."""

    operation: str
    operands: tuple[int, ...]
    on: _On
    number: float = 0.0


@dataclass
class _Values:
    """The values of a program, each once and after its operands, and which of them are results."""

    parameters: int
    values: list[_Value] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    _known: dict[_Value, int] = field(default_factory=dict)

    def add(self, value: _Value) -> int:
        if value not in self._known:
            self._known[value] = len(self.values)
            self.values.append(value)
        return self._known[value]

    def number(self, number: float) -> int:
        return self.add(_Value("number", (), _On.NOTHING, number))

    def on(self, place: int) -> _On:
        return self.values[place].on

    def apply(self, operation: str, *operands: int) -> int:
        """Return the value of an operation; what is known already is not done again."""
        if operation == "neg":
            return self.negate(*operands)
        if operation == "*" and self.number(-1.0) in operands:
            return self.negate(operands[operands[0] == self.number(-1.0)])
        if operation in ("+", "*"):
            operands = tuple(sorted(operands, key=lambda i: (_ORDER.index(self.on(i)), i)))
        on = _On.NOTHING
        for operand in operands:
            on |= self.on(operand)
        if operation == "/" and operands[0] != self.number(1.0):  # divisors come more than once
            return self.apply("*", operands[0], self.apply("/", self.number(1.0), operands[1]))
        return self.add(_Value(operation, operands, on))

    def negate(self, place: int) -> int:
        """Return a value times -1, worked out where it costs least."""
        value = self.values[place]
        if value.operation == "number":
            return self.number(-value.number)
        if value.operation == "neg":
            return value.operands[0]
        if value.operation == "-":
            return self.apply("-", *reversed(value.operands))
        if value.operation == "*":
            first, second = value.operands
            if self.on(second) != value.on or self.values[second].operation == "-":
                return self.apply("*", first, self.negate(second))
            if self.on(first) != value.on or self.values[first].operation == "-":
                return self.apply("*", self.negate(first), second)
            return self.add(_Value("c - a*b", (first, second, self.number(0.0)), value.on))
        return self.add(_Value("neg", (place,), value.on))


@lru_cache(maxsize=64)
def _values_of(expression: Expression) -> _Values:
    program = expression.program
    values = _Values(len(program.results) - 1)
    known = {"x": values.add(_Value("x", (), _On.COLUMN))}
    known["y"] = values.add(_Value("y", (), _On.ROW))
    for i in range(values.parameters):
        known[f"p{i}"] = values.add(_Value("parameter", (), _On.NOTHING, i))
    for name, node in program.steps:
        known[name] = _value(node, known, values)
    values.results = [_value(node, known, values) for node in program.results]
    return _with_fused_products(values)


def _value(node: Node, known: dict[str, int], values: _Values) -> int:
    """Return the value of a tree whose names are known."""
    if isinstance(node, Number):
        return values.number(node.value)
    if isinstance(node, Name):
        return known[node.name]
    operands = [_value(argument, known, values) for argument in node.arguments]
    return values.apply(node.function, *operands)


def _with_fused_products(values: _Values) -> _Values:
    """Join products that only a sum uses with it."""
    uses = [0] * len(values.values)
    for place in _needed(values):
        for operand in values.values[place].operands:
            uses[operand] += 1
    for place in values.results:
        uses[place] += 2
    fused = list(values.values)
    for place, value in enumerate(values.values):
        if value.operation not in ("+", "-"):
            continue
        for which, operand in enumerate(value.operands):
            product = values.values[operand]
            if product.operation == "*" and product.on == value.on and uses[operand] == 1:
                other = value.operands[1 - which]
                joined = "a*b + c"
                if value.operation == "-":
                    joined = "c - a*b" if which else "a*b - c"
                fused[place] = value._replace(operation=joined, operands=(*product.operands, other))
                break
    return _Values(values.parameters, fused, values.results)


def _needed(values: _Values) -> list[int]:
    """Return the values that lead to results, in their order."""
    needed = set(values.results)
    for place in range(len(values.values) - 1, -1, -1):
        if place in needed:
            needed.update(values.values[place].operands)
    return sorted(needed)


class _Places:
    """Where the values of a program are in its memory, for ROIs of one size.

    Constants, parameters and what is worked out once take one place; then come the numbers of
    the columns, of the rows, and of the pixels of some rows, whose places are used again.
    """

    def __init__(self, values: _Values, roi_shape: tuple[int, ...]) -> None:
        self._values, self._rows, self._columns = values, *roi_shape
        self._rows_at_once = max(min(_PIXELS_AT_ONCE // self._columns, self._rows), 1)
        self._pixels = self._rows_at_once * self._columns
        self._needed = _needed(values)
        self._place: dict[int, int] = {}
        self._end = 0

    def encoded(self) -> Encoded:
        values = self._values.values
        constants = [i for i in self._needed if values[i].operation == "number"]
        for i in constants:
            self._put(i, 1)
        first_parameter = self._reserve(self._values.parameters)
        once = self._operations(_On.NOTHING)
        for i, value in enumerate(values):
            if value.operation == "parameter":
                self._place[i] = first_parameter + int(value.number)
        for i in once:
            self._put(i, 1)
        x, y = self._reserve(self._columns), self._reserve(self._rows)
        self._place |= {i: x for i, value in enumerate(values) if value.operation == "x"}
        self._place |= {i: y for i, value in enumerate(values) if value.operation == "y"}
        by_column, by_row = self._operations(_On.COLUMN), self._operations(_On.ROW)
        for i in by_column:
            self._put(i, self._columns)
        for i in by_row:
            self._put(i, self._rows)
        groups = [[self._step(i) for i in group] for group in (once, by_column, by_row)]
        results = self._reserve(self._pixels * (1 + self._size()))
        groups.append(self._pixel_steps(results))
        steps = np.array([step for group in groups for step in group], STEP)
        numbers = np.array([values[i].number for i in constants], np.float32)
        program = ExpressionProgram(
            address(steps), *map(len, groups), address(numbers), len(numbers),
            self._values.parameters, x, y, results, self._rows_at_once,
            self._pixels,
        )  # fmt: skip
        return Encoded(steps, numbers, program, self._end)

    def _reserve(self, count: int) -> int:
        self._end += count
        return self._end - count

    def _put(self, value: int, count: int) -> None:
        self._place[value] = self._reserve(count)

    def _operations(self, on: _On) -> list[int]:
        return [i for i in self._needed if self._is_operation(i) and self._values.on(i) == on]

    def _is_operation(self, i: int) -> bool:
        return self._values.values[i].operation not in ("number", "parameter", "x", "y")

    def _pixel_steps(self, results: int) -> list[tuple[int, ...]]:
        """Return the steps for pixels; places that are done with are used again."""
        operations = self._operations(_On.PIXEL)
        for j, i in reversed([*enumerate(self._values.results)]):
            if i in operations:
                self._place[i] = results + j * self._pixels
        kept = set(self._values.results)
        last = {o: i for i in operations for o in self._values.values[i].operands}
        free: list[int] = []
        steps = []
        for i in operations:
            for operand in {*self._values.values[i].operands}:
                is_pixel = self._is_operation(operand) and self._values.on(operand) == _On.PIXEL
                if is_pixel and operand not in kept and last[operand] == i:
                    free.append(self._place[operand])
            if i not in self._place:
                self._place[i] = free.pop() if free else self._reserve(self._pixels)
            steps.append(self._step(i))
        for j, i in enumerate(self._values.results):
            place = results + j * self._pixels
            if self._place[i] != place:
                steps.append(self._copy(i, place))
        return steps

    def _step(self, i: int) -> tuple[int, ...]:
        value = self._values.values[i]
        operands = value.operands
        places = [self._place[operand] for operand in operands]
        places += [places[0]] * (3 - len(places))
        bits = self._bits(value.on, operands)
        return (OPERATIONS[value.operation], *bits, self._place[i], *places)

    def _bits(self, on: _On, operands: Sequence[int]) -> tuple[int, int, int]:
        """Return which operands vary from place to place, from row to row, from pixel to pixel."""
        varies = by_row = by_pixel = 0
        for bit, operand in zip((1, 2, 4), operands, strict=False):
            own = self._values.on(operand)
            varies |= bit * (own == on or (own == _On.COLUMN and on == _On.PIXEL))
            by_row |= bit * (own == _On.ROW and on == _On.PIXEL)
            by_pixel |= bit * (own == on)
        return varies, by_row, by_pixel

    def _copy(self, i: int, place: int) -> tuple[int, ...]:
        source = self._place[i]
        return (OPERATIONS["copy"], *self._bits(_On.PIXEL, [i]), place, source, source, source)

    def _size(self) -> int:
        """Return how many shape parameters the code that runs this is made for."""
        return next(size for size in EXPRESSION_SIZES if self._values.parameters <= size)
