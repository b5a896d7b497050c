"""An expression with its derivatives as a list of steps: their values in NumPy, and CUDA C++."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .grammar import Call, Name, Node, Number

#: What logarithms and divisors take for 0. With it a derivative that is 0·∞ at a single
#: place, such as that of exp(-r) at r = 0, is 0 there instead of NaN.
TINY = 1e-30

Array = NDArray[np.float64]


#: Of fewer numbers, error functions are there before SciPy is imported.
_FEW = 4096

_FUNCTIONS = {
    "exp": "expf({})", "log": "logf({})", "sqrt": "sqrtf({})", "abs": "fabsf({})",
    "sin": "sinf({})", "cos": "cosf({})", "tan": "tanf({})", "tanh": "tanhf({})",
    "erf": "erff({})", "sign": "copysignf(1.0f, {})", "nonzero": "nonzero({})",
}  # fmt: skip


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


def to_cuda(program: Program) -> str:
    """Return CUDA C++ of a program: f and its derivatives at one pixel.

    Operators, functions, constants and the names of a program make up the text. Nothing that a
    user wrote is copied into it.

    Returns
    -------
    str
        The profile ``OwnProfile``, as those in ``kernels/profiles.h`` that are no products,
        which come before it. Terms that are the same for all pixels are computed once.
    """
    members, prepare, steps, derivatives, value = _lines(program)
    count = len(derivatives)
    lines = [
        "namespace spotfit::SPOTFIT_ISA {",
        f"SPOTFIT_INLINE float nonzero(float u) {{ return u == 0.0f ? {TINY}f : u; }}",
        "struct OwnProfile : AtPixels {",
        f"    static constexpr int SHAPE = {count};",
        "    static constexpr bool EXPRESSION = true;",
        "    static constexpr float INTEGRAL = 1.0f;",
        "    template <class L> struct Pixels {",
        f"        L {', '.join(members)};",
        f"        SPOTFIT_INLINE Pixels(const L (&p)[{count}], bool) {{",
        *(f"            {line}" for line in prepare),
        "        }",
        f"        SPOTFIT_INLINE L at(L x, L y, L (&d)[{count}]) const {{",
        *(f"            const L {name} = {text};" for name, text in steps),
        *(f"            d[{i}] = {text};" for i, text in enumerate(derivatives)),
        f"            return {value};",
        "        }",
        "    };",
        "};",
        "}",
    ]
    return "\n".join(lines) + "\n"


class _Lines(NamedTuple):
    """The parts of the text."""

    members: list[str]
    #: Gives each member its value.
    prepare: list[str]
    #: At a pixel, by name.
    steps: list[tuple[str, str]]
    derivatives: list[str]
    value: str


def _lines(program: Program) -> _Lines:
    once, each = _apart(program)
    value, *derivatives = (text for name, text in each if not name)
    parameters = [f"p{i}" for i in range(len(derivatives))]
    prepare = [f"p{i} = p[{i}];" for i in range(len(derivatives))]
    prepare += [f"{name} = {text};" for name, text in once.items()]
    steps = [(name, text) for name, text in each if name]
    return _Lines([*parameters, *once], prepare, steps, derivatives, value)


def _apart(program: Program) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Split a program into terms that are the same for all pixels, by name, and steps per pixel.

    The results come last, without a name.
    """
    pixels, once, each = {"x", "y"}, dict[str, str](), list[tuple[str, str]]()

    def is_same(node: Node) -> bool:
        if isinstance(node, Call):
            return all(is_same(argument) for argument in node.arguments)
        return isinstance(node, Number) or node.name not in pixels

    def without_same(node: Node) -> Node:
        """Replace terms that are the same for all pixels by their names."""
        if not isinstance(node, Call):
            return node
        if is_same(node):
            text = _text(node)
            name = next((known for known, other in once.items() if other == text), f"u{len(once)}")
            once[name] = text
            return Name(name)
        return Call(node.function, tuple(without_same(argument) for argument in node.arguments))

    for name, node in [*program.steps, *(("", node) for node in program.results)]:
        if name and is_same(node):
            once[name] = _text(node)
        else:
            pixels.add(name)
            each.append((name, _text(without_same(node))))
    return once, each


def _text(node: Node) -> str:
    """Write a tree down; what is inside another operation stands in parentheses."""
    if isinstance(node, Number):
        return f"{node.value!r}f"
    if isinstance(node, Name):
        return node.name
    arguments = [_text(argument) for argument in node.arguments]
    if node.function == "neg":
        return f"(-{arguments[0]})"
    if len(arguments) == 2:
        return f"({arguments[0]} {node.function} {arguments[1]})"
    return _FUNCTIONS[node.function].format(arguments[0])
