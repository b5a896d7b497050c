"""Is the engine on the CPU as fast as another commit's, kind of fit by kind of fit?

The other commit is installed from git into an environment of its own, below build/. Both versions
work in processes of their own and take turns, fit by fit, so that what else the machine does slows
both alike. Times are the CPU's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cpu import spots_of

HERE = Path(__file__).resolve().parent.parent
#: The last commit of the engine that was written twice, in Numba and CUDA.
BASELINE = "0b9ee7a"
#: Kinds of fits: their name, ROI size, settings; then the least speed relative to the other's.
PLAIN = {f"lse {size}×{size}": (size, {}) for size in (7, 9, 16, 32)}
OTHERS = {
    "lse, errors": (9, {"errors": True}),
    "lse 16×16, errors": (16, {"errors": True}),
    "mle": (9, {"estimator": "mle", "gain": 1.0}),
    "mle, errors": (9, {"estimator": "mle", "gain": 1.0, "errors": True}),
    "mle, variances": (9, {"estimator": "mle", "gain": 1.0, "variance": 4.0}),
    "wlse": (9, {"estimator": "wlse", "variance": 4.0}),
    "elliptical": (9, {"model": "gaussian_elliptical"}),
    "integrated": (9, {"pixel": "integrated"}),
    "rotated": (9, {"model": "gaussian_rotated"}),
    "Lorentzian": (9, {"model": "lorentzian"}),
}
WANTED_PLAIN, WANTED_MEAN, WANTED_WORST = 1.05, 1.0, 0.9
#: Pixels of all spots of a call.
PIXELS = 5_000_000
#: Numba's name for processors that have no more than an instruction set.
PROCESSORS = {"sse42": "nehalem", "avx2": "haswell"}
#: Fits whenever a line comes in, and answers with the CPU's seconds.
FITTER = """
import json, sys, time
import numpy as np
from napari_spotfit import fit_spots
kinds = json.loads(sys.argv[1])
spots = {name: np.load(path) for name, (path, _) in kinds.items()}
for name, (_, settings) in kinds.items():
    fit_spots(spots[name][:2000], backend="cpu", **settings)
print("ready", flush=True)
for line in sys.stdin:
    name = line.strip()
    begin = time.process_time()
    fit_spots(spots[name], backend="cpu", **kinds[name][1])
    print(time.process_time() - begin, flush=True)
"""


class Version:
    """One version of the package, in a process of its own."""

    def __init__(
        self, python: Path, kinds: str, environment: dict[str, str], program: str = FITTER
    ) -> None:
        self._process = subprocess.Popen(
            [python, "-c", program, kinds], env=os.environ | environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def seconds(self, kind: str) -> float:
        """Fit once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def install(commit: str) -> Path:
    """Return the Python of an environment that has the package as it was at a commit."""
    folder = HERE / "build" / f"baseline-{commit}"
    python = folder / "bin" / "python"
    if not python.exists():
        source = folder / "source"
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        source.mkdir()
        archive = subprocess.run(
            ["git", "-C", HERE, "archive", commit], check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", source], check=True)
    return python


def both(other: Path, given: Sequence[str], program: str) -> list[Version]:
    """Return our version and another one, by its Python, each with what it is given."""
    # The other one not from a PYTHONPATH, which may lead to this one.
    return [
        Version(python, text, environment, program)
        for python, text, environment in zip(
            (Path(sys.executable), other), given, ({}, {"PYTHONPATH": ""}), strict=True
        )
    ]


def compare(versions: list[Version], kind: str, count: int, turns: int) -> float:
    """Print the speeds of both versions; return the median of their ratio turn by turn."""
    taken: list[list[float]] = [[], []]
    for turn in range(turns):
        for i in (0, 1) if turn % 2 else (1, 0):
            taken[i].append(versions[i].seconds(kind))
    ratio = statistics.median(b / a for a, b in zip(*taken, strict=True))
    ours, theirs = (count / statistics.median(times) / 1e6 for times in taken)
    print(f"  {kind:20}{ours:9.3f}{theirs:9.3f}{ratio:9.2f}", flush=True)
    return ratio


def compare_all(other: Path, instruction_set: str, folder: Path, turns: int) -> None:
    """Print a table for one instruction set."""
    kinds, counts = {}, {}
    for name, (size, settings) in (PLAIN | OTHERS).items():
        path, counts[name] = folder / f"{size}.npy", PIXELS // size**2
        if not path.exists():
            np.save(path, spots_of(size, counts[name]))
        kinds[name] = (str(path), settings)
    import json

    ours = {"NAPARI_SPOTFIT_INSTRUCTION_SET": instruction_set}
    # Not from a PYTHONPATH, which may lead to this version.
    numba = str(HERE / "build" / f"numba-{instruction_set}")
    theirs = {"PYTHONPATH": "", "NUMBA_CACHE_DIR": numba}
    if instruction_set in PROCESSORS:
        theirs |= {"NUMBA_CPU_NAME": PROCESSORS[instruction_set], "NUMBA_CPU_FEATURES": ""}
    versions = [
        Version(Path(sys.executable), json.dumps(kinds), ours),
        Version(other, json.dumps(kinds), theirs),
    ]
    print(f"{instruction_set}: million fits per CPU second, ours and theirs, and the ratio")
    plain = [compare(versions, kind, counts[kind], turns) for kind in PLAIN]
    rest = [compare(versions, kind, counts[kind], turns) for kind in OTHERS]
    for version in versions:
        version.end()
    print(
        f"  plain: worst {min(plain):.2f} (wanted {WANTED_PLAIN}); others: geometric mean "
        f"{statistics.geometric_mean(rest):.2f} ({WANTED_MEAN}), worst {min(rest):.2f} "
        f"({WANTED_WORST})"
    )


def main() -> None:
    from napari_spotfit.engine.cpu.library import load

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default=BASELINE, help="what to compare with")
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--sets", nargs="*", default=load().instruction_sets[:0:-1])
    options = parser.parse_args()
    other = install(options.commit)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sets:
            compare_all(other, name, Path(folder), options.turns)


if __name__ == "__main__":
    main()
