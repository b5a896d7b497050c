"""Speed of fits from the host's memory by how GPUs are fed.

Prints million fits per second for what napari_spotfit/engine/cuda/pieces.py and staging.py have as
constants, one changed at a time, with one GPU and with all: what these constants are chosen by.
Then frames per second of movies, a short one and a long one, by how many blocks are under way
(engine/select.py), how many of them are copied at a time (spread.py), and how much memory detection
has for them (detect.py).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
from typing import Any
from unittest.mock import patch

import numpy as np
from gpu_data import simulated
from gpu_machine import Cuda, Host, Work, host_time, in_turns

from napari_spotfit import fit_spots, localize, simulate_movie
from napari_spotfit.engine import select
from napari_spotfit.engine.cuda import detect, pieces, spread, staging

MIB = 1 << 20
#: Of ordinary memory, and of page-locked memory.
ORDINARY: tuple[dict[str, int], ...] = (
    {}, {"FEEDERS": 4}, {"FEEDERS": 6}, {"FEEDERS": 12}, {"PIECE_BYTES": 16 * MIB},
    {"PIECE_BYTES": 64 * MIB}, {"PART": MIB // 2}, {"PART": MIB}, {"PART": 4 * MIB},
    {"PARTS": 3}, {"PARTS": 4}, {"PART": MIB, "PARTS": 4}, {"UNDER_WAY": 3}, {"_MOST_RESULTS": 0},
)  # fmt: skip
LOCKED: tuple[dict[str, int], ...] = (
    {}, {"PINNED_FEEDERS": 1}, {"PINNED_FEEDERS": 3}, {"PINNED_BYTES": 16 * MIB},
    {"PINNED_BYTES": 64 * MIB}, {"UNDER_WAY": 3},
)  # fmt: skip
FEW: tuple[dict[str, int], ...] = (
    {},
    {"FEEDER_BYTES": MIB},
    {"FEEDER_BYTES": 2 * MIB},
    {"FEEDER_BYTES": 8 * MIB},
)
#: Of a short movie and of a long one.
SHORT: tuple[dict[str, int], ...] = tuple({"_GPU_WORKERS": n} for n in (8, 1, 2, 3, 4, 6, 12))
LONG: tuple[dict[str, int], ...] = (
    {}, {"_COPIED": 4}, {"_COPIED": 6}, {"_COPIED": 16}, {"_MOST_WORKERS": 12},
    {"_MOST_WORKERS": 16}, {"_LARGE_GPU_BYTES": 128 * MIB}, {"_SCRATCH_BYTES": 256 * MIB},
    {"_LARGE_GPU_BYTES": 384 * MIB, "_SCRATCH_BYTES": 640 * MIB},
)  # fmt: skip


def fits_per_second(array: np.ndarray, values: dict[str, int], which: list[str]) -> list[float]:
    with contextlib.ExitStack() as patches:
        for name, value in values.items():
            owner = staging if hasattr(staging, name) else pieces
            patches.enter_context(patch.object(owner, name, value))
        # What is kept has the sizes of before.
        staging._idle.clear()
        gc.collect()
        staging._forget_results()
        options: dict[str, Any] = {"backend": "cuda", "errors": False}
        works: list[Work] = [lambda d=d: fit_spots(array, devices=d, **options) for d in which]
        taken = in_turns(works, host_time, 7)
    staging._idle.clear()
    return [len(array) / seconds / 1e6 for seconds in taken]


def frames_per_second(movie: np.ndarray, values: dict[str, int], which: list[str]) -> list[float]:
    settings = localize(movie[:500], backend="cuda", roi_size=7, errors=False).settings
    owners = (select, spread, detect)
    with contextlib.ExitStack() as patches:
        for name, value in values.items():
            owner = next(owner for owner in owners if hasattr(owner, name))
            patches.enter_context(patch.object(owner, name, value))
        if "_GPU_WORKERS" in values:
            patches.enter_context(patch.object(select, "_WORKERS_OF_EACH", 0))
        forget()
        works: list[Work] = [
            lambda d=d: localize(movie, settings=settings, devices=d) for d in which
        ]
        taken = in_turns(works, host_time, 5)
    forget()
    return [len(movie) / seconds for seconds in taken]


def forget() -> None:
    """Forget what was planned with other constants."""
    for kept in (select._cuda, detect._plan, detect._plan_and_settings):
        kept.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spots", type=float, default=1e7)
    count = int(parser.parse_args().spots)
    machine = Cuda()
    print(machine.facts())
    which = ["one", "all"] if machine.count > 1 else ["one"]
    spots = simulated(7, 1e7).pixels

    def lines(name: str, array: np.ndarray, variants: tuple[dict[str, int], ...]) -> None:
        for values in variants:
            rates = fits_per_second(array, values, which)
            print(
                f"{name:24} {values or 'as it is'!s:32}", *(f"{r:7.1f}" for r in rates), flush=True
            )

    lines("uint16", Host().tiled(spots.astype(np.uint16), count), ORDINARY)
    lines("float32", Host().tiled(spots, count // 2), ORDINARY[:4])
    for few in (3000, 30_000, 300_000, 3_000_000):
        lines(f"uint16, {few}", Host().tiled(spots.astype(np.uint16), few), FEW)
    lines("page-locked uint16", machine.pinned(spots.astype(np.uint16), count), LOCKED)
    distinct, _ = simulate_movie(500, seed=1)
    for name, frames, variants in (("short", 4000, SHORT), ("long", 100_000, LONG)):
        movie = np.resize(distinct, (frames, *distinct.shape[1:]))
        for values in variants:
            rates = frames_per_second(movie, values, which)
            print(
                f"{name} movie {values or 'as it is'!s:50}",
                *(f"{r:9.0f}" for r in rates),
                flush=True,
            )


if __name__ == "__main__":
    main()
