"""Compile kernels/cpu/ into the library for CPUs.

usage: python tools/build_library.py [--target NAME] [--output FOLDER] [--if-changed] | --targets

The compiler is the clang that the package `ziglang` brings, which builds for every target from
any machine, or the clang++ that the environment variable CXX names (CXXFLAGS and LDFLAGS are
added), which builds for what it is made for. With no options, an editable install gets the
library of this machine.

The build hook, the editable install itself and the tests use this file as well.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import layouts
from library_sources import KERNELS, digest, is_current
from shared_functions import shared_functions

ROOT = Path(__file__).parents[1]
#: Folder of the library in an editable install.
PLACE = ROOT / "src" / "napari_spotfit" / "engine" / "cpu"
#: Namespace of code that is compiled once, for all instruction sets.
ONCE = "any_machine"
#: Folder of objects.
WORK = ROOT / "build" / "cpu"

FLAGS = (
    "-std=c++17",
    "-O3",
    "-g0",
    "-Wall",
    "-Wextra",
    # Global constructors would run on loading, with instructions that the processor may lack.
    "-Wglobal-constructors",
    # No vectors are passed between files.
    "-Wno-psabi",
    "-ffp-contract=on",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
)

#: Compiler flags by instruction set, for each architecture.
INSTRUCTION_SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "sse42": ("-march=x86-64-v2",),
        "avx2": ("-march=x86-64-v3",),
        "avx512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    },
    "arm64": {"neon": ()},
}


class BuildError(Exception):
    """The library could not be built; the message says why."""


@dataclass(frozen=True)
class Target:
    """A platform to build for."""

    name: str
    #: Zig's triple, with the oldest supported system; "" if CXX builds for it.
    triple: str
    #: Platform tag of wheels.
    wheel: str

    @property
    def architecture(self) -> str:
        """A key of INSTRUCTION_SETS."""
        return self.name.partition("-")[2]

    @property
    def windows(self) -> bool:
        return self.name.startswith("windows")

    @property
    def library(self) -> str:
        """The library's file name."""
        if self.windows:
            return "spotfit.dll"
        return "libspotfit.dylib" if self.name.startswith("macos") else "libspotfit.so"


TARGETS = {
    target.name: target
    for target in (
        Target(
            "linux-x86_64",
            "x86_64-linux-gnu.2.17",
            "manylinux_2_17_x86_64.manylinux2014_x86_64",
        ),
        Target(
            "linux-arm64",
            "aarch64-linux-gnu.2.17",
            "manylinux_2_17_aarch64.manylinux2014_aarch64",
        ),
        Target("musl-x86_64", "x86_64-linux-musl", "musllinux_1_2_x86_64"),
        Target("musl-arm64", "aarch64-linux-musl", "musllinux_1_2_aarch64"),
        Target("macos-x86_64", "x86_64-macos.11.0", "macosx_11_0_x86_64"),
        Target("macos-arm64", "aarch64-macos.11.0", "macosx_11_0_arm64"),
        Target("windows-x86_64", "x86_64-windows-gnu", "win_amd64"),
        Target("windows-arm64", "aarch64-windows-gnu", "win_arm64"),
    )
}


def build(library_folder: Path, target_name: str = "", *, if_changed: bool = False) -> Target:
    """Build the library of a target, by default of this machine, into a folder; return the target.

    Also writes the Python module of its layouts. Only changed files are compiled. Several processes
    may build at once; with `if_changed`, only one of them does.
    """
    compiler = _choose_compiler(target_name)
    place = library_folder / compiler.target.library
    WORK.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(WORK / "lock"):
        if not (if_changed and is_current(str(place))):
            _write_and_check_layouts(compiler, library_folder)
            _compile_and_link(compiler, place)
    return compiler.target


def _write_and_check_layouts(compiler: _Compiler, folder: Path) -> None:
    """Write the layouts, and let the compiler check them for its target."""
    try:
        declared = layouts.write(folder / layouts.NAME)
    except layouts.LayoutError as error:
        raise BuildError(str(error)) from error
    with tempfile.TemporaryDirectory(dir=WORK) as temporary:
        check = Path(temporary, "layouts.cpp")
        check.write_text(layouts.assertions(declared, Path(KERNELS, "layouts")), encoding="utf-8")
        given = ("-DSPOTFIT_ISA=any_machine", "-DPIXEL=double", "-Wno-invalid-offsetof")
        output = str(check.with_suffix(".o"))
        _run((*compiler.compile, *given, "-c", str(check), "-o", output), compiler.environment)


