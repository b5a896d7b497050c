"""CUDA kernels compiled for the host, where there is a C++ compiler (see emulator/cuda.hpp)."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from napari_spotfit.engine.cuda.compile import options, source

_HEADERS = Path(__file__).parent / "engine" / "cuda" / "emulator"
_COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


def launch(
    file: str, name: str, grid, block, arguments, folder: Path | None = None, before: str = "",
    **macros: float,
) -> None:  # fmt: skip
    """Run a kernel over NumPy arrays and numbers, as CuPy runs it on the device.

    Arrays are passed as pointers, NumPy scalars and structures by value, None as a null
    pointer. A file that is not in ``kernels/`` needs its folder, and may include nothing;
    ``before`` is C++ that comes before the file.
    """
    if _COMPILER is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C++ compiler")
    library = ctypes.CDLL(str(_library(file, name, folder, before, macros)))
    sizes = (*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block)))
    kept = []
    places = (ctypes.c_void_p * max(len(arguments), 1))()
    for i, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray) and argument.dtype.kind != "V":
            assert argument.flags.c_contiguous, "arrays must be C-contiguous"
            argument = np.uint64(argument.ctypes.data)
        kept.append(np.array(0 if argument is None else argument))
        places[i] = kept[-1].ctypes.data
    library.launch((ctypes.c_uint * 6)(*sizes), places)


def _library(
    file: str, name: str, folder: Path | None, before: str, macros: dict[str, float]
) -> Path:
    """Return the shared library with one kernel; it is compiled when it is new."""
    text = before + (source(file) if folder is None else (folder / file).read_text("utf-8"))
    defines = [option for option in options(**macros) if option.startswith("-D")]
    code = f"""#include "cuda.hpp"
#include <utility>
{text}
template <typename... T, size_t... I>
static void call(void (*kernel)(T...), void** places, std::index_sequence<I...>) {{
    kernel(*static_cast<std::remove_cv_t<T>*>(places[I])...);
}}
template <typename... T> static void call_all(void (*kernel)(T...), void** places) {{
    call(kernel, places, std::index_sequence_for<T...>{{}});
}}
extern "C" void launch(const unsigned* s, void** places) {{
    emulator::launch({{s[0], s[1], s[2]}}, {{s[3], s[4], s[5]}},
                     [&] {{ call_all(&{name}, places); }});
}}
"""
    # Fibers jump between stacks, which a fortified longjmp does not believe.
    compiler = [_COMPILER, "-std=c++17", "-O2", "-fPIC", "-shared", "-w", "-U_FORTIFY_SOURCE"]
    emulator = _HEADERS / "cuda.hpp"
    header = emulator.read_bytes()
    cache = Path(tempfile.gettempdir()) / "napari-spotfit-emulator"
    compiled = cache / _key(f"{compiler}".encode() + header)
    _compile([*compiler, "-x", "c++-header", str(emulator)], "", compiled / "cuda.hpp.gch")
    key = _key(f"{compiler}{defines}{code}".encode() + header)
    library = cache / f"{key}.so"
    include = [f"-I{compiled}", f"-I{_HEADERS}"]
    _compile([*compiler, *include, *defines, "-x", "c++", "-"], code, library)
    return library


def _key(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


def _compile(command: list[str], code: str, result: Path) -> None:
    """Compile C++ if that has not been done; other processes may do the same at the same time."""
    if result.exists():
        return
    result.parent.mkdir(parents=True, exist_ok=True)
    unfinished = result.with_name(f"{os.getpid()}-{result.name}")
    process = subprocess.run(
        [*command, "-o", str(unfinished)], input=code, capture_output=True, encoding="utf-8"
    )
    assert process.returncode == 0, process.stderr
    unfinished.replace(result)
