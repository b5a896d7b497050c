"""The compiled library: found, opened, and asked for the instruction set to use.

It is C++ (`kernels/cpu/`), compiled ahead of time for every instruction set in one file, and
called through ctypes. `tools/build_library.py` builds it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache

from ...version import __version__
from . import how_to_build, layouts, update_library

#: The environment variable that asks for one instruction set.
INSTRUCTION_SET = "NAPARI_SPOTFIT_INSTRUCTION_SET"
#: The environment variable that names another file, built with a sanitizer for instance.
LIBRARY = "NAPARI_SPOTFIT_LIBRARY"

_FILES = {"win32": "spotfit.dll", "darwin": "libspotfit.dylib"}


@dataclass(frozen=True, eq=False)
class Library:
    """The library and the instruction set to use.

    Examples
    --------
    >>> library = load()
    >>> library.functions.spotfit_lane_width(library.index) >= 4
    True
    >>> library.description
    'library 0.1.0, ...'
    """

    #: Its C functions, those with SPOTFIT_EXPORT in `kernels/cpu/`.
    functions: ctypes.CDLL
    path: str
    version: str
    #: Those of this machine, from the least to the best.
    instruction_sets: tuple[str, ...]
    #: The one to use.
    instruction_set: str
    #: By which the C functions know it.
    index: int

    @property
    def description(self) -> str:
        """Version and choice, for people."""
        return f"library {self.version}, {self.instruction_set}"


def load() -> Library:
    """Return the library with the best instruction set of this machine.

    The environment variable ``NAPARI_SPOTFIT_INSTRUCTION_SET`` can ask for another, for tests
    and reports of bugs. It is read each time; the library is opened once.

    Returns
    -------
    Library
        The open library and the choice.

    Raises
    ------
    ImportError
        If there is no library, or it is of other sources; the message says how to build it.
    ValueError
        If the environment variable asks for what this machine or the library does not have.

    Examples
    --------
    >>> load().instruction_set in load().instruction_sets
    True
    """
    return _choose(os.environ.get(INSTRUCTION_SET, ""), os.environ.get(LIBRARY, ""))


@cache
def _choose(instruction_set: str, file: str) -> Library:
    path = file or _find()
    functions = _open(path)
    names = [
        functions.spotfit_instruction_set_name(index).decode()
        for index in range(functions.spotfit_instruction_set_count())
    ]
    supported = tuple(
        name
        for index, name in enumerate(names)
        if functions.spotfit_instruction_set_supported(index)
    )
    if not supported:
        raise ImportError(f"napari-spotfit needs a processor with {names[0]} at least")
    chosen = instruction_set or supported[-1]
    if chosen not in supported:
        raise ValueError(
            f"{INSTRUCTION_SET}={chosen}: this machine has {', '.join(supported)}"
            f" (the library has {', '.join(names)})"
        )
    return Library(functions, path, __version__, supported, chosen, names.index(chosen))


@cache
def _open(path: str) -> ctypes.CDLL:
    """Return the library's functions, if it is that of the layouts."""
    try:
        functions = ctypes.CDLL(path)
        digest = functions.spotfit_digest
        digest.restype = ctypes.c_char_p
        found = digest().decode()
    except (OSError, AttributeError) as error:
        raise ImportError(f"{error}. {how_to_build()}") from error
    if found != layouts.DIGEST:
        raise ImportError(
            f"the library {path} was built from other sources ({found}) than napari-spotfit "
            f"{__version__} has ({layouts.DIGEST}). {how_to_build()}"
        )
    for name, result, arguments in layouts.FUNCTIONS:
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    return functions


def _find() -> str:
    """Return the path of the installed library; in a checkout, build it if its sources changed."""
    path = os.path.join(os.path.dirname(__file__), _FILES.get(sys.platform, "libspotfit.so"))
    update_library(path)
    if not os.path.isfile(path):
        raise ImportError(f"there is no library {path}. {how_to_build()}")
    return path
