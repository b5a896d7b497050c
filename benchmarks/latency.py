"""Latency of calls with few fits: a Fitter and the functions, beside the library's own time.

On one thread of the CPU, and on an NVIDIA GPU where there is one. All take turns, as what else the
machine does slows all of them alike: the library's own call says how much of a time is its fits.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
from napari_spotfit.engine.cpu.fit import fit_kind
from napari_spotfit.engine.cpu.layouts import HostRois
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.kernel_arguments import PIXEL_TYPES, address, fit_results, row_bytes

SIZE, FEW, CENTERS, SIDE, MANY = 9, 100, 20, 512, 1_000_000
#: Microseconds at most with AVX-512, and with less; and as the aim.
ASKED = {
    "Fitter.fit": ((60, 40), (85, 65)),
    "fit_spots": ((120, 70), (145, 95)),
    "Fitter.fit_at": ((40, 25), (40, 25)),
    "fit_at": ((150, 90), (150, 90)),
}
ASKED_OF_GPU = {"Fitter.fit": (100, 50)}
#: Of so many calls all but one in a thousand are to be within so many times the median.
CALLS, WITHIN, SHARE = 100_000, 3, 0.999
#: Share of the library's own speed that is asked of fit_spots with many spots.
OWN_SPEED = (0.95, 0.99)

#: Calls of one kind after each other, as in a loop.
TURN = 20

Work = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000, help="of each function")
    parser.add_argument("--skip-gpu", action="store_true")
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {load().description}, one thread")
    on_cpu(Settings(backend="cpu", threads=1), arguments.calls)
    if not arguments.skip_gpu:
        on_gpu(Settings(backend="cuda"), arguments.calls)


def on_cpu(settings: Settings, calls: int) -> None:
    """Print what calls take on the CPU."""
    spots = spots_of(FEW)
    best = load().instruction_set == "avx512"
    asked = {name: limits[not best] for name, limits in ASKED.items()}
    with Fitter(settings=settings) as fitter, Fitter(settings=settings) as in_frames:
        works = calls_of(spots, settings, fitter, in_frames)
        report({"the library itself": Library(spots, settings)} | works, asked, calls)
        frame, centers = frame_of()
        nothing: Work = lambda: fit_at(frame, centers, settings=settings)  # noqa: E731
        report({"fit_at, nothing given": nothing}, {}, max(calls // 200, 10))
        steadiness(lambda: fitter.fit(spots))
    of_many(settings)


def of_many(settings: Settings) -> None:
    """Print how much of the library's own speed is left with many spots."""
    many = spots_of(MANY)
    kept = Library(many, settings)
    works: dict[str, Work] = {
        "fit_spots": lambda: fit_spots(many, settings=settings),
        "the library, in memory that is kept": kept,
        "the library, in new memory, as results need it": lambda: Library(many, settings)(),
    }
    times = in_turns(works, 11, time.thread_time)
    ours, *own = (float(np.median(taken)) for taken in times.values())
    print(f"{MANY} spots: {MANY / ours / 1e6:.2f} million fits per CPU second; "
          f"≥ {OWN_SPEED[0]:.0%}, aim {OWN_SPEED[1]:.0%} of the library's own")  # fmt: skip
    for name, taken in zip([*works][1:], own, strict=True):
        print(f"{taken / ours:8.1%} of {name}", flush=True)


def on_gpu(settings: Settings, calls: int) -> None:
    """Print what calls take on the GPU."""
    spots = spots_of(FEW)
    try:
        fitter, in_frames = Fitter(settings=settings), Fitter(settings=settings)
        with fitter, in_frames:
            works = calls_of(spots, settings, fitter, in_frames)
            print("\nNVIDIA GPU")
            report(works, ASKED_OF_GPU, calls)
            steadiness(lambda: fitter.fit(spots))
    except BackendUnavailableError as error:
        print(f"no GPU: {error}")


