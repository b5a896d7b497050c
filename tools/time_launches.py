"""Measure the longest launch of each kernel, as a display driver ends launches after two seconds.

On a GPU with a twentieth of an H200's speed and multiprocessors, none should take more than 0.2 s.
Work is divided here as for such a GPU. A launch should take a twentieth of that on an H200, 10 ms;
with so few warps that such a GPU runs them all at once, it takes as long there as here, and may
take half of the 0.2 s. All cases are large enough to be divided into launches.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import cupy
import numpy as np

from napari_spotfit import NoiseModel, Profile, Settings, detect_spots, fit_spots, simulate_spots
from napari_spotfit.engine.cuda import compile as compiling
from napari_spotfit.engine.cuda import fit

#: Largest milliseconds of a launch on an H200, and of the smallest possible launch.
MOST, MOST_OF_SMALL = 10.0, 100.0
#: Number of multiprocessors of the slow GPU.
FEW = 7
#: Bytes of the spots of a call.
SPOTS = 2e7
FLOWER = Profile.from_expression(
    "exp(-((x-x0)**2/a + (y-y0)**2/b)**p / 2) * (1 + c*cos(x/d) + e*sin(y/f))",
    start={"a": 2.0, "b": 2.0, "p": 1.0, "c": 0.1, "d": 2.0, "e": 0.1, "f": 2.0},
)
KINDS: dict[str, dict[str, Any]] = {
    "round": {},
    "integrated, maximum likelihood, errors":
        {"pixel": "integrated", "estimator": "mle", "gain": 1.0, "errors": True},
    "rotated, maximum likelihood, errors":
        {"model": "gaussian_rotated", "estimator": "mle", "gain": 1.0, "errors": True},
    "nine parameters of an expression, maximum likelihood, errors":
        {"model": FLOWER, "estimator": "mle", "gain": 1.0, "errors": True},
}  # fmt: skip


class Timed:
    """Wraps a kernel to time its launches."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, grid: tuple[int], block: tuple[int, ...], given: Any) -> None:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        self._kernel(grid, block, given)
        end.record()
        small = math.prod(grid) * math.prod(block) <= FEW * fit._WARPS_AT_ONCE * 32
        LAUNCHES.append((begin, end, MOST_OF_SMALL if small else MOST))


LAUNCHES: list[tuple[Any, Any, float]] = []


def longest(what: str, work: Any) -> float:
    """Print the duration of the longest launch; return it as a fraction of the limit."""
    work()
    LAUNCHES.clear()
    work()
    cupy.cuda.Device().synchronize()
    shares = [
        (cupy.cuda.get_elapsed_time(begin, end) / most, most) for begin, end, most in LAUNCHES
    ]
    share, most = max(shares)
    print(
        f"{what:78s} {len(shares):5d} launches, the longest {share * most:7.2f} ms (≤ {most})",
        flush=True,
    )
    return share


def main() -> int:
    original = compiling._compiled
    fit._multiprocessors = lambda device: FEW  # type: ignore[assignment]
    compiling._compiled = lambda *given: Timed(original(*given))  # type: ignore[assignment]
    rng, found = np.random.default_rng(0), []
    for size in (7, 16, 32):
        spots, _ = simulate_spots(5000, size, photons=300, background=2, sigma=(1.0, 3.0), seed=1)
        # Spots without light need all iterations.
        spots[::4] = rng.poisson(2, spots[::4].shape)
        count = int(SPOTS / 2 / size**2)
        there = cupy.tile(cupy.asarray(spots.astype(np.uint16)), (-(-count // 5000), 1, 1))
        for name, options in KINDS.items():
            found.append(
                longest(
                    f"{size}×{size}, {name}, 1000 iterations at most",
                    lambda there=there, options=options: fit_spots(
                        there, backend="cuda", on_device=True, max_iterations=1000,
                        **({"errors": False} | options),
                    ),
                )
            )  # fmt: skip
        del there
    image = rng.poisson(9, (1, 4096, 4096)).astype(np.float64)
    for name, options in KINDS.items():
        found.append(
            longest(
                f"4096×4096, {name}",
                lambda options=options: fit_spots(image, backend="cuda", **options),
            )
        )
    frame = cupy.asarray(rng.poisson(9, (1, 16384, 8192)).astype(np.float64))
    # By score, and by a threshold below the noise.
    for sigma, threshold in ((1.3, None), (10.0, None), (1.3, 2.0)):
        settings = Settings(
            sigma=sigma, threshold=threshold, noise=NoiseModel.of_camera(1.0), backend="cuda"
        )
        found.append(
            longest(
                f"detection, 16384×8192 float64, σ {sigma}, threshold {threshold}",
                lambda settings=settings: detect_spots(frame, settings=settings),
            )
        )
    good = max(found) <= 1
    print(f"the longest takes {max(found):.0%} of what it may: {'ok' if good else 'MISSED'}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
