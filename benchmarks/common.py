"""Helpers of benchmarks: sections, alternating timings, limits, and simulated spots."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# For the tests' scenes, real files and mouse.
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "helpers")]

#: What the last whole runs have printed beside limits; the tables of docs/measured.md.
RESULTS = ROOT / "benchmarks" / "results.json"
#: Limits of the line that is being printed.
_limits: list[dict[str, Any]] = []

Work = Callable[[], object]
Clock = Callable[[], float]
Section = Callable[[argparse.Namespace], None]

#: The paper's simulation: counts of a spot, of the background in its ROI, σ in px, and largest
#: distance of centres from the middle.
PHOTONS, BACKGROUND, SIGMA, JITTER = 400, 40, (1.0, 2.0), 0.75
#: Built-in models as expressions.
SQUARED = "((x-x0)**2 + (y-y0)**2)"
ROUND = {"expression": f"exp(-{SQUARED}/(2*s**2))", "start": {"s": "sigma"}}
ROTATED = {
    "expression": "exp(-((x-x0)*cos(t) + (y-y0)*sin(t))**2 / (2*a**2)"
    " - ((y-y0)*cos(t) - (x-x0)*sin(t))**2 / (2*b**2))",
    "start": {"a": "1.1*sigma", "b": "0.9*sigma", "t": 0.3},
}
#: Kinds of fits: keywords of fit_spots in JSON (see :func:`resolved`).
MLE: dict[str, Any] = {"estimator": "mle", "gain": 1.0}
KINDS: dict[str, dict[str, Any]] = {
    "round": {},
    "elliptical": {"model": "gaussian_elliptical"},
    "integrated": {"pixel": "integrated"},
    "elliptical, integrated": {"model": "gaussian_elliptical", "pixel": "integrated"},
    "Lorentzian": {"model": "lorentzian"},
    "rotated": {"model": "gaussian_rotated"},
    "rotated, as an expression": {"expression": ROTATED},
    "round, as an expression": {"expression": ROUND},
    "bad pixels": {"bad": True},
    "weights": {"estimator": "wlse", "variance": 4.0},
    "maximum likelihood": MLE,
    "rotated, maximum likelihood": {**MLE, "model": "gaussian_rotated"},
}


def resolved(options: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return keywords of fit_spots, with the model of an ``expression`` and a ``bad`` pixel."""
    import napari_spotfit as spotfit

    options = dict(options)
    if "expression" in options:
        options["model"] = spotfit.Profile.from_expression(**options.pop("expression"))
    if options.pop("bad", False):
        options["bad_pixels"] = np.zeros((size, size), bool)
        options["bad_pixels"][1, 2] = True
    return options


def parsed(
    about: str | None,
    sections: Sequence[str],
    add: Callable[[argparse.ArgumentParser], object] | None = None,
) -> argparse.Namespace:
    """Parse a program's options: ``only`` some sections, ``quick``, and those of ``add``."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", metavar="SECTION", choices=sections, default=list(sections),
        help=f"some of {', '.join(sections)}",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a small run to try the program")
    if add is not None:
        add(parser)
    options = parser.parse_args()
    # What the numbers depend on; a path, such as of another program's Python, is not of them.
    options.unusual = "".join(
        f" --{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in vars(options).items()
        if name not in ("only", "quick") and isinstance(value, int | float)
        and value != parser.get_default(name)
    )  # fmt: skip
    return options


def run(
    about: str | None,
    sections: Mapping[str, Section],
    add: Callable[[argparse.ArgumentParser], object] | None = None,
) -> None:
    """Run the sections that the command line names, and record whole ones in RESULTS."""
    options = parsed(about, list(sections), add)
    for name, section in sections.items():
        if name in options.only:
            printed = _Printed(sys.stdout)
            with contextlib.redirect_stdout(printed):
                section(options)
            if not options.quick and printed.lines:
                _record(f"{Path(sys.argv[0]).name} --only {name}{options.unusual}", printed.lines)


class _Printed(io.TextIOBase):
    """Passes on what is printed, and keeps the lines that have limits, with their numbers."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._line = stream, ""
        self._heading, self._after_blank = "", True
        self.lines: list[dict[str, Any]] = []

    def write(self, text: str) -> int:
        self._stream.write(text)
        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            words = re.sub(r"\s{2,}", " · ", line.strip())
            if _limits:
                limited = {"under": self._heading, "line": words, "limits": _limits.copy()}
                self.lines.append(limited)
                _limits.clear()
            elif self._after_blank:
                self._heading = words
            self._after_blank = not words
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def _record(command: str, lines: list[dict[str, Any]]) -> None:
    """Put what a command has printed in place of what it printed before."""
    from napari_spotfit import __version__

    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    about = {
        "date": f"{date.today()}",
        "version": __version__,
        "machine": f"{processor()}, {cores()} cores",
    }
    text = json.dumps(
        {**known, command: {**about, "lines": lines}}, indent=1, ensure_ascii=False, sort_keys=True
    )
    RESULTS.write_text(f"{text}\n", encoding="utf-8", newline="\n")


