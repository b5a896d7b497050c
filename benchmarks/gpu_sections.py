"""The measures of the GPU benchmark, one function each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from gpu_data import Report, Spots, almost_all, are_right, micros, percent, rate, simulated
from gpu_machine import Cuda, Host, Work, host_time, in_turns

from napari_spotfit import StopCondition, fit_spots, localize, simulate_movie
from napari_spotfit.engine import own_pixels
from napari_spotfit.engine.cuda import detect
from napari_spotfit.localization import rois
from napari_spotfit.models.stopping import CONVERGED
from napari_spotfit.results import joining

#: Side of the ROI: million fits per second that are asked for, at least and as the aim.
RATES = {7: (2600, 4000), 9: (2050, 3200), 16: (800, 1200), 32: (175, 400)}
#: Shares of these that are asked for with start values, and standard errors too, made inside.
START_SHARE, ERRORS_SHARE = (0.8, 0.95), (0.6, 0.8)
PINNED_SHARE = (0.85, 0.95)
HOST_RATES = {"float32": (150, 230), "uint16": (300, 450)}
#: Two GPUs against one, at least and as the aim: from page-locked and from ordinary memory, movies.
ALL_PINNED, ALL_HOST, ALL_MOVIE = (1.7, 1.9), (1.3, 1.9), (1.55, 1.9)
LATENCY = (120e-6, 50e-6)
FRAME_RATES = (200_000, 350_000)
AGREEMENT = (0.999, 0.9999)
#: What the host does with the fits of a movie beside the fits themselves: where it is called from.
STAGES: dict[str, tuple[Any, str]] = {
    "spots of maxima": (detect, "choose_spots"),
    "where ROIs lie": (rois, "rois_around"),
    "ROIs with neighbours, and parts": (own_pixels, "in_two_parts"),
    "their own pixels": (own_pixels.Spots, "own_pixels"),
    "joined": (joining, "put_rows"),
    "pixels of the image, and flags": (rois, "judge_in_image"),
}


class Bench(NamedTuple):
    """Where to measure, how thoroughly, and where to write it."""

    machine: Cuda | Host
    report: Report
    quick: bool

    @property
    def real(self) -> bool:
        return isinstance(self.machine, Cuda)

    @property
    def repeats(self) -> int:
        return 3 if self.quick else 9

    def amount(self, full: float, trial: float) -> int:
        """Return how many of something: in full, a fifth of it, or for the trial."""
        return int((full / 5 if self.quick else full) if self.real else trial)

    def spots(self, size: int) -> Spots:
        return simulated(size, self.amount(1e7, 5e5))

    def on_device(self, size: int, dtype: str, share: float = 1) -> tuple[Any, Any]:
        """Return spots that fill the device, or a share of them, and their start values."""
        spots, machine = self.spots(size), self.machine
        count = int(machine.pixels(self.quick) * share / size**2)
        pixels = machine.put(spots.pixels.astype(dtype))
        return machine.tiled(pixels, count), machine.tiled(machine.put(spots.start), count)


def device(bench: Bench) -> None:
    """Fits of spots that lie on the device; and their share of what the hardware can do."""
    machine, report = bench.machine, bench.report
    copy_rate, issue_rate = machine.copy_rate(bench.repeats), machine.issue_rate()
    report.say("copy within the device, read and written", f"{copy_rate / 1e12:.2f} TB/s")
    for size, limits in RATES.items():
        for dtype in ("uint16", "float32"):
            spots, start = bench.on_device(size, dtype)
            works: list[Work] = [
                lambda s=spots, p=start: machine.fit(s, p),
                lambda s=spots: machine.fit(s),
                lambda s=spots, p=start: machine.fit(s, p, errors=True),
                lambda s=spots: machine.fit(s, errors=True),
            ]
            given, inside, errors, both = in_turns(works, machine.device_time, bench.repeats)
            fits = machine.fit(spots, start)
            truth = bench.spots(size).truth
            name = f"{size}×{size} {dtype} on device"
            report.add(f"{name}, start given, M fits/s", len(spots) / given / 1e6, rate, limits,
                       right=are_right(fits, truth))  # fmt: skip
            report.add(f"{name}, start made inside", given / inside, percent, START_SHARE,
                       right=are_right(machine.fit(spots), truth))  # fmt: skip
            report.add(f"{name}, with errors", given / errors, percent, ERRORS_SHARE)
            report.add(f"{name}, start inside and errors", given / both, percent, ERRORS_SHARE)
            moved = spots.nbytes + start.nbytes + sum(column.nbytes for column in fits.values())
            done = len(spots) * instructions(size, float(fits["iterations"].mean()))
            report.add(f"{name}, of the copy rate; issue rate", moved / given / copy_rate, percent,
                       note=f"; estimated {percent(done / given / issue_rate)}")  # fmt: skip
            del spots, start, works, fits
            machine.free()


def instructions(size: int, iterations: float) -> float:
    """Estimate the instructions of a fit, from the operations that the sums take.

    Along each axis and pixel: 6 for the profile and its two derivatives (distance,
    square, scale, exp2, two products), 9 for the sums of u, u', u° and of their products.
    Per pixel: 3 multiply-adds for the sums with the data, 2 for χ². Per row: 5 to weigh
    its sums, 1 for the residuals. Then some 180 for the amplitudes, the normal equations,
    the step, the bounds and the stop conditions. Once: 6 per pixel to load, convert and
    normalise. Every iteration is one evaluation, and so is the start. Lanes that wait for
    others are not counted.
    """
    evaluation = 2 * size * (6 + 9) + size**2 * (3 + 2) + size * (5 + 1) + 180
    return 6 * size**2 + (iterations + 1) * evaluation


def peer(bench: Bench) -> None:
    """The ratio to the paper's own design, in the same run."""
    machine, report = bench.machine, bench.report
    for size in RATES:
        spots, start = bench.on_device(size, "uint16")
        # As much work for the slower one would take too long, and is not any faster.
        few, few_start = bench.on_device(size, "uint16", 1 / 32)
        works: list[Work] = [
            lambda s=spots, p=start: machine.fit(s, p),
            lambda s=few, p=few_start: machine.fit_by_peer(s, p),
        ]
        ours, theirs = in_turns(works, machine.device_time, bench.repeats)
        fits = machine.fit_by_peer(few, few_start)
        peers = len(few) / theirs
        name = f"{size}×{size} uint16 on device, {machine.peer}"
        report.add(f"{name}, M fits/s", peers / 1e6, rate,
                   right=are_right(fits, bench.spots(size).truth))  # fmt: skip
        report.add(f"{name}: times as fast", len(spots) / ours / peers, rate)
        del spots, start, few, few_start, works, fits
        machine.free()


