"""After the fit: merging, drift without markers, precision, resolution: how right, and how fast.

Tables are simulated with NumPy, on pixels of 100 nm. ``--others`` compares with Picasso: its Link
on the same tables, its AIM and RCC on the simulated drift; and with COMET, where it is installed
(``pip install comet-smlm``).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import bar, run

import napari_spotfit as spotfit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from blinking import blinking, molecules_of, table_of

PIXEL, FRAMES, LENGTH = 100.0, 10_000, 100
#: Localisations, molecules and their error in nm, with the r.m.s. error of drift over its bound
#: that is asked for.
DRIFTS = {
    (200_000, 1500, 8): 1.3, (200_000, 20_000, 8): 1.6, (20_000, 1500, 8): 1.5,
    (50_000, 5000, 15): 1.5,
}  # fmt: skip
#: Seconds for the ring correlation and the drift of this many localisations that are asked for.
SECONDS = {1_000_000: (3.0, 0.9), 10_000_000: (15.0, 9.0)}
KINETICS = {"DNA-PAINT": (3.0, 3000.0, None), "dSTORM": (1.5, 300.0, 20.0)}


def timed(call: Callable[[], Any], most: float | None = None) -> tuple[Any, str]:
    """Return a result, and the seconds that it took by the wall and of all cores."""
    begun, cores = time.perf_counter(), time.process_time()
    result = call()
    wall, cores = time.perf_counter() - begun, time.process_time() - cores
    asked = f" {bar(wall, most=most)}" if most else ""
    return result, f"{wall:.2f} s{asked}, cores {cores:.2f} s"


def drift_of(rng: np.random.Generator) -> Any:
    """Return 150 nm of slow and 10 nm of fast motion along y and x, in pixels."""
    at = np.arange(FRAMES)[:, np.newaxis] / FRAMES
    slow = np.sin(2 * np.pi * (at * rng.uniform(0.5, 1.5, 2) + rng.uniform(size=2)))
    fast = np.sin(2 * np.pi * (at * rng.uniform(8, 12, 2) + rng.uniform(size=2)))
    return (150 * slow + 10 * fast) / PIXEL


def drifting(count: int, number: int, error: float, seed: int, drift: Any, size: float = 256.0):
    """Return localisations of molecules and 20 % random background, with drift."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, size, (number, 2))[rng.integers(0, number, count)]
    lost = slice(int(0.8 * count), None)
    places[lost] = rng.uniform(0, size, places[lost].shape)
    frame = rng.integers(0, FRAMES, count)
    order = np.argsort(frame, kind="stable")
    places += rng.normal(0, error / PIXEL, places.shape) + drift[frame]
    return table_of(frame[order], *places[order].T, error / PIXEL)


