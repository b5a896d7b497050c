"""A movie on disk to a table on disk: seconds, memory, and how both go with the movie's length.

A uint16 movie is written as TIFF and as Zarr; each run is a process of its own, which reads it,
finds and fits its spots and writes them as Parquet. Beside it stand the same frames in memory. The
files are in the system's cache, and what is imported is so before: all is about this program and
not about the disk. ``--frames`` says
how many frames there are, ``--lengths`` of which the memory is compared. Then, what it takes to
read and to compute alone, over what both take together; and an image of ``--side`` squared pixels,
a Dask array in chunks of 2048 squared, whose spots come as fast as those of small frames. All
figures of long movies: ``--frames 80000 --no-memory --kinds tiff zarr --repeats 1 --side 30000
--lengths 1000 10000 100000``. On a GPU, of frames in memory and without libraries for files:
``--backend cuda --frames 80000 --kinds array --no-memory --side 0 --lengths``, with ``--devices
all`` on all of them. Without Dask, its chunks are made by a few lines here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

import numpy as np

KINDS = ("memory", "array", "tiff", "pages", "zarr", "zstd.zarr")
NAMES = {
    "memory": "NumPy array",
    "array": "NumPy array, made in memory",
    "tiff": "TIFF, frames one after the other",
    "pages": "TIFF, pages apart",
    "zarr": "Zarr, 100 frames a chunk",
    "zstd.zarr": "Zarr, 10 frames a chunk, Zstandard",
}
Backend = Literal["cpu", "cuda"]
Devices = Literal["one", "all"]
#: Frames that are simulated; a movie repeats them.
_DIFFERENT = 200


@cache
def simulated(size: int, spots: int) -> np.ndarray:
    """Return the frames that movies repeat."""
    from napari_spotfit import simulate_movie

    return simulate_movie(_DIFFERENT, (size, size), spots_per_frame=spots, seed=1)[0]


def write(kind: str, path: Path, frames: int, size: int, spots: int) -> None:
    """Write a movie, a few frames at a time."""
    if kind == "array":
        return
    import tifffile
    import zarr

    part = simulated(size, spots)
    pieces = (part[: frames - first] for first in range(0, frames, len(part)))
    shape = (frames, size, size)
    if kind == "tiff":
        with tifffile.TiffWriter(path, bigtiff=True) as file:
            file.write(
                (frame for piece in pieces for frame in piece),
                shape=shape, dtype=part.dtype, photometric="minisblack",
            )  # fmt: skip
    elif kind == "pages":
        with tifffile.TiffWriter(path, bigtiff=True) as file:
            for piece in pieces:
                for frame in piece:
                    file.write(frame, contiguous=False, metadata=None, photometric="minisblack")
    else:
        packed = kind != "zarr"
        array = zarr.create_array(
            path, shape=shape, chunks=(10 if packed else 100, size, size), dtype=part.dtype,
            compressors="auto" if packed else None,
        )  # fmt: skip
        first = 0
        for piece in pieces:
            array[first : first + len(piece)] = piece
            first += len(piece)


def name_of(kind: str, options: argparse.Namespace) -> str:
    """Return the name of a kind's file, or what there is of an array that has none."""
    if kind == "array":
        return f"{options.frames}x{options.size}x{options.spots}"
    return kind if kind.endswith("zarr") else f"{kind}.tif"


def memory() -> float:
    """Return the most memory that this process has had, in MB."""
    text = Path("/proc/self/status").read_text()
    return int(text[text.index("VmHWM:") :].split()[1]) / 1024