def host(bench: Bench) -> None:
    """From NumPy arrays to NumPy arrays, pinned and ordinary; from all GPUs beside one."""
    machine, report, size = bench.machine, bench.report, 7
    count, spots = bench.amount(1e7, 1e5), bench.spots(size)
    several = bench.real and machine.count > 1

    def measured(array: np.ndarray) -> tuple[list[float], bool]:
        options: dict[str, Any] = {"backend": machine.backend, "errors": False}
        fits: list[Work] = [lambda: fit_spots(array, **options)]
        if several:
            fits.append(lambda: fit_spots(array, devices="all", **options))
        taken = in_turns(fits, host_time, bench.repeats)
        return taken, are_right(fit_spots(array, **options).columns, spots.truth)

    def compared(name: str, taken: list[float], limits: tuple[float, float]) -> None:
        if several:
            note = f" ({rate(count / taken[1] / 1e6)} M/s)"
            name = f"{name}: {machine.count} GPUs, times one"
            report.add(name, taken[0] / taken[1], rate, limits, note=note)

    array = machine.pinned(spots.pixels.astype(np.uint16), count)
    copying = machine.upload_time(array, bench.repeats)
    taken, right = measured(array)
    report.say("copy from pinned memory to the device", f"{array.nbytes / copying / 1e9:.1f} GB/s")
    note = f" ({rate(count / taken[0] / 1e6)} M/s)"
    report.add("7×7 pinned uint16 to NumPy, of copying it", copying / taken[0], percent,
               PINNED_SHARE, right=right, note=note)  # fmt: skip
    compared("7×7 pinned uint16 to NumPy", taken, ALL_PINNED)
    for dtype in ("float32", "uint16", "uint8", "int16", "float64", ">u2", "int32"):
        array = Host().tiled(spots.pixels.astype(dtype), count)
        machine.free()
        taken, right = measured(array)
        name = f"7×7 {dtype} NumPy to NumPy"
        report.add(f"{name}, M fits/s", count / taken[0] / 1e6, rate, HOST_RATES.get(dtype),
                   right=right)  # fmt: skip
        if dtype in HOST_RATES:
            compared(name, taken, ALL_HOST)
    for few in (3_000, 30_000, 300_000):
        array = Host().tiled(spots.pixels.astype(np.uint16), min(few, count))
        taken, _ = measured(array)
        report.add(f"{len(array)} fits of 7×7 uint16, one call", taken[0], micros)


