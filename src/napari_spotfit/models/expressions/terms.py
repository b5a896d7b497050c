"""Sums of products of sums, and so on, in which every term is there once, and their derivatives."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from .grammar import FUNCTIONS, Name, Node, Number

#: Constants beyond this are of no use in single precision.
_LARGEST = 1e30
#: No expression may have more terms with its derivatives.
MAX_TERMS = 3000
NOT_REAL = "the expression is not a real number everywhere"


class Symbol(NamedTuple):
    """A coordinate or a parameter."""

    name: str


class Sum(NamedTuple):
    """A constant, and terms with their coefficients. A number is a sum without terms."""

    constant: float
    parts: tuple[tuple[int, float], ...]


class Product(NamedTuple):
    """Terms to the power of constants."""

    parts: tuple[tuple[int, float], ...]


class Function(NamedTuple):
    """A function of a term."""

    word: str
    argument: int


Term: TypeAlias = Symbol | Sum | Product | Function


class Terms:
    """Terms by their numbers, each only once and after those that it is made of."""

    def __init__(self) -> None:
        self.terms: list[Term] = []
        self._known: dict[Term, int] = {}
        self._derivatives: dict[tuple[int, int], int] = {}

    def _add(self, term: Term) -> int:
        if term not in self._known:
            if len(self.terms) == MAX_TERMS:
                raise ValueError("the expression is too long with its derivatives")
            self._known[term] = len(self.terms)
            self.terms.append(term)
        return self._known[term]

    def name(self, name: str) -> int:
        """Return the term of a coordinate or a parameter."""
        return self._add(Symbol(name))

    def number(self, value: float | complex) -> int:
        """Return the term of a number."""
        if isinstance(value, complex) or math.isnan(value):
            raise ValueError(NOT_REAL)
        if not abs(value) < _LARGEST:
            raise ValueError(f"the expression has constants beyond {_LARGEST:g}")
        return self._add(Sum(float(value), ()))

    def is_number(self, term: int, value: float | None = None) -> bool:
        """Whether a term is a number, or this number."""
        own = self.terms[term]
        return isinstance(own, Sum) and not own.parts and value in (None, own.constant)

    def read(self, node: Node, known: dict[str, int]) -> int:
        """Return the term of a tree whose names are known."""
        if isinstance(node, Number):
            return self.number(node.value)
        if isinstance(node, Name):
            return known[node.name]
        first, *rest = (self.read(argument, known) for argument in node.arguments)
        if node.function in ("+", "-"):
            return self.sum([(first, 1.0), (rest[0], 1.0 if node.function == "+" else -1.0)])
        if node.function == "neg":
            return self.sum([(first, -1.0)])
        if node.function == "*":
            return self.product([first, *rest])
        if node.function == "/":
            return self.product([first, self.power(rest[0], -1.0)])
        if node.function == "**":
            return self._any_power(first, rest[0])
        return self.function(node.function, first)

    def sum(self, parts: Iterable[tuple[int, float]], constant: float = 0.0) -> int:
        """Return the sum of terms with coefficients."""
        found: defaultdict[int, float] = defaultdict(float)
        for part, coefficient in parts:
            own, term = self._without_coefficient(part)
            if term is None:
                constant += coefficient * own
            else:
                found[term] += coefficient * own
        left = tuple(sorted((term, c) for term, c in found.items() if c))
        self.number(constant)
        if not constant and len(left) == 1 and left[0][1] == 1:
            return left[0][0]
        for _, coefficient in left:
            self.number(coefficient)
        return self._add(Sum(constant, left))

    def product(self, factors: Iterable[int], coefficient: float = 1.0) -> int:
        """Return the product of terms and a coefficient."""
        found: defaultdict[int, float] = defaultdict(float)
        for factor in factors:
            own, term = self._without_coefficient(factor)
            coefficient *= own
            if term is not None:
                for base, exponent in self._powers(term):
                    found[base] += exponent
        powers = tuple(sorted((base, e) for base, e in found.items() if e))
        if not powers or not coefficient:
            return self.number(coefficient)
        alone = len(powers) == 1 and powers[0][1] == 1
        term = powers[0][0] if alone else self._add(Product(powers))
        return self.sum([(term, coefficient)])

    def power(self, base: int, exponent: float) -> int:
        """Return a term to the power of a constant."""
        coefficient, term = self._without_coefficient(base)
        if exponent == 0 or term is None:
            return self.number(coefficient**exponent)
        whole = float(exponent).is_integer()
        if not whole and coefficient < 0:
            return self._add(Product(((base, exponent),)))
        powers = self._powers(term)
        if not whole and powers != ((term, 1.0),):
            powers = ((term, 1.0),)
        factors = tuple((own, e * exponent) for own, e in powers)
        alone = len(factors) == 1 and factors[0][1] == 1
        result = factors[0][0] if alone else self._add(Product(factors))
        return self.sum([(result, coefficient**exponent)])

    def function(self, word: str, argument: int) -> int:
        """Return a function of a term, a number where the term is one."""
        if word == "sqrt":
            return self.power(argument, 0.5)
        own = self.terms[argument]
        if isinstance(own, Sum) and not own.parts:
            if word == "sign":
                return self.number(math.copysign(1.0, own.constant))
            try:
                return self.number(FUNCTIONS[word](own.constant))
            except (ArithmeticError, ValueError):
                raise ValueError(NOT_REAL) from None
        return self._add(Function(word, argument))

    def derivative(self, term: int, by: int) -> int:
        """Return the derivative of a term by a name."""
        if (term, by) not in self._derivatives:
            self._derivatives[term, by] = self._derive(term, by)
        return self._derivatives[term, by]

    def _derive(self, term: int, by: int) -> int:
        own = self.terms[term]
        if isinstance(own, Symbol):
            return self.number(float(term == by))
        if isinstance(own, Sum):
            return self.sum([(self.derivative(part, by), c) for part, c in own.parts])
        if isinstance(own, Function):
            slope = self.derivative(own.argument, by)
            if self.is_number(slope, 0.0):
                return slope
            return self.product([self._slope(own, term), slope])
        parts = []
        for base, exponent in own.parts:
            slope = self.derivative(base, by)
            if not self.is_number(slope, 0.0):
                rest = self.product([term, self.power(base, -1.0), slope], exponent)
                parts.append((rest, 1.0))
        return self.sum(parts)

    def _slope(self, function: Function, term: int) -> int:
        """Return the derivative of a function by its argument; of a sign, the jump is none."""
        u = function.argument
        one = (self.number(1.0), 1.0)
        if function.word == "log":
            return self.power(u, -1.0)
        if function.word == "cos":
            return self.sum([(self.function("sin", u), -1.0)])
        if function.word == "tan":
            return self.sum([one, (self.power(term, 2.0), 1.0)])
        if function.word == "tanh":
            return self.sum([one, (self.power(term, 2.0), -1.0)])
        if function.word == "erf":
            gauss = self.function("exp", self.sum([(self.power(u, 2.0), -1.0)]))
            return self.sum([(gauss, 2 / math.sqrt(math.pi))])
        if function.word == "sign":
            return self.number(0.0)
        return self.function({"exp": "exp", "abs": "sign", "sin": "cos"}[function.word], u)

    def _any_power(self, base: int, exponent: int) -> int:
        own = self.terms[exponent]
        if isinstance(own, Sum) and not own.parts:
            return self.power(base, own.constant)
        return self.function("exp", self.product([exponent, self.function("log", base)]))

    def _without_coefficient(self, term: int) -> tuple[float, int | None]:
        """Return a term as a number times another term; a number as itself."""
        own = self.terms[term]
        if isinstance(own, Sum):
            if not own.parts:
                return own.constant, None
            if not own.constant and len(own.parts) == 1:
                return own.parts[0][1], own.parts[0][0]
        return 1.0, term

    def _powers(self, term: int) -> tuple[tuple[int, float], ...]:
        own = self.terms[term]
        return own.parts if isinstance(own, Product) else ((term, 1.0),)


def parts_of(term: Term) -> Iterator[int]:
    """Yield the terms that a term is made of."""
    if isinstance(term, Function):
        yield term.argument
    elif not isinstance(term, Symbol):
        yield from (part for part, _ in term.parts)
