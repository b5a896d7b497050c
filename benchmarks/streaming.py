"""Measure time and memory from a movie on disk to a table on disk, by the movie's length.

A uint16 movie is written as TIFF and as Zarr; each run is its own process, which reads it, finds
and fits its spots and writes them as Parquet. ``movies`` compares with the same frames in memory,
``alone`` measures reading and computing separately, ``large`` an image of ``--side`` squared pixels
in chunks of 2048 squared, ``lengths`` memory, and ``dask`` Dask's processes. Files are in the
system's cache, and modules are imported before, to measure this program and not the disk. For a
long movie on GPUs: ``--only movies --backend cuda --frames 80000 --kinds array --no-memory
--devices all``.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from common import Work, bar, cores, resident, run

import napari_spotfit as spotfit

NAMES = {
    "memory": "NumPy array",
    "array": "NumPy array, made in memory",
    "tiff": "TIFF, frames one after the other",
    "pages": "TIFF, pages apart",
    "zarr": "Zarr, 100 frames a chunk",
    "zstd.zarr": "Zarr, 10 frames a chunk, Zstandard",
}
#: Least fractions of what the cores could do, and of the speed of small frames; least speed-up by
#: two Dask processes.
SHARE, LARGE, TWICE = 0.9, 0.8, 1.8


@cache
def simulated(size: int, spots: int) -> np.ndarray:
    """Return the frames that movies repeat."""
    return spotfit.simulate_movie(200, (size, size), spots_per_frame=spots, seed=1)[0]


def write(kind: str, path: Path, frames: int, options: argparse.Namespace) -> None:
    """Write a movie, a few frames at a time."""
    if kind == "array":
        return
    import tifffile
    import zarr

    part = simulated(options.size, options.spots)
    pieces = (part[: frames - first] for first in range(0, frames, len(part)))
    shape = (frames, *part.shape[1:])
    if kind.endswith("zarr"):
        packed = kind != "zarr"
        array = zarr.create_array(
            path, shape=shape, chunks=(10 if packed else 100, *shape[1:]), dtype=part.dtype,
            compressors="auto" if packed else None,
        )  # fmt: skip
        for first, piece in zip(range(0, frames, len(part)), pieces, strict=True):
            array[first : first + len(piece)] = piece
        return
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        each = (frame for piece in pieces for frame in piece)
        if kind == "tiff":
            file.write(each, shape=shape, dtype=part.dtype, photometric="minisblack")
        for frame in each if kind == "pages" else ():
            file.write(frame, contiguous=False, metadata=None, photometric="minisblack")


def name_of(kind: str, options: argparse.Namespace) -> str:
    """Return the name of a kind's file, or a description of an array without one."""
    if kind == "array":
        return f"{options.frames}x{options.size}x{options.spots}"
    return kind if kind.endswith("zarr") else f"{kind}.tif"