def latency(bench: Bench) -> None:
    """One call with 100 fits, as a closed loop makes it."""
    backend = bench.machine.backend
    spots = bench.spots(9)
    for dtype, errors in (("float32", False), ("uint16", False), ("uint16", True)):
        few = spots.pixels[:100].astype(dtype)
        calls = bench.amount(2000, 200)
        times = np.empty(calls)
        for _ in range(50):
            fit_spots(few, backend=backend, errors=errors)
        for i in range(calls):
            begin = time.perf_counter()
            fit_spots(few, backend=backend, errors=errors)
            times[i] = time.perf_counter() - begin
        median, slow = np.quantile(times, [0.5, 0.95])
        name = f"100 fits of 9×9 {dtype}, one call{', with errors' if errors else ''}"
        bench.report.add(name, median, micros, LATENCY, note=f" (95 %: {micros(slow)})")


def movie(bench: Bench) -> None:
    """From a movie in memory to a table of spots, once what there is to measure first is known."""
    machine, report = bench.machine, bench.report
    distinct, _ = simulate_movie(bench.amount(500, 40), seed=1)
    frames = np.resize(distinct, (bench.amount(100_000, 200), *distinct.shape[1:]))
    devices = ("one", "all") if bench.real and machine.count > 1 else ("one",)
    for roi_size, errors in ((7, False), (9, False), (9, True)):
        options: dict[str, Any] = {"roi_size": roi_size, "errors": errors}
        fits = localize(distinct, backend=machine.backend, **options)
        found, known = len(fits) / len(distinct), fits.settings
        works: list[Work] = [
            lambda w=which, s=known: localize(frames, settings=s, devices=w) for which in devices
        ]
        works.append(lambda o=options: localize(frames, backend=machine.backend, **o))
        *taken, measured_too = in_turns(works, host_time, 3)
        name = f"movie, ROI {roi_size}{', with errors' if errors else ''}"
        report.add(f"{name}, frames/s", len(frames) / taken[0], rate, FRAME_RATES,
                   right=40 < found < 50, note=f" ({found:.1f} spots each)")  # fmt: skip
        report.add(f"{name}, σ and noise measured too", len(frames) / measured_too, rate)
        if len(devices) > 1:
            note = f" ({rate(len(frames) / taken[1])}/s)"
            report.add(f"{name}: {machine.count} GPUs, times one", taken[0] / taken[1], rate,
                       ALL_MOVIE, note=note)  # fmt: skip