@dataclass(frozen=True)
class _Compiler:
    """How to compile and link for one target."""

    target: Target
    compile: tuple[str, ...]
    link: tuple[str, ...]
    #: Name and version, which identify its output.
    identity: str
    environment: dict[str, str]


def _run(
    command: Sequence[str], environment: dict[str, str] | None = None, folder: str | None = None
) -> str:
    """Run a command and return its output."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise BuildError(f"{command[0]} does not run: {error}") from error
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    sys.stderr.write(done.stderr)
    return done.stdout


def _choose_compiler(target_name: str) -> _Compiler:
    """Return zig for a named target, and for this machine unless CXX is set."""
    if target_name and target_name not in TARGETS:
        raise BuildError(f"unknown target {target_name!r}; there are {', '.join(TARGETS)}")
    if not target_name and os.environ.get("CXX"):
        return _named_compiler(os.environ["CXX"])
    return _zig(TARGETS[target_name] if target_name else _this_machine())


def run_zig(*arguments: str) -> None:
    """Run zig with its cache in the build folder."""
    _run((_zig_program(), *arguments), _zig_environment())


def _zig_program() -> str:
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise BuildError(
            f"There is no compiler: install one by `{sys.executable} -m pip install ziglang`, "
            "or set the environment variable CXX to a clang++."
        )
    return str(Path(package.origin).with_name("zig.exe" if sys.platform == "win32" else "zig"))


def _zig_environment() -> dict[str, str]:
    cache = str(WORK / "zig")
    return os.environ | {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}


def _zig(target: Target) -> _Compiler:
    program = _zig_program()
    to = ("-target", target.triple)
    # No header of the system is included, and objects for musl are those for glibc to the bit: they
    # are compiled once for both.
    made_for = ("-target", target.triple.replace("linux-musl", "linux-gnu.2.17"))
    if target.windows:
        # `zig c++` would first compile the whole C library of MinGW.
        link = ["build-lib", "-dynamic", *to, "-fcompiler-rt", "-fno-entry", "-fstrip"]
        link += ["-OReleaseSmall", f"-femit-bin={target.library}"]
    else:
        # The few C functions that the compiler calls (memcpy) are in any Python.
        link = ["c++", "-shared", *to, "-nostdlib", "-s", "-o", target.library]
        if target.name.startswith("macos"):  # the default would be the build folder
            link += [f"-Wl,-install_name,@rpath/{target.library}"]
    return _Compiler(
        target,
        (program, "c++", *made_for, *FLAGS, "-Werror", *(() if target.windows else ("-fPIC",))),
        (program, *link),
        f"ziglang {importlib.metadata.version('ziglang')}",
        _zig_environment(),
    )


def _named_compiler(name: str) -> _Compiler:
    command = tuple(shlex.split(name, posix=os.name == "posix"))
    identity = _run((*command, "--version"))
    if "clang" not in identity:
        raise BuildError(
            f"the compiler CXX={name} is not clang; set it to a clang++, or unset it to use the "
            "package ziglang"
        )
    triple = _run((*command, "-dumpmachine"))
    system = "windows" if re.search("windows|mingw|w64", triple) else "linux"
    system = "macos" if "apple" in triple else system
    architecture = _architecture(triple.partition("-")[0])
    tag = sysconfig.get_platform().replace("universal2", platform.machine())
    target = Target(f"{system}-{architecture}", "", re.sub(r"[-.]", "_", tag))
    flags = (*FLAGS, *(() if target.windows else ("-fPIC",)))
    return _Compiler(
        target,
        (*command, *flags, *_words("CXXFLAGS")),
        (*command, "-shared", "-nostdlib++", "-o", target.library, *_words("LDFLAGS")),
        identity,
        dict(os.environ),
    )


def _words(variable: str) -> list[str]:
    return shlex.split(os.environ.get(variable, ""))


def _this_machine() -> Target:
    if sys.platform == "win32":
        # That of Python, not of the processor: a Python for x86-64 also runs on arm64.
        system, machine = "windows", sysconfig.get_platform().removeprefix("win-")
    else:
        system = "macos" if sys.platform == "darwin" else "linux"
        if "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or ""):
            system = "musl"
        machine = platform.machine()
    return TARGETS[f"{system}-{_architecture(machine)}"]


def _architecture(machine: str) -> str:
    names = {"amd64": "x86_64", "aarch64": "arm64"}
    architecture = names.get(machine.lower(), machine.lower())
    if architecture not in INSTRUCTION_SETS:
        raise BuildError(f"napari-spotfit has no code for processors of the kind {machine!r}")
    return architecture


def _compile_and_link(compiler: _Compiler, place: Path) -> None:
    begin = time.perf_counter()
    objects = WORK / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    _forget_old(objects)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(_compile, compiler, source, flags, objects)
            for source, flags in _sources(compiler)
        ]
        try:
            compiled = [job.result() for job in jobs]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    names = {*INSTRUCTION_SETS[compiler.target.architecture], ONCE}
    if shared := shared_functions(compiled, names):
        raise BuildError(
            "these functions must be in namespace spotfit::SPOTFIT_ISA, as otherwise all "
            f"instruction sets would share one of them: {', '.join(sorted(shared))}"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    # The linker for Windows leaves further files.
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        _run((*compiler.link, *map(str, compiled)), compiler.environment, folder)
        _move(Path(folder, place.name), place)
    seconds = time.perf_counter() - begin
    print(f"built {place} for {compiler.target.name} in {seconds:.1f} s", file=sys.stderr)


def _sources(compiler: _Compiler) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield every source with its flags, those that take longest first."""
    folder = Path(KERNELS, "cpu")
    vectorized = sorted((folder / "vectorized").glob("*.cpp"))
    for name, flags in reversed(INSTRUCTION_SETS[compiler.target.architecture].items()):
        if compiler.target.triple:  # zig's names for processors have underscores
            flags = tuple(flag.replace("x86-64-v", "x86_64_v") for flag in flags)
        for source in vectorized:
            yield source, (*flags, f"-DSPOTFIT_ISA={name}")
    stamp = (f'-DSPOTFIT_DIGEST="{digest()}"',)
    for source in sorted(folder.glob("*.cpp")):
        # Only sources that use the digest get it, as it changes with any source. None of these
        # processes pixels, so they are optimised for size.
        yield source, ("-Os", *(stamp if "SPOTFIT_DIGEST" in source.read_text("utf-8") else ()))


