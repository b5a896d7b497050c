"""Measure which spots are found in stacks where their light overlaps, and how fast.

As of single-molecule FISH: voxels of 300×100×100 nm, σ 350 and 140 nm, 2000 photons ± 25 % on a
background of 10, 20 planes, spots at random places. F1 is of found and true places, paired one to
one within a distance, where z counts by the widths of spots. ``--bigfish`` names the Python of an
environment with big-fish (from PyPI as big-fish): its spots, with the threshold that it chooses,
and those of its ``decompose_dense`` with default settings. It is given the true σ, too.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from common import bar, run
from scipy.optimize import linear_sum_assignment
from scipy.special import erf

import napari_spotfit as spotfit

VOXEL, WIDTHS, SHAPE = (300, 100, 100), (350 / 300, 1.4, 1.4), (20, 128, 128)
PHOTONS, SPREAD, BACKGROUND = 2000.0, 0.25, 10.0
#: Spots in 100 px² of the projection, and the distances in px within which they are paired.
DENSITIES, RADII = (1.0, 3.0, 6.0), (3.0, 1.0)
#: By how much the F1 is to be above that of big-fish, or which share of its distance to 1.
ABOVE, SHARE = 0.10, 0.5
BIGFISH = """
import sys, time
import numpy as np
from bigfish.detection import decompose_dense, detect_spots
stack = np.load(sys.argv[1])
voxel, radius = eval(sys.argv[2]), eval(sys.argv[3])
begin = time.process_time()
spots = detect_spots(stack, voxel_size=voxel, spot_radius=radius)
found, _, _ = decompose_dense(stack, spots, voxel, radius, alpha=0.5, beta=1, gamma=5)
print(time.process_time() - begin)
np.save(sys.argv[4], spots[:, :3]), np.save(sys.argv[5], found[:, :3])
"""


def simulated(density: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a stack, and the places of its spots."""
    rng = np.random.default_rng(seed)
    low, high = np.full(3, 1.0), np.array(SHAPE) - 2.0
    area = (high - low)[1:].prod()
    places = rng.uniform(low, high, (rng.poisson(density * area / 100), 3))
    photons = PHOTONS * rng.normal(1, SPREAD, len(places)).clip(0.3)
    lines = []
    for place, side, width in zip(places.T, SHAPE, WIDTHS, strict=True):
        edges = (np.arange(side + 1) - 0.5 - place[:, np.newaxis]) / (width * 2**0.5)
        lines.append(np.diff(erf(edges) / 2, axis=1))
    light = np.einsum("n,nz,ny,nx->zyx", photons, *lines, optimize=True)
    return rng.poisson(BACKGROUND + light).astype(np.uint16), places


def f1(truth: np.ndarray, found: np.ndarray, radius: float) -> float:
    """Return the F1 of found places."""
    scale = np.array(WIDTHS) / WIDTHS[-1]
    apart = np.linalg.norm((truth[:, np.newaxis] - found) / scale, axis=2)
    pairs = linear_sum_assignment(np.where(apart < radius, apart, 1e3))
    hits = int((apart[pairs] < radius).sum())
    return 2 * hits / max(len(truth) + len(found), 1)


def by_us(stack: np.ndarray, neighbours: str) -> tuple[np.ndarray, float]:
    """Return the places of good fits, and the processor time they took."""
    begin = time.process_time()
    fits = spotfit.localize(
        stack, model="gaussian_3d", sigma=WIDTHS[-1], sigma_z=WIDTHS[0], pixel="integrated",
        gain=1.0, estimator="mle", neighbours=neighbours, backend="cpu",
    )  # fmt: skip
    seconds = time.process_time() - begin
    good = fits[fits.good]
    return np.column_stack([good.z, good.y, good.x]), seconds


def by_bigfish(python: str, stack: np.ndarray) -> dict[str, tuple[np.ndarray, float]]:
    """Return the places that big-fish finds, in a separate environment, and the time they took."""
    radius = tuple(side * width for side, width in zip(VOXEL, WIDTHS, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("stack.npy", "spots.npy", "found.npy")]
        np.save(files[0], stack)
        command = [python, "-c", BIGFISH, files[0], repr(VOXEL), repr(radius), *files[1:]]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        spots, found = (np.load(name) for name in files[1:])
    seconds = float(done.stdout.split()[-1])
    return {"big-fish": (spots, seconds), "big-fish, decompose": (found, seconds)}


def stacks(options: argparse.Namespace) -> None:
    """Print the F1 of each way to find spots, by density."""
    limits: list[tuple[float, float, float]] = []
    for density in DENSITIES:
        scores: dict[str, list[list[float]]] = {}
        for seed in range(1 if options.quick else 4):
            stack, truth = simulated(density, seed)
            found = {name: by_us(stack, name) for name in ("exclude", "joint")}
            if options.bigfish:
                found |= by_bigfish(options.bigfish, stack)
            for name, (places, seconds) in found.items():
                own = [f1(truth, places, radius) for radius in RADII]
                scores.setdefault(name, []).append([*own, len(truth) / seconds])
        mean = {name: np.mean(own, axis=0) for name, own in scores.items()}
        for name, (wide, narrow, rate) in mean.items():
            print(f"{density:g} in 100 px², {name:20s} F1 {wide:.3f} within 3 px, {narrow:.3f} "
                  f"within 1 px; {rate:8.0f} spots/s of processor time", flush=True)  # fmt: skip
        if options.bigfish:
            peer, ours = mean["big-fish, decompose"][0], mean["joint"][0]
            least = min(peer + ABOVE, 1 - SHARE * (1 - peer))
            limits.append((density, ours, least))
    print("joint fits: F1 within 3 px, by the number of spots in 100 px²")
    for density, ours, least in limits:
        print(f"  {density:g}: {ours:.3f} {bar(ours, least=least, form='.3f')}")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this program."""
    parser.add_argument("--bigfish", metavar="PYTHON", help="one of an environment with big-fish")


if __name__ == "__main__":
    run(__doc__, {"stacks": stacks}, add)
