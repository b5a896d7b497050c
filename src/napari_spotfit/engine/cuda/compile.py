"""Compile kernels, and run them on a device: a GPU, or the host in tests."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .transfer import CommandList

#: Pixel types in C++.
PIXEL_TYPES = {
    "u1": "unsigned char", "u2": "unsigned short", "i2": "short", "f4": "float", "f8": "double",
}  # fmt: skip

#: Fused multiply-adds, fast reciprocals and roots, denormal numbers as 0, but NaN and infinity
#: respected; the namespace of the kernels; no warnings of unused constants.
OPTIONS = (
    "--std=c++17", "-default-device", "--prec-div=false", "--prec-sqrt=false", "--ftz=true",
    "-DSPOTFIT_ISA=cuda", "-diag-suppress=177",
)  # fmt: skip

_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)


def compiled(text: str, name: str) -> Any:
    """Return a kernel for the current device.

    Parameters
    ----------
    text : str
        C++ with includes inserted, see :func:`with_includes`.
    name : str
        Name of the kernel, which must be ``extern "C"``.

    Returns
    -------
    cupy.RawKernel
        Called with grid, block and arguments.
    """
    import cupy

    return _compiled(text, name, OPTIONS, cupy.cuda.Device().id)


def kernel(file: str, name: str, before: str = "", **macros: float | str) -> Any:
    """Return a kernel of a ``.cu`` file, with constants as macros."""
    import cupy

    return _compiled(before + source(file), name, options(**macros), cupy.cuda.Device().id)


def as_argument(structure: ctypes.Structure) -> NDArray[Any]:
    """Return a structure as an argument of CuPy's kernels: as bytes, which launch fastest."""
    kind = np.dtype((np.void, ctypes.sizeof(structure)))
    return np.ndarray((), kind, bytes(structure))


@lru_cache(maxsize=512)
def _compiled(text: str, name: str, given: tuple[str, ...], device: int) -> Any:
    import cupy

    return cupy.RawModule(code=text, options=given).get_function(name)


@lru_cache(maxsize=16)
def source(file: str) -> str:
    """Return the text of a kernel file, with includes inserted."""
    return with_includes(f'#include "{file}"\n')


def with_includes(text: str) -> str:
    """Insert the files of ``kernels/`` that a text includes, each once.

    CuPy's cache on disk identifies a kernel by its whole text.
    """
    folder = files("napari_spotfit") / "kernels"
    included = set()

    def included_from(place: PurePosixPath, text: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            parts: list[str] = []
            for part in (place / match[1]).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            path = PurePosixPath(*parts)
            if path in included:
                return ""
            included.add(path)
            own = folder.joinpath(*parts).read_text("utf-8")
            return included_from(path.parent, own.replace("#pragma once\n", ""))

        return _INCLUDE.sub(replaced, text)

    return included_from(PurePosixPath(), text)


def options(**macros: float | str) -> tuple[str, ...]:
    """Return the compiler's options with macros."""
    return OPTIONS + tuple(f"-D{name}={_literal(value)}" for name, value in macros.items())


def _literal(value: float | str) -> str:
    return f"{value!r}f" if isinstance(value, float) else str(value)


class Device(NamedTuple):
    """The functions to allocate memory and run kernels on a device."""

    number: int
    #: Returns uninitialised bytes.
    allocate: Callable[[int], Any]
    address: Callable[[Any], int]
    #: Uploads a NumPy array for all streams.
    put: Callable[[NDArray[Any]], Any]
    #: Returns a kernel by file, name and macros, see :func:`kernel`.
    kernel: Callable[..., Any]
    #: Makes a :class:`.transfer.CommandList`.
    commands: Callable[[], Any]

    def download(self, array: Any) -> NDArray[Any]:
        """Download an array, after all work on the stream."""
        commands = self.commands()
        here: NDArray[Any] = commands.download(array)
        commands.run()
        return here


def current_device() -> Device:
    """Return CuPy's current GPU."""
    import cupy

    return _gpu(cupy.cuda.runtime.getDevice())


@lru_cache
def _gpu(number: int) -> Device:
    import cupy

    def put(array: NDArray[Any]) -> Any:
        there = cupy.asarray(array)
        cupy.cuda.get_current_stream().synchronize()  # other streams will read it, too
        return there

    return Device(
        number,
        lambda size: cupy.empty(size, np.uint8),
        lambda array: int(array.data.ptr),
        put,
        kernel,
        CommandList,
    )
