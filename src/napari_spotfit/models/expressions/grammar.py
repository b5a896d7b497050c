"""The language of expressions: numbers, names, arithmetic and a list of functions.

Text is read by this module alone. It is never run as Python, and what is not in the
grammar is refused::

    sum     = product (("+" | "-") product)*
    product = signed (("*" | "/") signed)*
    signed  = ("+" | "-") signed | power
    power   = atom ["**" signed]
    atom    = number | name | function "(" sum ")" | "(" sum ")"
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: The functions, of one argument each.
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp, "log": math.log, "sqrt": math.sqrt, "abs": abs, "sin": math.sin,
    "cos": math.cos, "tan": math.tan, "tanh": math.tanh, "erf": math.erf,
}  # fmt: skip
CONSTANTS = {"pi": math.pi}

#: No expression may be longer, deeper or have more operations, and no power be higher.
MAX_LENGTH, MAX_DEPTH, MAX_OPERATIONS, MAX_POWER = 1000, 32, 200, 32

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": pow,
}  # fmt: skip
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)"
    r"|(?P<sign>\*\*|[-+*/()]))"
)
_ACCEPTED = f"+ - * / ** ( ), numbers, pi and {', '.join(FUNCTIONS)}"
#: What logarithms and divisors take for 0. With it a derivative that is 0·∞ at a single
#: place, such as that of exp(-r) at r = 0, is 0 there instead of NaN.
TINY = 1e-30

Array = NDArray[np.float64]

#: Of fewer numbers, error functions are there before SciPy is imported.
_FEW = 4096


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """A coordinate, a parameter, or the result of an earlier step."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operation: one of ``+ - * / **``, ``neg``, or a function."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Number | Name | Call


class _Token(NamedTuple):
    kind: str
    text: str
    place: int  # counted from 1


def parse(text: str, names: Iterable[str], what: str = "the expression") -> Node:
    """Read an expression.

    Parameters
    ----------
    text : str
        The expression.
    names : iterable of str
        The names that may occur besides the functions and pi.
    what : str
        What is read, for messages.

    Raises
    ------
    TypeError
        If the text is none.
    ValueError
        If it is no expression, or has other names; the message says what, where, and
        what is accepted.

    Examples
    --------
    >>> parse("2*s**2", ["s"])
    Call(function='*', arguments=(Number(value=2.0), Call(function='**', ...
    >>> parse("open(s)", ["s"])
    Traceback (most recent call last):
    ...
    ValueError: 'open' at character 1 of the expression is not known; the names are s...
    """
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a text; got {text!r}")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{what} must have at most {MAX_LENGTH} characters; got {len(text)}")
    try:
        return _Reader(text, tuple(names), what).read()
    except RecursionError:  # where Python's own stack is nearly full already
        raise ValueError(f"{what} is nested too deep") from None


def unknown_names(text: str) -> tuple[str, ...]:
    """Return the names of an expression other than functions and constants, as they come.

    Raises
    ------
    TypeError, ValueError
        If it is no expression.

    Examples
    --------
    >>> unknown_names("exp(-(x - x0)**2 / w)")
    ('x', 'x0', 'w')
    """
    known = FUNCTIONS.keys() | CONSTANTS.keys()
    words = [token.text for token in _tokens(text, "the expression") if token.kind == "name"]
    names = tuple(dict.fromkeys(word for word in words if word not in known))
    parse(text, names)
    return names


def _tokens(text: str, what: str) -> Iterator[_Token]:
    place = 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            place += len(text[place:]) - len(text[place:].lstrip())
            hint = "; powers are written with **" if text[place] == "^" else ""
            raise ValueError(
                f"{text[place]!r} at character {place + 1} of {what} is not accepted{hint}; "
                f"accepted are {_ACCEPTED}"
            )
        kind = str(match.lastgroup)
        yield _Token(kind, match[kind], match.start(kind) + 1)
        place = match.end()
    yield _Token("end", "", len(text) + 1)


def _highest_power(node: Node) -> float:
    """Return the highest constant power, powers of powers multiplied."""
    if not isinstance(node, Call):
        return 1.0
    inner = max(_highest_power(argument) for argument in node.arguments)
    if node.function == "**" and isinstance(node.arguments[1], Number):
        return inner * max(abs(node.arguments[1].value), 1.0)
    return inner