def one(kind: str, path: Path, table: Path, backend: Backend, devices: Devices) -> None:
    """Do one run, in a process of its own, and print what it took as JSON."""
    for module in ("pandas", "pyarrow.parquet", "tifffile", "zarr"):
        with suppress(ImportError):
            import_module(module)  # takes up to a second, which no movie makes longer

    from napari_spotfit import localize, localize_iter, open_image, save_fits

    localize(np.zeros((1, 32, 32), np.uint16), sigma=1.3, roi_size=9)  # the library is loaded
    if kind == "read":
        before, begun, cpu = memory(), time.perf_counter(), time.process_time()
        image = open_image(path)
        for first in range(0, len(image), 64):
            image[first : first + 64]
        told(begun, cpu, before, 0)
        return
    image: Any = path
    threads = None
    if kind == "array":
        frames, size, spots = map(int, path.name.split("x"))
        image = np.resize(simulated(size, spots), (frames, size, size))
        # Kernels are compiled, by each GPU.
        save_fits(localize_iter(image[:6000], backend=backend, devices=devices), table)
    elif kind in ("memory", "compute"):
        image = np.asarray(open_image(path))
        threads = 1 if kind == "compute" else None
    elif kind in ("large", "small"):
        image = large(int(path.name), kind == "small")
    before, begun, cpu = memory(), time.perf_counter(), time.process_time()
    parts = localize_iter(image, threads=threads, backend=backend, devices=devices)
    found = save_fits(parts, table)
    told(begun, cpu, before, found)


def told(begun: float, cpu: float, before: float, spots: int) -> None:
    """Print what a run took as JSON."""
    found = {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "before": before,
        "peak": memory(),
        "spots": spots,
    }
    print(json.dumps(found))


