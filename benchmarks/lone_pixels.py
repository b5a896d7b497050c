"""What it does to fits that lone pixels count in none.

First, how many true spots have a pixel taken for a lone one: alone, from a few photons to very
many, and in crowds of uneven brightness. Then isolated spots on every background of
noisy_scenes.py, fitted at their places, with lone pixels left out and counted: of the fits
that have any, and of all.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from error_scatter import Spots, spots_of

import napari_spotfit as spotfit
from napari_spotfit.engine.cpu.lone_pixels import lone_pixels
from napari_spotfit.localization import rois

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from noisy_scenes import kinds
from scenes import light

_SIDE, _ROUNDS, _SEED = 512, 3, 5
#: Widths of the light; the last two are a PSF that is undersampled.
_WIDTHS = (1.3, 1.0, 0.8, 0.7, 0.5)
_PHOTONS, _BACKGROUNDS = (20, 50, 100, 200, 500, 1000, 100_000), (0.05, 10, 300)
#: Spots per 100 px² of a crowd, and the scatter of the logarithm of their photons.
_CROWDS, _UNEVEN = (1, 3), 1.2
_SCENES = (384, 313)


def taken(image: Any, sigma: float) -> int:
    """Return how many pixels of an image count as lone; its noise is that of photons."""
    # What pixels have seen of the light.
    settings = spotfit.Settings(
        sigma=math.hypot(sigma, 12**-0.5), noise=spotfit.NoiseModel(1.0, 0.0, 0.05)
    )
    frames, corners = image[np.newaxis].astype(np.float32), np.zeros((1, 3), np.int64)
    lost = lone_pixels(frames, corners, image.shape, settings)
    return 0 if lost is None else int(lost.pixels.sum())


def print_taken(sigma: float) -> None:
    """Print how many true spots have a pixel that is taken for a lone one."""
    rng, shape = np.random.default_rng(_SEED), (_SIDE, _SIDE)
    grid = np.mgrid[8 : _SIDE - 12 : 12, 8 : _SIDE - 12 : 12].reshape(2, -1).T
    alone = spots = 0
    for photons in _PHOTONS:
        for background in _BACKGROUNDS:
            for _ in range(_ROUNDS):
                places = grid + rng.uniform(-0.5, 0.5, grid.shape)
                image = rng.poisson(light(places, photons, sigma, shape) + background)
                alone, spots = alone + taken(image, sigma), spots + len(places)
    line = f"σ {sigma}: {alone} of {spots} alone"
    for density in _CROWDS:
        crowded = count = 0
        for _ in range(_ROUNDS):
            number = density * _SIDE**2 // 100
            places = rng.uniform(3, _SIDE - 4, (number, 2))
            photons = rng.lognormal(math.log(3000), _UNEVEN, number) * sigma**2
            image = rng.poisson(light(places, photons, sigma, shape) + 10)
            crowded, count = crowded + taken(image, sigma), count + number
        line += f", {crowded} of {count} where {density} are on 100 px²"
    print(line, flush=True)


@contextmanager
def all_counted() -> Iterator[None]:
    """Let lone pixels count."""
    before = rois.joined
    rois.joined = lambda saturated, lone: saturated  # type: ignore[assignment]
    try:
        yield
    finally:
        rois.joined = before


def fitted(spots: Spots, sigma: float, estimator: str = "lse") -> spotfit.SpotFits:
    """Return the fits of spots at their places; nobody has named hot pixels."""
    camera = None if spots.variance is None else spotfit.Camera(variance=spots.variance)
    known = {"sigma": sigma, "camera": camera, "estimator": estimator}
    return spotfit.fit_at(spots.movie, spots.places, **known, **spots.camera or {})


def numbers(fits: spotfit.SpotFits, like: spotfit.SpotFits, spots: Spots, some: Any) -> str:
    """Return in a line how far fits are from the truth, of some."""
    away = np.hypot(fits.y - spots.places[:, 1], fits.x - spots.places[:, 2])[some]
    usual = {name: np.median(like.columns[name][like.good]) for name in ("sigma", "photons")}
    width, photons = (
        np.nanmedian(fits.columns[name][some]) / usual[name] - 1 for name in ("sigma", "photons")
    )
    off = np.sqrt(np.nanmean(np.minimum(away, 3) ** 2))
    return f"{off:>8.3f}{width:>8.1%}{photons:>9.1%}{np.mean(fits.good[some]):>7.1%}"


def print_fits(sigma: float, estimator: str, frames: int) -> None:
    """Print what fits are with lone pixels left out and counted."""
    title = f"{'r.m.s.':>8}{'σ':>8}{'photons':>9}{'good':>7}"
    print(f"\nσ {sigma}, {estimator}: how far fits are from the truth (px), and how much wider and "
          "brighter than most\nthat have no lone pixels; lone pixels left out, and counted\n"
          f"{'':>32}{title} {title}")  # fmt: skip
    side, seed = _SCENES
    without = []
    for name, kind in kinds((side, side), seed).items():
        spots = spots_of(name, kind, sigma, seed, frames)
        if estimator == "mle" and spots.camera is None:
            continue
        out = fitted(spots, sigma, estimator)
        with all_counted():
            counted = fitted(spots, sigma, estimator)
        differ = (out.sigma != counted.sigma) & ~(np.isnan(out.sigma) & np.isnan(counted.sigma))
        if not differ.any():
            without.append(name)
            continue
        untouched = counted[~differ]
        for which, some in (("with any", differ), ("all", np.ones(len(out), bool))):
            both = (numbers(one, untouched, spots, some) for one in (out, counted))
            print(f"{name:>14}, {which:<9}{some.sum():>6}", *both, flush=True)
    print(f"none is left out of {len(without)} scenes: {', '.join(without)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few frames, σ 1.3 px: a minute")
    given = parser.parse_args()
    for sigma in _WIDTHS[:1] if given.quick else _WIDTHS:
        print_taken(sigma)
    for sigma in (1.3,) if given.quick else (1.0, 1.3, 2.0):
        for estimator in ("lse", "mle"):
            print_fits(sigma, estimator, 4 if given.quick else 12)


if __name__ == "__main__":
    main()
