"""The CPU's part: the compiled library, and what calls it.

A checkout makes the library of its kernels, and the module ``layouts`` with its structures and
functions, and makes them again when the kernels changed. An installed package has both.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import invalidate_caches
from importlib.machinery import SourceFileLoader
from types import ModuleType

_LAYOUTS = os.path.join(os.path.dirname(__file__), "layouts.py")


def update_layouts() -> None:
    """Make the layouts again if their sources changed; no compiler is needed."""
    tools = _tools()
    if tools and not _is_current(_LAYOUTS, tools):
        _run(f"{tools}/layouts.py", "the library's layouts could not be read from its sources")
        invalidate_caches()
    if not os.path.isfile(_LAYOUTS):
        raise ImportError(f"there is no module {_LAYOUTS}. {how_to_build()}")


def update_library(path: str) -> None:
    """Build the library again if it is not that of the layouts."""
    from .layouts import DIGEST

    tools = _tools()
    if tools and not _is_current(path, tools, DIGEST):
        print("napari-spotfit: building the library from its changed sources", file=sys.stderr)
        _run(f"{tools}/build_library.py", "the library could not be built from its changed sources")


def how_to_build() -> str:
    """Return what to do about a library that is missing or does not fit."""
    tools = _tools()
    if tools:
        return f"Build it: python {tools}/build_library.py"
    return "Install it again: python -m pip install --force-reinstall napari-spotfit"


@cache
def _tools() -> str:
    """Return the folder with what builds the library, where the package is in a checkout."""
    root = os.path.normpath(os.path.join(os.path.realpath(__file__), *5 * [os.pardir]))
    tools = os.path.join(root, "tools")
    return tools if os.path.isfile(f"{tools}/build_library.py") else ""


def _is_current(made: str, tools: str, digest: str = "") -> bool:
    sources = ModuleType("library_sources")  # importlib.util would take longer than all of this
    sources.__file__ = os.path.join(tools, "library_sources.py")
    SourceFileLoader(sources.__name__, sources.__file__).exec_module(sources)
    current: bool = sources.is_current(made, digest)
    return current


def _run(tool: str, otherwise: str) -> None:
    import subprocess  # an installed package never runs a tool

    command = [sys.executable, tool, "--if-changed"]
    done = subprocess.run(command, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if done.returncode:
        raise ImportError(f"{otherwise}: {done.stderr}")


# Before anything here imports them.
update_layouts()
