"""An expression with its derivatives as a list of steps, and their values in NumPy."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .grammar import Name, Node, Number

#: What logarithms and divisors take for 0. With it a derivative that is 0·∞ at a single
#: place, such as that of exp(-r) at r = 0, is 0 there instead of NaN.
TINY = 1e-30

Array = NDArray[np.float64]


#: Of fewer numbers, error functions are there before SciPy is imported.
_FEW = 4096


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
    """Steps, each of which may use the results of those before, and what they lead to.

    The names in it are ``x`` and ``y``, the pixel's coordinates; ``p0``, ``p1``, …, the
    shape parameters in the order of the kernels; ``t0``, ``t1``, …, the steps.
    """

    steps: tuple[tuple[str, Node], ...]
    #: f and its derivatives by p0, p1, …
    results: tuple[Node, ...]

    def run(
        self, functions: Mapping[str, Callable[..., Any]], x: Any, y: Any, parameters: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Return f and its derivatives, with whatever has operators and these functions.

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
