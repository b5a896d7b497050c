"""True fits that the verdict takes away, and false ones that it leaves, with the bars.

Simulated images of 512×512 pixels, spots of one brightness on a background of 10 photons, default
settings but for σ. A fit is true that ends within 1 px of a spot. In a crowd, some fits of nothing
end there by chance: as many as end as near to the spots of another image, which is the last column.
False fits are those of cells without spots.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import napari_spotfit as spotfit
from napari_spotfit.engine.quality.flags import RULES, main_reasons

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from noisy_scenes import Array, kinds
from scenes import light
from scipy.spatial import cKDTree

SIGMAS = (1.0, 1.3, 2.0)
#: Spots per 100 px², photons of each, and how much of the true fits may be lost. The photons of
#: sparse ones are those at σ 1.3, and grow in proportion to it.
CROWDS = {
    "sparse, 0.1": (0.1, 1000, 0.01), "dim, 0.1": (0.1, 180, 0.01),
    "dense, 1": (1.0, 1000, 0.025), "dense, 2": (2.0, 1000, 0.025),
    "dense, 3": (3.0, 1000, 0.025), "dense, 4": (4.0, 1000, 0.025),
}  # fmt: skip
#: Backgrounds whose false fits count, and how many of these may be good, at all widths together.
CELLS, MOST_KEPT = ("cells 200", "cells 2000"), 0.1
_SIDE, _SPARSE, _DENSE, _CELLS, _NEAR, _SEED, _USUAL = 512, 16, 3, 8, 1.0, 5, 1.3

#: Reasons that take less of the true fits away are not printed.
_TOLD = 5e-4


class Lost(NamedTuple):
    """What becomes of true fits."""

    fits: int
    share: float
    #: Of all true fits, how many are lost under each reason, the one that tells most.
    reasons: dict[str, float]
    #: Of all true fits, how many are lost and end at a spot by chance.
    chance: float


def lost(density: float, photons: float, sigma: float, neighbours: str) -> Lost:
    """Return how many of the true fits are not good, and why."""
    rng = np.random.default_rng([_SEED, round(10 * density), round(10 * sigma), int(photons)])
    if density < 1:
        photons *= sigma / _USUAL
    frames = _SPARSE if density < 1 else _DENSE
    truth = [_places(rng, density) for _ in range(frames)]
    true, chance, flags = 0, 0, []
    for places, others in zip(truth, np.roll(np.array(truth), 1, axis=0), strict=True):
        image = rng.poisson(10 + light(places, photons, sigma, (_SIDE, _SIDE))) + 100
        fits = spotfit.localize(image.astype(np.uint16), sigma=sigma, neighbours=neighbours)
        near = _near(fits, places)
        true += int(near.sum())
        flags.append(fits.flags[near & ~fits.good])
        chance += int((_near(fits, others) & ~fits.good).sum())
    reasons = main_reasons(np.concatenate(flags))
    return Lost(
        true,
        sum(reasons.values()) / true,
        {RULES[flag].word: count / true for flag, count in reasons.items()},
        chance / true,
    )


def _places(rng: np.random.Generator, density: float) -> Array:
    return rng.uniform(-0.5, _SIDE - 0.5, (round(density * _SIDE**2 / 100), 2))


def _near(fits: spotfit.SpotFits, places: Array) -> np.ndarray:
    """Say which fits end near a place."""
    found = np.column_stack([fits.y, fits.x]).astype(float)
    near = np.zeros(len(fits), bool)
    valid = np.isfinite(found).all(axis=1)
    near[valid] = cKDTree(places).query(found[valid])[0] <= _NEAR
    return near


def kept(name: str, sigmas: tuple[float, ...]) -> tuple[int, int]:
    """Return how many fits of cells without spots there are, and how many of them are good."""
    fits = good = 0
    for image in _empty(name):
        for sigma in sigmas:
            found = spotfit.localize(image, sigma=sigma)
            fits, good = fits + len(found), good + int(found.good.sum())
    return fits, good


def _empty(name: str) -> Iterator[np.ndarray]:
    shape = (_SIDE, _SIDE)
    for seed in range(_CELLS):
        rng = np.random.default_rng([_SEED, seed])
        yield kinds(shape, _SEED + seed)[name].image(rng, np.zeros(shape))


def print_verdicts(sigmas: tuple[float, ...] = SIGMAS) -> None:
    """Print what is lost, and what is kept."""
    print(f"\nTrue fits that are not good, in %\n{'':>24}{'lost':>6}{'ignored':>9}{'chance':>8}")
    for name, (density, photons, bar) in CROWDS.items():
        for sigma in sigmas:
            own = lost(density, photons, sigma, "leave out")
            ignored = lost(density, photons, sigma, "ignore")
            why = ", ".join(
                f"{100 * share:.1f} {word}" for word, share in own.reasons.items() if share >= _TOLD
            )
            missed = " MISSED" if round(own.share, 3) > bar else ""
            print(
                f"{f'{name}; σ {sigma}':>24}{100 * own.share:>6.1f}{100 * ignored.share:>9.1f}"
                f"{100 * own.chance:>8.1f}   (≤ {100 * bar:g}){missed} {why}",
                flush=True,
            )
    print("\nFalse fits that are good")
    for name in CELLS:
        fits, good = kept(name, sigmas)
        missed = " MISSED" if good > MOST_KEPT * fits else ""
        print(f"{name:>24} {good} of {fits}, {good / fits:.1%}   (≤ {MOST_KEPT:.0%}){missed}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print_verdicts()
