"""Speed, recall and false positives of the detection on the CPU, beside Picasso's.

A simulated movie (see simulate_movie: 256×256 pixels, 45 spots a frame) with known
emitters. Ours runs with its default settings. Picasso (0.11.3, from PyPI as picassosr)
runs twice, with the box, filter and threshold of its best F1 score, and of its best
recall at as few false positives as ours; on all cores, and with the movie in a memory
map, which its threads read without a lock. Without it, only our own figures are printed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from napari_spotfit import simulate_movie
from napari_spotfit.engine import threads
from napari_spotfit.engine.cpu.detect import detect as detect_with_noise
from napari_spotfit.engine.detection.candidates import Candidates
from napari_spotfit.estimation.measured_noise import measure_noise
from napari_spotfit.settings.settings import Settings

#: A detection within this many pixels of an emitter has found it.
NEAR = 2.0
#: Frames on which Picasso's settings are chosen, and what there is to choose from.
TRIAL, BOXES, FILTERS, THRESHOLDS = 60, (5, 7, 9), (None, 1.0), 80
#: Picasso does not look near the border, so that recall is counted without it, too.
BORDER = 8
#: How many times as fast as Picasso we want to be.
RATIO = 18
#: So many frames tell the noise, as in localize.
NOISE_FRAMES = 16
REPEATS = 3


def detect(movie: np.ndarray, settings: Settings) -> Candidates:
    """Measure the noise in some frames, and detect in all."""
    some = np.ascontiguousarray(movie[:: max(len(movie) // NOISE_FRAMES, 1)])
    return detect_with_noise(movie, settings.changed(noise=measure_noise(some, settings)))


class Quality(NamedTuple):
    recall: float
    false_per_frame: float
    f1: float


class Choice(NamedTuple):
    """Picasso's settings, and what comes of them."""

    box: int
    sigma: float | None
    threshold: float
    quality: Quality


def places(table: Any) -> np.ndarray:
    """Return frame, y and x of a table, row by row."""
    return np.column_stack([np.asarray(table[name], float) for name in ("frame", "y", "x")])


def recovered(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Say of each emitter whether it was found; a detection finds one only, the nearest."""
    # Apart along a third axis, all frames are matched in one go.
    apart = np.array([10 * NEAR, 1, 1])
    pairs = cKDTree(truth * apart).sparse_distance_matrix(
        cKDTree(found * apart), NEAR, output_type="ndarray"
    )
    result, free = np.zeros(len(truth), bool), np.ones(len(found), bool)
    for i, j, _ in np.sort(pairs, order="v"):
        if free[j] and not result[i]:
            result[i], free[j] = True, False
    return result


def quality(found: np.ndarray, truth: np.ndarray, frames: int) -> Quality:
    """Compare detections with emitters."""
    right = recovered(truth, found).sum()
    return Quality(
        right / len(truth), (len(found) - right) / frames, 2 * right / (len(truth) + len(found))
    )


def import_picasso() -> Any:
    """Return Picasso's localize module, set to use all cores; None without Picasso."""
    try:
        from picasso import io, lib, localize
    except ImportError:
        return None
    # As it comes, it leaves cores unused, and keeps that setting in the user's home.
    lib.n_workers = lambda *_: threads.available()
    io.load_user_settings = lambda: {"Localize": {"cpu_utilization": 0.99}}
    io.save_user_settings = lambda *_: None
    return localize


def choices(picasso: Any, movie: np.ndarray, truth: np.ndarray) -> list[Choice]:
    """Try Picasso's settings on some frames."""
    truth = truth[truth[:, 0] < TRIAL]
    result = []
    for box, sigma in itertools.product(BOXES, FILTERS):
        table, _ = picasso.identify(movie[:TRIAL], 0, box, gaussian_filter_sigma=sigma)
        found, strength = places(table), np.asarray(table["net_gradient"])
        most = min(2 * len(truth), len(strength))
        for rank in np.linspace(0.3 * most, most - 1, THRESHOLDS).astype(int):
            threshold = float(np.sort(strength)[::-1][rank])
            kept = quality(found[strength > threshold], truth, TRIAL)
            result.append(Choice(box, sigma, threshold, kept))
    return result


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def report(name: str, times: list[float], table: Any, truth: np.ndarray, movie: np.ndarray) -> None:
    found = places(table)
    whole, right = quality(found, truth, len(movie)), recovered(truth, found)
    last = np.array(movie.shape[1:]) - 1 - BORDER
    inner = np.all((truth[:, 1:] >= BORDER) & (truth[:, 1:] <= last), axis=1)
    speed = f"{len(movie) / statistics.median(times):.0f} ({len(movie) / min(times):.0f})"
    print(
        f"{name:>38} {speed:>15} {whole.recall:>9.2%} {right[inner].mean():>9.2%}"
        f" {whole.false_per_frame:>12.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1000)
    frames = parser.parse_args().frames
    movie, table = simulate_movie(frames, seed=1)
    truth, settings = places(table), Settings(sigma=1.3)
    detect(movie, settings)
    print(f"{threads.available()} cores; {frames} frames; frames/s are the median (the best)")
    columns = ("frames/s", "recall", "inner", "false/frame")
    print(f"{'':>38} " + "{:>15} {:>9} {:>9} {:>12}".format(*columns))
    picasso = import_picasso()
    if picasso is None:
        runs = [timed(lambda: detect(movie, settings)._asdict()) for _ in range(REPEATS)]
        report("napari-spotfit", [spent for spent, _ in runs], runs[0][1], truth, movie)
        print("Picasso is not installed (pip install picassosr==0.11.3): no comparison.")
        return
    with tempfile.TemporaryDirectory() as folder:
        beside(picasso, movie, truth, settings, Path(folder) / "movie.raw")


def beside(
    picasso: Any, movie: np.ndarray, truth: np.ndarray, settings: Settings, path: Path
) -> None:
    """Measure in turns, so that both see the same load of the machine."""
    movie.tofile(path)
    mapped = np.memmap(path, movie.dtype, "r", shape=movie.shape)
    tried = choices(picasso, mapped, truth)
    ours = quality(
        places(detect(movie[:TRIAL], settings)._asdict()), truth[truth[:, 0] < TRIAL], TRIAL
    )
    few = [choice for choice in tried if choice.quality.false_per_frame <= ours.false_per_frame]
    rivals = {
        "best F1": max(tried, key=lambda choice: choice.quality.f1),
        "as few false": max(few, key=lambda choice: choice.quality.recall),
    }
    works = {"napari-spotfit": lambda: detect(movie, settings)._asdict()}
    for name, (box, sigma, threshold, _) in rivals.items():
        works[f"Picasso, {name} (box {box}, σ {sigma})"] = lambda b=box, s=sigma, t=threshold: (
            picasso.identify(mapped, t, b, gaussian_filter_sigma=s)[0]
        )
    times: dict[str, list[float]] = {name: [] for name in works}
    tables = {}
    for _ in range(REPEATS):
        for name, work in works.items():
            spent, tables[name] = timed(work)
            times[name].append(spent)
    for name in works:
        report(name, times[name], tables[name], truth, movie)
    mine, *others = (statistics.median(spent) for spent in times.values())
    print("times as fast as Picasso:", ", ".join(f"{other / mine:.1f}" for other in others), end="")
    print(f" (wanted: {RATIO})")


if __name__ == "__main__":
    main()
