"""Are the fits on the GPU as fast as at another commit, and the same?

Both versions run in processes of their own and take turns, kind of fit by kind of fit. Spots
and results stay on the device; the time is the device's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parents[1]
#: Pixels of a call, at the least so many fits: a call lasts some milliseconds, next to which what
#: Python does for it (below) does not count.
PIXELS, LEAST = 1e9, 200_000
#: Fits of a call whose time is mostly Python's, and such calls.
FEW, CALLS = 100, 300
#: The least ratio that is asked for: geometric mean, and the worst.
MEAN, WORST = 1.05, 0.95
#: Seconds of the first fit at most, with nothing compiled, and with all of it.
COLD, WARM = 4.0, 0.5
ROUND = "exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2))"
TURNED = (
    "exp(-((x-x0)*cos(t) + (y-y0)*sin(t))**2 / (2*a**2)"
    " - ((y-y0)*cos(t) - (x-x0)*sin(t))**2 / (2*b**2))"
)
#: Every kind of fit: options of fit_spots, `start` for given start values, `expression` for an
#: own model with where its parameters begin, `bad` for a bad pixel.
KINDS: dict[str, dict[str, Any]] = {
    "round": {},
    "round, start given": {"start": True},
    "round, errors": {"errors": True},
    "round, start given, errors": {"start": True, "errors": True},
    "elliptical": {"model": "gaussian_elliptical"},
    "elliptical, errors": {"model": "gaussian_elliptical", "errors": True},
    "integrated": {"pixel": "integrated"},
    "Lorentzian": {"model": "lorentzian"},
    "rotated": {"model": "gaussian_rotated"},
    "rotated, errors": {"model": "gaussian_rotated", "errors": True},
    "bad pixels": {"bad": True},
    "maximum likelihood": {"estimator": "mle", "gain": 1.0},
    "maximum likelihood, errors": {"estimator": "mle", "gain": 1.0, "errors": True},
    "rotated, maximum likelihood": {"model": "gaussian_rotated", "estimator": "mle", "gain": 1.0},
    "round, as an expression": {"expression": [ROUND, {"s": "sigma"}]},
    "rotated, as an expression": {
        "expression": [TURNED, {"a": "1.1*sigma", "b": "0.9*sigma", "t": 0.3}]
    },
}
SIZES, SEVERAL = (7, 9, 16, 32), ("round", "round, start given", "round, errors")
#: Sizes that are measured for the round Gaussian alone.
BETWEEN = (5, 11, 13, 20, 24)


def jobs(quick: bool) -> Iterator[tuple[str, int, str]]:
    """Return kinds of fits, sizes and types of pixels."""
    for size in (9, 16) if quick else SIZES:
        for kind in KINDS:
            yield kind, size, "float32"
        for kind in SEVERAL:
            yield kind, size, "uint16"
    for size in () if quick else BETWEEN:
        yield "round", size, "uint16"


def serve() -> None:
    """Fit what each line asks for, with the version that is on Python's path."""
    import cupy

    import napari_spotfit
    from napari_spotfit import Profile, fit_spots, simulate_spots

    assert str(Path(napari_spotfit.__file__).resolve()).startswith(os.environ["TREE"])
    fit = None
    for line in sys.stdin:
        job = json.loads(line)
        if job == "few":
            few = simulate_spots(FEW, 9, seed=1)[0].astype("uint16")
            taken = []
            for _ in range(CALLS):
                begun = time.perf_counter()
                fit_spots(few, backend="cuda", errors=False)
                taken.append(time.perf_counter() - begun)
            print(statistics.median(taken), flush=True)
            continue
        if job is None:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            fit()
            end.record()
            end.synchronize()
            print(cupy.cuda.get_elapsed_time(begin, end) / 1e3, flush=True)
            continue
        fit = spots = start = None
        cupy.get_default_memory_pool().free_all_blocks()
        size, options = job["size"], job["options"]
        base, truth = simulate_spots(
            job["distinct"], size, photons=400, background=40 / size**2, sigma=(1.0, 2.0),
            jitter=0.75, seed=size,
        )  # fmt: skip
        times = -(-job["count"] // len(base))
        spots = cupy.tile(cupy.asarray(base.astype(job["dtype"])), (times, 1, 1))[: job["count"]]
        if options.pop("start", False):
            own = cupy.asarray(truth[["y", "x", "sigma"]].to_numpy(), cupy.float32)
            start = cupy.tile(cupy.rint(own), (times, 1))[: job["count"]]
        if options.pop("bad", False):
            options["bad_pixels"] = np.zeros((size, size), bool)
            options["bad_pixels"][1, 2] = True
        if "expression" in options:
            text, begin_with = options.pop("expression")
            options["model"] = Profile.from_expression(text, start=begin_with)
        options = {"errors": False} | options

        def fit(spots: Any = spots, start: Any = start, options: Any = options) -> Any:
            return fit_spots(spots, backend="cuda", on_device=True, start=start, **options)

        columns = fit().columns
        first = slice(0, job["distinct"])
        kept = [columns[name][first].get() for name in ("x", "y", "stop_condition")]
        np.save(job["results"], np.stack([values.astype(float) for values in kept]))
        print("ready", flush=True)


class Version:
    """One version of the package, in a process of its own."""

    def __init__(self, tree: Path, script: str = __file__) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "TREE": str(tree)}
        self._process = subprocess.Popen(
            [sys.executable, script, "--serve"], env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, job: Any) -> str:
        """Return the answer to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError("a version of the package has failed")
        return answer

    def end(self) -> None:
        self._process.communicate()


def alike(folder: Path) -> float:
    """Return the share of fits that end alike, within 0.001 px."""
    ours, theirs = (np.load(folder / f"{name}.npy") for name in ("this", "other"))
    # Which of the conditions of convergence comes first may differ.
    converged = [np.isin(stop, (1, 2, 3)) for stop in (ours[2], theirs[2])]
    same = (ours[2] == theirs[2]) | (converged[0] & converged[1])
    apart = np.hypot(ours[0] - theirs[0], ours[1] - theirs[1])
    return float(np.mean(same & ((apart < 1e-3) | (np.isnan(apart) & same) | ~converged[0])))


def compare(other: Path, turns: int, quick: bool) -> list[float]:
    """Print the speeds of both versions, and return their ratios."""
    trees = {"this": HERE, "other": other.resolve()}
    versions = {name: Version(tree) for name, tree in trees.items()}
    found = []
    with tempfile.TemporaryDirectory() as place:
        for kind, size, dtype in jobs(quick):
            heavy = not set(KINDS[kind]) <= {"start", "errors"}
            count = int(PIXELS / (2 if heavy else 1) / (4 if quick else 1) / size**2)
            count = max(count, LEAST)
            job = {"size": size, "dtype": dtype, "options": KINDS[kind], "count": count,
                   "distinct": min(count, 20_000)}  # fmt: skip
            for name, version in versions.items():
                version.ask(job | {"results": f"{place}/{name}.npy"})
            taken: dict[str, list[float]] = {name: [] for name in versions}
            for turn in range(turns):
                for name in list(versions)[:: 1 if turn % 2 else -1]:
                    taken[name].append(float(versions[name].ask(None)))
            own, theirs = (statistics.median(taken[name]) for name in trees)
            found.append(theirs / own)
            print(
                f"{size:2d}x{size:<2d} {dtype:7s} {kind:28s} {count / own / 1e6:8.1f} "
                f"{count / theirs / 1e6:8.1f} M fits/s  {theirs / own:6.3f}  "
                f"alike {alike(Path(place)):.4%}",
                flush=True,
            )
    for name, version in versions.items():
        print(f"{name}: {1e6 * float(version.ask('few')):.0f} us a call of {FEW} fits")
        version.end()
    return found


def first_fits(tree: Path) -> tuple[float, float]:
    """Return the seconds of a process's first fit, with nothing compiled, and once it has been."""
    code = (
        "import time, numpy, cupy; cupy.zeros(1); from napari_spotfit import fit_spots;"
        "spots = numpy.random.default_rng(0).poisson(9, (100, 9, 9)).astype('u2');"
        "begun = time.perf_counter(); fit_spots(spots, backend='cuda');"
        "print(time.perf_counter() - begun)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "CUPY_CACHE_DIR": cache}
        environment["CUDA_CACHE_PATH"] = cache
        cold, warm = (
            float(subprocess.check_output([sys.executable, "-c", code], env=environment, text=True))
            for _ in range(2)
        )
    return cold, warm


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, nargs="?", help="a checkout of the other commit")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return 0
    ratios = compare(arguments.other, arguments.turns, arguments.quick)
    cold, warm = first_fits(HERE)
    print(f"first fit {cold:.2f} s, compiled before {warm:.2f} s (wanted {COLD} s and {WARM} s)")
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    good = mean >= MEAN and min(ratios) >= WORST and cold <= COLD and warm <= WARM
    print(
        f"geometric mean {mean:.3f} (wanted {MEAN}), worst {min(ratios):.3f} (wanted {WORST}): "
        f"{'ok' if good else 'MISSED'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
