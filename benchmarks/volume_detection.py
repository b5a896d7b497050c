"""Detection in z-stacks: false spots, smFISH-like stacks beside other programs, and time.

``false`` counts what is found where there is nothing, and how many fits of it are good, per 10⁶
voxels at 10 expected, on the noises of tests/helpers/noisy_scenes.py plane by plane, and on stacks
that were blurred along z, too, of several stacks of each kind: what one has scatters by 2 to each
side by chance. ``cells`` prints F1 within 1 px in the plane and 1.5 planes along z
in stacks of cells with a textured background, beside big-fish and scikit-image where they are
installed, at their default and at their best threshold; ``others`` the same in stacks of another
kind: long cells with dark nuclei, other light, widths, noise and densities. Limits of the fits were
chosen with stacks of both kinds in sight, those of ``others`` made by other seeds. Each spot is
fitted by itself, and those together that overlap (``neighbours="auto"``). ``time`` searches a large
stack.
"""

from __future__ import annotations

import argparse
import importlib
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from common import bar, run
from noisy_scenes import kinds
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

import napari_spotfit as spotfit

Array = NDArray[np.float64]

SIGMA, SIGMA_Z = 1.3, 1.5
#: Good false spots per 10⁶ voxels that are allowed, and how far F1 is to be above the best peer's.
ALLOWED, ABOVE = 15.0, 0.03
#: Seconds for 40 planes of 2048×2048 pixels on two cores.
MOST_SECONDS = 4.0
#: What stacks without spots are made by: 30 million voxels of each kind in all.
SEEDS = (313, 314, 315, 316, 317, 318, 319)
#: False spots per 10⁶ voxels: a stack of ten million has a hundred by default.
ASKED = (10.0, 0.1)
#: Fits of each spot by itself, and of those together that overlap.
NEIGHBOURS = ("exclude", "auto")
#: Voxels of this size in nm, for peers that want them.
_NM = 100.0


class Stack(NamedTuple):
    """A stack, and where its spots are: z, y and x."""

    name: str
    pixels: NDArray[np.generic]
    truth: Array
    #: σ along z and in the plane.
    widths: tuple[float, float] = (SIGMA_Z, SIGMA)


def spots_in(
    shape: tuple[int, ...], places: Array, heights: Array, widths: tuple[float, float]
) -> Array:
    """Return the light of spots in a stack."""
    light = np.zeros(shape)
    along = widths[0], widths[1], widths[1]
    reach = [int(4 * width) + 2 for width in along]
    for place, height in zip(places, heights, strict=True):
        first = [max(int(at) - far, 0) for at, far in zip(place, reach, strict=True)]
        part = tuple(
            slice(low, min(int(at) + far + 1, size))
            for low, at, far, size in zip(first, place, reach, shape, strict=True)
        )
        lines = [
            np.exp(-0.5 * ((np.arange(one.start, one.stop) - at) / width) ** 2)
            for one, at, width in zip(part, place, along, strict=True)
        ]
        light[part] += height * np.einsum("z,y,x->zyx", *lines)
    return light


def empty_stacks(shape: tuple[int, int, int], seed: int) -> Iterator[Stack]:
    """Yield stacks without spots, one of each kind."""
    nothing = np.zeros((0, 3))
    for name, kind in kinds((shape[1], shape[2]), seed).items():
        rng = np.random.default_rng([seed, *name.encode()])
        planes = [kind.image(rng, np.zeros(shape[1:])) for _ in range(shape[0])]
        yield Stack(name, np.stack(planes), nothing)
    rng = np.random.default_rng(seed)
    raw = rng.poisson(30.0, shape) + 100.0
    for name, width in (("blurred along z", (1, 0, 0)), ("blurred in 3-D", (1, 1, 1))):
        yield Stack(name, ndimage.gaussian_filter(raw, width).astype(np.float32), nothing)


