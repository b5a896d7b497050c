"""Compare the libraries of other platforms, run by emulators, with that of this machine.

`make test-platforms` runs this, on Linux on x86-64, and it writes docs/platforms.md. The library
for arm64 runs under QEMU, that for Windows under Wine; there is no such thing for macOS. Of
processors of older kinds, QEMU shows that the right instruction sets are chosen.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cases import CASES, joined, separated

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_library  # noqa: E402

WORK = ROOT / "build" / "platforms"
REPORT = ROOT / "docs" / "platforms.md"
HEAD = """# The library on other platforms

Made by `make test-platforms` on Linux on x86-64, {}: what the library for arm64 gives under QEMU
(beside ours with SSE4.2) and that for Windows under Wine (beside ours with the same instruction
set), and which instruction sets it finds in processors that QEMU plays.

| what | result |
| --- | --- |
"""

#: Emulator of each platform's programs.
RUNNERS = {
    "linux-x86_64": (),
    "linux-arm64": ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
    "windows-x86_64": ("wine64",),
}
#: Our instruction sets that correspond to those of another architecture.
COUNTERPARTS = {"neon": "sse42"}
#: Processors, by QEMU's names, and what they have. QEMU itself has no AVX-512.
PROCESSORS = {"core2duo": [], "Nehalem": ["sse42"], "SandyBridge": ["sse42"]}
PROCESSORS |= {"Haswell": ["sse42", "avx2"], "max,-avx2": ["sse42"], "max,-bmi2": ["sse42"]}
PROCESSORS |= {"max,-xsave": ["sse42"]}

PATH = "/usr/bin:/usr/lib/wine"
#: Debian packages needed there.
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

    def results(self, instruction_set: str) -> list[list[bytes]]:
        """Return the blocks of every case."""
        cases, results = self.home / "cases", self.home / "results"
        cases.write_bytes(joined(CASES))
        self(instruction_set, cases, results)
        return separated(results.read_bytes())


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
    """Run all, write the report, and return whether all agree."""
    lines, passed = [], True

    def note(what: str, good: bool, how: str) -> None:
        nonlocal passed
        passed &= good
        result = how if good else f"FAILED: {how}"
        print(f"{what}: {result}", flush=True)
        lines.append(f"| {what} | {result} |")

    native = Program("linux-x86_64", home)
    for processor, instruction_sets in PROCESSORS.items():
        found = native(runner=("qemu-x86_64", "-cpu", processor)).split()
        note(f"processor {processor}", found == instruction_sets, ", ".join(found) or "none")
    own = {name: native.results(name) for name in native().split()}
    for platform in RUNNERS:
        if platform == native.platform:
            continue
        program = Program(platform, home)
        for name in program().split():
            reference = COUNTERPARTS.get(name, name)
            pairs = zip(CASES, own[reference], program.results(name), strict=True)
            same = 0
            for case, ours, theirs in pairs:
                good, how = case.compare(ours, theirs, name == reference)
                same += ours == theirs
                if ours != theirs:
                    note(f"{platform}, {name}: {case.name}", good, how)
            note(f"{platform}, {name}: cases with the same bits", True, f"{same} of {len(CASES)}")
    REPORT.write_text(
        HEAD.format(datetime.date.today()) + "\n".join(lines) + "\n", encoding="utf-8"
    )
    return passed


if __name__ == "__main__":
    sys.exit(main())