def one(kind: str, path: Path, table: Path, backend: Any, devices: Any) -> None:
    """Do one run in this process, and print its costs as JSON."""
    for module in ("pandas", "pyarrow.parquet", "tifffile", "zarr"):
        with suppress(ImportError):
            import_module(module)  # up to a second for any movie
    spotfit.localize(np.zeros((1, 32, 32), np.uint16), sigma=1.3, roi_size=9)  # load the library
    image: Any = path
    if kind == "array":
        frames, size, spots = map(int, path.name.split("x"))
        image = np.resize(simulated(size, spots), (frames, size, size))
        # Compile kernels on each GPU.
        spotfit.save_fits(
            spotfit.localize_iter(image[:6000], backend=backend, devices=devices), table
        )
    elif kind == "read":
        image = spotfit.open_image(path)
    elif kind in ("memory", "compute"):
        image = np.asarray(spotfit.open_image(path))
    elif kind in ("large", "small"):
        image = large_image(int(path.name), kind == "small")
    before, begun, cpu, found = resident("VmHWM"), time.perf_counter(), time.process_time(), 0
    if kind == "read":
        for first in range(0, len(image), 64):
            image[first : first + 64]
    else:
        threads = 1 if kind == "compute" else None
        parts = spotfit.localize_iter(image, threads=threads, backend=backend, devices=devices)
        found = spotfit.save_fits(parts, table)
    took = {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
    print(json.dumps(took | {"before": before, "peak": resident("VmHWM"), "spots": found}))


def large_image(side: int, small: bool) -> Any:
    """Return an image with this side, or small frames with a quarter as many spots."""
    frames = simulated(256, 810)[:64]
    if small:
        return np.concatenate([frames] * max(side * side // (4 * frames.size), 1))
    tile = np.block([[frames[8 * row + column] for column in range(8)] for row in range(8)])
    try:
        import dask.array as da
    except ImportError:
        return np.tile(tile, (-(-side // 2048),) * 2)[:side, :side]
    chunks = (*[2048] * (side // 2048), *([side % 2048] if side % 2048 else []))

    def chunk(block_info: Any = None) -> np.ndarray:
        (top, bottom), (left, right) = block_info[None]["array-location"]
        return tile[: bottom - top, : right - left].copy()

    return da.map_blocks(chunk, chunks=(chunks, chunks), dtype=tile.dtype)


def measured(kind: str, path: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return the costs of one run."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        table = Path(folder, "table.parquet")
        command = [sys.executable, __file__, "--one", kind, str(path), str(table)]
        command += ["--backend", options.backend, "--devices", options.devices]
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True)
        found: dict[str, float] = json.loads(done.stdout)
        return found | ({"table": table.stat().st_size / 1e6} if table.exists() else {})


def written(folder: Path, options: argparse.Namespace) -> dict[str, Path]:
    """Return the file of each kind of movie."""
    paths = {kind: folder / name_of(kind, options) for kind in options.kinds}
    for kind, path in paths.items():
        if not path.exists():
            write(kind, path, options.frames, options)
    return paths


def movies(folder: Path, options: argparse.Namespace) -> None:
    """Print seconds and memory of every kind, run alternately."""
    paths = written(folder, options)
    if options.memory:
        paths = {"memory": paths[options.kinds[0]], **paths}
    print(f"{options.frames} frames of {options.size}² px, {options.spots} spots each")
    print(f"  {'':36}{'s':>7}{'frames/s':>10}{'CPU s':>7}{'of first':>11}{'peak MB':>9}")
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in paths}
    for _ in range(options.repeats):
        for kind, path in paths.items():
            runs[kind].append(measured(kind, path, options))
    middle = {kind: statistics.median(r["seconds"] for r in own) for kind, own in runs.items()}
    for kind, own in runs.items():
        cpu = statistics.median(r["cpu"] for r in own)
        share, peak = next(iter(middle.values())) / middle[kind], max(r["peak"] for r in own)
        print(f"  {NAMES[kind]:36}{middle[kind]:7.2f}{options.frames / middle[kind]:10.0f}"
              f"{cpu:7.2f}{share:10.0%} {peak:8.0f}", flush=True)  # fmt: skip
    print(f"  {own[0]['spots']} spots, a table of {own[0]['table']:.0f} MB")


def alone(folder: Path, options: argparse.Namespace) -> None:
    """Print the times of only reading and only computing, and how close a run comes."""
    print(f"Reading and computing, CPU seconds, and what {cores()} cores make of it:")
    for kind, path in written(folder, options).items():
        runs = [[measured(what, path, options) for what in ("read", "compute", kind)]
                for _ in range(options.repeats)]  # fmt: skip
        read, computed = (statistics.median(own[i]["cpu"] for own in runs) for i in (0, 1))
        whole = statistics.median(own[2]["seconds"] for own in runs)
        share = (read + computed) / cores() / whole
        print(f"  {NAMES[kind]:36}{read:.2f} + {computed:.2f} s, together {whole:.2f} s: "
              f"{share:.0%} {bar(share, least=SHARE, form='.0%')}", flush=True)  # fmt: skip


def large(folder: Path, options: argparse.Namespace) -> None:
    """Print the speed for a large image, relative to small frames."""
    side = Path(str(options.side))
    both = {kind: measured(kind, side, options) for kind in ("small", "large")}
    print(f"An image of {side}×{side} px in chunks, beside frames of 256×256 px:")
    for kind, found in both.items():
        print(f"  {kind:8}{found['spots']:10.0f} spots, {found['seconds']:6.1f} s "
              f"({found['cpu']:.1f} CPU s), {found['spots'] / found['seconds']:8.0f} spots/s, peak "
              f"{found['peak']:.0f} MB")  # fmt: skip
    share, of_cpu = (
        both["large"]["spots"] / both["large"][unit] * both["small"][unit] / both["small"]["spots"]
        for unit in ("seconds", "cpu")
    )
    print(f"  of the speed of small frames: {share:.0%} {bar(share, least=LARGE, form='.0%')}, "
          f"{of_cpu:.0%} a CPU second")  # fmt: skip


def lengths(folder: Path, options: argparse.Namespace) -> None:
    """Print the memory for movies of several lengths."""
    print("Peak memory, MB, over that before the run:")
    for kind in options.kinds:
        line = []
        for frames in options.lengths:
            path = folder / f"{frames} {name_of(kind, options)}"
            write(kind, path, frames, options)
            found = measured(kind, path, options)
            more = found["peak"] - found["before"]
            line.append(f"{frames} frames {found['peak']:5.0f} (+{more:.0f})")
            rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        print(f"  {NAMES[kind]:36}{',  '.join(line)}", flush=True)


def dask(folder: Path, options: argparse.Namespace) -> None:
    """Print the times of Dask processes into a folder of parts, and of as many threads.

    Each has one thread or, with ``--backend cuda``, its own GPU; estimates are made before.
    """
    from dask import compute
    from distributed import Client, Nanny, Scheduler, SpecCluster

    movie, gpus = folder / "movie.npy", options.backend == "cuda"
    part = simulated(options.size, options.spots)
    np.save(movie, np.resize(part, (options.frames, *part.shape[1:])))
    settings = spotfit.localize(part[:20]).settings.changed(backend=options.backend)
    times: dict[str, list[float]] = {}
    digests = set()

    def timed(name: str, parts: Path, work: Work) -> None:
        begun = time.perf_counter()
        work()
        times.setdefault(name, []).append(time.perf_counter() - begun)
        found = [column.tobytes() for own in spotfit.load_parts(parts)
                 for column in own.columns.values()]  # fmt: skip
        digests.add(hash(b"".join(found)))
        rmtree(parts)

    for _ in range(options.repeats):
        for count in options.processes:
            workers = {}
            for number in range(count):
                environment = {"CUDA_VISIBLE_DEVICES": str(number) if gpus else ""}
                own = {"nthreads": 1, "memory_limit": 0, "env": environment}
                own["silence_logs"] = logging.ERROR
                own["resources"] = {"GPU": 1} if gpus else {}
                workers[number] = {"cls": Nanny, "options": own}
            scheduler = {"cls": Scheduler, "options": {"dashboard_address": None, "port": 0}}
            with (
                SpecCluster(workers, scheduler, silence_logs=logging.ERROR) as cluster,
                Client(cluster) as client,
            ):
                client.wait_for_workers(count)
                client.run(spotfit.localize, part[:2], settings=settings)
                parts = folder / "parts"
                tasks = spotfit.localize_to_folder(movie, parts, settings=settings, lazy=True)
                timed(f"{count} with Dask", parts, partial(compute, *tasks, scheduler=client))
            if not gpus:
                work = partial(spotfit.localize_to_folder, movie, folder / "alone",
                               settings=settings.changed(threads=count))  # fmt: skip
                timed(f"{count} threads, no Dask", folder / "alone", work)
    base = statistics.median(next(iter(times.values())))
    for name, own in times.items():
        middle = statistics.median(own)
        asked = bar(base / middle, least=TWICE) if name == "2 with Dask" else ""
        print(f"  {name:24}{middle:7.2f} s{options.frames / middle:9.0f} frames/s"
              f"{base / middle:7.2f} × {asked}  ({min(own):.2f} to {max(own):.2f} s)")  # fmt: skip
    print("  the same spots, to the bit" if len(digests) == 1 else "  DIFFERENT SPOTS: MISSED")


SECTIONS = {
    "movies": movies, "alone": alone, "large": large, "lengths": lengths, "dask": dask,
}  # fmt: skip


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=256, help="pixels of a side")
    parser.add_argument("--spots", type=int, default=45, help="in a frame")
    parser.add_argument("--lengths", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--kinds", nargs="+", choices=list(NAMES)[1:], default=list(NAMES)[2:])
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="only from files")
    parser.add_argument("--side", type=int, default=10_000, help="pixels of a large image's side")
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2], help="of Dask's")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="where the movies are written; by default a temporary one")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--devices", choices=("one", "all"), default="one", help="GPUs")


def _run(section: Any, options: argparse.Namespace) -> None:
    if options.quick:
        options.frames, options.repeats, options.side, options.lengths = 100, 1, 3000, [50, 100]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        section(Path(folder), options)


if __name__ == "__main__":
    if "--one" in sys.argv:
        kind, path, table, _, backend, _, devices = sys.argv[2:]
        one(kind, Path(path), Path(table), backend, devices)
    else:
        run(__doc__, {name: partial(_run, section) for name, section in SECTIONS.items()}, _add)
