"""Compare the GPU engine with the baseline: speed, and results to the bit.

Fits of spots on the device, by the device's clock; calls with 100 fits, detection, fits of large
ROIs, and localize of movies and of few frames, by the host's. Then the first fit of a process,
before and after compilation. ``make baseline`` checks out the baseline.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from against import Saved
from baseline import BASELINE, TREE, Case, arrays, both, compare, summary
from common import KINDS, ROOT, bar, large_spot, paper_spots, parsed

from napari_spotfit import simulate_movie

#: Least ratio of each case, and of the geometric mean.
WORST, MEAN = 0.98, 0.98
#: Number of pixels of a call, and least number of fits: a call takes some milliseconds.
PIXELS, LEAST = 1e9, 200_000
#: Largest seconds of the first fit, before and after compilation.
COLD, WARM = 4.0, 0.5
#: Kinds of fits; ``start`` for given start values.
FITS: dict[str, dict[str, Any]] = {
    **KINDS,
    "round, start given": {"start": True},
    "round, start given, errors": {"start": True, "errors": True},
    **{f"{name}, errors": {**KINDS[name], "errors": True}
       for name in ("round", "elliptical", "rotated", "maximum likelihood")},
}  # fmt: skip
SEVERAL = ("round", "round, start given", "round, errors")


def fits(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield fits of spots on the device, of every kind, size and two types of pixels."""
    jobs = [(kind, size, "float32") for size in (7, 9, 16, 32) for kind in FITS]
    jobs += [(kind, size, "uint16") for size in (7, 9, 16, 32) for kind in SEVERAL]
    jobs += [("round", size, "uint16") for size in (5, 11, 13, 20, 24)]
    for kind, size, dtype in jobs:
        if quick and size not in (9, 16):
            continue
        options = {"backend": "cuda", "on_device": True, "errors": False, **FITS[kind]}
        heavy = not set(FITS[kind]) <= {"start", "errors"}
        count = max(int(PIXELS / (2 if heavy else 1) / (4 if quick else 1) / size**2), LEAST)
        spots, truth = paper_spots(size, 20_000)
        if options.pop("start", False):
            options["start"] = np.rint(truth[["y", "x", "sigma"]].to_numpy()).tolist()
        yield Case(f"{size}×{size} {dtype}, {kind} (M fits)", "fit_spots",
                   saved(f"{size} {dtype}", spots.astype(dtype)), count / 1e6, options,
                   repeated=count, clock="device", on_device=True)  # fmt: skip


def calls(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield calls of 100 fits from NumPy."""
    path = saved("few", paper_spots(9, 100)[0].astype(np.uint16))
    for call in ("fit_spots", "Fitter.fit"):
        yield Case(f"{call}, 100 fits (calls)", call, path, 1, {"backend": "cuda"}, clock="wall",
                   calls=30 if quick else 300)  # fmt: skip


def frames(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield detection in frames on the device with given σ and noise, and fits of large ROIs."""
    for count, side in ((256, 256),) if quick else ((256, 256), (32, 1024), (8, 2048), (1, 4096)):
        movie, _ = simulate_movie(
            count, (side, side), spots_per_frame=max(side**2 // 1500, 1), background=10, seed=side
        )
        for dtype in ("uint8", "uint16", "float32"):
            pixels = np.minimum(movie, 255) if dtype == "uint8" else movie
            yield Case(f"detect_spots, {count} × {side}² {dtype} (frames)", "detect_spots",
                       saved(f"{side} {dtype}", pixels.astype(dtype)), count,
                       {"backend": "cuda", "sigma": 1.3}, known="noise", clock="wall",
                       on_device=True)  # fmt: skip
    for side in (200,) if quick else (200, 1000, 2828):
        yield Case(f"rotated, one ROI of {side}² (fits)", "fit_spots",
                   saved(f"large {side}", large_spot(side, "uint16")[0]), 1,
                   {"backend": "cuda", "model": "gaussian_rotated"}, clock="wall",
                   on_device=True)  # fmt: skip


def movies(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield localize of few frames and of movies on the host, with all or no settings known."""
    movie, _ = simulate_movie(200, spots_per_frame=45, seed=1)
    options = {"backend": "cuda"}
    for count in (1, 16, 1000) if quick else (1, 4, 16, 1000, 20_000, 60_000):
        path = saved(f"movie {min(count, 200)}", movie[:count])
        for name, known in (("all known", "all"), ("nothing given", None)):
            yield Case(f"localize, {count} × 256², {name} (frames)", "localize", path, count,
                       options, known=known, repeated=count, clock="wall",
                       calls=10 if count < 100 else 1)  # fmt: skip


def first(quick: bool) -> bool:
    """Print the seconds of a process's first fit, before and after compilation."""
    code = (
        "import time, numpy, cupy; cupy.zeros(1); from napari_spotfit import fit_spots;"
        "spots = numpy.random.default_rng(0).poisson(9, (100, 9, 9)).astype('u2');"
        "begun = time.perf_counter(); fit_spots(spots, backend='cuda');"
        "print(time.perf_counter() - begun)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUPY_CACHE_DIR": cache}
        environment["CUDA_CACHE_PATH"] = cache
        command = [sys.executable, "-c", code]
        cold, warm = (
            float(subprocess.check_output(command, env=environment, text=True)) for _ in range(2)
        )
    print(f"first fit {cold:.2f} s {bar(cold, most=COLD)}, compiled before {warm:.2f} s "
          f"{bar(warm, most=WARM)}")  # fmt: skip
    return cold <= COLD and warm <= WARM


SECTIONS = {"fits": fits, "calls": calls, "frames": frames, "movies": movies}


def main() -> int:
    """Print the requested sections."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--tree", type=Path, default=TREE, help="a checkout to compare with")
        parser.add_argument("--turns", type=int, default=9)

    options = parsed(__doc__, [*SECTIONS, "first"], add)
    good, turns = [], min(options.turns, 3) if options.quick else options.turns
    print(f"speed per second of this version and {BASELINE}, the ratio, the same answers")
    with arrays() as saved, both(options.tree) as versions:
        for name in options.only:
            if name == "first":
                good.append(first(options.quick))
                continue
            print(name)
            ratios = compare(versions, list(SECTIONS[name](saved, options.quick)), turns)
            good.append(summary(f"  {name}", ratios, WORST, MEAN))
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