def print_false(options: argparse.Namespace) -> None:
    """Print how many spots are found where there are none."""
    shape = (10, 256, 256) if options.quick else (30, 384, 384)
    print(f"\nfalse spots per 10⁶ voxels at 10 expected, {len(SEEDS)} × {shape}, ± by chance")
    print(f"{'':>18}{'found':>8}  " + ", ".join(f"good with {name!r}" for name in NEIGHBOURS))
    known = {"model": "gaussian_3d", "sigma": SIGMA, "sigma_z": SIGMA_Z}
    million = len(SEEDS) * math.prod(shape) / 1e6
    for stacks in zip(*(empty_stacks(shape, seed) for seed in SEEDS), strict=True):
        found = sum(len(spotfit.detect_spots(stack.pixels, **known)) for stack in stacks)
        line = f"{stacks[0].name:>18}{found / million:>8.1f}"
        for neighbours in NEIGHBOURS:
            good = sum(
                int(spotfit.localize(stack.pixels, **known, neighbours=neighbours).good.sum())
                for stack in stacks
            )
            rate, chance = good / million, math.sqrt(good) / million
            line += f"{rate:>8.1f} ± {chance:.1f} {bar(rate, most=ALLOWED, form='.1f')}"
        print(line, flush=True)


# ---- Cells ----