def processor() -> str:
    """Return the name of the processor, on Linux as the system has it."""
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of cores of this process."""
    count = getattr(os, "process_cpu_count", None)
    return (count() if count else len(os.sched_getaffinity(0))) or 1


def resident(what: str) -> float:
    """Return the memory of this process in MB from Linux: VmRSS, or VmHWM for the peak."""
    text = Path("/proc/self/status").read_text()
    return int(text[text.index(f"{what}:") :].split()[1]) * 1.024e-3


def bar(
    value: float, *, least: float | None = None, most: float | None = None, form: str = "g"
) -> str:
    """Return the limit of a value as text, and whether it is missed; empty without a limit."""
    for limit, met in (
        (least, least is None or value >= least),
        (most, most is None or value <= most),
    ):
        if limit is not None:
            _limits.append({"value": float(value), "limit": float(limit), "met": bool(met)})
    if least is not None:
        return f"(≥ {least:{form}}{'' if value >= least else ': MISSED'})"
    return "" if most is None else f"(≤ {most:{form}}{'' if value <= most else ': MISSED'})"


def spent(work: Work, clock: Clock = time.perf_counter) -> float:
    """Return the duration of a call in seconds."""
    begin = clock()
    work()
    return clock() - begin


def in_turns(
    works: Mapping[str, Work], repeats: int, clock: Clock = time.perf_counter, turn: int = 1
) -> dict[str, list[float]]:
    """Return the durations of calls of each kind of work in seconds, without the first ones.

    Kinds alternate, ``turn`` calls each, so that other load affects all of them equally.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(-(-repeats // turn) + 1):
        for name, work in works.items():
            times[name] += [spent(work, clock) for _ in range(turn)]
    return {name: taken[turn:] for name, taken in times.items()}


def medians(
    works: Mapping[str, Work], repeats: int, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Return the median seconds of each kind of work."""
    return {name: statistics.median(own) for name, own in in_turns(works, repeats, clock).items()}


@lru_cache(maxsize=8)
def paper_spots(size: int, count: int) -> tuple[np.ndarray, Any]:
    """Return spots of the paper's simulation, float32 with whole counts, and their truth."""
    from napari_spotfit import simulate_spots

    return simulate_spots(
        count, size, photons=PHOTONS, background=BACKGROUND / size**2, sigma=SIGMA,
        jitter=JITTER, seed=size,
    )  # fmt: skip


def large_spot(side: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return an image (1, side, side) of one rotated Gaussian with shot noise, and its y and x."""
    from napari_spotfit import simulate_spots

    spots, truth = simulate_spots(
        1, side, photons=3e4 * (side / 10) ** 2, background=50.0, sigma=side / 8,
        sigma_y=side / 12, angle=20.0, jitter=side / 20, seed=side,
    )  # fmt: skip
    return spots.astype(dtype), truth[["y", "x"]].to_numpy()[0]
