"""The paper's simulation for the GPU benchmark, and the table that it fills."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from napari_spotfit import StopCondition, simulate_spots
from napari_spotfit.models.stopping import CONVERGED

PHOTONS, BACKGROUND, SIGMA, JITTER = 400, 40, (1.0, 2.0), 0.75
#: What right results reach on these spots: the share that converges, and the median
#: error of the centres over σ (0.046 in the paper's Table 1).
RIGHT_SHARE, RIGHT_ERROR = 0.98, 0.06


class Spots(NamedTuple):
    """Distinct spots (n, S, S), float32 with whole counts, and start values y, x and σ."""

    pixels: np.ndarray
    truth: np.ndarray
    start: np.ndarray


@lru_cache(maxsize=16)
def simulated(size: int, pixels: float) -> Spots:
    """Simulate spots, as many as have so many pixels altogether."""
    count = max(min(int(pixels / size**2), 200_000), 1000)
    spots, truth = simulate_spots(
        count, size, photons=PHOTONS, background=BACKGROUND / size**2, sigma=SIGMA,
        jitter=JITTER, seed=size,
    )  # fmt: skip
    return Spots(spots, truth[["y", "x", "sigma"]].to_numpy(), start_values(spots))


def start_values(spots: np.ndarray) -> np.ndarray:
    """Return y, x and σ by the rule of the fit's own start values."""
    rows = spots[:, :-2] + spots[:, 1:-1] + spots[:, 2:]
    smooth = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    y, x = np.divmod(smooth.reshape(len(spots), -1).argmax(1), smooth.shape[2])
    low, high = spots.min((1, 2)), spots.max((1, 2))
    level = low + (high - low) * np.float32(math.exp(-0.5))
    bright = (spots > level[:, None, None]).sum((1, 2))
    return np.stack([y + 1, x + 1, np.sqrt(bright / np.pi)], 1).astype(np.float32)


def to_host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.asarray(array)


def are_right(columns: dict[str, Any], truth: np.ndarray) -> bool:
    """Say whether fits, of which the first are of these spots, are what they should be."""
    first = slice(len(truth))
    y, x, stop = (to_host(columns[name][first]) for name in ("y", "x", "stop_condition"))
    good = stop != StopCondition.INVALID
    near = truth[: len(stop)]
    error = np.abs(np.r_[y - near[:, 0], x - near[:, 1]]) / np.tile(near[:, 2], 2)
    # The paper's design has no other name for fits that rounding keeps from settling.
    settled = np.isin(stop, (*CONVERGED, StopCondition.NO_DECREASE)).mean()
    return bool(np.median(error[np.tile(good, 2)]) <= RIGHT_ERROR and settled >= RIGHT_SHARE)


def rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def almost_all(value: float) -> str:
    return f"{100 * value:.3f} %"


def micros(value: float) -> str:
    return f"{value * 1e6:.0f} µs"


class Report:
    """A Markdown table that is printed row by row."""

    WIDTHS = (66, 26, 8, 8, 7)

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("w", encoding="utf-8") if path else None

    def line(self, text: str = "") -> None:
        print(text, flush=True)
        if self._file:
            print(text, file=self._file, flush=True)

    def head(self) -> None:
        self._row("measure", "value", "at least", "aim", "verdict")
        self.line("|" + "|".join("-" * (width + 2) for width in self.WIDTHS) + "|")

    def add(
        self,
        measure: str,
        value: float,
        form: Callable[[float], str],
        limits: tuple[float, float] | None = None,
        *,
        right: bool = True,
        note: str = "",
    ) -> None:
        """Print a measured value, and what is asked for: at least, or at most, and the aim."""
        wanted = [form(limit) for limit in limits] if limits else ["", ""]
        verdict = ""
        if limits:
            sign = 1 if limits[1] > limits[0] else -1
            reached = [sign * value >= sign * limit for limit in limits]
            verdict = "aim" if reached[1] else "ok" if reached[0] else "MISSED"
        if not right:
            verdict = "WRONG"
        self._row(measure, form(value) + note, *wanted, verdict)

    def say(self, measure: str, value: str) -> None:
        self._row(measure, value, "", "", "")

    def _row(self, *cells: str) -> None:
        padded = (f"{cell:<{width}}" for cell, width in zip(cells, self.WIDTHS, strict=True))
        self.line("| " + " | ".join(padded) + " |")
