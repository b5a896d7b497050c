"""Imports between rooms of the package point one way, without cycles."""

from __future__ import annotations

import ast
import re
import runpy
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import napari_spotfit

PACKAGE = Path(__file__).parents[1] / "src" / "napari_spotfit"
#: Rooms from the top: each may import from those after it.
ROOMS = (
    "__main__",
    "widgets",
    "command_line",
    "batch",
    "tracking",
    "analysis",
    "calibration",
    "localization",
    "estimation",
    "results",
    "engine",
    "files",
    "images",
    "simulate",
    "simulate_pupil",
)
ROOMS += ("settings", "models", "untrusted", "caller", "workers", "version")
#: Modules of public names, which no room imports.
PUBLIC = ()


def modules() -> dict[tuple[str, ...], Path]:
    """Return every module of the package by the parts of its name, without the package's."""
    paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    names = {path: path.with_suffix("").parts for path in paths}
    return {
        name[:-1] if name[-1] == "__init__" else name: PACKAGE / path
        for path, name in names.items()
    }


MODULES = modules()


def imported(name: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the modules of the package that a module imports, also within functions."""
    path = MODULES[name]
    here = path.relative_to(PACKAGE).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith(PACKAGE.name) for alias in node.names), path
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) + 1 - node.level]
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                inner = (*base, alias.name)
                found.add(inner if inner in MODULES else base)
        elif isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith(PACKAGE.name), f"{path}: import relatively"
    return found


@cache
def imports() -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Parse every module, in the process that runs these tests only: all others collect them."""
    return {name: imported(name) for name in MODULES}


def test_every_module_has_a_room() -> None:
    assert {name[0] for name in MODULES if name != PUBLIC} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_point_down(room: str) -> None:
    allowed = {room, *ROOMS[ROOMS.index(room) :]}
    back = {
        f"{'.'.join(name)} imports {'.'.join(other) or 'the public names'}"
        for name in MODULES
        if name[:1] == (room,)
        for other in imports()[name]
        if other == PUBLIC or other[0] not in allowed
    }
    assert not back


def test_there_are_no_circles() -> None:
    TopologicalSorter(imports()).prepare()  # raises a CycleError that names them


def test_public_names_are_found_when_they_are_used() -> None:
    for name in set(napari_spotfit.__all__) - {"__version__"}:
        assert getattr(napari_spotfit, name).__name__ == name
    assert set(napari_spotfit.__all__) <= set(dir(napari_spotfit))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = napari_spotfit.nothing


def test_the_drawing_is_that_of_the_imports() -> None:
    tool = runpy.run_path(str(PACKAGE.parents[1] / "tools" / "draw_rooms.py"))
    assert tool["DRAWING"].read_text(encoding="utf-8") == tool["drawing"](), (
        "run python tools/draw_rooms.py"
    )


#: Names by which it is reached, where not as attributes.
FRAGILE = ("__wrapped__", "_qt_window", "scene")


def fragile(tree: ast.AST) -> set[str]:
    """Return uses of napari's private parts, which are restricted to one module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            whose = getattr(node.value, "id", "")
            if whose not in ("self", "cls") and node.attr not in ("_replace", "_asdict"):
                found.add(f".{node.attr}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("napari._"):
            found.add(f"from {node.module}")
        elif isinstance(node, ast.Constant) and node.value in FRAGILE:
            found.add(repr(node.value))
        elif isinstance(node, ast.Compare):
            names = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            found |= {"a class by its name"} if "__name__" in names else set()
    return found


def test_what_is_fragile_in_napari_stands_in_one_module() -> None:
    found = {
        name[-1]: fragile(ast.parse(path.read_text(encoding="utf-8")))
        for name, path in MODULES.items()
        if name[:1] == ("widgets",)
    }
    assert found.pop("napari_compat")
    assert {name: what for name, what in found.items() if what} == {}