def stages(bench: Bench) -> None:
    """What the host's stages of a movie take, in time of a core and over all fits."""
    distinct, _ = simulate_movie(bench.amount(500, 40), seed=1)
    frames = np.resize(distinct, (bench.amount(20_000, 500), *distinct.shape[1:]))
    settings = localize(distinct, backend=bench.machine.backend).settings
    best: dict[str, float] = {}
    for _ in range(bench.repeats):
        seconds: dict[str, list[float]] = {name: [] for name in STAGES}
        with contextlib.ExitStack() as patches:
            for name, (owner, function) in STAGES.items():
                timed = _timed(getattr(owner, function), seconds[name])
                patches.enter_context(patch.object(owner, function, timed))
            begin = time.process_time()
            fits = localize(frames, settings=settings)
            seconds["all of localize"] = [time.process_time() - begin]
        taken = {name: sum(each) / len(fits) for name, each in seconds.items()}
        best = {name: min(value, best.get(name, value)) for name, value in taken.items()}
    for name, value in best.items():
        bench.report.say(f"movie, host: {name}", f"{1e9 * value:.1f} ns a fit")


def _timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Return a function that notes how long a core works on each call."""

    def call(*arguments: Any, **named: Any) -> Any:
        begin = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            seconds.append(time.thread_time() - begin)

    return call


def agreement(bench: Bench) -> None:
    """The same spots on the CPU and on the device."""
    for size in (9, 7):
        spots = simulated(size, (100_000 if bench.real else 10_000) * size**2).pixels
        ours = fit_spots(spots, backend=bench.machine.backend, errors=False)
        cpu = fit_spots(spots, backend="cpu", errors=False)
        valid = cpu.valid & ours.valid
        apart = np.maximum(np.abs(ours.x - cpu.x), np.abs(ours.y - cpu.y))
        apart = np.where(valid, apart, np.where(cpu.valid | ours.valid, np.inf, 0))
        same = _classes(ours.stop_condition) == _classes(cpu.stop_condition)
        share = float(np.mean(same & (apart <= 1e-3)))
        name = f"{size}×{size}, {len(spots)} spots here and on the CPU"
        bench.report.add(f"{name}, alike", share, almost_all, AGREEMENT)
        bench.report.add(f"{name}, stop alike", float(same.mean()), almost_all)
        text = f"{np.quantile(apart, 0.999):.1e}, {apart.max():.1e} px"
        bench.report.say(f"{name}, 99.9 %, max", text)


def _classes(stop: np.ndarray) -> np.ndarray:
    """Stop conditions, with those of converged fits as one."""
    return np.where(np.isin(stop, CONVERGED), StopCondition.MIN_DELTA, stop)


def picasso(bench: Bench) -> None:
    """Picasso's port of Gpufit, from its own start values, host to host, by both estimators."""
    try:
        from picasso.fitting import gaussfit_cuda, seeds
    except ImportError:
        bench.report.say("Picasso on the GPU", "not installed")
        return
    backend = bench.machine.backend
    for size in (7, 9):
        spots = Host().tiled(bench.spots(size).pixels, bench.amount(1e6, 1e4))
        start = seeds.initial_parameters_gauss(spots, size, spherical=True)
        for estimator in ("lse", "mle"):
            works: list[Work] = [
                lambda s=spots, e=estimator: fit_spots(
                    s, backend=backend, errors=False, estimator=e
                ),
                lambda s=spots, p=start, e=estimator: gaussfit_cuda.fit_spots(
                    gaussfit_cuda.SPHERICAL, s, p, mle=e == "mle"
                ),
            ]
            try:
                ours, theirs = in_turns(works, host_time, bench.repeats)
            except RuntimeError as error:
                bench.report.say("Picasso on the GPU", f"does not run: {error}")
                return
            name = f"{size}×{size} float32 NumPy to NumPy, {estimator}, Picasso"
            bench.report.add(f"{name}, M fits/s", len(spots) / theirs / 1e6, rate)
            bench.report.add(f"{name}: times as fast", theirs / ours, rate)


SECTIONS = {
    "device": device,
    "host": host,
    "latency": latency,
    "movie": movie,
    "stages": stages,
    "agreement": agreement,
    "peer": peer,
    "picasso": picasso,
}