def cell_stack(spots: int, seed: int, shape: tuple[int, int, int] = (40, 512, 512)) -> Stack:
    """Return cells with a textured background, as smFISH has them, and spots in them.

    Most spots are about as bright as the light of the cell around them.
    """
    rng = np.random.default_rng(seed)
    depth, *plane = shape
    z, y, x = np.ogrid[:depth, : plane[0], : plane[1]]
    inside = np.zeros(shape)
    for _ in range(plane[0] * plane[1] // 26_000):
        middle = (rng.uniform(0.35, 0.65) * depth, *rng.uniform(0, plane))
        radii = (rng.uniform(0.25, 0.4) * depth, *rng.uniform(45, 80, 2))
        distance = sum(
            ((axis - at) / radius) ** 2
            for axis, at, radius in zip((z, y, x), middle, radii, strict=True)
        )
        inside = np.maximum(inside, np.clip(2 * (1 - distance), 0, 1))
    texture = ndimage.gaussian_filter(rng.normal(size=shape), (3, 4, 4))
    fine = ndimage.gaussian_filter(rng.normal(size=shape), (2.5, 2.2, 2.2))
    haze = ndimage.gaussian_filter(inside, (8, 12, 12))
    soft = ndimage.gaussian_filter(inside, (3, 3, 3))  # light from out of focus
    cells = soft * (1 + 0.12 * texture / texture.std() + 0.04 * fine / fine.std())
    background = 20 + 40 * np.maximum(cells, 0) + 20 * haze
    there = np.argwhere(inside > 0.3)
    places = there[rng.choice(len(there), spots)] + rng.uniform(-0.5, 0.5, (spots, 3))
    heights = 60 * np.exp(0.35 * rng.normal(size=spots))
    light = rng.poisson(background + spots_in(shape, places, heights, (SIGMA_Z, SIGMA)))
    counts = 2.0 * (light + rng.normal(0, 1.6, shape)) + 100
    return Stack(f"{spots} spots", np.clip(np.rint(counts), 0, 65535).astype(np.uint16), places)


def other_cell_stack(
    spots: int, seed: int, shape: tuple[int, int, int] = (40, 512, 512), of: int = 91
) -> Stack:
    """Return long cells with dark nuclei under uneven light, and more spots at one of their ends.

    Cells, light, widths, noise and densities are other ones.
    """
    rng = np.random.default_rng([of, seed])
    depth, *plane = shape
    widths = 1.9, 1.55
    z, y, x = np.ogrid[:depth, : plane[0], : plane[1]]
    inside, end = np.zeros(shape), np.zeros(shape)
    for _ in range(plane[0] * plane[1] // 20_000):
        at, turn = rng.uniform(0, plane), rng.uniform(0, np.pi)
        long, short, high = (
            rng.uniform(60, 110),
            rng.uniform(22, 40),
            rng.uniform(0.22, 0.38) * depth,
        )
        u = (np.cos(turn) * (x - at[1]) + np.sin(turn) * (y - at[0])) / long
        v = (np.cos(turn) * (y - at[0]) - np.sin(turn) * (x - at[1])) / short
        w = (z - rng.uniform(0.4, 0.6) * depth) / high
        body = np.clip(4 * (1 - u**4 - v**4 - w**2), 0, 1)
        nucleus = np.clip(3 * (1 - 9 * u**2 - 2.2 * v**2 - 2.2 * w**2), 0, 1)
        inside = np.maximum(inside, body * (1 - 0.55 * nucleus))
        end = np.maximum(end, body * np.clip(0.5 + u, 0.05, 1))
    uneven = 1 - 0.35 * (
        ((y - plane[0] / 3) / plane[0]) ** 2 + ((x - plane[1] / 2) / plane[1]) ** 2
    )
    vesicles = ndimage.gaussian_filter((rng.random(shape) < 4e-4).astype(float), (4, 4.5, 4.5))
    texture = ndimage.gaussian_filter(rng.normal(size=shape), (4, 6, 6))
    soft = ndimage.gaussian_filter(inside, (4, 2, 2))
    haze = ndimage.gaussian_filter(inside, (12, 16, 16))
    cells = soft * (1 + 0.1 * texture / texture.std() + 0.06 * vesicles / vesicles.std())
    background = uneven * (35 + 70 * np.maximum(cells, 0) + 45 * haze)
    chance = np.where(inside > 0.3, end, 0).ravel()
    there = np.unravel_index(rng.choice(chance.size, spots, p=chance / chance.sum()), shape)
    places = np.column_stack(there) + rng.uniform(-0.5, 0.5, (spots, 3))
    heights = 85 * np.exp(0.45 * rng.normal(size=spots))
    light = rng.poisson(background + spots_in(shape, places, heights, widths))
    counts = 0.46 * light + rng.normal(0, 1.1, shape) + 210
    pixels = np.clip(np.rint(counts), 0, 65535).astype(np.uint16)
    return Stack(f"{spots} spots", pixels, places, widths)


def f1(found: Array, truth: Array) -> float:
    """Return F1 within 1 px in the plane and 1.5 planes along z, one to one, the nearest first."""
    scale = np.array([1 / 1.5, 1.0, 1.0])
    trees = [cKDTree(places * scale) for places in (found, truth)]
    pairs = trees[0].sparse_distance_matrix(trees[1], math.sqrt(2), output_type="ndarray")
    away = abs(found[pairs["i"]] - truth[pairs["j"]])
    pairs = pairs[(away[:, 0] <= 1.5) & (np.hypot(away[:, 1], away[:, 2]) <= 1.0)]
    free, is_open, count = np.ones(len(found), bool), np.ones(len(truth), bool), 0
    for i, j, _ in pairs[np.argsort(pairs["v"], kind="stable")]:
        if free[i] and is_open[j]:
            free[i] = is_open[j] = False
            count += 1
    return 2 * count / max(len(found) + len(truth), 1)


class Found(NamedTuple):
    """What a peer finds, and how far each stands out in its own measure."""

    places: Array
    strength: Array


def big_fish(stack: Stack, *, all_of_them: bool) -> Found:
    """Laplacian of a Gaussian, by default with the kink in the number of spots as threshold."""
    from bigfish.detection import detect_spots
    from bigfish.stack import log_filter

    image = stack.pixels.astype(np.float64) if all_of_them else stack.pixels
    widths = stack.widths[0], stack.widths[1], stack.widths[1]
    size, radius = 3 * (_NM,), tuple(_NM * width for width in widths)
    strength = log_filter(image, widths)
    least = float(np.quantile(strength, 0.99)) if all_of_them else None
    places = detect_spots(image, threshold=least, voxel_size=size, spot_radius=radius)
    return Found(places.astype(float), strength[tuple(places.T)].astype(float))


def scikit_image(stack: Stack, *, all_of_them: bool) -> Found:
    """Laplacian of a Gaussian of one width; the image from 0 to 1, as its threshold wants it."""
    from skimage.feature import peak_local_max

    # blob_log with one σ is this, without the strength of each.
    low, high = float(stack.pixels.min()), float(stack.pixels.max())
    image = (stack.pixels - low) / (high - low)
    widths = stack.widths[0], stack.widths[1], stack.widths[1]
    strength = -ndimage.gaussian_laplace(image, widths) * np.mean(widths) ** 2
    least = float(np.quantile(strength, 0.99)) if all_of_them else 0.2
    places = peak_local_max(strength, threshold_abs=least, exclude_border=False)
    return Found(places.astype(float), strength[tuple(places.T)])


PEERS: dict[str, tuple[str, Callable[..., Found]]] = {
    "big-fish": ("bigfish", big_fish), "blob_log": ("skimage", scikit_image),
}  # fmt: skip


def best_f1(found: Found, truth: Array) -> float:
    """Return F1 at the threshold that suits the truth best."""
    order = np.argsort(-found.strength)
    counts = np.unique(np.geomspace(len(truth) / 10, len(truth) * 6, 60).astype(int))
    return max(f1(found.places[order[:n]], truth) for n in counts if n <= len(order))


def print_cells(options: argparse.Namespace) -> None:
    """Print F1 in stacks with which limits of the fits were chosen."""
    _print_f1("cells", cell_stack, (600, 1000, 1500)[: 1 if options.quick else None])


def print_others(options: argparse.Namespace) -> None:
    """Print F1 in stacks of another kind, made by seeds with which nothing was chosen."""
    _print_f1(
        "other cells",
        partial(other_cell_stack, of=92),
        (450, 800, 1300)[: 1 if options.quick else None],
    )


def _print_f1(title: str, make: Callable[[int, int], Stack], counts: tuple[int, ...]) -> None:
    """Print F1 of our detection and fits, and of the peers."""
    peers = {}
    for name, (module, peer) in PEERS.items():
        try:
            importlib.import_module(module)
            peers[name] = peer
        except ImportError:
            print(f"{name} is not installed")
    kinds_of_rows = ("found", *NEIGHBOURS)
    columns = [f"{what}, {asked:g}" for asked in ASKED for what in kinds_of_rows]
    columns += [f"{name} {kind}" for name in peers for kind in ("", "best")]
    print(f"\n{title}, F1\n{'':>12}" + "".join(f"{name:>15}" for name in columns))
    for spots in counts:
        stack = make(spots, spots)
        known = {"model": "gaussian_3d", "sigma": stack.widths[1], "sigma_z": stack.widths[0]}
        scores = []
        for asked in ASKED:
            own = spotfit.detect_spots(stack.pixels, **known, false_spots=asked)
            scores.append(f1(own, stack.truth))
            for neighbours in NEIGHBOURS:
                fits = spotfit.localize(
                    stack.pixels, **known, false_spots=asked, neighbours=neighbours
                )
                good = np.column_stack([fits.columns[axis] for axis in "zyx"])[fits.good]
                scores.append(f1(good, stack.truth))
        theirs = []
        for peer in peers.values():
            theirs.append(f1(peer(stack, all_of_them=False).places, stack.truth))
            theirs.append(best_f1(peer(stack, all_of_them=True), stack.truth))
        line = f"{stack.name:>12}" + "".join(f"{score:>15.3f}" for score in scores + theirs)
        if theirs:
            best = max(theirs)
            wanted = min(best + ABOVE, (1 + best) / 2)
            own = max(scores)
            line += f"  best of ours {own:.3f} {bar(own, least=wanted, form='.3f')}"
        print(line, flush=True)


def print_time(options: argparse.Namespace) -> None:
    """Print how long a large stack takes."""
    shape, spots = ((20, 512, 512), 600) if options.quick else ((40, 2048, 2048), 20_000)
    rng = np.random.default_rng(1)
    places = np.column_stack([rng.uniform(0, size - 1, spots) for size in shape])
    light = spots_in(shape, places, np.full(spots, 150.0), (SIGMA_Z, SIGMA))
    stack = np.stack([rng.poisson(100 + plane).astype(np.uint16) for plane in light])
    del light
    best, found = np.inf, 0
    for _ in range(3):
        begun = time.perf_counter()
        found = len(spotfit.detect_spots(stack, dimensions=3, sigma=SIGMA, sigma_z=SIGMA_Z))
        best = min(best, time.perf_counter() - begun)
    asked = "" if options.quick else bar(best, most=MOST_SECONDS)
    print(f"\n{'×'.join(map(str, shape))}: {found} found of {spots}, {best:.2f} s {asked}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(
        __doc__,
        {"false": print_false, "cells": print_cells, "others": print_others, "time": print_time},
    )
