"""The device and the report of the GPU benchmark: a CUDA device or, as a trial, the CPU."""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from common import BACKGROUND, JITTER, PHOTONS, SIGMA, Work, cores, paper_spots, spent

from napari_spotfit import SpotFits, StopCondition, fit_spots

#: Criteria of right results on the paper's simulation: fraction that converges, and median error
#: of the centres over σ (0.046 in the paper's Table 1).
RIGHT_SHARE, RIGHT_ERROR = 0.98, 0.06
CONVERGED = (StopCondition.MAX_ERROR, StopCondition.MIN_DELTA, StopCondition.MIN_STEP)
#: Seconds after which work is not repeated further.
BUDGET = 15.0
#: Widths of the table's columns.
WIDTHS = (66, 26, 8, 8, 7)


class Spots(NamedTuple):
    """Distinct spots (n, S, S), float32 with whole counts, and start values y, x and σ."""

    pixels: np.ndarray
    truth: np.ndarray
    start: np.ndarray


@lru_cache(maxsize=8)
def simulated(size: int, pixels: float) -> Spots:
    """Simulate spots with this total number of pixels."""
    count = max(min(int(pixels / size**2), 200_000), 1000)
    spots, truth = paper_spots(size, count)
    known = truth[["y", "x", "sigma"]].to_numpy()
    return Spots(spots, known, np.rint(known).astype(np.float32))


