"""Where a GPU becomes worth its beginning: microseconds of a call, on the GPU and on the CPU.

What the constants in napari_spotfit/engine/choice.py are made from. For every kind of fits and size
of ROI, the number of fits from which on the rule takes the GPU, and the time of a call of a half,
of just so many, and of twice as many; then the same of images that are searched.
"""

from __future__ import annotations

import argparse
import bisect
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_machine import host_time

from napari_spotfit import Settings, detect_spots, fit_spots, localize, simulate_movie
from napari_spotfit import simulate_spots as simulated
from napari_spotfit.engine.choice import worth_for_fits, worth_for_search

KINDS: dict[str, dict[str, Any]] = {
    "lse": {}, "elliptical": {"model": "gaussian_elliptical"},
    "integrated": {"pixel": "integrated"}, "rotated": {"model": "gaussian_rotated"},
    "mle": {"estimator": "mle", "gain": 1.0},
}  # fmt: skip
SIZES = (5, 7, 9, 13, 20, 32)
SIDES = (128, 256, 512, 1024)


def micros(work: Callable[[], object], repeats: int) -> float:
    work()
    work()
    return statistics.median(host_time(work) for _ in range(repeats)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    ways = [{"backend": arguments.backend}]
    ways += [{"backend": "cpu", "threads": threads} for threads in arguments.threads]

    def line(name: str, count: int, work: Callable[..., object]) -> None:
        taken = [micros(lambda way=way: work(**way), arguments.repeats) for way in ways]
        print(f"{name:34} {count:8} " + " ".join(f"{one:9.0f}" for one in taken), flush=True)

    heads = [arguments.backend, *(f"{threads} threads" for threads in arguments.threads)]
    print(f"{'µs of a call':34} {'fits, px':>8} " + " ".join(f"{head:>9}" for head in heads))
    for kind, options in KINDS.items():
        settings = Settings(**options)
        for size in SIZES:
            shape = size, size
            least = bisect.bisect(
                range(100_000), False, key=lambda n: worth_for_fits(settings, n, shape)
            )
            spots = simulated(2 * least, size, photons=400, background=1, seed=size)[0]
            for count in (least // 2, least, 2 * least):
                array = spots[:count].astype(np.uint16)
                line(
                    f"{kind}, {size}×{size}", count,
                    lambda a=array, o=options, **way: fit_spots(a, errors=False, **o, **way),
                )  # fmt: skip
    for side in SIDES:
        movie, _ = simulate_movie(8, shape=(side, side), spots_per_frame=45, seed=1)
        for frames in (1, 2, 4, 8):
            image = movie[:frames]
            settings = localize(image, backend="cpu", roi_size=7).settings
            chosen = "GPU" if worth_for_search(image.size) else "CPU"
            for search in (localize, detect_spots):
                line(
                    f"{search.__name__}, {frames} × {side}² ({chosen})", image.size,
                    lambda s=search, i=image, o=settings, **way: s(i, settings=o, **way),
                )  # fmt: skip


if __name__ == "__main__":
    main()
