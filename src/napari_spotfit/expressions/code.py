"""Programs as CUDA C++: f and its derivatives at one pixel.

Operators, functions, constants and the names of a program make up the text. Of what a
person wrote, no letter gets here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .grammar import Name, Node, Number
from .program import TINY

if TYPE_CHECKING:
    from ..models import Profile

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
        The device function ``float profile_at(float x, float y, const float (&p)[SHAPE],
        float (&d)[SHAPE])``, which returns f and writes its derivatives to d, all in the
        order of the kernels: x, y, widths.
    """
    if profile.expression is None:
        raise ValueError(f"the model {profile.name} was not made from an expression")
    program = profile.expression.program
    value, *derivatives = (_text(node) for node in program.results)
    count = len(derivatives)
    lines = [
        f"__device__ __forceinline__ float nonzero(float u) {{ return u == 0.0f ? {TINY}f : u; }}",
        f"__device__ __forceinline__ float profile_at(float x, float y, const float (&p)[{count}],",
        f"                                            float (&d)[{count}]) {{",
        f"    const float {', '.join(f'p{i} = p[{i}]' for i in range(count))};",
        *(f"    const float {name} = {_text(n)};" for name, n in program.steps),
        *(f"    d[{i}] = {text};" for i, text in enumerate(derivatives)),
        f"    return {value};",
        "}",
    ]
    return "\n".join(lines) + "\n"


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
