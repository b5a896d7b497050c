"""Measure the speed of pairing, the accuracy of registration, and the estimate of chance.

``pairs`` pairs 10⁶ spots with 10⁶ others, half of them true pairs, and measures chance, by wall and
CPU time. ``registration`` finds known maps of noisy spots, and compares errors over the field with
the Cramér–Rao bound by all true pairs, and the stated error with that of a pair left out.
``chance`` counts for how many seeds the pairs of independent channels in textured cells are within
two standard errors of the expected number, by shifts and by the density alone.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from common import bar, run
from scenes_of_channels import fits_at, textured_cells, two_channels

from napari_spotfit import pair_spots, register_channels

MAPS = {
    "affine, 100 spots": {"count": 100, "turned": 2.0, "shift": (5, 9)},
    "affine, turned by 5°, scale 1.05, half alone": {
        "count": 400, "turned": 5.0, "scale": 1.05, "alone": 0.5, "shift": (20, 5),
    },
    "affine, dense, half alone": {"count": 4000, "alone": 0.5, "error": 0.2, "shift": (-8, 3)},
    "polynomial": {"count": 300, "bent": 4.0, "alone": 0.2, "turned": 1.0},
}  # fmt: skip
CELLS = {
    "the same texture and nuclei in both": {},
    "the same nuclei, few spots": {"per_cell": 10},
    "textures of their own": {"shared": False, "nuclei": False},
}


def pairs(arguments: argparse.Namespace) -> None:
    """Time the pairs of two million spots."""
    count = 10_000 if arguments.quick else 1_000_000
    random = np.random.default_rng(0)
    side = (count / 0.02) ** 0.5
    a = random.uniform(0, side, (count, 2))
    b = random.uniform(0, side, (count, 2))
    b[: count // 2] = a[: count // 2] + random.normal(0, 0.3, (count // 2, 2))
    order = random.permutation(count)
    for what, frame in (("one frame", None), ("1000 frames", random.integers(0, 1000, count))):
        frames = (None, None) if frame is None else (frame, frame[order])
        channels = fits_at(a, frame=frames[0]), fits_at(b[order], frame=frames[1])
        wall, own = [], []
        for _ in range(3):
            begun = time.perf_counter(), time.process_time()
            found = pair_spots(*channels, 2.0)
            wall.append(time.perf_counter() - begun[0])
            own.append(time.process_time() - begun[1])
        print(
            f"{2 * count:,} spots in {what}: {found.observed:,} pairs, {found.excess:,.0f} ± "
            f"{found.stderr:,.0f} beyond chance, {min(wall):.2f} s {bar(min(wall), most=3)}, CPU "
            f"time {min(own):.2f} s"
        )


def registration(arguments: argparse.Namespace) -> None:
    """Print the errors of known maps over the bound."""
    for name, case in MAPS.items():
        model = "polynomial" if "bent" in case else "affine"
        missed, stated = [], []
        for seed in range(10 if arguments.quick else 60):
            a, b, mapped = two_channels(seed, **case)
            found = register_channels(a, b, model)
            places = np.random.default_rng(9).uniform(60, 450, (2000, 2))
            fits = fits_at(places, 0.0)
            fits = fits[found.covers(fits)]
            places = np.column_stack([fits.y, fits.x])
            moved = found.apply(fits)
            away = ((np.column_stack([moved.y, moved.x]) - mapped(places)) ** 2).sum(axis=1)
            true = len(b) - int(len(b) * case.get("alone", 0))
            noise = case.get("error", 0.05) ** 2 * (1 + case.get("scale", 1.0) ** 2)
            terms = found._fit.model.terms
            own = terms(np.column_stack([b.y, b.x])[:true])
            bound = np.einsum(
                "ni,ij,nj->n", terms(places), np.linalg.inv(own.T @ own), terms(places)
            )
            missed.append((away.mean(), 2 * noise * bound.mean()))
            stated.append(found.error / np.sqrt(2 * noise * (1 + own.shape[1] / true)))
        away, bound = np.sqrt(np.mean(missed, axis=0))
        print(
            f"{name}: misses by {away:.4f} px, bound {bound:.4f} px, ratio {away / bound:.3f} "
            f"{bar(away / bound, most=1.1)}; stated error / that of a pair left out "
            f"{np.mean(stated):.3f} {bar(float(np.mean(stated)), most=1.1)}"
        )


def chance(arguments: argparse.Namespace) -> None:
    """Print for how many seeds the estimate of chance is within two standard errors."""
    seeds = range(10 if arguments.quick else 100)
    for name, case in CELLS.items():
        by_shifts = by_density = 0
        away = []
        for seed in seeds:
            labels, a, b = textured_cells(seed, **case)
            found = pair_spots(fits_at(a), fits_at(b), 2.0, labels=labels)
            away.append(found.excess / found.stderr)
            by_shifts += abs(away[-1]) <= 2
            by_density += abs(found.observed - found.expected) <= 2 * found.stderr
        print(
            f"{name}: within 2 standard errors {by_shifts} of {len(seeds)} seeds "
            f"{bar(by_shifts, least=0.95 * len(seeds))}, mean {np.mean(away):+.2f}, spread "
            f"{np.std(away):.2f}; by the density {by_density}"
        )


SECTIONS = {"pairs": pairs, "registration": registration, "chance": chance}

if __name__ == "__main__":
    run(__doc__, SECTIONS)