def deviations(y: Any, x: Any, drift: Any) -> Any:
    """Return how far a drift is from the mean true one of each segment, in nm."""
    middle = slice(LENGTH // 2 - 1, None, LENGTH), slice(LENGTH // 2, None, LENGTH)
    found = np.stack([(one[middle[0]] + one[middle[1]]) / 2 for one in (y, x)], axis=1)
    apart = found - drift.reshape(-1, LENGTH, 2).mean(axis=1)
    return (apart - apart.mean(axis=0)) * PIXEL


def show_drift(options: argparse.Namespace) -> None:
    print("Drift: r.m.s. error over its bound, without drift, segments within the stated error")
    for (count, number, error), wanted in DRIFTS.items():
        real = 0.8 * count
        bound = error * math.sqrt((1 + number / real) / (real / (FRAMES / LENGTH)))
        with_drift, without, inside, seconds = [], [], [], ""
        compared: dict[str, list[Any]] = {}
        for seed in range(2 if options.quick else options.seeds):
            truth = drift_of(np.random.default_rng(seed))
            fits = drifting(count, number, error, seed, truth)

            def estimate(table: Any = fits) -> Any:
                return spotfit.estimate_drift(table, frames=FRAMES, segment=LENGTH)

            found, seconds = timed(estimate)
            apart = deviations(found.y, found.x, truth)
            errors = np.stack([found.y_stderr, found.x_stderr], axis=1)[LENGTH // 2 :: LENGTH]
            with_drift.append(apart)
            inside.append(np.abs(apart) < errors * PIXEL)
            none = np.zeros((FRAMES, 2))
            still = estimate(drifting(count, number, error, seed + 1000, none))
            without.append(deviations(still.y, still.x, none))
            if options.others and seed == 0:
                compared = drift_of_others(fits, truth)
        ratio, still_ratio = (
            math.sqrt(np.mean(np.square(one))) / bound for one in (with_drift, without)
        )
        print(
            f"{count:8} of {number:6}, {error:2} nm: {ratio:.2f} {bar(ratio, most=wanted)}, "
            f"{still_ratio:.2f} {bar(still_ratio, most=1.5)}, {np.mean(inside):.0%} "
            f"{bar(float(np.mean(inside)), least=0.58)} {bar(float(np.mean(inside)), most=0.78)}, "
            f"{seconds}"
        )
        for name, (apart, took) in compared.items():
            rms = math.sqrt(np.mean(np.square(apart)))
            print(f"{'':24}{name}: {rms:.2f} nm, {rms / bound:.1f}, {took}")


def drift_of_others(fits: Any, truth: Any) -> dict[str, list[Any]]:
    """Return the deviations of other programs on a table, and the time they took."""
    import pandas as pd
    from picasso import aim, postprocess

    table = pd.DataFrame({
        "frame": fits.frame.astype(np.uint32), "x": fits.x.astype(np.float32),
        "y": fits.y.astype(np.float32), "photons": fits.photons, "lpx": fits.x_stderr,
        "lpy": fits.y_stderr, "bg": np.zeros(len(fits), np.float32),
    })  # fmt: skip
    info = [{"Frames": FRAMES, "Width": 256, "Height": 256, "Pixelsize": PIXEL}]
    calls = {
        "Picasso's AIM": lambda: aim.aim(table.copy(), info, segmentation=LENGTH)[2],
        "Picasso's RCC": lambda: postprocess.undrift(table.copy(), info, 1000, display=False)[0],
    }
    if find_spec("comet"):
        calls["COMET"] = lambda: drift_of_comet(fits)
    found = {}
    for name, call in calls.items():
        if name != "COMET":  # which takes far longer than to compile
            call()
        drift, took = timed(call)
        y, x = (np.asarray(drift[axis], float) for axis in "yx")
        found[name] = [deviations(y, x, truth), took]
    return found


def drift_of_comet(fits: Any) -> dict[str, Any]:
    """Return COMET's drift, on the CPU; with its own radius and last width it follows less well."""
    import comet

    columns = (fits.x * PIXEL, fits.y * PIXEL, np.zeros(len(fits)), fits.frame)
    found = comet.comet_run_kd(
        np.stack(columns, axis=1), 2, LENGTH, max_drift_nm=500, target_sigma_nm=10,
        min_max_frames=(0, FRAMES - 1), mode="cpu",
    )  # fmt: skip
    return {"x": found[:FRAMES, 0] / PIXEL, "y": found[:FRAMES, 1] / PIXEL}


def show_merging(options: argparse.Namespace) -> None:
    count = 100_000 if options.quick else options.count
    print("Merging: events over simulated ones")
    for name, (on, off, bleach) in KINETICS.items():
        for dark in (0, 1, 3):
            truth = blinking(5000, 20_000, on, off, bleach)
            frame, molecule = truth.rows()
            places = np.random.default_rng(1).uniform(0, 256, (5000, 2))
            fits = molecules_of(places, frame, molecule, 0.08)
            ratio = len(spotfit.merge_blinks(fits, dark)) / truth.events(dark) - 1
            print(
                f"{name:10} {dark} dark frames: {ratio:+.2%} {bar(abs(ratio), most=0.02)} of "
                f"{truth.events(dark)}"
            )
    frame, molecule = blinking(count // 20, 20_000, 3.0, 3000.0).rows()
    frame, molecule = frame[:count], molecule[:count]
    places = np.random.default_rng(1).uniform(0, 2048, (count // 20, 2))
    fits = molecules_of(places, frame, molecule, 0.08)
    events, took = timed(lambda: spotfit.merge_blinks(fits), 2.5 * count / 1e7)
    print(f"{len(fits)} localisations to {len(events)} events: {took}")
    if options.others:
        from picasso import postprocess

        columns = [fits.frame.astype(np.uint32), fits.x, fits.y]
        group = np.zeros(len(fits), np.int32)
        part = slice(len(fits) // 20)
        few = [column[part] for column in columns]
        postprocess._get_link_groups(*(column[:99] for column in columns), 0.3, 1, group[:99])
        _, took = timed(lambda: postprocess._get_link_groups(*few, 0.3, 1, group[part]))
        print(f"Picasso's links of a 20th of them: {took}")


def show_precision(options: argparse.Namespace) -> None:
    counts = [] if options.quick else list(SECONDS)
    print("Precision and resolution: over the true ones")
    for on in (1.2, 3.0, 8.0):
        frame, molecule = blinking(2000, 3000, on, 300.0).rows()
        places = np.random.default_rng(1).uniform(0, 256, (2000, 2))
        found, took = timed(partial(spotfit.nena, molecules_of(places, frame, molecule, 0.1)))
        print(
            f"NeNA, {found.pairs} pairs: {found.precision / 0.1:.3f} "
            f"{bar(abs(found.precision / 0.1 - 1), most=0.03)}, κ {found.kappa:.3f}, {took}"
        )
    for count, number, size in ((40_000, 2000, 50), (20_000, 5000, 100), *(
        (count, count // 50, 1024) for count in counts
    )):  # fmt: skip
        rng = np.random.default_rng(2)
        places, frame = rng.uniform(0, size, (number, 2)), np.sort(rng.integers(0, FRAMES, count))
        fits = molecules_of(places, frame, rng.integers(0, number, count), 0.08)
        closed = 2 * math.pi * 0.08 / math.sqrt(math.log(6 * count / number / 2))
        seconds = SECONDS.get(count, (None, None))
        rings, took = timed(partial(spotfit.fourier_ring_correlation, fits), seconds[0])
        ratio = rings.resolution / closed
        print(f"FRC, {count} localisations: {ratio:.3f} {bar(abs(ratio - 1), most=0.05)}, {took}")
        estimate = partial(spotfit.estimate_drift, fits)
        if count in SECONDS:
            found, took = timed(estimate, seconds[1])
            print(f"drift of {count} localisations: {took}")
        elif counts:
            estimate()  # imports SciPy


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=20, help="simulations of drift of each kind")
    parser.add_argument("--count", type=int, default=10_000_000, help="localisations to merge")
    parser.add_argument("--others", action="store_true", help="compare with other programs")


SECTIONS = {"merging": show_merging, "precision": show_precision, "drift": show_drift}

if __name__ == "__main__":
    run(__doc__, SECTIONS, _add)
