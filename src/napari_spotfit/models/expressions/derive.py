"""Derivatives of expressions, and the steps to them.

A tree that the grammar has read becomes a sum of products of sums, and so on, in which every
term is there once: what derivatives have in common is found as it arises. When it is written
down as steps, factors and terms that depend on the same (on neither coordinate, on x, on y, on
both) are kept together, so that what is the same for many pixels can be worked out once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, reduce

from .grammar import Call, Name, Node, Number, parse
from .program import Program
from .terms import NOT_REAL, Function, Product, Sum, Symbol, Terms, parts_of


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


#: What a term depends on, in the order in which it is worked out: on parameters alone, on x, on
#: y, on both.
_ALONE, _X, _Y, _BOTH = range(4)


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
