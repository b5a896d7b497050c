"""Crowded fields of an astigmatic PSF: what is found in three dimensions with a measured PSF.

Spots of 2000 to 5000 photons at random places and z within 400 nm of the focus (numerical aperture
1.4, 670 nm, index 1.518, pixels of 100 nm, background 10). Found and true places are paired one to
one within 250 nm laterally and 500 nm along z; errors are r.m.s., their spread that of 1.48 times
the median of errors over their standard errors. Single spots, one in each frame, are evenly spread
over the calibrated depth and a tenth beyond: more than one good fit is something made up.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from common import bar, run
from scipy.optimize import linear_sum_assignment

import napari_spotfit as spotfit

PIXEL, SIDE, TILE, BACKGROUND, DEEP = 100.0, 64, 31, 10.0, 400.0
PHOTONS, LENS, RADIUS, DEPTH = (2000.0, 5000.0), {"astigmatism": 0.1}, 2.5, 500.0
KNOWN = {"gain": 1.0, "offset": 0.0, "estimator": "mle", "backend": "cpu"}
#: Spots a second, and how far the spread of errors along z is from 1, that are asked for.
SPEED, SPREAD = 1e4, 0.1


def measured(deep: int = 700) -> spotfit.MeasuredPsf:
    """Return the PSF, as it is measured on many bright beads."""
    heights = np.arange(-deep, deep + 1, 50)
    planes = spotfit.simulate_psf(heights, 25, zernike=LENS)
    return spotfit.MeasuredPsf.from_planes(planes, 50.0, plane=deep // 50, pixel_size=PIXEL)


def image_of(rng: np.random.Generator, truth: np.ndarray) -> np.ndarray:
    """Return an image of spots at y, x and z, of some photons."""
    half, pixels = TILE // 2, np.full((SIDE + TILE - 1,) * 2, BACKGROUND)
    if len(truth):
        y, x, z, photons = truth.T
        rows, columns = (np.rint(axis).astype(int) for axis in (y, x))
        light = spotfit.simulate_psf(z, TILE, y=y - rows, x=x - columns, zernike=LENS)
        for row, column, own in zip(rows, columns, photons[:, None, None] * light, strict=True):
            pixels[row : row + TILE, column : column + TILE] += own
    return rng.poisson(pixels[half:-half, half:-half]).astype(np.uint16)


def scene(density: float, frames: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the spots of each frame, and the frames."""
    rng, truth = np.random.default_rng(seed), []
    for _ in range(frames):
        count = rng.poisson(density * (SIDE * PIXEL / 1000) ** 2)
        places = rng.uniform(2, SIDE - 3, (2, count))
        truth.append(np.stack([*places, rng.uniform(-DEEP, DEEP, count),
                               rng.uniform(*PHOTONS, count)], axis=1))  # fmt: skip
    return truth, np.array([image_of(rng, own) for own in truth])


def fitted(frames: np.ndarray, psf: spotfit.MeasuredPsf, neighbours: str, **more: Any) -> Any:
    """Return fits, and how many seconds of the processor they took."""
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = spotfit.localize(frames, model=psf, neighbours=neighbours, **KNOWN, **more)
    return fits, time.process_time() - begun


def print_table(options: argparse.Namespace) -> None:
    """Print what is found at some densities."""
    print("Scores by spots per µm²")
    psf = measured()
    for density in (0.3, 1.0, 2.0):
        truth, frames = scene(density, int(options.spots / (41 * density)) + 1, options.seed)
        for neighbours in options.neighbours:
            _print_scores(
                f"{density:g}/µm² {neighbours}", truth, fitted(frames, psf, neighbours)[0]
            )


def _print_scores(name: str, truth: list[np.ndarray], fits: Any) -> None:
    good, off, off_by_errors = fits[fits.good], [], []
    for frame, own in enumerate(truth):
        here = good[good.frame == frame]
        found = np.column_stack([here.y, here.x, here.z]).astype(float)
        errors = np.column_stack([here.y_stderr, here.x_stderr, here.z_stderr])
        apart = np.linalg.norm(own[:, None, :2] - found[:, :2], axis=2)
        near = (apart < RADIUS) & (abs(own[:, None, 2] - found[:, 2]) < DEPTH)
        rows, columns = linear_sum_assignment(np.where(near, apart - 3 * RADIUS, 0))
        rows, columns = rows[near[rows, columns]], columns[near[rows, columns]]
        off.append(found[columns] - own[rows, :3])
        off_by_errors.append(off[-1] / errors[columns])
    errors, relative = np.concatenate(off), np.concatenate(off_by_errors)
    true, pairs = sum(map(len, truth)), len(errors)
    y, x, z = np.sqrt((errors**2).mean(axis=0)) * (PIXEL, PIXEL, 1)
    spread = 1.4826 * np.median(abs(relative), axis=0)
    limit = "" if "exclude" in name or "ignore" in name else bar(abs(spread[2] - 1), most=SPREAD)
    jaccard, f1 = pairs / (true + len(good) - pairs), 2 * pairs / (true + len(good))
    print(
        f"{name:18} J {jaccard:.3f} F1 {f1:.3f} recall {pairs / true:.3f} precision "
        f"{pairs / len(good):.3f}, x {x:.1f} y {y:.1f} z {z:.1f} nm, spread x {spread[1]:.2f} "
        f"y {spread[0]:.2f} z {spread[2]:.2f}, off 1 by {abs(spread[2] - 1):.2f} {limit}",
        flush=True,
    )


def print_alone(options: argparse.Namespace) -> None:
    """Print how many spots single ones, in focus and out of it, are taken for."""
    print("Good fits beyond one a frame, of single spots")
    psf, rng, count = measured(500), np.random.default_rng(options.seed), 400
    for photons in (1000.0, 5000.0, 20000.0):
        places = rng.uniform(SIDE / 2 - 4, SIDE / 2 + 4, (2, count))
        truth = np.stack([*places, np.linspace(-550, 550, count), np.full(count, photons)], axis=1)
        frames = np.array([image_of(rng, own[None]) for own in truth])
        for neighbours in options.neighbours:
            good = (fits := fitted(frames, psf, neighbours)[0])[fits.good]
            more = int(np.maximum(np.bincount(good.frame, minlength=count) - 1, 0).sum())
            print(f"{photons:g} photons, {neighbours}: {more} of {count}")


def print_speed(options: argparse.Namespace) -> None:
    """Print spots per second of two cores, by the processor's time on one."""
    print("Spots a second by 1 per µm², of two cores")
    _, frames = scene(1.0, 100, options.seed)
    for neighbours in options.neighbours:
        made = [fitted(frames, measured(), neighbours, threads=1) for _ in range(3)]
        speed = max(2 * len(fits) / seconds for fits, seconds in made)
        least = SPEED if neighbours == "joint" else None
        print(f"{neighbours:8} {speed:9.0f} {bar(speed, least=least)}")


SECTIONS = {"table": print_table, "alone": print_alone, "speed": print_speed}


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spots", type=int, default=2000, help="of each density")
    parser.add_argument("--seed", type=int, default=1, help="of scenes")
    parser.add_argument("--neighbours", nargs="+", default=["exclude", "ignore", "joint", "auto"])


if __name__ == "__main__":
    run(__doc__, SECTIONS, _add)
