"""A movie on disk to a folder of parts, through Dask: one process, and several.

Each process has one thread, and fits with one core; with ``--gpus`` each has a GPU of its own, by
CUDA_VISIBLE_DEVICES. A uint16 movie is written once and lies in the system's cache. The numbers of
processes take turns on it, into an empty folder each; estimates and graph are made before. With
them stand the same run without Dask, with as many threads, and whether all have given the same
spots, to the bit. ``--size 2048 --frames 200`` is what docs/scaling.md reckons with.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from dask import compute
from distributed import Client, Nanny, Scheduler, SpecCluster

from napari_spotfit import Settings, load_parts, localize, localize_to_folder, simulate_movie

#: Frames that are simulated; a movie repeats them.
_DIFFERENT = 200


def write(path: Path, frames: int, size: int, spots: int) -> None:
    """Write a movie."""
    part = simulate_movie(min(_DIFFERENT, frames), (size, size), spots_per_frame=spots, seed=1)[0]
    shape = (frames, size, size)
    movie = np.lib.format.open_memmap(path, "w+", part.dtype, shape)
    for first in range(0, frames, len(part)):
        movie[first : first + len(part)] = part[: frames - first]
    movie.flush()


def cluster_of(count: int, gpus: bool) -> SpecCluster:
    """Return a cluster of processes with one thread, and with a GPU each where that is asked."""
    workers = {
        number: {
            "cls": Nanny,
            "options": {
                "nthreads": 1,
                "memory_limit": 0,
                "silence_logs": logging.ERROR,
                "env": {"CUDA_VISIBLE_DEVICES": str(number) if gpus else ""},
                "resources": {"GPU": 1} if gpus else {},
            },
        }
        for number in range(count)
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": None, "port": 0}}
    return SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.ERROR)


def warm(settings: Settings) -> None:
    """Fit a little, so that a process has all that it needs."""
    localize(simulate_movie(2, (64, 64), seed=0)[0], settings=settings)


def run(path: Path, settings: Settings, folder: Path, client: Client | None) -> float:
    """Return the seconds of one run into a folder; without a client it is one without Dask."""
    if client is None:
        begun = time.perf_counter()
        localize_to_folder(path, folder, settings=settings)
        return time.perf_counter() - begun
    tasks = localize_to_folder(path, folder, settings=settings, lazy=True)
    begun = time.perf_counter()
    compute(*tasks, scheduler=client)
    return time.perf_counter() - begun


def same(one: Path, other: Path) -> bool:
    """Whether two folders have the same spots, to the bit."""
    pairs = zip(load_parts(one), load_parts(other), strict=True)
    return all(
        np.array_equal(values, there.columns[name], equal_nan=values.dtype.kind == "f")
        for here, there in pairs
        for name, values in here.columns.items()
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=256, help="pixels of a side")
    parser.add_argument("--spots", type=int, default=45, help="in a frame")
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gpus", action="store_true", help="a GPU for each process")
    parser.add_argument("--folder", help="where the movie is written; by default a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        place = Path(name)
        movie = place / "movie.npy"
        write(movie, options.frames, options.size, options.spots)
        kind = "cuda" if options.gpus else "cpu"
        looked_at = np.load(movie, mmap_mode="r")[:20]
        settings = localize(looked_at).settings
        assert settings is not None
        settings = settings.changed(backend=kind)
        compare(place, movie, settings, options)


def compare(place: Path, movie: Path, settings: Settings, options: argparse.Namespace) -> None:
    """Print what each number of processes takes, run in turns."""
    seconds: dict[str, list[float]] = {}
    first: Path | None = None
    equal = True
    for turn in range(options.repeats):
        for count in options.processes:
            with cluster_of(count, options.gpus) as cluster, Client(cluster) as client:
                client.wait_for_workers(count)
                client.run(warm, settings)
                folder = place / f"{turn} {count}"
                took = run(movie, settings, folder, client)
                seconds.setdefault(f"{count} with Dask", []).append(took)
            if not options.gpus:
                alone = settings.changed(threads=count)
                here = place / f"{turn} {count} alone"
                seconds.setdefault(f"{count} threads, no Dask", []).append(
                    run(movie, alone, here, None)
                )
                equal &= same(folder, here)
            first = first or folder
            equal &= same(first, folder)
    spots = sum(map(len, load_parts(first or place)))
    print(
        f"{options.frames} frames of {options.size}×{options.size} px, {spots} spots; "
        f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}, {settings.backend}; medians "
        f"of {options.repeats}"
    )
    base = statistics.median(seconds[f"{options.processes[0]} with Dask"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(
            f"  {name:24}{middle:7.2f} s{options.frames / middle:9.0f} frames/s"
            f"{base / middle:7.2f} ×   ({min(values):.2f} to {max(values):.2f} s)"
        )
    print("  the same spots, to the bit" if equal else "  DIFFERENT SPOTS")


if __name__ == "__main__":
    main()
