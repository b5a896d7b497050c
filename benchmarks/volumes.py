"""Measure fits of spots in volumes on the CPU: speed against big-fish and SciPy, and precision.

big-fish (0.6, from PyPI as big-fish) has requirements of its own: --bigfish names the Python of an
environment that has it. Without, its row is left out. It and SciPy fit one spot at a time. Speeds
are of processor time, times the cores, so that what else the machine does counts less.
"""

from __future__ import annotations

import argparse
import subprocess
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
#: Planes before and behind the cut-outs in a stack: with few, σz is fixed.
AROUND = 4
#: Least million fits per second on two cores, and least speed relative to peers.
WANTED, PEERS = 0.8, 2000
#: Largest excess of the scatter over the bound, and deviation from the standard errors.
BOUND, SPREAD = 0.03, 0.05
NAMES = ("z", "y", "x", "sigma", "sigma_z", "amplitude", "background")
MLE: dict[str, Any] = {"model": "gaussian_3d", "estimator": "mle", "gain": 1.0}
KINDS: dict[str, dict[str, Any]] = {
    "round": {},
    "elliptical": {"model": "gaussian_3d_elliptical"},
    "integrated": {"pixel": "integrated"},
    "maximum likelihood": MLE,
}
#: Voxels of 300×100×100 nm.
BIGFISH = """
import sys, time
import numpy as np
from bigfish.detection import fit_subpixel
stack, places = np.load(sys.argv[1]), np.load(sys.argv[2])
begin = time.process_time()
fit_subpixel(stack, places, (300, 100, 100), (450, 130, 130))
print(len(places) / (time.process_time() - begin))
"""


