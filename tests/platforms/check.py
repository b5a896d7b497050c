"""Compare the libraries of other platforms, run by emulators, with that of this machine.

`make test-platforms` runs this, on Linux on x86-64. The library for arm64 runs under QEMU, that
for Windows under Wine; there is no such thing for macOS. Of processors of older kinds, QEMU
shows that the right instruction sets are chosen.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cases import CASES, Case, blocks_of, joined

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_library  # noqa: E402

WORK = ROOT / "build" / "platforms"

#: What runs a platform's programs.
RUNNERS = {
    "linux-x86_64": (),
    "linux-arm64": ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
    "windows-x86_64": ("wine64",),
}
#: Which of our instruction sets stand in for those of another architecture.
COUNTERPARTS = {"neon": "sse42"}
#: Processors, by QEMU's names, and what they have. QEMU itself has no AVX-512.
PROCESSORS = {"core2duo": [], "Nehalem": ["sse42"], "SandyBridge": ["sse42"]}
PROCESSORS |= {"Haswell": ["sse42", "avx2"], "max,-avx2": ["sse42"], "max,-bmi2": ["sse42"]}
PROCESSORS |= {"max,-xsave": ["sse42"]}

PATH = "/usr/bin:/usr/lib/wine"
#: Debian's packages with what is needed there.
PACKAGES = "qemu-user libc6-arm64-cross wine64"


class Program:
    """selftest.cpp with the library for one platform."""

    def __init__(self, platform: str, home: Path) -> None:
        self.platform = platform
        self.home = home
        folder = WORK / platform
        target = build_library.build(folder, platform)
        self.library = folder / target.library
        self.program = folder / ("selftest.exe" if target.windows else "selftest")
        compile_selftest(target, self.program)

    def __call__(self, *arguments: object, runner: tuple[str, ...] = ()) -> str:
        command = [*(runner or RUNNERS[self.platform]), self.program, self.library, *arguments]
        environment = {"PATH": PATH, "WINEPREFIX": str(self.home), "WINEDEBUG": "-all"}
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, env=environment
        )
        if done.returncode:
            sys.exit(f"{self.platform} failed: {done.stderr}")
        return done.stdout

    def results(self, instruction_set: str, case: Case) -> list[bytes]:
        """Return the blocks that a case gives."""
        cases, results = self.home / "cases", self.home / "results"
        cases.write_bytes(joined(case.function.encode(), *case.blocks))
        self(instruction_set, cases, results)
        return blocks_of(results.read_bytes())


def compile_selftest(target: build_library.Target, program: Path) -> None:
    source = str(ROOT / "tests" / "platforms" / "selftest.cpp")
    compiled = str(program.with_suffix(".o"))
    compiler = ("c++", "-target", target.triple, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror")
    if not target.windows:
        build_library.run_zig(*compiler, "-nostdlib++", source, "-o", str(program))
        return
    # Windows' own C library: that of MinGW would be compiled first, for minutes.
    build_library.run_zig(*compiler, "-c", source, "-o", compiled)
    link = ("build-exe", "-target", target.triple, "-fcompiler-rt", "-OReleaseSmall")
    link += ("-fentry=start", compiled, "-lucrtbase", "-lkernel32")
    build_library.run_zig(*link, f"-femit-bin={program}")


def main() -> int:
    wanted = {runner[0] for runner in RUNNERS.values() if runner} | {"qemu-x86_64"}
    missing = sorted(name for name in wanted if not shutil.which(name, path=PATH))
    if missing:
        sys.exit(f"{', '.join(missing)} not found; please run: apt-get install {PACKAGES}")
    # Not below the checkout: Wine puts a link to / there, which those who walk it would follow.
    with tempfile.TemporaryDirectory() as home:
        return 0 if check(Path(home)) else 1


def check(home: Path) -> bool:
    passed = True

    def report(what: str, difference: str) -> None:
        nonlocal passed
        passed &= not difference
        print(f"{what:60} {difference or 'passed'}", flush=True)

    native = Program("linux-x86_64", home)
    for processor, instruction_sets in PROCESSORS.items():
        found = native(runner=("qemu-x86_64", "-cpu", processor)).split()
        right = found == instruction_sets
        report(f"instruction sets of {processor}", "" if right else f"DIFFERENT: {found}")
    own = {
        name: {case.name: native.results(name, case) for case in CASES} for name in native().split()
    }
    for platform in RUNNERS:
        if not RUNNERS[platform]:
            continue
        program = Program(platform, home)
        for name in program().split():
            reference = own[COUNTERPARTS.get(name, name)]
            for case in CASES:
                found = program.results(name, case)
                difference = case.difference(reference[case.name], found, name in COUNTERPARTS)
                report(f"{platform}, {name}: {case.name}", difference)
    return passed


if __name__ == "__main__":
    sys.exit(main())
