"""What the GPU benchmark runs on: a CUDA device or, as a trial of the benchmark, the CPU."""

from __future__ import annotations

import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from napari_spotfit import fit_spots
from napari_spotfit.engine.cuda.reasons import dotted
from napari_spotfit.engine.threads import available

Work = Callable[[], object]
Clock = Callable[[Work], float]

#: Work of one kind that has taken so many seconds is not repeated further.
BUDGET = 15.0


def host_time(work: Work) -> float:
    """Return how many seconds a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turns(works: Sequence[Work], clock: Clock, repeats: int) -> list[float]:
    """Return the median seconds of each kind of work.

    They take turns, so that what else the machine does slows all of them alike; the
    first round, in which kernels are compiled, is not counted.
    """
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    begin = time.perf_counter()
    for done in range(repeats):
        if done and time.perf_counter() - begin > BUDGET * len(works):
            break
        for work, taken in zip(works, times, strict=True):
            taken.append(clock(work))
    return [statistics.median(taken) for taken in times]


class Cuda:
    """The current CUDA device."""

    backend = "cuda"
    peer = "paper's design"

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._device = cupy.cuda.Device()
        properties = cupy.cuda.runtime.getDeviceProperties(self._device.id)
        self.name = properties["name"].decode()
        self.count = cupy.cuda.runtime.getDeviceCount()

    def facts(self) -> str:
        """Return what the figures depend on."""
        runtime = self._cupy.cuda.runtime
        versions = (
            f"driver {_driver()} (CUDA {dotted(runtime.driverGetVersion())})",
            f"CUDA runtime {dotted(runtime.runtimeGetVersion())}",
            f"NVRTC {'.'.join(map(str, self._cupy.cuda.nvrtc.getVersion()))}",
            f"CuPy {self._cupy.__version__}",
        )
        return f"{self.count} × {self.name}, {available()} CPU cores; {', '.join(versions)}"

    def pixels(self, quick: bool) -> int:
        """Return how many pixels a launch gets: for some milliseconds, and beyond the cache."""
        free, _ = self._cupy.cuda.runtime.memGetInfo()
        return int(min(4e8 if quick else 1.6e9, free / 24))

    def put(self, array: np.ndarray) -> Any:
        return self._cupy.asarray(array)

    def tiled(self, base: Any, count: int) -> Any:
        """Repeat rows up to ``count``, each time from another one on."""
        result = self._cupy.empty((count, *base.shape[1:]), base.dtype)
        return _fill(result, base)

    def pinned(self, base: np.ndarray, count: int) -> np.ndarray:
        import cupyx

        return _fill(cupyx.empty_pinned((count, *base.shape[1:]), base.dtype), base)

    def free(self) -> None:
        """Give the memory of earlier measures back."""
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    def device_time(self, work: Work) -> float:
        """Return how many seconds the device needs for what a call asks of it."""
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(begin, end)) / 1e3

    def fit(
        self, spots: Any, start: Any = None, errors: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Fit on the device what lies there; return what stays there."""
        options |= {"start": start, "errors": errors}
        return fit_spots(spots, backend="cuda", on_device=True, **options).columns

    def fit_by_peer(self, spots: Any, start: Any) -> dict[str, Any]:
        import paper_kernel

        return paper_kernel.fit(spots, start)

    def fit_by_peer_from_host(self, spots: np.ndarray, start: np.ndarray) -> object:
        columns = self.fit_by_peer(self.put(spots), self.put(start))
        return {name: column.get() for name, column in columns.items()}

    def upload_time(self, array: np.ndarray, repeats: int) -> float:
        """Return how many seconds it takes to copy a pinned array to the device, and no more."""
        runtime, target = self._cupy.cuda.runtime, self._cupy.empty(array.shape, array.dtype)
        stream = self._cupy.cuda.get_current_stream()

        def copy() -> None:
            runtime.memcpyAsync(
                target.data.ptr, array.ctypes.data, array.nbytes,
                runtime.memcpyHostToDevice, stream.ptr,
            )  # fmt: skip

        return in_turns([copy], self.device_time, repeats)[0]

    def copy_rate(self, repeats: int) -> float:
        """Return the bytes per second that a copy within the device reads and writes."""
        source = self._cupy.zeros(self.pixels(False), np.uint8)
        target = self._cupy.empty_like(source)
        runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream()

        def copy() -> None:
            runtime.memcpyAsync(
                target.data.ptr, source.data.ptr, source.nbytes,
                runtime.memcpyDeviceToDevice, stream.ptr,
            )  # fmt: skip

        return 2 * source.nbytes / in_turns([copy], self.device_time, repeats)[0]

    def issue_rate(self) -> float:
        """Return how many instructions a second it can issue, each lane counted."""
        runtime = self._cupy.cuda.runtime
        processors, kilohertz = (
            runtime.deviceGetAttribute(code, self._device.id)
            for code in (runtime.cudaDevAttrMultiProcessorCount, runtime.cudaDevAttrClockRate)
        )
        return processors * 4 * 32 * kilohertz * 1e3


class Host:
    """The CPU in place of a device: small sizes, to try the benchmark itself."""

    backend = "cpu"
    peer = "one thread"
    name, count = "CPU", 1

    def facts(self) -> str:
        return f"trial on {available()} CPU cores of {platform.machine()}, without a GPU"

    def pixels(self, quick: bool) -> int:
        return 1_000_000 if quick else 5_000_000

    def put(self, array: np.ndarray) -> np.ndarray:
        return array

    def tiled(self, base: np.ndarray, count: int) -> np.ndarray:
        return _fill(np.empty((count, *base.shape[1:]), base.dtype), base)

    pinned = tiled

    def free(self) -> None:
        pass

    def device_time(self, work: Work) -> float:
        return host_time(work)

    def fit(
        self, spots: Any, start: Any = None, errors: bool = False, **options: Any
    ) -> dict[str, Any]:
        return fit_spots(spots, start=start, backend="cpu", errors=errors, **options).columns

    def fit_by_peer(self, spots: Any, start: Any) -> dict[str, Any]:
        return fit_spots(spots, start=start, backend="cpu", errors=False, threads=1).columns

    fit_by_peer_from_host = fit_by_peer

    def upload_time(self, array: np.ndarray, repeats: int) -> float:
        return in_turns([array.copy], host_time, repeats)[0]

    def copy_rate(self, repeats: int) -> float:
        source = np.zeros(self.pixels(False), np.uint8)
        target = np.empty_like(source)
        copy = lambda: np.copyto(target, source)  # noqa: E731
        return 2 * source.nbytes / in_turns([copy], host_time, repeats)[0]

    def issue_rate(self) -> float:
        # Two instructions of sixteen lanes at a time, at 3 GHz: a guess, for the trial only.
        return available() * 2 * 16 * 3e9


def _fill(result: Any, base: Any) -> Any:
    """Fill an array with the rows of another, each time from another one on."""
    count, shift = len(base), 0
    for first in range(0, len(result), count):
        part = result[first : first + count]
        # Neighbours stay neighbours, but meet other warps and other blocks each time.
        head = min(count - shift, len(part))
        part[:head] = base[shift : shift + head]
        part[head:] = base[: len(part) - head]
        shift = (shift + 1009) % count
    return result


def _driver() -> str:
    """Return the driver's version, as nvidia-smi knows it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "of unknown version"
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return (output.splitlines() or ["of unknown version"])[0].strip()
