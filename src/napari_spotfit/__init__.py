"""Fit thousands to billions of spots, in napari or without.

>>> import napari_spotfit
>>> movie, truth = napari_spotfit.simulate_movie(2, shape=(64, 64), seed=0)
>>> fits = napari_spotfit.localize(movie)
"""

import re
from importlib import import_module
from typing import Any

#: The public names with the modules that they live in: those of the stub beside this file, which
#: type checkers and editors read. Each is imported when it is first used.
_MODULES = {
    name: module
    for module, names in re.findall(
        r"^from (\.[\w.]+) import (\([^)]*\)|.*)$",
        __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode(),
        re.MULTILINE,
    )
    for name in re.findall(r"\w+ as (\w+)", names)
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = value  # found without asking here from now on
    return value


def __dir__() -> list[str]:
    return __all__  # what consoles complete: no rooms, nothing that is imported here
