"""Measure the latency of calls with few fits: Fitter and functions, and the library's own time.

On one CPU thread, and on an NVIDIA GPU if there is one. All alternate, so that other load affects
them equally: the library's own call shows how much of a time is its fits.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Mapping
from functools import partial

import numpy as np
from common import Work, bar, in_turns, medians, run
from internals import LibraryCall, instruction_sets, library

from napari_spotfit import (
    BackendUnavailableError,
    Fitter,
    Settings,
    fit_at,
    fit_spots,
    noise_model,
    simulate_movie,
    simulate_spots,
)

SIZE, FEW, CENTERS, SIDE = 9, 100, 20, 512
#: Largest microseconds with AVX-512, and with other instruction sets.
ASKED = {
    "Fitter.fit": (60, 85), "fit_spots": (120, 145), "Fitter.fit_at": (40, 40), "fit_at": (150, 150)
}  # fmt: skip
ASKED_OF_GPU = {"Fitter.fit": 100}
#: This fraction of calls must be within a multiple of the median.
WITHIN, SHARE = 3, 0.999
#: Least speed of fit_spots with many spots relative to the library's own.
OWN_SPEED = 0.95
#: Number of successive calls of one kind, as in a loop.
TURN = 20


def spots_of(count: int) -> np.ndarray:
    """Return simulated cut-outs."""
    spots, _ = simulate_spots(min(count, 100_000), SIZE, photons=400, background=0.5, seed=1)
    return np.resize(spots.astype(np.uint16), (count, SIZE, SIZE))


def calls_of(settings: Settings, calls: int, asked: Mapping[str, int]) -> None:
    """Print the duration of calls; fits in frames have given σ and noise."""
    movie, truth = simulate_movie(1, (SIDE, SIDE), spots_per_frame=CENTERS, photons=2000, seed=1)
    frame, centers, spots = movie[0], truth[["y", "x"]].to_numpy(), spots_of(FEW)
    given = settings.changed(sigma=1.3, roi_size=SIZE, noise=noise_model(frame))
    with Fitter(settings=settings) as fitter, Fitter(settings=given) as in_frames:
        works: dict[str, Work] = {
            "Fitter.fit": lambda: fitter.fit(spots),
            "fit_spots": lambda: fit_spots(spots, settings=settings),
            "Fitter.fit_at": lambda: in_frames.fit_at(frame, centers),
            "fit_at": lambda: fit_at(frame, centers, settings=given),
        }
        if settings.backend == "cpu":
            works["the library itself"] = LibraryCall(spots, settings)
        print(f"microseconds of {calls} calls: {FEW} spots of {SIZE}×{SIZE} uint16, and {CENTERS} "
              f"centres in {SIDE}²")  # fmt: skip
        for name, taken in in_turns(works, calls, turn=TURN).items():
            low, middle, high = 1e6 * np.quantile(taken, [0.05, 0.5, 0.999])
            print(f"{name:>24} median {middle:8.1f}, 5 % {low:8.1f}, 99.9 % {high:8.1f} "
                  f"{bar(middle, most=asked.get(name))}")  # fmt: skip
        if settings.backend == "cpu":
            nothing = partial(fit_at, frame, centers, settings=settings)
            middle = 1e6 * medians({"": nothing}, max(calls // 200, 5))[""]
            print(f"{'fit_at, nothing given':>24} median {middle:8.1f}")
        gc.collect()
        calls *= 10
        print(f"{calls} calls of Fitter.fit within {WITHIN} times the median")
        # CPU time excludes other load on the same cores.
        for name, clock in (("time", time.perf_counter), ("CPU time", time.thread_time)):
            own = np.array(in_turns({"": works["Fitter.fit"]}, calls, clock, TURN)[""])
            share = float(np.mean(own <= WITHIN * np.median(own)))
            print(f"{share:10.3%} by {name} {bar(share, least=SHARE, form='.1%')}", flush=True)


def cpu(options: argparse.Namespace) -> None:
    """Print the duration of calls on one CPU thread."""
    print(f"{library()}, one thread")
    best = instruction_sets()[-1] == "avx512"
    asked = {name: limits[not best] for name, limits in ASKED.items()}
    calls_of(Settings(backend="cpu", threads=1), 200 if options.quick else options.calls, asked)


def many(options: argparse.Namespace) -> None:
    """Print the speed with many spots relative to the library's own."""
    spots = spots_of(20_000 if options.quick else 1_000_000)
    settings = Settings(backend="cpu", threads=1)
    works: dict[str, Work] = {
        "fit_spots": lambda: fit_spots(spots, settings=settings),
        "in memory that is kept": LibraryCall(spots, settings),
        "in new memory, as results need it": lambda: LibraryCall(spots, settings)(),
    }
    times = medians(works, 3 if options.quick else 11, time.thread_time)
    ours = times.pop("fit_spots")
    print(f"{len(spots)} spots: {len(spots) / ours / 1e6:.2f} million fits per CPU second")
    for name, taken in times.items():
        print(f"{taken / ours:8.1%} of the library's own, {name} "
              f"{bar(taken / ours, least=OWN_SPEED, form='.0%')}", flush=True)  # fmt: skip


def gpu(options: argparse.Namespace) -> None:
    """Print the duration of calls on the GPU."""
    try:
        fit_spots(spots_of(1), backend="cuda")
    except BackendUnavailableError as error:
        print(f"no GPU: {error}")
        return
    print("\nNVIDIA GPU")
    calls_of(Settings(backend="cuda"), 200 if options.quick else options.calls, ASKED_OF_GPU)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=10_000, help="of each function")


if __name__ == "__main__":
    run(__doc__, {"cpu": cpu, "many": many, "gpu": gpu}, _add)
