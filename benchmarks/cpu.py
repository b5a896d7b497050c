"""Measure the speed of fits on the CPU, compared with Picasso's in the same run.

With built-in start values, NumPy arrays in and out, on all cores. Picasso (0.11.3, from PyPI as
picassosr) gets start values and runs on all cores, too; without it only our own figures are
printed. Then other models and estimators, single large fits, and the start of a fresh process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Any

import numpy as np
from common import (
    BACKGROUND,
    KINDS,
    PHOTONS,
    Work,
    bar,
    cores,
    in_turns,
    large_spot,
    medians,
    paper_spots,
    resolved,
    run,
)
from internals import library

from napari_spotfit import StopCondition, fit_spots

#: Least million fits per second on two cores by side of the ROI.
WANTED = {7: 8.0, 9: 6.5, 11: None, 13: None, 16: 2.0, 24: None, 32: None}
#: Sizes to compare with Picasso, and least speed relative to it by estimator.
COMPARED, RATIO, MLE_RATIO = (7, 9, 11), 30, 15
REPEATS = 7
#: Least speed relative to the round fit.
SHARES = {"elliptical": 0.6, "integrated": 0.6}
#: Largest milliseconds of a single fit on two cores, by side of the image.
LARGE = {1000: 150, 2828: 1200}
#: Largest milliseconds of the steps of a fresh process.
STEPS = {
    "import napari_spotfit, beyond NumPy": 30,
    "first fit of 100 spots, what it imports included": 20,
    "second fit": 2,
}
FRESH = """
import time
import numpy
spots = numpy.random.default_rng(0).poisson(50, (100, 7, 7)).astype(numpy.float32)
times = [time.perf_counter()]
import napari_spotfit
times.append(time.perf_counter())
for _ in range(2):
    napari_spotfit.fit_spots(spots, backend="cpu")
    times.append(time.perf_counter())
print(*(1e3 * (end - begin) for begin, end in zip(times, times[1:])))
"""

on_cpu = partial(fit_spots, backend="cpu")


def rates(options: argparse.Namespace, count: int, works: dict[str, Work]) -> Any:
    """Return the median and the highest million fits per second of each kind of work."""
    times = in_turns(works, 2 if options.quick else REPEATS)
    return {
        name: (count / statistics.median(taken) / 1e6, count / min(taken) / 1e6)
        for name, taken in times.items()
    }


def picasso_rate(spots: np.ndarray, *, mle: bool = False) -> float | None:
    """Return Picasso's million fits per second on all cores."""
    try:
        from picasso.fitting import gaussfit, seeds
    except ImportError:
        return None
    spots = spots[:50_000]
    start = seeds.initial_parameters_gauss(spots, spots.shape[1], spherical=True)

    def work() -> None:
        fit = gaussfit.fit_spots_async(gaussfit.SPHERICAL, spots, start, mle=mle, n_threads=cores())
        while not fit.finished():
            time.sleep(1e-3)
        fit.raise_errors()

    return len(spots) / medians({"": work}, 3)[""] / 1e6


def count_of(options: argparse.Namespace, size: int) -> int:
    """Return the number of spots of a size for as many pixels as those of 7×7."""
    return (20_000 if options.quick else int(options.count)) * 49 // size**2


def sizes(options: argparse.Namespace) -> None:
    """Print the speed by side of the ROI."""
    print(f"{cores()} cores, {library()}; {PHOTONS}:{BACKGROUND} counts; median (best) of "
          f"{REPEATS}, million fits per second")  # fmt: skip
    head = ("float32", "uint16", "with errors", "wanted", "Picasso", "ratio")
    print(f"{'ROI':>7} " + " ".join(f"{name:>16}" for name in head))
    for size, wanted in WANTED.items():
        spots, _ = paper_spots(size, count_of(options, size))
        integers = spots.astype(np.uint16)
        works: dict[str, Work] = {
            "float32": partial(on_cpu, spots, errors=False),
            "uint16": partial(on_cpu, integers, errors=False),
            "with errors": partial(on_cpu, spots),
        }
        speeds = rates(options, len(spots), works)
        peer = picasso_rate(spots) if size in COMPARED else None
        cells = [f"{median:.2f} ({best:.2f})" for median, best in speeds.values()]
        cells.append(bar(speeds["float32"][0], least=wanted))
        cells.append(f"{peer:.3f}" if peer else "")
        cells.append(f"{speeds['float32'][0] / peer:.0f} (≥ {RATIO})" if peer else "")
        print(f"{f'{size}×{size}':>7} " + " ".join(f"{cell:>16}" for cell in cells), flush=True)


def models(options: argparse.Namespace) -> None:
    """Print the speed of other fits, relative to the round least-squares fit."""
    for size in (7, 9):
        spots, _ = paper_spots(size, count_of(options, 7) // 10)
        works: dict[str, Work] = {
            name: partial(on_cpu, spots, errors=False, **resolved(given, size))
            for name, given in KINDS.items()
        }
        speeds = rates(options, len(spots), works)
        print(f"\n{size}×{size}, float32, {len(spots)} spots: million fits per second, share of "
              "the round fit")  # fmt: skip
        for name, (median, best) in speeds.items():
            share = median / speeds["round"][0]
            print(f"{name:>28} {median:7.2f} ({best:.2f}) {share:7.1%} "
                  f"{bar(share, least=SHARES.get(name))}", flush=True)  # fmt: skip
        if peer := picasso_rate(spots, mle=True):
            times = speeds["maximum likelihood"][0] / peer
            print(f"{'Picasso, likelihood':>28} {peer:7.3f}, ours {times:.1f} times "
                  f"{bar(times, least=MLE_RATIO)}")  # fmt: skip


def large(options: argparse.Namespace) -> None:
    """Print the duration of a fit of a rotated Gaussian to a whole image."""
    for side, most in LARGE.items():
        for dtype in ("float32", "uint16"):
            image, (y, x) = large_spot(side, dtype)
            work = partial(on_cpu, image, model="gaussian_rotated")
            fit = work()
            off = max(abs(fit.y[0] - y), abs(fit.x[0] - x))
            milliseconds = 1e3 * medians({"": work}, 2 if options.quick else REPEATS)[""]
            print(f"{side}×{side} {dtype}, one rotated Gaussian: {milliseconds:.0f} ms "
                  f"{bar(milliseconds, most=most)}, {fit.iterations[0]} iterations, "
                  f"{StopCondition(fit.stop_condition[0]).name}, {off:.4f} px off "
                  f"{bar(off, most=0.1)}", flush=True)  # fmt: skip


def process(options: argparse.Namespace) -> None:
    """Print the start of a fresh process: the import beyond NumPy's, and the first fit."""
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        # With a cache of compiled modules, as users have.
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(3 if options.quick else 16):
            command = [sys.executable, "-c", FRESH]
            answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
            runs.append([float(time) for time in answer.stdout.split()])
    print(f"\nMilliseconds, median of {len(runs) - 1} fresh interpreters:")
    for (name, most), times in zip(STEPS.items(), zip(*runs[1:], strict=True), strict=True):
        middle = statistics.median(times)
        print(f"  {name:50}{middle:6.1f}  {bar(middle, most=most)}")


SECTIONS = {
    "sizes": sizes,
    "models": models,
    "large": large,
    "process": process,
}


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1_000_000, help="7×7 spots per call")


if __name__ == "__main__":
    run(__doc__, SECTIONS, _add)
