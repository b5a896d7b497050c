"""Measure speed, recall, false positives and memory of detection on the CPU; compare with Picasso.

Simulated movie (256×256 pixels, 45 spots per frame) with known emitters. Ours runs with default
settings. Picasso (0.11.3, from PyPI as picassosr) runs twice, with the box, filter and threshold of
its best F1 score, and of its best recall at as few false positives as ours; on all cores, and with
the movie in a memory map, which its threads read without a lock. Without it, only our own figures
are printed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Work, bar, cores, in_turns, resident, run
from noisy_scenes import hits

from napari_spotfit import detect_spots, simulate_movie

#: Largest distance of a detection from its emitter in pixels.
NEAR = 2.0
#: Number of frames to choose Picasso's settings on, and the choices.
TRIAL, BOXES, FILTERS, THRESHOLDS = 60, (5, 7, 9), (None, 1.0), 80
#: Width of the border that Picasso ignores, so that recall is also given without it.
BORDER = 8
#: Least speed relative to Picasso, and largest memory per pixel in bytes.
RATIO, MOST_BYTES = 18, 12
#: Distance of frames, to match all at once.
APART = np.array([10 * NEAR, 1, 1])

ours = partial(detect_spots, sigma=1.3, backend="cpu")


class Quality(NamedTuple):
    """Recall and false positives."""

    recall: float
    false_per_frame: float
    f1: float


def places(table: Any) -> np.ndarray:
    """Return frame, y and x of a table as an array."""
    return np.column_stack([np.asarray(table[name], float) for name in ("frame", "y", "x")])


def quality(found: np.ndarray, truth: np.ndarray, frames: int) -> Quality:
    """Compare detections with emitters."""
    right = hits(found * APART, truth * APART, NEAR)
    return Quality(
        right / len(truth), (len(found) - right) / frames, 2 * right / (len(truth) + len(found))
    )


def import_picasso() -> Any:
    """Return Picasso's localize module, set to use all cores; None without Picasso."""
    try:
        from picasso import io, lib, localize
    except ImportError:
        return None
    # By default it leaves cores unused, with a setting in the user's home.
    lib.n_workers = lambda *_: cores()
    io.load_user_settings = lambda: {"Localize": {"cpu_utilization": 0.99}}
    io.save_user_settings = lambda *_: None
    return localize


def rivals(picasso: Any, movie: np.ndarray, truth: np.ndarray) -> dict[str, Work]:
    """Return Picasso with its best settings, chosen on some frames."""
    truth, mine = truth[truth[:, 0] < TRIAL], quality(ours(movie[:TRIAL]), truth, TRIAL)
    tried = []
    for box, sigma in itertools.product(BOXES, FILTERS):
        table, _ = picasso.identify(movie[:TRIAL], 0, box, gaussian_filter_sigma=sigma)
        found, strength = places(table), np.asarray(table["net_gradient"])
        most = min(2 * len(truth), len(strength))
        for rank in np.linspace(0.3 * most, most - 1, THRESHOLDS).astype(int):
            threshold = float(np.sort(strength)[::-1][rank])
            kept = quality(found[strength > threshold], truth, TRIAL)
            tried.append((kept, box, sigma, threshold))
    few = [one for one in tried if one[0].false_per_frame <= mine.false_per_frame]
    chosen = {"best F1": max(tried, key=lambda one: one[0].f1)}
    if few:
        chosen["as few false"] = max(few, key=lambda one: one[0].recall)

    def work(box: int, sigma: float | None, threshold: float) -> np.ndarray:
        return places(picasso.identify(movie, threshold, box, gaussian_filter_sigma=sigma)[0])

    return {
        f"Picasso, {name} (box {box}, σ {sigma})": partial(work, box, sigma, threshold)
        for name, (_, box, sigma, threshold) in chosen.items()
    }


def beside(options: argparse.Namespace) -> None:
    """Print speed and quality, measured alternately, under the same load."""
    count = 100 if options.quick else options.frames
    movie, table = simulate_movie(count, seed=1)
    truth = places(table)
    last = np.array(movie.shape[1:]) - 1 - BORDER
    inner = truth[np.all((truth[:, 1:] >= BORDER) & (truth[:, 1:] <= last), axis=1)]
    print(f"{cores()} cores; {count} frames; frames/s are the median (the best)")
    columns = ("frames/s", "recall", "inner", "false/frame")
    print(f"{'':>38} " + "{:>15} {:>9} {:>9} {:>12}".format(*columns))
    picasso = import_picasso()
    with tempfile.TemporaryDirectory() as folder:
        works: dict[str, Work] = {"napari-spotfit": partial(ours, movie)}
        if picasso is None:
            print("Picasso is not installed (pip install picassosr==0.11.3): no comparison.")
        else:
            path = Path(folder) / "movie.raw"
            movie.tofile(path)
            works |= rivals(picasso, np.memmap(path, movie.dtype, "r", shape=movie.shape), truth)
        times = in_turns(works, 1 if options.quick else 3)
        for name, work in works.items():
            found: Any = work()
            whole = quality(found, truth, count)
            recall = hits(found * APART, inner * APART, NEAR) / len(inner)
            speed = f"{count / statistics.median(times[name]):.0f} ({count / min(times[name]):.0f})"
            print(f"{name:>38} {speed:>15} {whole.recall:>9.2%} {recall:>9.2%} "
                  f"{whole.false_per_frame:>12.3f}", flush=True)  # fmt: skip
    mine, *others = (statistics.median(taken) for taken in times.values())
    for other in others:
        print(f"{other / mine:.1f} times as fast as Picasso {bar(other / mine, least=RATIO)}")


def memory(options: argparse.Namespace) -> None:
    """Print the memory of detection in a large frame, including the frame (Linux only)."""
    side = 1024 if options.quick else 4096
    frame = simulate_movie(1, (side, side), spots_per_frame=45 * side**2 // 256**2, seed=1)[0]
    ours(frame, threads=1)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = resident("VmRSS")
    ours(frame, threads=1)
    found = (1e6 * (resident("VmHWM") - before) + frame.nbytes) / frame.size
    print(f"memory, {side}² uint16: {found:.1f} B/px {bar(found, most=MOST_BYTES)}")


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=1000)


if __name__ == "__main__":
    run(__doc__, {"beside": beside, "memory": memory}, _add)
