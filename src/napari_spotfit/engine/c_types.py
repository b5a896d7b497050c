"""C's structures and functions for ctypes, from declarations that read like C's."""

from __future__ import annotations

import ctypes
from typing import Any

_TYPES: dict[str, Any] = {
    "int": ctypes.c_int, "long": ctypes.c_longlong, "float": ctypes.c_float,
    "double": ctypes.c_double, "pointer": ctypes.c_void_p, "void": None,
}  # fmt: skip


def fields(*declarations: str) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a structure: each declaration is a type and names; "long" has 64 bits.

    Examples
    --------
    >>> [name for name, _ in fields("pointer pixels", "int rows columns")]
    ['pixels', 'rows', 'columns']
    """
    return tuple(
        (name, _TYPES[kind]) for kind, *names in map(str.split, declarations) for name in names
    )


def declare_functions(library: ctypes.CDLL, declarations: str) -> None:
    """Tell ctypes what functions take and return: ``void name(int pointer)``, one in a line."""
    for line in declarations.strip().splitlines():
        result, _, rest = line.partition(" ")
        name, _, arguments = rest.rstrip(")").partition("(")
        function = getattr(library, name)
        function.restype = _TYPES[result]
        function.argtypes = [_TYPES[kind] for kind in arguments.split()]
