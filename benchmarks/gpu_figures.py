"""The paper's Figures 2 to 4: time per call, fits and pixels per second, over ROI and batch.

On the device, start values are given, and calls follow one another without waiting. From
NumPy to NumPy each call is waited for; ours makes its start values, the paper's design is
given them.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gpu_data import rate
from gpu_machine import Host, Work, host_time
from gpu_sections import Bench

from napari_spotfit import fit_spots

SIZES = (4, 5, 6, 7, 8, 9, 11, 13, 16, 20, 24, 28, 32)
QUICK_SIZES = (4, 7, 9, 16, 32)
BATCHES = (10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
#: A batch has no more pixels than this; of the paper's design, whose rate no longer
#: changes then, a tenth.
MOST_PIXELS, PEER_SHARE = 1e9, 0.1
#: Seconds that one point may take, but for a last call that takes longer.
SECONDS, QUICK_SECONDS = 0.15, 0.05


class Way(NamedTuple):
    """One of four ways to fit a batch."""

    who: str
    where: str
    share: float
    prepare: Callable[[np.ndarray, np.ndarray], Work]
    per_call: Callable[[Work, float], float]


class Point(NamedTuple):
    """One measured point."""

    who: str
    where: str
    size: int
    batch: int
    seconds: float

    @property
    def fits(self) -> float:
        return self.batch / self.seconds

    @property
    def pixels(self) -> float:
        return self.fits * self.size**2


def ways(bench: Bench) -> list[Way]:
    machine = bench.machine

    def ours(spots: np.ndarray, start: np.ndarray) -> Work:
        pixels, begin = machine.put(spots), machine.put(start)
        return lambda: machine.fit(pixels, begin)

    def theirs(spots: np.ndarray, start: np.ndarray) -> Work:
        pixels, begin = machine.put(spots), machine.put(start)
        return lambda: machine.fit_by_peer(pixels, begin)

    def ours_from_host(spots: np.ndarray, start: np.ndarray) -> Work:
        return lambda: fit_spots(spots, backend=machine.backend, errors=False)

    def theirs_from_host(spots: np.ndarray, start: np.ndarray) -> Work:
        return lambda: machine.fit_by_peer_from_host(spots, start)

    def queued(work: Work, seconds: float) -> float:
        return in_a_row(work, machine.device_time, seconds)

    device, arrays = "on the device", "NumPy to NumPy"
    return [
        Way("napari-spotfit", device, 1, ours, queued),
        Way("napari-spotfit", arrays, 1, ours_from_host, one_by_one),
        Way(machine.peer, device, PEER_SHARE, theirs, queued),
        Way(machine.peer, arrays, PEER_SHARE, theirs_from_host, one_by_one),
    ]


def in_a_row(work: Work, clock: Callable[[Work], float], seconds: float) -> float:
    """Return the seconds of a call among calls that do not wait for one another."""
    work()
    count = int(np.clip(seconds / 3 / max(clock(work), 1e-6), 1, 200))

    def calls() -> None:
        for _ in range(count):
            work()

    return statistics.median(clock(calls) / count for _ in range(3))


def one_by_one(work: Work, seconds: float) -> float:
    """Return the seconds of a call, the median of as many as there is time for."""
    work()
    begin, times = time.perf_counter(), []
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        times.append(host_time(work))
        if times[-1] > seconds:
            break
    return statistics.median(times)


def measure(bench: Bench) -> list[Point]:
    """Time every batch of every ROI size, in each of the four ways."""
    most = MOST_PIXELS if bench.real else 2e7
    if bench.quick:
        most /= 10
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    points = []
    for size in QUICK_SIZES if bench.quick else SIZES:
        spots = bench.spots(size)
        base = spots.pixels.astype(np.uint16)
        largest = max(batch for batch in BATCHES if batch * size**2 <= most)
        pixels, start = (Host().tiled(array, largest) for array in (base, spots.start))
        for way in ways(bench):
            for batch in BATCHES:
                if batch * size**2 <= most * way.share:
                    work = way.prepare(pixels[:batch], start[:batch])
                    spent = way.per_call(work, seconds)
                    points.append(Point(way.who, way.where, size, batch, spent))
            bench.machine.free()
    return points


def tables(bench: Bench, points: list[Point]) -> None:
    """Print the fits per second of each way, ROI sizes down and batches across."""
    for who, where in dict.fromkeys((point.who, point.where) for point in points):
        chosen = {
            (point.size, point.batch): rate(point.fits / 1e6)
            for point in points
            if (point.who, point.where) == (who, where)
        }
        sizes = dict.fromkeys(size for size, _ in chosen)
        batches = sorted({batch for _, batch in chosen})
        bench.report.line(f"\nMillion fits per second, uint16, {who}, {where}:\n")
        heads = [f"{batch:,}".replace(",", " ") for batch in batches]
        bench.report.line("| ROI | " + " | ".join(f"{head:>10}" for head in heads) + " |")
        bench.report.line("|----:|" + "|".join("-" * 11 + ":" for _ in heads) + "|")
        for size in sizes:
            cells = [f"{chosen.get((size, batch), ''):>10}" for batch in batches]
            bench.report.line(f"| {size:>3} | " + " | ".join(cells) + " |")


def write(points: list[Point], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["who", "where", "roi_size", "batch", "seconds", "fits/s", "pixels/s"])
        for point in points:
            rates = f"{point.fits:.4g}", f"{point.pixels:.4g}"
            rows.writerow([*point[:4], f"{point.seconds:.4g}", *rates])


def draw(points: list[Point], folder: Path, title: str) -> None:
    """Draw time per call, fits per second and pixels per second over the ROI's side."""
    quantities: dict[str, tuple[str, str, Callable[[Point], float]]] = {
        "figure2-time": ("Time per call", "seconds", lambda point: point.seconds),
        "figure3-fits": ("Fits per second", "fits / s", lambda point: point.fits),
        "figure4-pixels": ("Pixels per second", "pixels / s", lambda point: point.pixels),
    }
    for name, (what, unit, value) in quantities.items():
        figure = _figure(points, f"{what}, {title}", unit, value)
        figure.savefig(folder / f"{name}.png", dpi=150)


def _figure(points: list[Point], title: str, unit: str, value: Callable[[Point], float]) -> Any:
    """Return four panels with the same axes; a line for each batch, from dark to bright."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator, ScalarFormatter

    figure = Figure(figsize=(10, 8), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    batches = sorted({point.batch for point in points})
    colours = colormaps["viridis"](np.linspace(0, 0.93, len(batches)))
    panels = dict.fromkeys((point.who, point.where) for point in points)
    for axis, (who, where) in zip(axes.flat, panels, strict=True):
        for batch, colour, marker in zip(batches, colours, "osD^v<>", strict=False):
            line = [p for p in points if p[:2] == (who, where) and p.batch == batch]
            axis.plot(
                [point.size for point in line], [value(point) for point in line],
                color=colour, marker=marker, markersize=4, label=_power(batch),
            )  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks([4, 5, 6, 7, 9, 11, 13, 16, 20, 24, 32])
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(color="0.88", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.set_title(f"{who}, {where}", fontsize=11)
    figure.supxlabel("side of the ROI (pixels)")
    figure.supylabel(unit)
    figure.suptitle(title)
    lines, labels = axes.flat[0].get_legend_handles_labels()
    # As the lines of the rates lie: the largest batch at the top.
    figure.legend(
        lines[::-1], labels[::-1], title="fits per call", loc="outside right center", frameon=False
    )
    return figure


def _power(batch: int) -> str:
    return f"$10^{{{round(np.log10(batch))}}}$"