def calls_of(
    spots: np.ndarray, settings: Settings, fitter: Fitter, in_frames: Fitter
) -> dict[str, Work]:
    """Return the calls; fits in frames have σ and noise given."""
    frame, centers = frame_of()
    given = settings.changed(sigma=1.3, roi_size=SIZE, noise=noise_model(frame))
    in_frames.settings = given
    return {
        "Fitter.fit": lambda: fitter.fit(spots),
        "fit_spots": lambda: fit_spots(spots, settings=settings),
        "Fitter.fit_at": lambda: in_frames.fit_at(frame, centers),
        "fit_at": lambda: fit_at(frame, centers, settings=given),
    }


def spots_of(count: int) -> np.ndarray:
    spots, _ = simulate_spots(min(count, 100_000), SIZE, photons=400, background=0.5, seed=1)
    return np.resize(spots.astype(np.uint16), (count, SIZE, SIZE))


def frame_of() -> tuple[np.ndarray, np.ndarray]:
    """Return a frame, and where its spots are."""
    movie, truth = simulate_movie(1, (SIDE, SIDE), spots_per_frame=CENTERS, photons=2000, seed=1)
    return movie[0], truth[["y", "x"]].to_numpy()


class Library:
    """The compiled library's own call, with all that it needs at hand."""

    def __init__(self, spots: np.ndarray, settings: Settings) -> None:
        kind, count = fit_kind(settings, (SIZE, SIZE), False), len(spots)
        self._kept: list[Any] = [
            spots, np.empty(row_bytes(settings) * count, np.uint8),
            np.empty(kind.work_bytes, np.uint8),
            HostRois(address(spots), SIZE, SIZE, pixel_type=PIXEL_TYPES["u2"]),
        ]  # fmt: skip
        _, memory, work, source = self._kept
        results = fit_results(address(memory), count, settings)
        self._call = kind.library.functions.spotfit_fit
        self._arguments = (
            kind.library.index, kind.profile, kind.estimator, ctypes.byref(source), 0, count,
            SIZE, SIZE, ctypes.byref(kind.numbers), address(work), ctypes.byref(results),
        )  # fmt: skip

    def __call__(self) -> None:
        self._call(*self._arguments)


def in_turns(
    works: Mapping[str, Work], calls: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, np.ndarray]:
    """Return the seconds of each call, a few of each in turn; the first tenth is not counted."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(-(-calls * 11 // (10 * TURN)) if calls > TURN else calls + 1):
        for name, work in works.items():
            for _ in range(TURN if calls > TURN else 1):
                begin = clock()
                work()
                times[name].append(clock() - begin)
    return {name: np.array(taken[-calls:]) for name, taken in times.items()}


def report(works: Mapping[str, Work], asked: Mapping[str, tuple[float, float]], calls: int) -> None:
    """Print medians, and what is asked for."""
    print(f"microseconds of {calls} calls: {FEW} spots of {SIZE}×{SIZE} uint16, and {CENTERS} "
          f"centres in {SIDE}²")  # fmt: skip
    for name, taken in in_turns(works, calls).items():
        low, middle, high = 1e6 * np.quantile(taken, [0.05, 0.5, 0.999])
        limits = "  (≤ {}, aim {})".format(*asked[name]) if name in asked else ""
        print(f"{name:>24} median {middle:8.1f}, 5 % {low:8.1f}, 99.9 % {high:8.1f}{limits}")


def steadiness(work: Work) -> None:
    """Print how far calls that follow each other are from their median."""
    gc.collect()
    print(f"{CALLS} calls of Fitter.fit within {WITHIN} times the median (≥ {SHARE:.1%})")
    # Where others use the same cores, the second says what of it is ours.
    for name, clock in (("time", time.perf_counter), ("CPU time", time.thread_time)):
        taken = in_turns({"": work}, CALLS, clock)[""]
        share = float(np.mean(taken <= WITHIN * np.median(taken)))
        print(f"{share:10.3%} by {name}", flush=True)


if __name__ == "__main__":
    main()
