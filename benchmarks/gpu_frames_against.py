"""Are detection and fits of large ROIs on the GPU as fast as at another commit?

As in gpu_against.py, both versions run in processes of their own and take turns. Frames lie on the
device; what is found comes back to the host, so the time is the host's. Detection is told the
noise of the pixels; at the other commit, if that does not know of it, it finds it out by itself,
and its spots are others: those of both are counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gpu_against import HERE, Version
from own_models import large_spot

from napari_spotfit import simulate_movie

#: Frames and their size: many small ones, a few cameras' frames, and a large one.
FRAMES = ((256, 256), (32, 1024), (8, 2048), (1, 4096))
DTYPES = ("uint8", "uint16", "float32")
#: Sides of large ROIs.
SIDES = (200, 1000, 2828)
#: The least ratio that is asked for of detection, and the most bytes of a pixel of a large frame.
WANTED, BYTES = 0.7, 12
#: Counts of a movie without light, and its background of photons.
OFFSET, BACKGROUND = 100.0, 10.0


def serve() -> None:
    """Work on what each line asks for, with the version that is on Python's path."""
    import cupy

    from napari_spotfit import fit_spots

    detection = detector()
    work: Any = None
    pool = cupy.get_default_memory_pool()
    for line in sys.stdin:
        job = json.loads(line)
        if job is None:
            begun = time.perf_counter()
            work()
            print(time.perf_counter() - begun, flush=True)
            continue
        pixels = cupy.asarray(np.load(job["pixels"]))
        pool.free_all_blocks()
        before = pool.total_bytes()

        def work(pixels: Any = pixels, is_detection: bool = job["detection"]) -> Any:
            if is_detection:
                return detection(pixels)
            return fit_spots(pixels, model="gaussian_rotated", backend="cuda")

        found = work()
        if not job["detection"]:
            found = np.stack([found.columns[name] for name in ("y", "x", "sigma_x", "sigma_y")])
        np.save(job["results"], found)
        print((pool.total_bytes() - before) / pixels.size, flush=True)


def detector() -> Callable[[Any], Any]:
    """Return this version's detection of spots of σ 1.3."""
    import napari_spotfit

    detect_spots = napari_spotfit.detect_spots
    if not hasattr(napari_spotfit, "NoiseModel"):
        return lambda pixels: detect_spots(pixels, threshold=4, backend="cuda")
    noise = napari_spotfit.NoiseModel.of_camera(1.0, OFFSET)
    settings = napari_spotfit.Settings(sigma=1.3, noise=noise, backend="cuda")
    return lambda pixels: detect_spots(pixels, settings=settings)


def compare(versions: list[Version], pixels: np.ndarray, place: Path, turns: int, what: str) -> Any:
    """Print the times of both versions; return their ratio and the bytes of a pixel of ours."""
    np.save(place / "pixels.npy", pixels)
    job = {"pixels": str(place / "pixels.npy"), "detection": what == "detection"}
    memory = [
        float(version.ask(job | {"results": str(place / f"{i}.npy")}))
        for i, version in enumerate(versions)
    ]
    taken: list[list[float]] = [[], []]
    for turn in range(turns):
        for i in (0, 1) if turn % 2 else (1, 0):
            taken[i].append(float(versions[i].ask(None)))
    ours, theirs = (1e3 * statistics.median(times) for times in taken)
    found = [np.load(place / f"{i}.npy") for i in (0, 1)]
    if job["detection"]:
        said = f"{len(found[0])} and {len(found[1])} found"
    else:
        said = f"at most {np.abs(found[0] - found[1]).max():.1e} px apart"
    print(
        f"{what:12s} {pixels.shape!s:18s} {pixels.dtype!s:8s} {ours:8.2f} {theirs:8.2f} ms "
        f"{theirs / ours:6.2f}   {memory[0]:5.1f} {memory[1]:5.1f} B/px   {said}",
        flush=True,
    )
    return theirs / ours, memory[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, nargs="?", help="a checkout of the other commit")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return 0
    versions = [Version(tree, __file__) for tree in (HERE, arguments.other.resolve())]
    detections = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for frames, size in FRAMES:
            movie, _ = simulate_movie(
                frames, (size, size), spots_per_frame=max(size**2 // 1500, 1),
                background=BACKGROUND, offset=OFFSET, seed=size,
            )  # fmt: skip
            for dtype in DTYPES:
                pixels = np.minimum(movie, 255).astype(dtype) if dtype == "uint8" else movie
                pixels = pixels.astype(dtype)
                detections.append(compare(versions, pixels, place, arguments.turns, "detection"))
        for side in SIDES:
            pixels, _ = large_spot(side, "uint16")
            compare(versions, pixels, place, arguments.turns, "large ROI")
    for version in versions:
        version.end()
    worst, memory = min(ratio for ratio, _ in detections), detections[-1][1]
    good = worst >= WANTED and memory <= BYTES
    print(
        f"detection: worst {worst:.2f} (wanted {WANTED}), {memory:.1f} bytes a pixel of a large "
        f"frame (wanted {BYTES}): {'ok' if good else 'MISSED'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
