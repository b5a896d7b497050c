"""Is the round least-squares fit on the CPU as fast as at another commit?

Both versions run side by side in processes of their own and take turns, fit by fit, so that
what else the machine does slows both alike. Times are those of the CPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from cpu import spots_of

HERE = Path(__file__).parent.parent
#: The least share of the other's speed that is asked for.
WANTED = 0.97
SIZES = (7, 9)
COUNT, TURNS = 200_000, 31
#: Fits whenever a line comes in, and answers with the CPU's seconds.
FITTER = """
import sys, time
import numpy as np
import napari_spotfit
from napari_spotfit import fit_spots
assert napari_spotfit.__file__.startswith(sys.argv[3]), napari_spotfit.__file__
spots, errors = np.load(sys.argv[1]), sys.argv[2] == "errors"
fit_spots(spots, errors=errors, backend="cpu")
print("ready", flush=True)
for _ in sys.stdin:
    begin = time.process_time()
    fit_spots(spots, errors=errors, backend="cpu")
    print(time.process_time() - begin, flush=True)
"""


class Version:
    """One version of the package, in a process of its own."""

    def __init__(self, tree: Path, cache: Path, spots: Path, errors: str) -> None:
        own = {"PYTHONPATH": str(tree / "src"), "NUMBA_CACHE_DIR": str(cache)}
        environment = {**os.environ, **own}
        command = [sys.executable, "-c", FITTER, str(spots), errors, str(tree)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def seconds(self) -> float:
        """Fit once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def compare(other: Path, cache: Path, size: int, errors: str) -> None:
    """Print the speeds of both versions, and the median of their ratio turn by turn."""
    trees, spots = {"this": HERE, "other": other}, cache / f"{size}.npy"
    np.save(spots, spots_of(size, COUNT))
    versions = {name: Version(tree, cache / name, spots, errors) for name, tree in trees.items()}
    taken: dict[str, list[float]] = {name: [] for name in versions}
    for turn in range(TURNS):
        for name in list(versions)[:: 1 if turn % 2 else -1]:
            taken[name].append(versions[name].seconds())
    for version in versions.values():
        version.end()
    ratios = [b / a for a, b in zip(taken["this"], taken["other"], strict=True)]
    rates = [COUNT / statistics.median(taken[name]) / 1e6 for name in trees]
    print(
        f"{size}×{size} {errors:>9}: {rates[0]:6.2f} {rates[1]:6.2f} million fits per CPU second; "
        f"{statistics.median(ratios):.3f} of the other's speed (wanted ≥ {WANTED})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="what to compare with, as git names it")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(other), commit], check=True)
        try:
            for size in SIZES:
                for errors in ("no errors", "errors"):
                    compare(other, Path(folder), size, errors)
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)


if __name__ == "__main__":
    main()