def large(side: int, small: bool) -> Any:
    """Return a Dask image of so many pixels a side, or small frames with as many spots a pixel.

    A quarter of the frames of 256 squared pixels of the large one is enough of the small ones.
    """
    frames = simulated(256, 810)[:64]
    if small:
        return np.concatenate([frames] * max(side * side // (4 * frames.size), 1))
    tile = np.block([[frames[8 * row + column] for column in range(8)] for row in range(8)])
    chunks = (*(2048,) * (side // 2048), side % 2048) if side % 2048 else (2048,) * (side // 2048)
    try:
        import dask.array as da
    except ImportError:
        return Repeated(tile, side)

    def chunk(block_info: Any = None) -> np.ndarray:
        (top, bottom), (left, right) = block_info[None]["array-location"]
        return tile[: bottom - top, : right - left].copy()

    return da.map_blocks(chunk, chunks=(chunks, chunks), dtype=tile.dtype)


class Repeated:
    """The same image without Dask: a chunk, again and again."""

    def __init__(self, chunk: np.ndarray, side: int) -> None:
        self.shape, self.dtype, self.chunks = (side, side), chunk.dtype, chunk.shape
        self._rows = np.tile(chunk, (1, -(-side // chunk.shape[1])))[:, :side].copy()

    def __getitem__(self, where: tuple[slice, slice]) -> np.ndarray:
        rows, columns = where
        first, count = rows.start % len(self._rows), rows.stop - rows.start
        if first + count <= len(self._rows):
            return self._rows[first : first + count, columns]
        return self._rows[np.arange(rows.start, rows.stop) % len(self._rows), columns]


def throughput(folder: Path, options: argparse.Namespace) -> None:
    """Print what reading and computing take alone, and how near a run comes to it."""
    if not options.memory:
        return
    cores = len(os.sched_getaffinity(0))
    print(f"Reading and computing, CPU seconds, and what {cores} cores make of it:")
    for kind in options.kinds:
        path, table = folder / name_of(kind, options), folder / "table.parquet"
        runs = [
            [run(one, path, table, options) for one in ("read", "compute", kind)]
            for _ in range(options.repeats)
        ]
        read, computed = (statistics.median(one[i]["cpu"] for one in runs) for i in (0, 1))
        whole = statistics.median(one[2]["seconds"] for one in runs)
        print(
            f"  {NAMES[kind]:36}{read:.2f} + {computed:.2f} s, together {whole:.2f} s: "
            f"{(read + computed) / cores / whole:.0%}"
        )


def large_image(folder: Path, options: argparse.Namespace) -> None:
    """Print how fast spots of a large image come, beside those of small frames."""
    if not options.side:
        return
    side = Path(str(options.side))
    both = {kind: run(kind, side, folder / "table.parquet", options) for kind in ("small", "large")}
    print(f"An image of {options.side}×{options.side} px in chunks, beside frames of 256×256 px:")
    for kind, found in both.items():
        speed = found["spots"] / found["seconds"]
        print(
            f"  {kind:8}{found['spots']:10.0f} spots, {found['seconds']:6.1f} s "
            f"({found['cpu']:.1f} CPU s), {speed:8.0f} spots/s, peak {found['peak']:.0f} MB"
        )
    speeds = [one["spots"] / one["seconds"] for one in both.values()]
    per_cpu = [one["spots"] / one["cpu"] for one in both.values()]
    print(
        f"  of the speed of small frames: {speeds[1] / speeds[0]:.0%} "
        f"({per_cpu[1] / per_cpu[0]:.0%} a CPU second)"
    )


def run(kind: str, path: Path, table: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return what one run took."""
    command = [sys.executable, __file__, "--one", kind, str(path), str(table)]
    command += ["--backend", options.backend, "--devices", options.devices]
    done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Print seconds and memory of every kind, run in turns."""
    paths = {}
    for kind in options.kinds:
        paths[kind] = folder / name_of(kind, options)
        write(kind, paths[kind], options.frames, options.size, options.spots)
    kinds = ["memory", *options.kinds] if options.memory else options.kinds
    paths["memory"] = paths[options.kinds[0]]
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(options.repeats):
        for kind in kinds:
            runs[kind].append(run(kind, paths[kind], folder / "table.parquet", options))
    print(f"  {'':36}{'s':>7}{'frames/s':>10}{'CPU s':>7}{'of first':>11}{'peak MB':>9}")
    middle = {kind: statistics.median(one["seconds"] for one in runs[kind]) for kind in kinds}
    for kind in kinds:
        cpu = statistics.median(one["cpu"] for one in runs[kind])
        peak = max(one["peak"] for one in runs[kind])
        print(
            f"  {NAMES[kind]:36}{middle[kind]:7.2f}{options.frames / middle[kind]:10.0f}{cpu:7.2f}"
            f"{middle[kinds[0]] / middle[kind]:10.0%} {peak:8.0f}"
        )
    table = (folder / "table.parquet").stat().st_size / 1e6
    print(f"  {runs[kinds[0]][0]['spots']} spots, a table of {table:.0f} MB")


def lengths(folder: Path, options: argparse.Namespace) -> None:
    """Print the memory that movies of several lengths take."""
    if not options.lengths:
        return
    print("Peak memory, MB, over that before the run:")
    for kind in options.kinds:
        line = []
        for frames in options.lengths:
            path = folder / f"{frames} {name_of(kind, options)}"
            write(kind, path, frames, options.size, options.spots)
            found = run(kind, path, folder / "table.parquet", options)
            line.append(
                f"{frames} frames {found['peak']:5.0f} (+{found['peak'] - found['before']:.0f})"
            )
            rmtree(path) if path.is_dir() else path.unlink()
        print(f"  {NAMES[kind]:36}{',  '.join(line)}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=256, help="pixels of a side")
    parser.add_argument("--spots", type=int, default=45, help="in a frame")
    parser.add_argument("--lengths", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS[1:], default=KINDS[2:])
    parser.add_argument(
        "--no-memory", dest="memory", action="store_false", help="without all frames in memory"
    )
    parser.add_argument("--side", type=int, default=10_000, help="pixels of a large image's side")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="where the movies are written; by default a temporary one")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--devices", choices=("one", "all"), default="one", help="GPUs")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, path, table = options.one
        one(kind, Path(path), Path(table), options.backend, options.devices)
        return
    print(
        f"{options.frames} frames of {options.size}×{options.size} px, {options.spots} spots each; "
        f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}; medians of {options.repeats}"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        compare(Path(name), options)
        throughput(Path(name), options)
        large_image(Path(name), options)
        lengths(Path(name), options)


if __name__ == "__main__":
    main()
