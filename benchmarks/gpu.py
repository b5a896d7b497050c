"""Speed of the fits on the GPU, beside what is asked for and the paper's own design.

Prints a Markdown table of every measure, then the paper's Figures 2 to 4 as tables.
Figures per second are medians; what is compared takes turns in one run. With
``--output``, the same goes to a folder, with the figures as CSV and pictures.

Picasso (picassosr) is timed beside ours where it is installed with its CUDA parts.
``--backend cpu`` tries the benchmark itself, at small sizes and without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gpu_figures
import numpy as np
from gpu_data import BACKGROUND, JITTER, PHOTONS, SIGMA, Report
from gpu_machine import Cuda, Host
from gpu_models import MODEL_SECTIONS
from gpu_sections import SECTIONS, Bench

import napari_spotfit

FIGURES = "figures"
MEASURES = SECTIONS | MODEL_SECTIONS


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (*MEASURES, FIGURES)
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, smaller batches")
    parser.add_argument("--output", type=Path, help="folder for the tables, CSV and pictures")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"--only takes some of {','.join(names)}; got {','.join(sorted(unknown))}")
    try:
        machine = Cuda() if arguments.backend == "cuda" else Host()
    except (ImportError, RuntimeError) as error:
        parser.error(f"no CUDA device to measure: {error}")
    folder = arguments.output
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    report = Report(folder / "gpu.md" if folder else None)
    bench = Bench(machine, report, arguments.quick)
    _introduce(bench)
    if chosen != [FIGURES]:
        report.head()
    parts = {name: partial(section, bench) for name, section in MEASURES.items()}
    parts[FIGURES] = partial(_figures, bench, folder)
    done = [_attempt(name, part) for name, part in parts.items() if name in chosen]
    return 0 if all(done) else 1


def _introduce(bench: Bench) -> None:
    report = bench.report
    report.line(f"{datetime.date.today()}: {bench.machine.facts()};")
    report.line(
        f"napari-spotfit {napari_spotfit.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}; {PHOTONS}:{BACKGROUND} counts, "
        f"σ {SIGMA[0]:g} to {SIGMA[1]:g} px, centres within ±{JITTER} px.\n"
    )


def _figures(bench: Bench, folder: Path | None) -> None:
    points = gpu_figures.measure(bench)
    gpu_figures.tables(bench, points)
    if folder:
        gpu_figures.write(points, folder / "gpu.csv")
        gpu_figures.draw(points, folder, f"uint16, {bench.machine.name}")


def _attempt(name: str, work: Callable[[], None]) -> bool:
    """Do one part and say how long it took; what goes wrong must not cost the others."""
    begin = time.perf_counter()
    ended = "done"
    # A run that continues on the CPU says so in a warning, and is no measure then.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            work()
        except Exception:
            traceback.print_exc()
            ended = "FAILED"
    for text in {f"{warning.category.__name__}: {warning.message}" for warning in caught}:
        print(f"[{name}: {text}]", file=sys.stderr)
    spent = time.perf_counter() - begin
    print(f"[{name}: {ended} after {spent:.0f} s]", file=sys.stderr, flush=True)
    return ended == "done"


if __name__ == "__main__":
    sys.exit(main())
