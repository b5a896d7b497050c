"""Derivatives of expressions, by SymPy, which takes its time to import.

What SymPy gets is built from the tree that the grammar has read, and what it gives (the
derivatives, and what they have in common) becomes steps with such trees again.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

import sympy
from sympy.core.parameters import distribute

from .grammar import FUNCTIONS, Call, Name, Node, Number, parse
from .program import Program

#: Constants beyond this are of no use in single precision.
_LARGEST = 1e30
_NOT_REAL = "the expression is not a real number everywhere"


class _Own(sympy.Function):  # type: ignore[misc]
    """A function of the grammar.

    SymPy's own ones rewrite their arguments, and ask whether these are real.
    """

    word = ""

    @classmethod
    def eval(cls, u: Any) -> Any:
        """Return the value where it is a number, and None where it is not."""
        if not u.is_number:
            return None
        try:
            return _constant(_VALUES[cls.word](float(u)))
        except (ArithmeticError, TypeError, ValueError):
            raise ValueError(_NOT_REAL) from None

    def fdiff(self, argindex: int = 1) -> Any:
        """Return the derivative."""
        return _SLOPES[self.word](self.args[0])


#: Whose values and derivatives these are; of the sign, the jump does not count.
_VALUES: dict[str, Any] = {word: value for word, value in FUNCTIONS.items() if word != "sqrt"}
_VALUES["sign"] = lambda u: math.copysign(1.0, u)
_OWN: dict[str, Any] = {word: type(f"_{word}", (_Own,), {"word": word}) for word in _VALUES}
_SLOPES: dict[str, Any] = {
    "exp": _OWN["exp"], "log": lambda u: 1 / u, "abs": _OWN["sign"],
    "sign": lambda u: sympy.Integer(0), "sin": _OWN["cos"], "cos": lambda u: -_OWN["sin"](u),
    "tan": lambda u: 1 + _OWN["tan"](u) ** 2, "tanh": lambda u: 1 - _OWN["tanh"](u) ** 2,
    "erf": lambda u: sympy.Float(2 / math.sqrt(math.pi)) * _OWN["exp"](-(u**2)),
}  # fmt: skip

_TO_SYMPY: dict[str, Any] = _OWN | {
    "sqrt": sympy.sqrt, "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": operator.truediv, "**": operator.pow, "neg": operator.neg,
}  # fmt: skip
#: What SymPy makes of powers.
_FROM_SYMPY = {sympy.Abs: "abs", sympy.sign: "sign", sympy.log: "log"}


@lru_cache(maxsize=64)
def derived(text: str, names: tuple[str, ...]) -> Program:
    """Return the program of an expression in x, y and parameters, in the order of these.

    Raises
    ------
    ValueError
        If the text is no expression in these names, if it is not real, or if it does not
        depend on one of the parameters.
    """
    tree = parse(text, ("x", "y", *names))
    pixel = {name: sympy.Symbol(name, real=True) for name in ("x", "y")}
    symbols = pixel | {name: sympy.Symbol(f"p{i}", real=True) for i, name in enumerate(names)}
    with distribute(False):  # 2·(x - x0) shall not become 2·x - 2·x0
        profile = _to_sympy(tree, symbols)
        derivatives = [profile.diff(symbols[name]) for name in names]
        for name, derivative in zip(names, derivatives, strict=True):
            if derivative == 0:
                raise ValueError(f"the expression does not depend on {name!r}; leave it out")
        temporaries = sympy.numbered_symbols("t", real=True)
        shared, results = sympy.cse([profile, *derivatives], temporaries)
        writer = _Writer(pixel.values())
        for symbol, value in shared:
            writer.add(symbol, value)
        nodes = tuple(writer.node(result) for result in results)
    return Program(tuple(writer.steps), nodes)


def _to_sympy(node: Node, symbols: Mapping[str, Any]) -> Any:
    if isinstance(node, Number):
        return _constant(node.value)
    if isinstance(node, Name):
        return symbols[node.name]
    return _TO_SYMPY[node.function](*(_to_sympy(argument, symbols) for argument in node.arguments))


def _constant(value: float) -> Any:
    """Return a constant; whole numbers and halves exactly, as exponents need them."""
    whole = 2 * value
    return sympy.Rational(int(whole), 2) if whole.is_integer() else sympy.Float(value)


class _Writer:
    """Makes steps from SymPy's terms.

    What does not depend on the pixel is kept together in products, so that compilers can
    compute it once for all pixels.
    """

    def __init__(self, pixel: Iterable[Any]) -> None:
        self.steps: list[tuple[str, Node]] = []
        self._varying = set(pixel)
        self._powers: dict[tuple[Any, int], Node] = {}

    def add(self, symbol: Any, value: Any) -> None:
        """Add a step that others use."""
        node = self.node(value)
        self.steps.append((symbol.name, node))
        if self._varies(value):
            self._varying.add(symbol)

    def node(self, term: Any) -> Node:
        """Return a term as a tree."""
        if term.is_Symbol:
            return Name(term.name)
        if term.is_number:
            return _number(term)
        if term.is_Add:
            return self._sum(term)
        if term.is_Mul:
            return self._product(term)
        if term.is_Pow:
            return self._power(term.base, term.exp)
        word = getattr(term, "word", None) or _FROM_SYMPY.get(term.func)
        if word is not None:
            argument = self.node(term.args[0])
            return Call(word, (Call("nonzero", (argument,)) if word == "log" else argument,))
        raise ValueError(_NOT_REAL)

    def _varies(self, term: Any) -> bool:
        return not self._varying.isdisjoint(term.free_symbols)

    def _sum(self, term: Any) -> Node:
        plus, minus = [], []
        for part in term.as_ordered_terms():
            if part.could_extract_minus_sign():
                minus.append(self.node(-part))
            else:
                plus.append(self.node(part))
        if not plus:
            return Call("neg", (_joined("+", minus),))
        return _joined("-", [_joined("+", plus), *minus])

    def _product(self, term: Any) -> Node:
        if term.could_extract_minus_sign():
            return Call("neg", (self.node(-term),))
        above: dict[bool, list[Node]] = {False: [], True: []}
        below: dict[bool, list[Node]] = {False: [], True: []}
        for factor in sympy.Mul.make_args(term):
            base, exponent = factor.as_base_exp()
            if exponent.could_extract_minus_sign() and not factor.is_number:
                below[self._varies(factor)].append(self.node(base**-exponent))
            else:
                above[self._varies(factor)].append(self.node(factor))
        return _quotient(
            [_quotient(above[False], below[False]), *above[True]],
            [Call("nonzero", (node,)) for node in below[True]],
        )

    def _power(self, base: Any, exponent: Any) -> Node:
        """Return a power: by products and roots where it is whole or a half, else by exp."""
        if exponent.could_extract_minus_sign():
            return self._product(base**exponent)
        if exponent.is_Integer:
            return self._whole_power(base, int(exponent))
        node = self.node(base)
        if (2 * exponent).is_Integer:
            root, whole = Call("sqrt", (node,)), int(exponent)
            return Call("*", (self._whole_power(base, whole), root)) if whole else root
        logarithm = Call("log", (Call("nonzero", (node,)),))
        return Call("exp", (Call("*", (self.node(exponent), logarithm)),))

    def _whole_power(self, base: Any, n: int) -> Node:
        """Return a power by repeated squaring; each square is a step of its own."""
        if (base, n) not in self._powers:
            if n == 1:
                node = self._named(self.node(base))
            else:
                half = self._whole_power(base, n // 2)
                node = Call("*", (half, half))
                if n % 2:
                    node = Call("*", (node, self._whole_power(base, 1)))
                node = self._named(node)
            self._powers[base, n] = node
        return self._powers[base, n]

    def _named(self, node: Node) -> Node:
        """Return a name for a tree, which becomes a step if it is none."""
        if isinstance(node, Name):
            return node
        name = f"s{len(self.steps)}"
        self.steps.append((name, node))
        return Name(name)


def _joined(sign: str, nodes: Sequence[Node]) -> Node:
    return reduce(lambda a, b: Call(sign, (a, b)), nodes)


def _quotient(above: Sequence[Node], below: Sequence[Node]) -> Node:
    """Return a fraction of products, without factors of 1."""
    factors = [node for node in above if node != Number(1.0)]
    product = _joined("*", factors) if factors else Number(1.0)
    return Call("/", (product, _joined("*", below))) if below else product


def _number(term: Any) -> Number:
    try:
        value = float(term)
    except (TypeError, OverflowError):
        raise ValueError(_NOT_REAL) from None
    if not abs(value) < _LARGEST:
        raise ValueError(f"the expression has constants beyond {_LARGEST:g}")
    return Number(value)
