"""Measure the speed of fits on the GPU, and compare it with the required one.

Prints a Markdown table. Figures per second are medians; compared versions alternate in one run.
Picasso (picassosr) is timed, too, if it is installed with CUDA. ``--backend cpu`` tries the
benchmark itself, at small sizes and without a GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from common import KINDS, Work, large_spot, parsed, resolved
from gpu_machine import Bench, Host, alike, are_right, machine_of, simulated

from napari_spotfit import fit_spots, localize, simulate_movie
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.cuda.backend import Gpus

#: Required and aimed million fits per second, by side of the ROI.
RATES = {7: (2600, 4000), 9: (2050, 3200), 16: (800, 1200), 32: (175, 400)}
#: Fractions of these required with built-in start values, with errors, and from pinned memory.
START_SHARE, ERRORS_SHARE, PINNED_SHARE = (0.8, 0.95), (0.6, 0.8), (0.85, 0.95)
HOST_RATES = {"float32": (150, 230), "uint16": (300, 450)}
#: Speed of two GPUs relative to one, required and aimed: page-locked, ordinary memory, movies.
ALL_PINNED, ALL_HOST, ALL_MOVIE = (1.7, 1.9), (1.3, 1.9), (1.55, 1.9)
#: Million spots per second of joint fits.
CROWD_RATES = (3, 10)
FRAME_RATES, AGREEMENT = (200_000, 350_000), (0.998, 0.9999)
#: Least speed of an expression relative to the same built-in model.
OWN_SHARE = (0.3, 0.6)
#: By side of an image that is one fit: milliseconds, and those of Gpufit and nlsq.
LARGE = {1000: ((3, 1.5), 196, 57), 2828: ((20, 10), 1952, 285)}
#: Required and aimed speeds of some kinds at 9×9.
LIMITS = {"maximum likelihood": (100, 200), "rotated": (150, 300)}


def device(bench: Bench) -> None:
    """Fits of spots on the device."""
    machine = bench.machine
    for size, limits in RATES.items():
        for dtype in ("uint16", "float32"):
            spots, start = bench.on_device(size, dtype)
            works: list[Work] = [
                lambda s=spots, p=start: machine.fit(s, start=p),
                lambda s=spots: machine.fit(s),
                lambda s=spots, p=start: machine.fit(s, start=p, errors=True),
                lambda s=spots: machine.fit(s, errors=True),
            ]
            own, inside, errors, both = bench.times(works, machine.device_time)
            truth, name = bench.spots(size).truth, f"{size}×{size} {dtype} on device"
            bench.add(f"{name}, start given, M fits/s", len(spots) / own / 1e6, ".4g", limits,
                      right=are_right(machine.fit(spots, start=start), truth))  # fmt: skip
            bench.add(f"{name}, start made inside", own / inside, ".0%", START_SHARE,
                      right=are_right(machine.fit(spots), truth))  # fmt: skip
            bench.add(f"{name}, with errors", own / errors, ".0%", ERRORS_SHARE)
            bench.add(f"{name}, start inside and errors", own / both, ".0%", ERRORS_SHARE)
            del spots, start, works
            machine.free()


def host(bench: Bench) -> None:
    """Fits from NumPy to NumPy, pinned and ordinary, on one and on all GPUs."""
    machine, size = bench.machine, 7
    count, spots = bench.amount(1e7, 2e4), bench.spots(size)

    def measured(name: str, array: np.ndarray, limits: Any, of_all: Any) -> float:
        options: dict[str, Any] = {"backend": machine.backend, "errors": False}
        works: list[Work] = [lambda: fit_spots(array, **options)]
        if machine.count > 1:
            works.append(lambda: fit_spots(array, devices="all", **options))
        taken = bench.times(works)
        right = are_right(fit_spots(array, **options).columns, spots.truth)
        bench.add(f"{name}, M fits/s", count / taken[0] / 1e6, ".4g", limits, right=right)
        if machine.count > 1 and of_all:
            note = f" ({count / taken[1] / 1e6:.4g} M/s)"
            name = f"{name}: {machine.count} GPUs, times one"
            bench.add(name, taken[0] / taken[1], ".2f", of_all, note=note)
        return taken[0]

    array = machine.pinned(spots.pixels.astype(np.uint16), count)
    (copy,) = bench.times([machine.copying(array)], machine.device_time)
    bench.add("copy from pinned memory to the device, GB/s", array.nbytes / copy / 1e9)
    taken = measured("7×7 pinned uint16 to NumPy", array, None, ALL_PINNED)
    bench.add("7×7 pinned uint16 to NumPy, of copying it", copy / taken, ".0%", PINNED_SHARE)
    for dtype in ("float32", "uint16", "uint8", "int16", "float64", ">u2", "int32"):
        machine.free()
        array = Host().tiled(spots.pixels.astype(dtype), count)
        of_all = ALL_HOST if dtype in HOST_RATES else None
        measured(f"7×7 {dtype} NumPy to NumPy", array, HOST_RATES.get(dtype), of_all)


def movie(bench: Bench) -> None:
    """From a movie in memory to a table of spots, with known estimates."""
    machine = bench.machine
    distinct, _ = simulate_movie(bench.amount(500, 20), seed=1)
    frames = np.resize(distinct, (bench.amount(100_000, 60), *distinct.shape[1:]))
    devices = ("one", "all") if machine.count > 1 else ("one",)
    for roi_size, errors in ((7, False), (9, False), (9, True)):
        options: dict[str, Any] = {"roi_size": roi_size, "errors": errors}
        fits = localize(distinct, backend=machine.backend, **options)
        found, known = len(fits) / len(distinct), fits.settings
        works: list[Work] = [
            lambda w=which, s=known: localize(frames, settings=s, devices=w) for which in devices
        ]
        works.append(lambda o=options: localize(frames, backend=machine.backend, **o))
        *taken, measured_too = bench.times(works)
        name = f"movie, ROI {roi_size}{', with errors' if errors else ''}"
        bench.add(f"{name}, frames/s", len(frames) / taken[0], ".0f", FRAME_RATES,
                  right=40 < found < 50, note=f" ({found:.1f} spots each)")  # fmt: skip
        bench.add(f"{name}, σ and noise measured too", len(frames) / measured_too, ".0f")
        if len(devices) > 1:
            note = f" ({len(frames) / taken[1]:.0f}/s)"
            bench.add(f"{name}: {machine.count} GPUs, times one", taken[0] / taken[1], ".2f",
                      ALL_MOVIE, note=note)  # fmt: skip


def crowds(bench: Bench) -> None:
    """Joint fits at 1 spot per µm² (100 nm pixels): these alone, and from a movie to a table."""
    machine = bench.machine
    movie, _ = simulate_movie(
        bench.amount(400, 4), spots_per_frame=655, pixel="integrated", offset=0.0, seed=1
    )
    options: dict[str, Any] = {
        "sigma": 1.3, "pixel": "integrated", "gain": 1.0, "estimator": "mle", "neighbours": "joint",
    }  # fmt: skip
    own = (machine.backend, Gpus if machine.real else Cpu, machine.put(movie), CROWD_RATES)
    for backend, kind, frames, limits in (own, ("cpu", Cpu, movie, None)):
        calls: list[Any] = []

        def kept(*given: Any, fit: Any = kind.fit_crowds, calls: Any = calls) -> Any:
            calls.append((given, fit(*given)))
            return calls[-1][1]

        with patch.object(kind, "fit_crowds", kept):
            fits = localize(frames, backend=backend, **options)
        (one, block, some), spots = max(calls, key=lambda call: len(call[1]))
        works: list[Work] = [
            partial(one.fit_crowds, block, replace(some, threads=None)),
            partial(localize, frames, backend=backend, **options),
        ]
        alone, whole = bench.times(works)
        name = f"crowds at 1 per µm², {backend}"
        bench.add(f"{name}: joint fits, M spots/s", len(spots) / alone / 1e6, ".3g", limits,
                  right=500 < len(fits) / len(movie) < 660)  # fmt: skip
        bench.add(f"{name}: movie to table, M spots/s", len(fits) / whole / 1e6, ".3g")


def models(bench: Bench) -> None:
    """Models and estimators on the device, with built-in start values."""
    machine = bench.machine
    for size in (7, 9, 16):
        spots, _ = bench.on_device(size, "float32", 1 / 8)
        works: list[Work] = [
            partial(machine.fit, spots, **resolved(KINDS[kind], size)) for kind in KINDS
        ]
        times = dict(zip(KINDS, bench.times(works, machine.device_time), strict=True))
        for kind, seconds in times.items():
            right = are_right(
                machine.fit(spots, **resolved(KINDS[kind], size)), bench.spots(size).truth
            )
            limits = LIMITS.get(kind) if size == 9 else None
            bench.add(f"{size}×{size} float32 on device, {kind}, M fits/s",
                      len(spots) / seconds / 1e6, ".4g", limits, right=right)  # fmt: skip
        share = times["rotated"] / times["rotated, as an expression"]
        bench.add(f"{size}×{size}, expression beside hand-written", share, ".0%", OWN_SHARE)
        del spots, works
        machine.free()


def large(bench: Bench) -> None:
    """One fit of a rotated Gaussian to a whole image, from NumPy to NumPy."""
    for side, (limits, gpufit, nlsq) in LARGE.items():
        for dtype in ("float32", "uint16"):
            image, truth = large_spot(side, dtype)

            def fit(image: np.ndarray = image) -> Any:
                return fit_spots(image, model="gaussian_rotated", backend=bench.machine.backend)

            fits = fit()
            off = float(np.max(np.abs([fits.y[0] - truth[0], fits.x[0] - truth[1]])))
            bench.add(f"{side}×{side} {dtype}, one rotated Gaussian, ms",
                      1e3 * bench.times([fit])[0], ".3g", limits,
                      right=bool(fits.converged[0]) and off < 0.1,
                      note=f" (Gpufit {gpufit}, nlsq {nlsq})")  # fmt: skip


def agreement(bench: Bench) -> None:
    """The same spots on the CPU and on the device."""
    for size, kinds, count in ((9, tuple(KINDS), 2e4), (9, ("round",), 1e5), (7, ("round",), 1e5)):
        spots = Host().tiled(simulated(size, 1e7).pixels, bench.amount(count, 1000))
        for kind in kinds:
            ours, cpu = (
                fit_spots(spots, backend=backend, errors=False, **resolved(KINDS[kind], size))
                for backend in (bench.machine.backend, "cpu")
            )
            share, apart = alike(ours, cpu)
            bench.add(f"{size}×{size} {kind}, {len(spots)} spots here and on the CPU, alike", share,
                      ".3%", AGREEMENT, note=f" ({apart:.1e} px)")  # fmt: skip


def picasso(bench: Bench) -> None:
    """Picasso's port of Gpufit with its own start values, host to host, by both estimators."""
    try:
        from picasso.fitting import gaussfit_cuda, seeds
    except ImportError:
        bench.row("Picasso on the GPU", "not installed", "", "", "")
        return
    for size in (7, 9):
        spots = Host().tiled(bench.spots(size).pixels, bench.amount(1e6, 1e4))
        start = seeds.initial_parameters_gauss(spots, size, spherical=True)
        for estimator in ("lse", "mle"):
            works: list[Work] = [
                lambda s=spots, e=estimator: fit_spots(
                    s, backend=bench.machine.backend, errors=False, estimator=e
                ),
                lambda s=spots, p=start, e=estimator: gaussfit_cuda.fit_spots(
                    gaussfit_cuda.SPHERICAL, s, p, mle=e == "mle"
                ),
            ]
            ours, theirs = bench.times(works)
            name = f"{size}×{size} float32 NumPy to NumPy, {estimator}, Picasso"
            bench.add(f"{name}, M fits/s", len(spots) / theirs / 1e6)
            bench.add(f"{name}: times as fast", theirs / ours)


SECTIONS = {
    "device": device, "host": host, "movie": movie, "crowds": crowds, "models": models,
    "large": large, "agreement": agreement, "picasso": picasso,
}  # fmt: skip


def main() -> int:
    """Print the requested sections; an error in one does not stop the others."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")

    options, failed = parsed(__doc__, list(SECTIONS), add), 0
    bench = Bench(machine_of(options), options.quick)
    bench.head()
    for name in options.only:
        begin = time.perf_counter()
        # If a run continues on the CPU, which causes a warning, its timing is invalid.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                SECTIONS[name](bench)
            except Exception:
                traceback.print_exc()
                failed += 1
        for text in {f"{one.category.__name__}: {one.message}" for one in caught}:
            print(f"[{name}: {text}]", file=sys.stderr)
        print(f"[{name}: {time.perf_counter() - begin:.0f} s]", file=sys.stderr, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
