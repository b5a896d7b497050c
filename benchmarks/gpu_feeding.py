"""Speed of fits from the host's memory by how GPUs are fed.

Prints million fits per second for what napari_spotfit/engine/cuda/pieces.py and staging.py have as
constants, one changed at a time, with one GPU and with all: what these constants are chosen by.
Then frames per second of a movie by the number of blocks under way, which engine/select.py has.
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
from napari_spotfit.engine.cuda import pieces, staging

MIB = 1 << 20
#: Of ordinary memory, and of page-locked memory.
ORDINARY: tuple[dict[str, int], ...] = (
    {}, {"FEEDERS": 4}, {"FEEDERS": 6}, {"FEEDERS": 12}, {"PIECE_BYTES": 16 * MIB},
    {"PIECE_BYTES": 64 * MIB}, {"PART": MIB // 2}, {"PART": MIB}, {"PART": 4 * MIB},
    {"PARTS": 2}, {"PARTS": 8}, {"UNDER_WAY": 3}, {"_MOST_RESULTS": 0},
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
WORKERS = (1, 2, 3, 4, 6, 8, 12)


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
    movie = np.resize(distinct, (4000, *distinct.shape[1:]))
    settings = localize(distinct, backend="cuda", roi_size=7, errors=False).settings
    for workers in WORKERS:
        with patch.multiple(select, _GPU_WORKERS=workers, _WORKERS_OF_EACH=0):
            select._cuda.cache_clear()
            works: list[Work] = [
                lambda d=d: localize(movie, settings=settings, devices=d) for d in which
            ]
            taken = in_turns(works, host_time, 3)
        print(f"movie, {workers} at once", *(f"{len(movie) / s:9.0f}" for s in taken), flush=True)
    select._cuda.cache_clear()


if __name__ == "__main__":
    main()
