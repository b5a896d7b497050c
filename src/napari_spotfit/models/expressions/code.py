"""Programs as CUDA C++: f and its derivatives at one pixel.

Operators, functions, constants and the names of a program make up the text. Of what a
person wrote, no letter gets here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .grammar import Call, Name, Node, Number
from .program import TINY, Program

if TYPE_CHECKING:
    from ..profiles import Profile

_FUNCTIONS = {
    "exp": "expf({})", "log": "logf({})", "sqrt": "sqrtf({})", "abs": "fabsf({})",
    "sin": "sinf({})", "cos": "cosf({})", "tan": "tanf({})", "tanh": "tanhf({})",
    "erf": "erff({})", "sign": "copysignf(1.0f, {})", "nonzero": "nonzero({})",
}  # fmt: skip


def to_cuda(profile: Profile) -> str:
    """Return CUDA C++ of a profile from an expression.

    Returns
    -------
    str
        The profile ``OwnProfile``, as those in ``kernels/profiles.h`` that are no products,
        which come before it. What is the same for all pixels is worked out once.
    """
    members, prepare, steps, derivatives, value = _lines(profile)
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


def to_cuda_for_large(profile: Profile) -> str:
    """Return the same as ``kernels/large.cu`` takes it, a structure without a namespace."""
    members, prepare, steps, derivatives, value = _lines(profile)
    count = len(derivatives)
    lines = [
        f"__device__ __forceinline__ float nonzero(float u) {{ return u == 0.0f ? {TINY}f : u; }}",
        "struct OwnProfile {",
        f"    float {', '.join(members)};",
        f"    __device__ __forceinline__ explicit OwnProfile(const float (&p)[{count}]) {{",
        *(f"        {line}" for line in prepare),
        "    }",
        "    __device__ __forceinline__ float at(float x, float y,",
        f"                                        float (&d)[{count}]) const {{",
        *(f"        const float {name} = {text};" for name, text in steps),
        *(f"        d[{i}] = {text};" for i, text in enumerate(derivatives)),
        f"        return {value};",
        "    }",
        "};",
    ]
    return "\n".join(lines) + "\n"


class _Lines(NamedTuple):
    """What the text is made of."""

    members: list[str]
    #: Gives each member its value.
    prepare: list[str]
    #: At a pixel, by name.
    steps: list[tuple[str, str]]
    derivatives: list[str]
    value: str


def _lines(profile: Profile) -> _Lines:
    if profile.expression is None:
        raise ValueError(f"the model {profile.name} was not made from an expression")
    once, each = _apart(profile.expression.program)
    value, *derivatives = (text for name, text in each if not name)
    parameters = [f"p{i}" for i in range(len(derivatives))]
    prepare = [f"p{i} = p[{i}];" for i in range(len(derivatives))]
    prepare += [f"{name} = {text};" for name, text in once.items()]
    steps = [(name, text) for name, text in each if name]
    return _Lines([*parameters, *once], prepare, steps, derivatives, value)


def _apart(program: Program) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return what is the same for all pixels, by name, and the steps for each pixel.

    The results come last, without a name.
    """
    pixels, once, each = {"x", "y"}, dict[str, str](), list[tuple[str, str]]()

    def is_same(node: Node) -> bool:
        if isinstance(node, Call):
            return all(is_same(argument) for argument in node.arguments)
        return isinstance(node, Number) or node.name not in pixels

    def without_same(node: Node) -> Node:
        """Put names in the place of what is the same for all pixels."""
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
