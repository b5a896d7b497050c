"""NVIDIA's runtime compiler, which needs no GPU and no driver."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from checkout import ROOT

#: Output of a compilation without warnings.
_KEPT = ROOT / "build" / "nvrtc"

#: PyPI packages that contain it, the newest first.
_PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_LIBRARY = re.compile(r"libnvrtc\.so(\.\d+)?|nvrtc64_\w+_0\.dll")
#: Folders of libraries in a CUDA toolkit, below CUDA_PATH.
_FOLDERS = ("lib64", "lib", "bin", "bin/x64")
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")

#: The assembler's report on each kernel.
_USAGE = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\s*\n"
    r"ptxas info\s*: Used (\d+) registers"
)
_EXPECTED = re.compile(
    r"ptxas (info\s*:|\s*\.)\s*(\d+ bytes (gmem|stack frame)|Compiling entry|Function properties|"
    r"Used \d+ registers|Compile time)"
)


class Usage(NamedTuple):
    """Resources of a kernel: registers, and bytes of memory per thread."""

    stack: int
    spill_stores: int
    spill_loads: int
    registers: int


class Compiled(NamedTuple):
    """A program for one architecture."""

    #: Errors and warnings.
    log: str
    #: Usage of its kernels.
    usage: list[Usage]


class Compiler:
    """A library of NVRTC."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value
        count = ctypes.c_int()
        self._call("GetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._call("GetSupportedArchs", known)
        self.architectures = frozenset(known)
        file = Path(library._name)
        self._release = self.version, (file.stat().st_mtime_ns if file.is_file() else None)

    def compile(
        self, text: str, architecture: int, options: tuple[str, ...], *, assembled: bool = True
    ) -> Compiled:
        """Compile a program; thread-safe.

        What compiled without a word is kept in build/ with the usage of its kernels, by all that
        they depend on: a change of anything else takes no time. Where it is not ``assembled``, only
        PTX is made, in a quarter to two thirds of the time, and usage is unknown. (Not by
        --Ofast-compile, which changes how later programs of the process are optimised.)
        """
        code = "sm" if assembled else "compute"
        options = *options, f"--gpu-architecture={code}_{architecture}"
        key = hashlib.sha256(repr((self._release, options, text)).encode()).hexdigest()[:32]
        kept = _KEPT / f"{key}.json"
        if kept.exists():
            return Compiled("", [Usage(*numbers) for numbers in json.loads(kept.read_text())])
        made = self._compiled(text, options)
        if not made.log:
            _KEPT.mkdir(parents=True, exist_ok=True)
            unfinished = kept.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            unfinished.write_text(json.dumps(made.usage))
            unfinished.replace(kept)
        return made

    def _compiled(self, text: str, options: tuple[str, ...]) -> Compiled:
        code, said = self._compile(text, (*options, "--ptxas-options=-v"))
        lines = [line for line in said.splitlines() if line.strip() and not _EXPECTED.match(line)]
        if code:
            # With the report of usage, errors of the assembler are missing.
            lines.append(f"nvrtcCompileProgram returned {code}: {self._compile(text, options)[1]}")
        usage = [Usage(*map(int, numbers)) for numbers in _USAGE.findall(said)]
        return Compiled("\n".join(lines), usage)

    def _compile(self, text: str, options: tuple[str, ...]) -> tuple[int, str]:
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        place = ctypes.byref(program)
        self._call("CreateProgram", place, text.encode(), b"kernels.cu", 0, None, None)
        try:
            array = (ctypes.c_char_p * len(options))(*map(str.encode, options))
            code = self._library.nvrtcCompileProgram(program, len(options), array)
            self._call("GetProgramLogSize", program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            self._call("GetProgramLog", program, log)
            return code, log.value.decode()
        finally:
            self._call("DestroyProgram", place)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, f"nvrtc{name}")(*arguments)
        assert code == 0, f"nvrtc{name} returned {code}"


@lru_cache(maxsize=1)
def find() -> Compiler | None:
    """Return the compiler of a package, of a toolkit, or of the library path."""
    for path in [*_packaged(), *_installed(), *_NAMES]:
        if sys.platform == "win32" and isinstance(path, Path):
            # The library loads another one from its folder.
            os.add_dll_directory(str(path.parent))
        try:
            return Compiler(ctypes.CDLL(str(path)))
        except OSError:
            continue
    return None


def compiler() -> Compiler:
    """Return the compiler, or skip the test."""
    found = find()
    if found is None:
        pytest.skip("needs NVRTC: the package nvidia-cuda-nvrtc, or a CUDA toolkit at CUDA_PATH")
    return found


def _packaged() -> Iterator[Path]:
    for package in _PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (Path(file.locate()) for file in files if _LIBRARY.fullmatch(file.name))


def _installed() -> Iterator[Path]:
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        for folder in _FOLDERS if variable in os.environ else ():
            names = sorted(Path(os.environ[variable], folder).glob("*nvrtc*"))
            yield from (path for path in names if _LIBRARY.fullmatch(path.name))
