"""Fits of spots in volumes on the CPU: speed beside big-fish's and SciPy's fits, and precision.

big-fish (0.6, from PyPI as big-fish) has requirements of its own: --bigfish names the Python of an
environment that has it. Without, its row is left out. It and SciPy fit one spot at a time. Speeds
are of processor time, times the cores, so that what else the machine does counts less.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import bar, cores, in_turns, run
from scipy.optimize import curve_fit

from napari_spotfit import SpotFits, fit_at, fit_spots
from napari_spotfit.models.profiles import GAUSSIAN_3D

#: Planes, rows and columns of a ROI; σ in px and in planes, height and background in photons.
ROI, SIGMA, SIGMA_Z, HEIGHT, BACKGROUND = (7, 9, 9), 1.3, 1.5, 100.0, 10.0
#: Million fits per second asked for on two cores, and how many times as fast as peers.
WANTED, PEERS = 0.8, 2000
#: How far the scatter may be beyond the bound, and its share of the standard errors from 1.
BOUND, SPREAD = 0.03, 0.05
NAMES = ("z", "y", "x", "sigma", "sigma_z", "amplitude", "background")
KINDS: dict[str, dict[str, Any]] = {
    "round": {},
    "round, without errors": {"errors": False},
    "elliptical": {"model": "gaussian_3d_elliptical"},
    "integrated": {"pixel": "integrated"},
    "maximum likelihood": {"estimator": "mle", "gain": 1.0},
}
BIGFISH = """
import json, sys, time
import numpy as np
from bigfish.detection.spot_modeling import (
    _initialize_grid_3d, _objective_function, fit_gaussian, gaussian_3d, initialize_parameters)
spots = np.load(sys.argv[1]).astype(np.float64)
voxel, sizes = (300.0, 100.0, 100.0), (450.0, 130.0)
"""


def simulated(count: int, seed: int, jitter: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Return cut-outs with shot noise, and their parameters in the order of NAMES."""
    rng = np.random.default_rng(seed)
    truth = np.tile([0.0, 0, 0, SIGMA, SIGMA_Z, HEIGHT, BACKGROUND], (count, 1))
    truth[:, :3] = (np.array(ROI) - 1) / 2 + rng.uniform(-jitter, jitter, (count, 3))
    u = [np.arange(side) - truth[:, axis, None] for axis, side in enumerate(ROI)]
    widths = SIGMA_Z, SIGMA, SIGMA
    along = [np.exp(-0.5 * (own / width) ** 2) for own, width in zip(u, widths, strict=True)]
    spots = np.empty((count, *ROI), np.uint16)
    for first in range(0, count, 10_000):
        rows = slice(first, first + 10_000)
        light = np.einsum("ni,nj,nk->nijk", *(one[rows] for one in along))
        spots[rows] = rng.poisson(HEIGHT * light + BACKGROUND)
    return spots, truth


def model(values: np.ndarray) -> np.ndarray:
    """Return the expected photons of a ROI's voxels."""
    return GAUSSIAN_3D.evaluate(np.ogrid[tuple(map(slice, ROI))], dict(zip(NAMES, values, strict=True)))


def bound(values: np.ndarray) -> np.ndarray:
    """Return the least standard errors that photons of shot noise allow (Cramér and Rao)."""
    steps = 1e-4 * np.eye(len(values))
    slopes = np.array([(model(values + step) - model(values - step)) / 2e-4 for step in steps])
    information = np.einsum("iabc,jabc,abc->ij", slopes, slopes, 1 / model(values))
    least: np.ndarray = np.sqrt(np.diag(np.linalg.inv(information)))
    return least


def by_scipy(spots: np.ndarray) -> None:
    """Fit the same model as most scripts do."""
    places = np.indices(ROI).reshape(3, -1).astype(float)

    def light(at: np.ndarray, z: float, y: float, x: float, s: float, t: float, a: float, b: float):
        square = ((at[1] - y) ** 2 + (at[2] - x) ** 2) / s**2 + ((at[0] - z) / t) ** 2
        return a * np.exp(-0.5 * square) + b

    for spot in spots:
        values = spot.ravel().astype(float)
        start = [*np.unravel_index(values.argmax(), ROI), 1.3, 1.5, np.ptp(values), values.min()]
        curve_fit(light, places, values, start, maxfev=2000)


def by_bigfish(python: str, spots: np.ndarray) -> float:
    """Return the seconds that big-fish takes for a spot, by itself in its own environment."""
    script = Path(__file__).with_name("volumes_bigfish.py")
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file.name, spots)
        done = subprocess.run(
            [python, script, file.name], check=True, capture_output=True, text=True
        )
    return float(json.loads(done.stdout)["seconds"]) / len(spots)


