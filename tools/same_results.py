"""Check that the results of this version are those of another one, to the bit.

usage: python tools/same_results.py COMMIT [--quick] [--sets NAME…] [--only WORD] [--intended FILE]

The other version is a commit, checked out into build/, or a folder with a checkout. Each version
runs tools/random_cases.py in its own processes, once for each instruction set of this machine, and
for the GPU ("cuda"). Every column of every case is compared byte by byte, with NaN equal to NaN.
FILE has a line for each intended change, a pattern of "case: column", with the reason after #.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "same-results"
SETS = ("sse42", "avx2", "avx512", "neon", "cuda")
#: Environment variable that selects an instruction set.
VARIABLE = "NAPARI_SPOTFIT_INSTRUCTION_SET"
#: Fails if a backend is not available.
PROBE = """
import sys
import numpy
from napari_spotfit import fit_spots
fit_spots(numpy.zeros((1, 7, 7), numpy.float32), backend=sys.argv[1])
"""
#: Number of rows that a difference lists.
_SHOWN = 5
#: Most cases that may be refused, and their share: with more, the cases are wrong.
_REFUSED, _SHARE = 5, 0.1


def checkout(commit: str) -> Path:
    """Return a folder with the files of a commit, and links to compiled objects."""
    if Path(commit).is_dir():
        return Path(commit).resolve()
    folder = WORK / commit
    if not folder.exists():
        archive = subprocess.run(
            ["git", "-C", ROOT, "archive", commit], check=True, stdout=subprocess.PIPE
        )
        folder.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        for name in ("kernels", "napari.yaml"):
            (folder / "src" / "napari_spotfit" / name).symlink_to(Path("../..", name))
        (folder / "build").symlink_to(ROOT / "build", target_is_directory=True)
    return folder


def environment(version: Path, name: str) -> dict[str, str]:
    """Return the environment to run a version with an instruction set."""
    own = {"PYTHONPATH": str(version / "src")}
    return {**os.environ, **own, **({} if name == "cuda" else {VARIABLE: name})}


def has(version: Path, name: str) -> bool:
    """Whether a version can run with an instruction set, or on a GPU, on this machine."""
    command = [sys.executable, "-c", PROBE, _backend(name)]
    probe = subprocess.run(command, env=environment(version, name), capture_output=True)
    return probe.returncode == 0


def run(version: Path, name: str, folder: Path, options: argparse.Namespace) -> None:
    """Run all cases."""
    command = [sys.executable, ROOT / "tools" / "random_cases.py", folder, "--only", options.only]
    command += ["--backend", _backend(name), *(["--quick"] if options.quick else [])]
    subprocess.run(command, env=environment(version, name), check=True)


def _backend(name: str) -> str:
    return "cuda" if name == "cuda" else "cpu"


def differing(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> str:
    """Describe how two arrays differ; "" if all bytes are equal, apart from NaN."""
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return f"{ours.dtype} {ours.shape} instead of {theirs.dtype} {theirs.shape}"
    if ours.tobytes() == theirs.tobytes():
        return ""
    one, other = np.atleast_1d(ours), np.atleast_1d(theirs)
    size = one.dtype.itemsize
    same = (_bytes(one, size) == _bytes(other, size)).all(axis=-1)
    if one.dtype.kind == "f":
        same |= np.isnan(one) & np.isnan(other)
    rows = np.argwhere(~same)
    if not len(rows):
        return ""
    shown = ", ".join(
        f"[{','.join(map(str, row))}] {one[tuple(row)]!s} instead of {other[tuple(row)]!s}"
        for row in rows[:_SHOWN]
    )
    return f"{len(rows)} of {one.size} values: {shown}{', …' if len(rows) > _SHOWN else ''}"


def _bytes(values: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    flat = np.ascontiguousarray(values).view(np.uint8)
    return flat.reshape(*values.shape, size)


def compare(ours: Path, theirs: Path, intended: list[str]) -> tuple[int, int]:
    """Print all differences; return the numbers of values and of unintended differences."""
    names = json.loads((ours / "cases.json").read_text())
    values = found = failed = 0
    for number, name in enumerate(names):
        with np.load(ours / f"{number}.npz") as one, np.load(theirs / f"{number}.npz") as other:
            failed += "error" in one
            columns = dict.fromkeys([*other, *one])
            columns.pop("(why)", None)  # messages of errors may change
            for column in columns:
                if column not in one or column not in other:
                    difference = f"only in {'the other' if column in other else 'this'} version"
                    if column == "error":
                        why = (one if column in one else other)["(why)"]
                        difference += f": {why}"
                else:
                    difference = differing(one[column], other[column])
                    values += one[column].size
                if difference:
                    about = f"{name}: {column}"
                    meant = any(fnmatch.fnmatchcase(about, pattern) for pattern in intended)
                    found += not meant
                    print(f"    {about}: {difference}{' (intended)' if meant else ''}")
    print(f"    {len(names)} cases ({failed} of them refused), {values:,} values compared")
    if failed > max(_REFUSED, _SHARE * len(names)):
        sys.exit(f"{failed} of {len(names)} cases are refused, so they compare little: mend them")
    return values, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the other version: a commit, or a folder with one")
    parser.add_argument("--quick", action="store_true", help="fewer cases, for less than a minute")
    parser.add_argument("--sets", nargs="*", default=SETS, help="instruction sets, or cuda")
    parser.add_argument("--only", default="", help="run the cases with this in their names")
    parser.add_argument("--intended", type=Path, help="a file of intended changes")
    options = parser.parse_args()
    lines = options.intended.read_text("utf-8").splitlines() if options.intended else []
    intended = [text for line in lines if (text := line.partition("#")[0].strip())]
    versions = {"this": ROOT, "other": checkout(options.commit)}
    # The first one builds the library.
    sets = [name for name in options.sets if has(ROOT, name)]
    if not sets:
        sys.exit(f"this version runs with none of {', '.join(options.sets)}: is it built?")
    total = found = 0
    for name in sets:
        folders = {which: WORK / "results" / which / name for which in versions}
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda w: run(versions[w], name, folders[w], options), versions))  # noqa: B023
        print(f"{name}:")
        values, differences = compare(folders["this"], folders["other"], intended)
        total, found = total + values, found + differences
    verdict = f"{found} differ" if found else "all are the same to the bit"
    print(f"{', '.join(sets)}: {total:,} values compared; {verdict}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
