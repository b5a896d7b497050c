"""Many small files, one at a time and several: files and frames per second.

What ``napari-spotfit localize --workers`` is worth on a machine: the numbers of workers take turns
on the same uint16 TIFF files, which lie in the system's cache, into an empty record each time.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from pathlib import Path

import tifffile

from napari_spotfit import Settings, simulate_movie
from napari_spotfit.batch.request import Batch
from napari_spotfit.batch.run import run_batch
from napari_spotfit.engine import threads


def write(folder: Path, files: int, frames: int) -> list[Path]:
    """Write movies of 256×256 pixels with 45 spots a frame."""
    paths = [folder / f"{number:03d}.tif" for number in range(files)]
    for number, path in enumerate(paths):
        movie, _ = simulate_movie(frames, (256, 256), spots_per_frame=45, seed=number)
        tifffile.imwrite(path, movie, metadata={"axes": "TYX"})
    return paths


def seconds(paths: list[Path], output: Path, workers: int) -> float:
    """Return how long a batch takes."""
    batch = Batch(paths, output, Settings(backend="cpu"), workers=workers, fresh=True)
    begun = time.perf_counter()
    outcomes = run_batch(batch)
    taken = time.perf_counter() - begun
    assert all(outcome.state == "done" for outcome in outcomes), outcomes
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(f"{platform.machine()}, {threads.available()} cores; {given.files} files of "
          f"{given.frames} frames of 256×256 pixels")  # fmt: skip
    taken: dict[int, list[float]] = {count: [] for count in given.workers}
    with tempfile.TemporaryDirectory() as name:
        paths = write(Path(name), given.files, given.frames)
        for repeat in range(given.repeats + 1):
            for count in given.workers:
                one = seconds(paths, Path(name) / "out", count)
                if repeat:  # the first round is not counted
                    taken[count].append(one)
    for count, all_taken in taken.items():
        middle = statistics.median(all_taken)
        print(f"{count} at a time: {middle:.2f} s, {given.files / middle:.0f} files/s, "
              f"{given.files * given.frames / middle:.0f} frames/s")  # fmt: skip


if __name__ == "__main__":
    main()