def speed(options: argparse.Namespace) -> None:
    """Print fits per second of kinds of fits, and those of others."""
    count = 20_000 if options.quick else 200_000
    spots, _ = simulated(count, 1)
    kinds = {
        name: partial(fit_spots, spots, backend="cpu", **({"model": "gaussian_3d"} | given))
        for name, given in KINDS.items()
    }
    taken = in_turns(kinds, 1 if options.quick else 5, time.process_time)
    sides = "×".join(map(str, ROI[::-1]))
    print(f"{count} fits of {sides} voxels, uint16; million fits/s on {cores()} cores")
    rates = {name: 1e-6 * count * cores() / min(own) for name, own in taken.items()}
    for name, rate in rates.items():
        asked = bar(rate, least=WANTED * cores() / 2, form=".1f") if name == "round" else ""
        print(f"  {name:24s} {rate:6.2f} {asked}", flush=True)
    few = 30 if options.quick else 300
    begin = time.process_time()
    by_scipy(spots[:few])
    peers = {"SciPy's curve_fit": few / (time.process_time() - begin)}
    if options.bigfish:
        peers["big-fish"] = 1 / by_bigfish(options.bigfish, spots[:few])
    for name, rate in peers.items():
        times = 1e6 * rates["round"] / (rate * cores())
        print(f"  {name:24s} {rate:6.1f} fits/s on one core: {times:.0f} times as fast on "
              f"{cores()} {bar(times, least=PEERS, form='.0f')}")  # fmt: skip


def ratios(fits: SpotFits, truth: np.ndarray, origin: Any = 0.0) -> None:
    """Print how fits scatter, beside the bound and their own standard errors."""
    good = fits.good
    found = np.column_stack([fits.columns[name] for name in NAMES]) - origin
    # Centres lie anywhere in their voxel: the bound is the mean over some.
    least = np.sqrt(np.mean([bound(values) ** 2 for values in truth[:200]], axis=0))
    print(f"  {good.mean():.2%} good      rms / bound           spread of (estimate - truth)/error")
    for i, name in enumerate(NAMES):
        off = (found - truth)[good, i]
        own = fits.columns[f"{name}_stderr"][good]
        over, spread = np.sqrt(np.mean(off**2)) / least[i], (off / own).std()
        is_asked = name in ("z", "y", "x", "sigma", "sigma_z")
        print(f"  {name:12s} {over:8.3f} {bar(over, most=1 + BOUND) if is_asked else '':22s}"
              f" {spread:8.3f} {bar(abs(spread - 1), most=SPREAD)}")  # fmt: skip


def precision(options: argparse.Namespace) -> None:
    """Print the scatter of maximum likelihood, of cut-outs and at positions of a stack."""
    count = 2000 if options.quick else 40_000
    spots, truth = simulated(count, 2)
    kind: dict[str, Any] = {"model": "gaussian_3d", "estimator": "mle", "backend": "cpu"}
    print(f"\nMaximum likelihood, {count} cut-outs, {HEIGHT:g} photons at the peak, "
          f"{BACKGROUND:g} below")  # fmt: skip
    ratios(fit_spots(spots, gain=1.0, **kind), truth)
    print("\nThe same at positions of a stack")
    side = int(np.ceil(np.sqrt(count)))
    stack = np.random.default_rng(3).poisson(BACKGROUND, (ROI[0], 9 * side, 9 * side))
    origin = np.column_stack([np.zeros(count), *divmod(9 * np.arange(count)[:, None], 9 * side)])
    origin[:, 1] = 9 * (np.arange(count) // side)
    origin[:, 2] = 9 * (np.arange(count) % side)
    for (_, y, x), spot in zip(origin.astype(int), spots, strict=True):
        stack[:, y : y + 9, x : x + 9] = spot
    fits = fit_at(
        stack.astype(np.uint16), truth[:, :3] + origin, ROI, sigma=SIGMA, gain=1.0, variance=0.0,
        neighbours="ignore", **kind,
    )  # fmt: skip
    shift = np.zeros((count, len(NAMES)))
    shift[:, :3] = origin
    print("  (σz is held: the stack has few planes)" if (fits.sigma_z_stderr == 0).any() else "",
          end="")  # fmt: skip
    ratios(fits, truth, shift)


def add(parser: argparse.ArgumentParser) -> None:
    """Add this program's own options."""
    parser.add_argument("--bigfish", metavar="PYTHON", help="one of an environment with big-fish")


if __name__ == "__main__":
    run(__doc__, {"speed": speed, "precision": precision}, add)
    sys.exit(0)
