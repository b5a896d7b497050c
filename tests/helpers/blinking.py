"""Tables of fits of blinking molecules, whose truth is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from napari_spotfit import SpotFits

Integers = NDArray[np.int64]


class Blinking(NamedTuple):
    """When molecules are lit: the first and last frame of each time, and the molecule."""

    first: Integers
    last: Integers
    molecule: Integers

    def rows(self) -> tuple[Integers, Integers]:
        """Return the frame and the molecule of every fit, in the order of frames."""
        count = self.last - self.first + 1
        own = np.repeat(np.arange(len(count)), count)
        frame = self.first[own] + np.arange(len(own)) - np.repeat(np.cumsum(count) - count, count)
        order = np.argsort(frame, kind="stable")
        return frame[order], self.molecule[own][order]

    def events(self, max_dark: int) -> int:
        """Return how many events there are, if gaps of some frames are closed."""
        order = np.lexsort((self.first, self.molecule))
        first, last, molecule = (column[order] for column in self)
        goes_on = (molecule[1:] == molecule[:-1]) & (first[1:] - last[:-1] - 1 <= max_dark)
        return len(first) - int(np.count_nonzero(goes_on))


def blinking(
    molecules: int, frames: int, on: float, off: float, bleach: float | None = None, seed: int = 0
) -> Blinking:
    """Simulate exponential times; a frame shows a molecule that is lit for half of it."""
    rng = np.random.default_rng(seed)
    left = rng.geometric(1 / bleach, molecules) if bleach else np.full(molecules, 1 << 60)
    time, alive = rng.exponential(off, molecules), np.arange(molecules)
    found: list[tuple[Integers, ...]] = []
    while len(alive):
        end = time + rng.exponential(on, len(alive))
        first = np.ceil(time - 0.5).astype(np.int64)
        last = np.minimum(np.floor(end - 0.5).astype(np.int64), frames - 1)
        seen = last >= np.maximum(first, 0)
        found.append((np.maximum(first, 0)[seen], last[seen], alive[seen]))
        left[alive] -= 1
        time = end + rng.exponential(off, len(alive))
        goes_on = (left[alive] > 0) & (time < frames)
        time, alive = time[goes_on], alive[goes_on]
    return Blinking(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def table_of(frame: Any, y: Any, x: Any, error: Any = 0.1, **more: Any) -> SpotFits:
    """Return fits at positions, with standard errors and whatever else."""
    frame = np.asarray(frame, np.int64)
    errors = np.broadcast_to(np.asarray(error, np.float32), frame.shape).copy()
    columns: dict[str, Any] = {
        "frame": frame, "y": np.array(y, float), "x": np.array(x, float),
        "y_stderr": errors, "x_stderr": errors.copy(),
        "photons": np.full(frame.shape, 1000, np.float32),
        "photons_stderr": np.full(frame.shape, 30, np.float32),
        "stop_condition": np.full(frame.shape, 3, np.uint8),
        "flags": np.zeros(frame.shape, np.uint32),
    }  # fmt: skip
    columns |= {name: np.asarray(values) for name, values in more.items()}
    return SpotFits(columns, ("frame",))


def molecules_of(
    places: NDArray[np.float64], frame: Integers, molecule: Integers, error: Any, seed: int = 1
) -> SpotFits:
    """Return fits of molecules, with normal errors."""
    noise = np.random.default_rng(seed).normal(size=(2, len(frame))) * error
    return table_of(frame, places[molecule, 0] + noise[0], places[molecule, 1] + noise[1], error)
