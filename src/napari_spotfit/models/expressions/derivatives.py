"""Derivatives of expressions, and the steps to them.

A tree that the grammar has read becomes a sum of products of sums, and so on, in which every
term is there once: what derivatives have in common is found as it arises. When it is written
down as steps, factors and terms that depend on the same (on neither coordinate, on x, on y, on
both) are kept together, so that what is the same for many pixels can be worked out once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple, TypeAlias

from .grammar import FUNCTIONS, Call, Name, Node, Number, Program, parse

#: Constants beyond this are of no use in single precision.
_LARGEST = 1e30
#: No expression may have more terms with its derivatives.
MAX_TERMS = 3000
NOT_REAL = "the expression is not a real number everywhere"

#: What a term depends on, in the order in which it is worked out: on parameters alone, on x, on
#: y, on both.
_ALONE, _X, _Y, _BOTH = range(4)


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


@lru_cache(maxsize=64)
def derived(text: str, names: tuple[str, ...]) -> Program:
    """Return the program of an expression in x, y and parameters, in the order of these.

    Raises
    ------
    ValueError
        If the text is no expression in these names, if it is not real, if it does not depend on
        one of the parameters, or if it is too long with its derivatives.
    """
    tree = parse(text, ("x", "y", *names))
    terms = Terms()
    known = {name: terms.name(name) for name in ("x", "y")}
    known |= {name: terms.name(f"p{i}") for i, name in enumerate(names)}
    try:
        profile = terms.read(tree, known)
        derivatives = [terms.derivative(profile, known[name]) for name in names]
        for name, derivative in zip(names, derivatives, strict=True):
            if terms.is_number(derivative, 0.0):
                raise ValueError(f"the expression does not depend on {name!r}; leave it out")
        return _Writer(terms, [profile, *derivatives]).program()
    except (ArithmeticError, TypeError):
        raise ValueError(NOT_REAL) from None
    except RecursionError:  # where Python's own stack is nearly full already
        raise ValueError("the expression is nested too deep") from None


class _Writer:
    """Makes steps of terms; those that are used more than once have a name."""

    def __init__(self, terms: Terms, results: Sequence[int]) -> None:
        self._terms, self._results = terms.terms, results
        self._on: list[int] = []
        for term in self._terms:
            own = {"x": _X, "y": _Y}.get(term.name, _ALONE) if isinstance(term, Symbol) else _ALONE
            self._on.append(reduce(int.__or__, (self._on[part] for part in parts_of(term)), own))
        self._uses = self._count_uses()
        self._steps: list[tuple[str, Node]] = []
        self._written: dict[tuple[int, int], Node] = {}

    def program(self) -> Program:
        results = tuple(self._node(result) for result in self._results)
        return Program(tuple(self._steps), results)

    def _count_uses(self) -> Counter[int]:
        uses = Counter(self._results)
        for number in range(len(self._terms) - 1, -1, -1):
            if uses[number]:
                uses.update(parts_of(self._terms[number]))
        return uses

    def _node(self, number: int) -> Node:
        """Return a term as a tree, or its name."""
        if (number, 1) not in self._written:
            node = self._tree(number)
            if self._uses[number] > 1:
                node = self._named(node)
            self._written[number, 1] = node
        return self._written[number, 1]

    def _named(self, node: Node) -> Node:
        if not isinstance(node, Call):
            return node
        name = f"t{len(self._steps)}"
        self._steps.append((name, node))
        return Name(name)

    def _tree(self, number: int) -> Node:
        term = self._terms[number]
        if isinstance(term, Symbol):
            return Name(term.name)
        if isinstance(term, Product):
            return self._product(term, 1.0)
        if isinstance(term, Function):
            argument = self._node(term.argument)
            return Call(term.word, (_nonzero(argument) if term.word == "log" else argument,))
        return self._sum(term)

    def _sum(self, term: Sum) -> Node:
        """Add up what depends on the same first."""
        if not term.constant and term.parts[0][1] == -1 and len(term.parts) == 1:
            inner = self._terms[term.parts[0][0]]
            if isinstance(inner, Sum) and self._uses[term.parts[0][0]] == 1:
                parts = tuple((part, -coefficient) for part, coefficient in inner.parts)
                term = Sum(-inner.constant, parts)
        signed: dict[int, list[tuple[Node, bool]]] = {on: [] for on in range(4)}
        if term.constant:
            signed[_ALONE].append((Number(abs(term.constant)), term.constant > 0))
        for part, coefficient in term.parts:
            own, plus = self._terms[part], coefficient > 0
            if isinstance(own, Product) and self._uses[part] == 1:
                # A sign costs nothing where it goes to what is worked out before.
                free = any(self._on[base] != self._on[part] for base, _ in own.parts)
                node = self._product(own, coefficient if free else abs(coefficient))
                plus = plus or free
            else:
                node = _times(self._node(part), Number(abs(coefficient)))
            signed[self._on[part]].append((node, plus))
        alone = signed.pop(_ALONE)
        first = next((on for on in (_X, _Y, _BOTH) if signed[on]), _BOTH)
        signed[first] += alone
        both = signed[_BOTH] + [_added(signed[on]) for on in (_X, _Y) if signed[on]]
        node, plus = _added(both)
        return node if plus else Call("neg", (node,))

    def _product(self, term: Product, coefficient: float) -> Node:
        """Multiply what depends on the same first."""
        above: dict[int, list[Node]] = {on: [] for on in range(4)}
        below: dict[int, list[Node]] = {on: [] for on in range(4)}
        for base, exponent in term.parts:
            on = self._on[base]
            node = self._power(base, abs(exponent))
            if exponent > 0:
                above[on].append(node)
            else:
                below[on].append(_nonzero(node) if on else node)
        if abs(coefficient) != 1:
            above[_ALONE].insert(0, Number(abs(coefficient)))
        parts = {on: _quotient(above[on], below[on]) for on in (_ALONE, _X, _Y)}
        alone = parts.pop(_ALONE)
        if coefficient < 0:
            alone = Call("neg", (alone,)) if alone else Number(-1.0)
            if isinstance(alone, Call) and isinstance(alone.arguments[0], Number):
                alone = Number(-alone.arguments[0].value)
        for on, part in parts.items():
            if part and alone:
                parts[on], alone = _times(part, alone), None
        rest = [part for part in (*parts.values(), alone) if part]
        product = _quotient(above[_BOTH], below[_BOTH]) if above[_BOTH] else None
        if product is None and below[_BOTH]:
            return Call("/", (reduce(_times, rest) if rest else Number(1.0),
                              reduce(_times, below[_BOTH])))  # fmt: skip
        return reduce(_times, rest if product is None else [product, *rest])

    def _power(self, base: int, exponent: float) -> Node:
        """Return a power: by products and roots where it is whole or a half, else by exp."""
        whole, rest = int(exponent), exponent % 1
        if not rest:
            return self._whole_power(base, whole)
        node = self._whole_power(base, 1)
        if rest == 0.5:
            root = Call("sqrt", (node,))
            return Call("*", (self._whole_power(base, whole), root)) if whole else root
        return Call("exp", (_times(Call("log", (_nonzero(node),)), Number(exponent)),))

    def _whole_power(self, base: int, n: int) -> Node:
        """Return a power by repeated squaring; each square is a step of its own."""
        if n == 1:
            return self._node(base)
        if (base, n) not in self._written:
            if (base, 1) not in self._written or isinstance(self._written[base, 1], Call):
                self._written[base, 1] = self._named(self._node(base))
            half = self._whole_power(base, n // 2)
            node: Node = Call("*", (half, half))
            if n % 2:
                node = Call("*", (node, self._whole_power(base, 1)))
            self._written[base, n] = self._named(node)
        return self._written[base, n]


def _nonzero(node: Node) -> Node:
    return Call("nonzero", (node,))


def _times(a: Node, b: Node) -> Node:
    one = Number(1.0)
    if b == one:
        return a
    return b if a == one else Call("*", (a, b))


def _quotient(above: Sequence[Node], below: Sequence[Node]) -> Node | None:
    """Return a fraction of products; None if there is nothing in it."""
    if not above and not below:
        return None
    top = reduce(_times, above) if above else Number(1.0)
    return Call("/", (top, reduce(_times, below))) if below else top


def _added(parts: Sequence[tuple[Node, bool]]) -> tuple[Node, bool]:
    """Return what signed parts add up to, and whether it is to be added."""
    plus = [node for node, positive in parts if positive]
    minus = [node for node, positive in parts if not positive]
    if not plus:
        return reduce(lambda a, b: Call("+", (a, b)), minus), False
    total = reduce(lambda a, b: Call("+", (a, b)), plus)
    return reduce(lambda a, b: Call("-", (a, b)), minus, total), True
