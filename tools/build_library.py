"""Compile kernels/cpu/ into the library that does the work on CPUs.

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
#: Where an editable install has the library.
PLACE = ROOT / "src" / "napari_spotfit" / "engine" / "cpu"
#: The namespace of what is compiled once, for all machines.
ONCE = "any_machine"
#: For what is made on the way.
WORK = ROOT / "build" / "cpu"

FLAGS = (
    "-std=c++17",
    "-O3",
    "-g0",
    "-Wall",
    "-Wextra",
    # Such would run when the library is opened, with instructions that the processor may lack.
    "-Wglobal-constructors",
    # Nothing with vectors is passed between files.
    "-Wno-psabi",
    "-ffp-contract=on",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
)

#: Each instruction set's name, and the flags that let the compiler use it.
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
    """A kind of machine to build for."""

    name: str
    #: What zig calls it, with the oldest system it shall run on; "" if CXX builds for it.
    triple: str
    #: The platform in the name of a wheel.
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
    """Put the library of a target, this machine's by default, into a folder; return the target.

    Beside it comes the Python module of its layouts. Only what changed is compiled. Several
    processes may do this at once; of those that want it only if the sources changed, one does it.
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
    """Write the layouts, and let the compiler say whether they are those of its target."""
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
    #: Its name and version, which decide what it makes, wherever it lies.
    identity: str
    environment: dict[str, str]


def _run(
    command: Sequence[str], environment: dict[str, str] | None = None, folder: str | None = None
) -> str:
    """Run a command and return what it says."""
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
    """Return zig for a target that is named, and for this machine unless CXX is set."""
    if target_name and target_name not in TARGETS:
        raise BuildError(f"unknown target {target_name!r}; there are {', '.join(TARGETS)}")
    if not target_name and os.environ.get("CXX"):
        return _named_compiler(os.environ["CXX"])
    return _zig(TARGETS[target_name] if target_name else _this_machine())


def run_zig(*arguments: str) -> None:
    """Run zig, which has a cache here."""
    _run((_zig_program(), *arguments), _zig_environment())


def _zig_program() -> str:
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise BuildError(
            f"There is no compiler: install one with `{sys.executable} -m pip install ziglang`, "
            "or name a clang++ in the environment variable CXX."
        )
    return str(Path(package.origin).with_name("zig.exe" if sys.platform == "win32" else "zig"))


def _zig_environment() -> dict[str, str]:
    cache = str(WORK / "zig")
    return os.environ | {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}


def _zig(target: Target) -> _Compiler:
    program = _zig_program()
    to = ("-target", target.triple)
    if target.windows:
        # Not through `zig c++`: it would compile the whole C library of MinGW first.
        link = ["build-lib", "-dynamic", *to, "-fcompiler-rt", "-fno-entry", "-fstrip"]
        link += ["-OReleaseSmall", f"-femit-bin={target.library}"]
    else:
        # The few functions of C that the compiler calls (memcpy) are there in any Python.
        link = ["c++", "-shared", *to, "-nostdlib", "-s", "-o", target.library]
        if target.name.startswith("macos"):  # else it would be the folder of the build
            link += [f"-Wl,-install_name,@rpath/{target.library}"]
    return _Compiler(
        target,
        (program, "c++", *to, *FLAGS, "-Werror", *(() if target.windows else ("-fPIC",))),
        (program, *link),
        f"ziglang {importlib.metadata.version('ziglang')}",
        _zig_environment(),
    )


def _named_compiler(name: str) -> _Compiler:
    command = tuple(shlex.split(name, posix=os.name == "posix"))
    identity = _run((*command, "--version"))
    if "clang" not in identity:
        raise BuildError(
            f"the compiler CXX={name} is not clang; name a clang++, or unset CXX for that of the "
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
        # Not the processor's: a Python for x86-64 runs on arm64 too.
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
            "these functions belong into namespace spotfit::SPOTFIT_ISA, as one instruction set's "
            f"would be called by all: {', '.join(sorted(shared))}"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    # Beside a library for Windows its linker leaves other files.
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        _run((*compiler.link, *map(str, compiled)), compiler.environment, folder)
        _move(Path(folder, place.name), place)
    seconds = time.perf_counter() - begin
    print(f"built {place} for {compiler.target.name} in {seconds:.1f} s", file=sys.stderr)


def _sources(compiler: _Compiler) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield every source with the flags of its own; what takes longest comes first."""
    folder = Path(KERNELS, "cpu")
    vectorized = sorted((folder / "vectorized").glob("*.cpp"))
    for name, flags in reversed(INSTRUCTION_SETS[compiler.target.architecture].items()):
        if compiler.target.triple:  # zig's names for processors have underscores
            flags = tuple(flag.replace("x86-64-v", "x86_64_v") for flag in flags)
        for source in vectorized:
            yield source, (*flags, f"-DSPOTFIT_ISA={name}")
    stamp = (f'-DSPOTFIT_DIGEST="{digest()}"',)
    for source in sorted(folder.glob("*.cpp")):
        # The stamp not for all: it changes with any source. None of these visits pixels.
        yield source, ("-Os", *(stamp if "SPOTFIT_DIGEST" in source.read_text("utf-8") else ()))


def _compile(compiler: _Compiler, source: Path, flags: Iterable[str], objects: Path) -> Path:
    """Compile one source, unless there is an object of the very same text and flags."""
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
    """Delete what was not used for a week."""
    for path in objects.iterdir():
        if path.stat().st_mtime < time.time() - 7 * 24 * 3600:
            path.unlink()


def _move(library: Path, place: Path) -> None:
    """Put a new library in the place of an old one, which may be in use."""
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
    """Wait until no other process is in here. The lock goes with its process."""
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
    """Build as the command line says."""
    parser = argparse.ArgumentParser(description="Compile the library that does the work on CPUs.")
    parser.add_argument("--target", default="", help="build for another machine")
    parser.add_argument("--output", type=Path, default=PLACE, help="into a folder")
    parser.add_argument("--if-changed", action="store_true", help="only if the sources did")
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