class _Reader:
    """One expression while it is read, by recursive descent."""

    def __init__(self, text: str, names: tuple[str, ...], what: str) -> None:
        self._tokens = list(_tokens(text, what))
        self._names, self._what = names, what
        self._next = self._depth = self._operations = 0

    def read(self) -> Node:
        node = self._sum()
        if self._token.kind != "end":
            raise self._unexpected()
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *signs: str) -> _Token | None:
        """Return the next token and go on, if it is one of these signs."""
        token = self._token
        if token.kind != "sign" or token.text not in signs:
            return None
        self._next += 1
        return token

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._take("+", "-"):
            node = self._call(sign, sign.text, node, self._product())
        return node

    def _product(self) -> Node:
        node = self._signed()
        while sign := self._take("*", "/"):
            node = self._call(sign, sign.text, node, self._signed())
        return node

    def _signed(self) -> Node:
        # Every way down passes here.
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"{self._what} must be nested at most {MAX_DEPTH} deep")
        if sign := self._take("+", "-"):
            node = self._signed()
            if sign.text == "-":
                node = self._call(sign, "neg", node)
        else:
            node = self._power()
        self._depth -= 1
        return node

    def _power(self) -> Node:
        base = self._atom()
        sign = self._take("**")
        if sign is None:
            return base
        exponent = self._signed()
        node = self._call(sign, "**", base, exponent)
        if (power := _highest_power(node)) > MAX_POWER:
            raise ValueError(
                f"the power at character {sign.place} of {self._what} must be from -{MAX_POWER} "
                f"to {MAX_POWER}, powers of powers multiplied; got {power:g}"
            )
        return node

    def _atom(self) -> Node:
        token = self._token
        self._next += token.kind != "end"
        if token.kind == "number":
            return self._number(token, float(token.text))
        if token.text == "(":
            return self._closed()
        if token.kind != "name":
            self._next -= token.kind != "end"
            raise self._unexpected()
        if token.text in FUNCTIONS:
            if not self._take("("):
                raise ValueError(
                    f"{token.text!r} at character {token.place} of {self._what} is a function; "
                    f"write {token.text}(…)"
                )
            return self._call(token, token.text, self._closed())
        if token.text in self._names:
            return Name(token.text)
        if token.text in CONSTANTS:
            return Number(CONSTANTS[token.text])
        raise ValueError(
            f"{token.text!r} at character {token.place} of {self._what} is not known; the names "
            f"are {', '.join(self._names)}; accepted besides are {_ACCEPTED}"
        )

    def _closed(self) -> Node:
        node = self._sum()
        if not self._take(")"):
            raise self._unexpected()
        return node

    def _call(self, token: _Token, function: str, *arguments: Node) -> Node:
        """Return an operation, or its result where all is constant."""
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            raise ValueError(f"{self._what} must have at most {MAX_OPERATIONS} operations")
        values = [argument.value for argument in arguments if isinstance(argument, Number)]
        if len(values) < len(arguments):
            return Call(function, arguments)
        try:
            if function == "neg":
                return Number(-values[0])
            return self._number(token, (FUNCTIONS | _ARITHMETIC)[function](*values))
        except (ArithmeticError, ValueError):
            raise self._not_finite(token) from None

    def _number(self, token: _Token, value: float | complex) -> Number:
        if isinstance(value, complex) or not math.isfinite(value):
            raise self._not_finite(token)
        return Number(float(value))

    def _not_finite(self, token: _Token) -> ValueError:
        return ValueError(
            f"{token.text!r} at character {token.place} of {self._what} gives no finite real number"
        )

    def _unexpected(self) -> ValueError:
        token = self._token
        if token.kind == "end":
            return ValueError(f"{self._what} ends too early, after character {token.place - 1}")
        return ValueError(f"{token.text!r} at character {token.place} of {self._what} is misplaced")


def _erf(u: Any) -> Any:
    if np.size(u) < _FEW:
        values = np.vectorize(math.erf, otypes=[float])(u)
        return values.astype(np.asarray(u).dtype)
    from scipy.special import erf  # here, as SciPy takes its time to import

    return erf(u)


#: Arithmetic, whatever it is done with, ...
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "**": operator.pow, "neg": operator.neg,
}  # fmt: skip
#: ... and in NumPy the functions of the grammar, and two more that derivatives have.
NUMPY: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs, "sign": np.sign,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "erf": _erf,
    "nonzero": lambda u: np.where(u == 0, TINY, u),
}  # fmt: skip


class Program(NamedTuple):
    """Steps, each of them with access to the results of earlier ones, and the final results.

    The names in it are ``x`` and ``y``, the pixel's coordinates; ``p0``, ``p1``, …, the
    shape parameters in the order of the kernels; ``t0``, ``t1``, …, the steps.
    """

    steps: tuple[tuple[str, Node], ...]
    #: f and its derivatives by p0, p1, …
    results: tuple[Node, ...]

    def run(
        self, functions: Mapping[str, Callable[..., Any]], x: Any, y: Any, parameters: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Return f and its derivatives, for any type with operators and these functions.

        Parameters
        ----------
        functions : mapping of str to callable
            The grammar's functions, ``sign`` and ``nonzero`` (u, or TINY where u is 0).
        x, y : number or array
            Where.
        parameters : sequence of numbers or arrays
            The shape parameters in the order of the kernels.
        """
        known = {"x": x, "y": y} | {f"p{i}": value for i, value in enumerate(parameters)}
        for name, node in self.steps:
            known[name] = value_of(node, known, functions)
        return tuple(value_of(node, known, functions) for node in self.results)

    def evaluate(
        self, y: Any, x: Any, parameters: Sequence[float], precision: type = np.float64
    ) -> list[Array]:
        """Return f and its derivatives at rows y and columns x, by NumPy."""
        y, x = np.broadcast_arrays(np.asarray(y, precision), np.asarray(x, precision))
        with np.errstate(all="ignore"):
            results = self.run(NUMPY, x, y, [precision(value) for value in parameters])
        return [np.broadcast_to(result, y.shape) for result in results]


def value_of(
    node: Node, known: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """Return the value of a tree whose names are known."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Name):
        return known[node.name]
    function = ARITHMETIC.get(node.function) or functions[node.function]
    return function(*(value_of(argument, known, functions) for argument in node.arguments))
