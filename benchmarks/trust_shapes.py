"""Measure results for lines and other shapes, saturation of scaled images, and wrong cameras."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import bar

import napari_spotfit as spotfit

SIDE, SIGMA, BACKGROUND = 512, 1.3, 20.0
Y, X = np.indices((SIDE, SIDE))
ELONGATED, SATURATED = int(spotfit.Flag.ELONGATED), int(spotfit.Flag.SATURATED)
Array = np.ndarray[Any, np.dtype[np.float64]]
#: Largest number of good fits on straight lines by height; largest fraction of true spots lost, at
#: three times the detection limit and of dimmer ones.
MOST_ON_LINES = {5: 8, 10: 5, 15: 5, 30: 5}
LOST, LOST_DIM = 0.01, 0.03


def _lines(height: float, degrees: float = 0.0, period: float = 32, width: float = SIGMA) -> Array:
    angle = np.deg2rad(degrees)
    away = (Y * np.cos(angle) + X * np.sin(angle)) % period - period / 2
    return height * np.exp(-(away**2) / (2 * width**2))


def _patches(seed: int, count: int, shape: Callable[[Array, Array], Array]) -> Array:
    """Return patches of a shape at random positions and angles."""
    rng, light = np.random.default_rng(seed), np.zeros((SIDE, SIDE))
    for y, x in rng.uniform(24, SIDE - 24, (count, 2)):
        angle, down, right = rng.uniform(0, np.pi), Y - y, X - x
        along = right * np.cos(angle) + down * np.sin(angle)
        light += shape(along, down * np.cos(angle) - right * np.sin(angle))
    return light


def _rings(radius: float) -> Callable[[Array, Array], Array]:
    return lambda a, b: 80 * np.exp(-((np.hypot(a, b) - radius) ** 2) / (2 * SIGMA**2))


def _ellipses(times: float) -> Callable[[Array, Array], Array]:
    return lambda a, b: 150 * np.exp(-((a / times) ** 2 + b**2) / (2 * SIGMA**2))


def _shapes(seed: int) -> Iterator[tuple[str, Array]]:
    yield "stripes, period 9", _lines(40, 20, 9)
    for radius in (7, 12):
        yield f"rings of {radius} px", _patches(seed, 40, _rings(radius))
    for times in (2, 3):
        yield f"granules {times} times as long", _patches(seed, 250, _ellipses(times))


def _points(seed: int, height: float, step: int = 20) -> tuple[Array, Array]:
    rng, light = np.random.default_rng(seed), np.zeros((SIDE, SIDE))
    places = np.mgrid[12 : SIDE - 12 : step, 12 : SIDE - 12 : step].reshape(2, -1).T
    places = places + rng.uniform(-0.5, 0.5, places.shape)
    for y, x in places:
        part = slice(int(y) - 9, int(y) + 10), slice(int(x) - 9, int(x) + 10)
        away = (Y[part] - y) ** 2 + (X[part] - x) ** 2
        light[part] += height * np.exp(-away / (2 * SIGMA**2))
    return places, light


def _taken(light: Array, seed: int) -> Array:
    return np.random.default_rng(seed).poisson(BACKGROUND + light).astype(float)


def _counts(fits: spotfit.SpotFits) -> tuple[int, int]:
    """Return the numbers of fits that are good without the flag, and with it."""
    others = (fits.flags & ~np.uint32(ELONGATED)) == 0
    return int(others.sum()), int(fits.good.sum())


def print_shapes(quick: bool) -> None:
    """Print good fits on other shapes than spots, and true spots that are lost."""
    seeds = range(50, 52 if quick else 58)
    print("\ngood fits per 512² on lines, without the flag ELONGATED and with it")
    for height, most in MOST_ON_LINES.items():
        found = [
            _counts(spotfit.localize(_taken(_lines(height, 10 * seed), seed), sigma=SIGMA))
            for seed in seeds
        ]
        before, after = np.mean(found, axis=0)
        print(f"{height:>6} counts {before:8.0f} {after:6.1f} {bar(after, most=most)}", flush=True)
    for name, light in _shapes(seeds[0]):
        before, after = _counts(spotfit.localize(_taken(light, 1), sigma=SIGMA))
        print(f"{name:>28} {before:6} {after:6}", flush=True)
    print("\ntrue spots that the flag loses, in %")
    for height in (13, 16, 20, 30, 48, 300, 3000):
        lost = []
        for seed in seeds:
            places, light = _points(seed, height)
            fits = spotfit.fit_at(_taken(light, seed), places, sigma=SIGMA)
            lost.append(np.mean((fits.flags & ELONGATED) != 0))
        wanted = LOST if height >= 48 else LOST_DIM
        share = 100 * np.mean(lost)
        print(f"{height:>6} counts {share:6.2f} {bar(share, most=100 * wanted)}", flush=True)


def print_saturated(quick: bool) -> None:
    """Print how many of 100 saturated spots are flagged in scaled images."""
    places, light = _points(7, 20_000, 48)
    counts = np.minimum(_taken(light, 7), 4095)
    scaled = {
        "12 bits": counts.astype(np.uint16), "to [0, 1]": (counts / 4095).astype(np.float32),
        "to [-1, 1]": counts / 2047.5 - 1, "8 bits": (counts // 16).astype(np.uint8),
        "7 bits": (counts // 32).astype(np.uint8), "7 bits, to [0, 1]": counts // 32 / 127,
    }  # fmt: skip
    print("\nsaturated spots: flagged in %, good")
    for name, image in scaled.items():
        fits = spotfit.fit_at(image, places, sigma=SIGMA)
        flagged, good = 100 * np.mean((fits.flags & SATURATED) != 0), int(fits.good.sum())
        print(f"{name:>20} {flagged:5.0f} {bar(flagged, least=98)} {good:4} {bar(good, most=0)}",
              flush=True)  # fmt: skip


def print_cameras(quick: bool) -> None:
    """Print warnings of right and wrong cameras, in sparse images on an even background."""
    print("\nimages of 10 with a warning: right, upside down, offset too high")
    for gain in (0.25, 2.2) if quick else (0.25, 0.5, 2.2, 5.0, 12.5):
        said = np.zeros(3, int)
        for seed in range(10):
            rng = np.random.default_rng(seed)
            _, light = _points(seed, 90, 60)
            electrons = rng.poisson(light[:256, :256] + 10) + rng.normal(0, 1.5, (256, 256))
            image = np.rint(100 + gain * electrons).clip(0).astype(np.uint16)
            high = 100 + 14 * gain
            for i, (own, offset) in enumerate(((gain, 100), (1 / gain, 100), (gain, high))):
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    spotfit.localize(image, sigma=SIGMA, gain=own, offset=offset)
                said[i] += bool(warned)
        print(f"gain {gain:>5g}: {said[0]:3} {bar(said[0], most=0)} {said[1]:3} "
              f"{bar(said[1], least=10)} {said[2]:3} {bar(said[2], least=10)}",
              flush=True)  # fmt: skip
