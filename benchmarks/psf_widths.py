"""How far the PSF's width that an image tells is off, from sparse to dense, dim to bright.

A sampled Gaussian on pixels that integrate has the width √(σ² + 1/12): that is the truth.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import numpy as np

import napari_spotfit as spotfit

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from noisy_scenes import noisy_scenes
from scenes import light

SIGMAS = (0.8, 1.0, 1.3, 2.0, 3.0, 4.0)
#: How far off an estimate may be, as a fraction.
BAR = 0.05
#: Photons of a spot, and spots per 100 px²; both are those at σ 1.3. The first are few in a frame.
SCENES = {
    "sparse": (1000, 0.008), "sparse, dim": (180, 0.008), "dim": (180, 0.07),
    "dense 2": (1000, 2.0), "dense 3": (1000, 3.0), "dense 2, dim": (180, 2.0),
    "dense 2, bright": (50_000, 2.0), "dense 3, bright": (50_000, 3.0),
}  # fmt: skip
#: Backgrounds that are filtered, and so are their spots: they have a width of their own.
_FILTERED = ("median", "interpolated", "blurred")
_SIDE, _FRAMES, _SEED, _USUAL = 256, 16, 77, 1.3


def movie_of(name: str, sigma: float, seed: int = _SEED) -> np.ndarray:
    """Return frames with spots of a width, as crowded and as dim for it as they are at σ 1.3."""
    photons, density = SCENES[name]
    rng = np.random.default_rng([seed, len(name), round(10 * sigma)])
    each = density * _SIDE**2 / 100 * ((_USUAL / sigma) ** 2 if density >= 1 else 1)
    photons *= sigma / _USUAL
    shape = (_SIDE, _SIDE)
    frames = [
        rng.poisson(
            10 + light(rng.uniform(-0.5, _SIDE - 0.5, (round(each), 2)), photons, sigma, shape)
        )
        for _ in range(_FRAMES)
    ]
    return np.clip(np.array(frames) + 100, 0, 65535).astype(np.uint16)


def error_of(movie: np.ndarray, sigma: float) -> float:
    """Return how far off the estimate is, as a fraction; NaN where there is none."""
    try:
        return spotfit.estimate_sigma(movie).sigma / math.hypot(sigma, 12**-0.5) - 1
    except ValueError:
        return math.nan


def print_widths(sigmas: tuple[float, ...] = SIGMAS) -> None:
    """Print the error of each scene's estimate in percent, and what it costs."""
    print(f"\nPSF's width: its error in % (bar ± {100 * BAR:.0f})")
    print(f"{'':>16}" + "".join(f"{f'σ {sigma}':>9}" for sigma in sigmas))
    rows = [(name, [error_of(movie_of(name, sigma), sigma) for sigma in sigmas]) for name in SCENES]
    scenes = [list(noisy_scenes(sigma)) for sigma in sigmas if 1 <= sigma <= 2]
    for same in zip(*scenes, strict=True):
        if same[0].name not in _FILTERED:
            errors = {one.sigma: error_of(np.array(one.frames), one.sigma) for one in same}
            rows.append((same[0].name, [errors.get(sigma, -math.inf) for sigma in sigmas]))
    for name, errors in rows:
        told = [
            "" if e == -math.inf else "none" if math.isnan(e) else f"{100 * e:+.1f}" for e in errors
        ]
        missed = any(not abs(e) <= BAR for e in errors if e != -math.inf)
        print(
            f"{name:>16}" + "".join(f"{text:>9}" for text in told) + (" MISSED" if missed else "")
        )


def print_costs() -> None:
    """Print how long localize takes without σ and with it, on a frame and on a movie."""
    rng = np.random.default_rng(_SEED)
    print(f"\n{'localize, ms':>30}{'σ given':>9}{'estimated':>11}")
    for shape, count in (((1, 2048, 2048), 3000), ((1, 2048, 2048), 20), ((50, 256, 256), 20)):
        frames = [
            rng.poisson(10 + light(rng.uniform(0, shape[1], (count, 2)), 1000, _USUAL, shape[1:]))
            for _ in range(shape[0])
        ]
        movie = (np.array(frames) + 100).astype(np.uint16)
        known = spotfit.localize(movie).settings
        given = _least_time(movie, sigma=known.sigma, roi_size=known.roi_size)
        text = f"{'×'.join(map(str, shape))}, {count} a frame"
        print(f"{text:>30}{given:>9.0f}{_least_time(movie):>11.0f}")


def _least_time(movie: np.ndarray, **options: object) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        spotfit.localize(movie, **options)  # type: ignore[arg-type]
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


if __name__ == "__main__":
    print_widths()
    print_costs()