def simulated(count: int, seed: int, z: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return cut-outs with shot noise, and their parameters in the order of NAMES."""
    rng = np.random.default_rng(seed)
    truth = np.tile([0.0, 0, 0, SIGMA, SIGMA_Z, HEIGHT, BACKGROUND], (count, 1))
    truth[:, :3] = (np.array(ROI) - 1) / 2 + rng.uniform(-0.5, 0.5, (count, 3))
    if z is not None:
        truth[:, 0] = z
    spots = np.empty((count, *ROI), np.uint16)
    for spot, values in zip(spots, truth, strict=True):
        spot[:] = rng.poisson(model(values))
    return spots, truth


def model(values: np.ndarray) -> np.ndarray:
    """Return the expected photons of a ROI's voxels."""
    places = np.ogrid[tuple(map(slice, ROI))]
    return GAUSSIAN_3D.evaluate(places, dict(zip(NAMES, values, strict=True)))


def bound(values: np.ndarray) -> np.ndarray:
    """Return the Cramér–Rao bound of the standard errors with shot noise."""
    steps = 1e-4 * np.eye(len(values))
    slopes = np.array([(model(values + step) - model(values - step)) / 2e-4 for step in steps])
    information = np.einsum("iabc,jabc,abc->ij", slopes, slopes, 1 / model(values))
    least: np.ndarray = np.sqrt(np.diag(np.linalg.inv(information)))
    return least


def by_scipy(spots: np.ndarray) -> None:
    """Fit the same model by SciPy, as most scripts do."""
    places = np.indices(ROI).reshape(3, -1).astype(float)

    def light(at: np.ndarray, z: float, y: float, x: float, s: float, t: float, a: float, b: float):
        square = ((at[1] - y) ** 2 + (at[2] - x) ** 2) / s**2 + ((at[0] - z) / t) ** 2
        return a * np.exp(-0.5 * square) + b

    for spot in spots:
        values = spot.ravel().astype(float)
        start = [*np.unravel_index(values.argmax(), ROI), 1.3, 1.5, np.ptp(values), values.min()]
        curve_fit(light, places, values, start, maxfev=2000)


def as_stack(spots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cut-outs side by side in a stack of a few more planes, and the first voxel of each."""
    across = int(np.ceil(np.sqrt(len(spots))))
    shape = ROI[0] + 2 * AROUND, ROI[1] * across, ROI[2] * across
    stack = np.random.default_rng(3).poisson(BACKGROUND, shape).astype(spots.dtype)
    down, right = np.divmod(np.arange(len(spots)), across)
    origin = np.column_stack([0 * down + AROUND, ROI[1] * down, ROI[2] * right])
    for (z, y, x), spot in zip(origin, spots, strict=True):
        stack[z : z + ROI[0], y : y + ROI[1], x : x + ROI[2]] = spot
    return stack, origin


def by_bigfish(python: str, spots: np.ndarray) -> float:
    """Return the fits per second of big-fish, in a separate environment."""
    stack, origin = as_stack(spots)
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("stack.npy", "places.npy")]
        np.save(files[0], stack)
        np.save(files[1], origin + np.array(ROI) // 2)
        command = [python, "-c", BIGFISH, *files]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def speed(options: argparse.Namespace) -> None:
    """Print the fits per second of kinds of fits, and of other programs."""
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
        peers["big-fish"] = by_bigfish(options.bigfish, spots[:few])
    for name, rate in peers.items():
        times = 1e6 * rates["round"] / rate
        print(f"  {name:24s} {rate:6.1f} fits/s, as it runs, by one core: we are {times:.0f} times "
              f"as fast {bar(times, least=PEERS, form='.0f')}")  # fmt: skip


def ratios(fits: SpotFits, truth: np.ndarray, origin: Any = 0.0) -> None:
    """Print the scatter of fits relative to the bound and to their standard errors."""
    good = fits.good
    found = np.column_stack([fits.columns[name] for name in NAMES]) - origin
    # Centres lie anywhere in their voxel: the bound is the mean over some.
    least = np.sqrt(np.mean([bound(values) ** 2 for values in truth[:200]], axis=0))
    print(f"  {good.mean():.2%} good      rms / bound           spread of (estimate - truth)/error")
    for i, name in enumerate(NAMES[:5]):
        off = (found - truth)[good, i]
        own = fits.columns[f"{name}_stderr"][good]
        over, spread = np.sqrt(np.mean(off**2)) / least[i], (off / own).std()
        print(f"  {name:12s} {over:8.3f} {bar(over, most=1 + BOUND):22s}"
              f" {spread:8.3f} {bar(abs(spread - 1), most=SPREAD)}")  # fmt: skip


def precision(options: argparse.Namespace) -> None:
    """Print the scatter of maximum likelihood, of cut-outs and at positions of a stack."""
    count = 2000 if options.quick else 40_000
    spots, truth = simulated(count, 2)
    print(f"\nMaximum likelihood, {count} cut-outs, {HEIGHT:g} photons at the peak, "
          f"{BACKGROUND:g} below")  # fmt: skip
    ratios(fit_spots(spots, backend="cpu", **MLE), truth)
    print("\nThe same at positions of a stack")
    stack, origin = as_stack(spots)
    fits = fit_at(
        stack, truth[:, :3] + origin, ROI, sigma=SIGMA, sigma_z=SIGMA_Z, variance=0.0,
        neighbours="ignore", backend="cpu", **MLE,
    )  # fmt: skip
    ratios(fits, truth, np.column_stack([origin, np.zeros((count, len(NAMES) - 3))]))


def ends(options: argparse.Namespace) -> None:
    """Print the gain for spots near the first plane by fits with a fixed σz."""
    count = 2000 if options.quick else 20_000
    print(
        "\nz of spots near the first plane: bias, scatter, spread of errors, with σz held and free"
    )
    for place in (0.0, 0.5, 1.0, 2.0, 3.0):
        spots, _ = simulated(count, 4, place)
        row = f"  {place:.1f}"
        for fixed in ({"sigma_z": SIGMA_Z}, {}):
            fits = fit_spots(spots, fixed=fixed, backend="cpu", **MLE)
            off, good = fits.z - place, fits.good
            spread = (off[good] / fits.z_stderr[good]).std()
            row += f"   {off[good].mean():+.4f} {off[good].std():.4f} {spread:.2f}"
        print(row, flush=True)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this program."""
    parser.add_argument("--bigfish", metavar="PYTHON", help="one of an environment with big-fish")


if __name__ == "__main__":
    run(__doc__, {"speed": speed, "precision": precision, "ends": ends}, add)
