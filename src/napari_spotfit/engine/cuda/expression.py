"""Custom models on GPUs: from a program to the C++ that computes it at a pixel."""

from __future__ import annotations

from typing import NamedTuple

from ...models.expressions.grammar import TINY, Call, Name, Node, Number, Program

#: The functions of programs in CUDA.
_FUNCTIONS = {
    "exp": "expf({})", "log": "logf({})", "sqrt": "sqrtf({})", "abs": "fabsf({})",
    "sin": "sinf({})", "cos": "cosf({})", "tan": "tanf({})", "tanh": "tanhf({})",
    "erf": "erff({})", "sign": "copysignf(1.0f, {})", "nonzero": "nonzero({})",
}  # fmt: skip


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