def on_host(array: Any) -> np.ndarray:
    """Return an array as a NumPy array."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def are_right(columns: dict[str, Any], truth: np.ndarray) -> bool:
    """Whether the first fits, which are of these spots, are right."""
    y, x, stop = (on_host(columns[name][: len(truth)]) for name in ("y", "x", "stop_condition"))
    near, good = truth[: len(stop)], np.tile(stop != StopCondition.INVALID, 2)
    error = np.abs(np.r_[y - near[:, 0], x - near[:, 1]]) / np.tile(near[:, 2], 2)
    settled = np.isin(stop, (*CONVERGED, StopCondition.NO_DECREASE)).mean()
    return bool(np.median(error[good]) <= RIGHT_ERROR and settled >= RIGHT_SHARE)


def alike(ours: SpotFits, theirs: SpotFits) -> tuple[float, float]:
    """Return the fraction of fits that agree within 0.001 px, and the largest distance."""
    valid = theirs.valid & ours.valid
    apart = np.maximum(np.abs(ours.x - theirs.x), np.abs(ours.y - theirs.y))
    apart = np.where(valid, apart, np.where(theirs.valid | ours.valid, np.inf, 0))
    # Different criteria of convergence may be met first.
    stops = [np.where(fits.converged, 0, fits.stop_condition) for fits in (ours, theirs)]
    return float(np.mean((stops[0] == stops[1]) & (apart <= 1e-3))), float(apart.max())


class Host:
    """The CPU instead of a device, with small sizes, to try the benchmark itself."""

    backend, name, count, real = "cpu", "CPU", 1, False

    def facts(self) -> str:
        return f"trial on {cores()} CPU cores of {platform.machine()}, without a GPU"

    def pixels(self, quick: bool) -> int:
        return 500_000 if quick else 5_000_000

    def put(self, array: np.ndarray) -> Any:
        return array

    def tiled(self, base: Any, count: int) -> Any:
        """Repeat rows up to ``count``, each time from another first row."""
        return _fill(np.empty((count, *base.shape[1:]), base.dtype), base)

    def pinned(self, base: np.ndarray, count: int) -> np.ndarray:
        return Host.tiled(self, base, count)

    def free(self) -> None:
        pass

    def device_time(self, work: Work) -> float:
        return spent(work)

    def copying(self, source: np.ndarray) -> Work:
        """Return a function that only copies an array to the device."""
        return source.copy

    def fit(self, spots: Any, **options: Any) -> dict[str, Any]:
        """Fit spots on the device; return columns there."""
        given = {"errors": False, **options}
        return fit_spots(spots, backend=self.backend, on_device=self.real, **given).columns


class Cuda(Host):
    """The current CUDA device."""

    backend, real = "cuda", True

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        runtime = cupy.cuda.runtime
        self.name = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
        self.count = runtime.getDeviceCount()

    def facts(self) -> str:
        runtime, driver = self._cupy.cuda.runtime, "unknown"
        if program := shutil.which("nvidia-smi"):
            command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
            driver = subprocess.run(command, capture_output=True, text=True).stdout.split()[0]
        nvrtc = ".".join(map(str, self._cupy.cuda.nvrtc.getVersion()))
        return (f"{self.count} × {self.name}, {cores()} CPU cores; driver {driver} (CUDA "
                f"{runtime.driverGetVersion()}), CUDA runtime {runtime.runtimeGetVersion()}, NVRTC "
                f"{nvrtc}, CuPy {self._cupy.__version__}")  # fmt: skip

    def pixels(self, quick: bool) -> int:
        free, _ = self._cupy.cuda.runtime.memGetInfo()
        return int(min(4e8 if quick else 1.6e9, free / 24))

    def put(self, array: np.ndarray) -> Any:
        return self._cupy.asarray(array)

    def tiled(self, base: Any, count: int) -> Any:
        return _fill(self._cupy.empty((count, *base.shape[1:]), base.dtype), base)

    def pinned(self, base: np.ndarray, count: int) -> np.ndarray:
        import cupyx

        return _fill(cupyx.empty_pinned((count, *base.shape[1:]), base.dtype), base)

    def free(self) -> None:
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    def device_time(self, work: Work) -> float:
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(begin, end)) / 1e3

    def copying(self, source: Any) -> Work:
        runtime, target = self._cupy.cuda.runtime, self._cupy.empty(source.shape, source.dtype)
        stream = self._cupy.cuda.get_current_stream().ptr
        host = isinstance(source, np.ndarray)
        kind = runtime.memcpyHostToDevice if host else runtime.memcpyDeviceToDevice
        begin = source.ctypes.data if host else source.data.ptr
        return lambda: runtime.memcpyAsync(target.data.ptr, begin, source.nbytes, kind, stream)


def _fill(result: Any, base: Any) -> Any:
    """Fill an array with the rows of another, each time from another first row."""
    count, shift = len(base), 0
    for first in range(0, len(result), count):
        part = result[first : first + count]
        # So that spots fall into different warps and blocks each time.
        head = min(count - shift, len(part))
        part[:head] = base[shift : shift + head]
        part[head:] = base[: len(part) - head]
        shift = (shift + 1009) % count
    return result


class Bench(NamedTuple):
    """A run of the benchmark on a device; prints a Markdown table."""

    machine: Host
    quick: bool

    def amount(self, full: float, trial: float) -> int:
        """Return an amount: in full, a fifth of it with `quick`, or that of the trial."""
        return int((full / 5 if self.quick else full) if self.machine.real else trial)

    def times(self, works: Sequence[Work], clock: Callable[[Work], float] = spent) -> list[float]:
        """Return the median seconds of each kind of work, alternately, without the first round."""
        for work in works:
            work()
        times: list[list[float]] = [[] for _ in works]
        begin = time.perf_counter()
        for done in range(3 if self.quick else 9):
            if done and time.perf_counter() - begin > BUDGET * len(works):
                break
            for work, taken in zip(works, times, strict=True):
                taken.append(clock(work))
        return [statistics.median(taken) for taken in times]

    def spots(self, size: int) -> Spots:
        return simulated(size, self.amount(1e7, 2e5))

    def on_device(self, size: int, dtype: str, share: float = 1) -> tuple[Any, Any]:
        """Return spots that fill the device, or a fraction of them, and their start values."""
        spots, machine = self.spots(size), self.machine
        count = int(machine.pixels(self.quick) * share / size**2)
        pixels = machine.put(spots.pixels.astype(dtype))
        return machine.tiled(pixels, count), machine.tiled(machine.put(spots.start), count)

    def head(self) -> None:
        """Print the conditions, and the head of the table."""
        print(f"{self.machine.facts()}; {PHOTONS}:{BACKGROUND} counts, σ {SIGMA[0]:g} to "
              f"{SIGMA[1]:g} px, centres within ±{JITTER} px\n")  # fmt: skip
        self.row("measure", "value", "at least", "aim", "verdict")
        self.row(*("-" * width for width in WIDTHS))

    def row(self, *cells: str) -> None:
        """Print a row of the table."""
        padded = (f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
        print("| " + " | ".join(padded) + " |", flush=True)

    def add(
        self, measure: str, value: float, form: str = ".3g",
        limits: tuple[float, float] | None = None, *, right: bool = True, note: str = "",
    ) -> None:  # fmt: skip
        """Print a measured value, and its limit and aim."""
        verdict, wanted = "", ["", ""]
        if limits:
            wanted = [f"{limit:{form}}" for limit in limits]
            sign = 1 if limits[1] > limits[0] else -1
            reached = [sign * value >= sign * limit for limit in limits]
            verdict = "aim" if reached[1] else "ok" if reached[0] else "MISSED"
        self.row(measure, f"{value:{form}}{note}", *wanted, verdict if right else "WRONG")


def machine_of(options: argparse.Namespace) -> Host:
    """Return the device of the options; exit if there is none."""
    try:
        return Cuda() if options.backend == "cuda" else Host()
    except (ImportError, RuntimeError) as error:
        raise SystemExit(f"no CUDA device to measure: {error}") from None