def _compile(compiler: _Compiler, source: Path, flags: Iterable[str], objects: Path) -> Path:
    """Compile one source, unless there is an object of the same text and flags."""
    command = (*compiler.compile, *flags, "-c", str(source))
    key = hashlib.sha256(compiler.identity.encode())
    key.update(" ".join(command[1:-1]).encode())
    for path in sorted(_included(source)):
        key.update(path.read_bytes())
    compiled = objects / f"{source.stem}-{key.hexdigest()[:32]}.o"
    if compiled.exists():
        compiled.touch()
    else:
        unfinished = compiled.with_suffix(".unfinished.o")
        _run((*command, "-o", str(unfinished)), compiler.environment)
        unfinished.replace(compiled)
    return compiled


def _included(source: Path) -> set[Path]:
    """Return a source and all the files it includes, directly or not."""
    found: set[Path] = set()
    wanted = {source}
    while wanted:
        path = wanted.pop()
        found.add(path)
        names = re.findall(r'^\s*#\s*include\s*"(.+)"', path.read_text("utf-8"), re.MULTILINE)
        files = {(path.parent / name).resolve() for name in names}
        wanted |= {file for file in files if file.is_file()} - found
    return found


def _forget_old(objects: Path) -> None:
    """Delete objects not used for a week."""
    for path in objects.iterdir():
        if path.stat().st_mtime < time.time() - 7 * 24 * 3600:
            path.unlink()


def _move(library: Path, place: Path) -> None:
    """Replace an old library, which may be in use, by a new one."""
    try:
        library.replace(place)
    except PermissionError as error:
        raise BuildError(f"{place} is in use: end the programs that use it ({error})") from error
    except OSError:  # on another disk
        beside = place.with_name(f"{place.name}.new")
        shutil.copyfile(library, beside)
        beside.replace(place)


@contextlib.contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold a lock between processes, which the system releases if one dies."""
    with lock.open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # gives up after 10 s
                    break
                except OSError:
                    continue
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Build with the options of the command line."""
    parser = argparse.ArgumentParser(description="Compile the library for CPUs.")
    parser.add_argument("--target", default="", help="build for another machine")
    parser.add_argument("--output", type=Path, default=PLACE, help="folder of the library")
    parser.add_argument("--if-changed", action="store_true", help="only if sources changed")
    parser.add_argument("--targets", action="store_true", help="list the targets")
    options = parser.parse_args()
    if options.targets:
        print(*TARGETS)
        return
    try:
        build(options.output, options.target, if_changed=options.if_changed)
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
