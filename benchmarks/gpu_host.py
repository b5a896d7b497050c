"""What the host of one or more GPUs gives them: where all lies, and bytes per second by threads.

Ordinary memory on its way to no GPU (copied part by part into page-locked memory, nothing else), to
each GPU, and to all at once; page-locked memory to and from each and all. What fits from the
host's memory reach is bounded by these, whatever is done.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import cupy
import numpy as np
from gpu_machine import Cuda

from napari_spotfit.engine.cpu import layouts
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.cuda import staging

THREADS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
REPEATS = 5


def read(path: str) -> str:
    try:
        return " ".join(Path(path).read_text().split())
    except OSError:
        return "unknown"


def lines_with(path: str, name: str) -> list[str]:
    """Return what a file's lines say that begin with a name."""
    lines = Path(path).read_text().splitlines()
    return [line.split(":")[1].strip() for line in lines if line.startswith(name)]


def facts(machine: Cuda) -> None:
    """Print where cores, memory and GPUs are."""
    print(machine.facts())
    name = lines_with("/proc/cpuinfo", "model name")[:1]
    nodes = read("/sys/devices/system/node/online")
    pages = read("/sys/kernel/mm/transparent_hugepage/enabled")
    print(f"CPU {''.join(name)}, NUMA nodes {nodes}, huge pages {pages}")
    for number in range(machine.count):
        place = cupy.cuda.runtime.deviceGetPCIBusId(number).lower()
        node = read(f"/sys/bus/pci/devices/{place[-12:]}/numa_node")
        print(f"GPU {number} at {place}, NUMA node {node}")
    if program := shutil.which("nvidia-smi"):
        print(subprocess.run([program, "topo", "-m"], capture_output=True, text=True).stdout)


def together(works: Sequence[Callable[[], object]]) -> float:
    """Return how many seconds works take that begin at once, each in a thread of its own."""
    begin = threading.Barrier(len(works) + 1)

    def run(work: Callable[[], object]) -> None:
        begin.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    begin.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def rate(works: Sequence[Callable[[], object]], size: int) -> float:
    """Return GB/s, the median of some times."""
    together(works)
    return size / median(together(works) for _ in range(REPEATS)) / 1e9


def to_nowhere(part: np.ndarray) -> Callable[[], object]:
    """Return what copies an array part by part to page-locked memory, and sends it nowhere."""
    nothing = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p)
    own = staging.Staging()
    own._parts.calls = layouts.DeviceCalls(*[nothing] * 6)
    return lambda: own.send(part, 0, 0)


def to_gpu(part: np.ndarray, number: int) -> Callable[[], object]:
    """Return what sends an array to a GPU."""
    with cupy.cuda.Device(number):
        there, own = cupy.empty(part.nbytes, np.uint8), staging.Staging()
        stream = cupy.cuda.Stream(non_blocking=True)

    def send() -> None:
        cupy.cuda.runtime.setDevice(number)
        own.send(part, there.data.ptr, stream.ptr)
        stream.synchronize()

    return send


def locked(here: np.ndarray, number: int, *, back: bool) -> Callable[[], object]:
    """Return what sends page-locked memory to a GPU, or what comes back from there."""
    with cupy.cuda.Device(number):
        there, stream = cupy.empty(here.nbytes, np.uint8), cupy.cuda.Stream(non_blocking=True)

    def move() -> None:
        cupy.cuda.runtime.setDevice(number)
        if back:
            there.data.copy_to_host_async(here.ctypes.data, here.nbytes, stream)
        else:
            there.data.copy_from_host_async(here.ctypes.data, here.nbytes, stream)
        stream.synchronize()

    return move


def ordinary(array: np.ndarray, count: int, numbers_of_threads: Sequence[int]) -> None:
    """Print how fast ordinary memory is copied, by threads."""
    sides = {"to no GPU": (), **{f"to GPU {n}": (n,) for n in range(count)}}
    if count > 1:
        sides[f"to {count} GPUs"] = tuple(range(count))
    print("\nordinary memory, GB/s\nthreads" + "".join(f"{name:>12}" for name in sides))
    for threads in numbers_of_threads:
        if threads > len(os.sched_getaffinity(0)):
            break
        rates = []
        for numbers in sides.values():
            parts = np.array_split(array, threads)
            works = [
                to_gpu(part, numbers[i % len(numbers)]) if numbers else to_nowhere(part)
                for i, part in enumerate(parts)
            ]
            rates.append(rate(works, array.nbytes))
            del works
            cupy.get_default_memory_pool().free_all_blocks()
        print(f"{threads:7}" + "".join(f"{value:12.1f}" for value in rates), flush=True)


def page_locked(size: int, count: int) -> None:
    """Print how fast page-locked memory goes up and down."""
    print("\npage-locked memory, GB/s (each way)")
    here: list[Any] = [staging.pinned(size) for _ in range(2 * count)]
    chosen = [(n,) for n in range(count)] + ([tuple(range(count))] if count > 1 else [])
    for numbers in chosen:
        up = [locked(here[n], n, back=False) for n in numbers]
        down = [locked(here[count + n], n, back=True) for n in numbers]
        rates = (f"{rate(works, size * len(numbers)):6.1f}" for works in (up, down, up + down))
        name = f"GPU {numbers[0]}" if len(numbers) == 1 else f"{count} GPUs at once"
        print("{:16} up {}, down {}, both at once {}".format(name, *rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=6.0)
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS)
    options = parser.parse_args()
    size = int(options.gigabytes * 1e9)
    machine = Cuda()
    load()
    facts(machine)
    array = np.resize(np.random.default_rng(1).integers(0, 256, 1 << 24, np.uint8), size)
    huge = lines_with("/proc/self/smaps_rollup", "AnonHugePages")
    print(f"{size / 1e9:g} GB of a NumPy array; huge pages: {''.join(huge)}")
    ordinary(array, machine.count, options.threads)
    page_locked(1 << 30, machine.count)


if __name__ == "__main__":
    main()
