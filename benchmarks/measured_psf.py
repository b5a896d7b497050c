"""Measured PSFs: precision and errors beside the bound, wrong minima, speed, calibration.

One simulator for all, simulate_psf: NA 1.4, 670 nm, oil of 1.518, pixels of 100 nm. Speeds are of
processor time, times the cores, so that what else the machine does counts less. ``peers`` fits the
same spots with the spline fits of Picasso and SMAPpy (smappy-smlm), where they are installed.
"""

from __future__ import annotations

import argparse
import time
from functools import lru_cache, partial
from typing import Any

import numpy as np
from common import bar, cores, in_turns, run

from napari_spotfit import (
    MeasuredPsf,
    Settings,
    calibrate_psf,
    fit_spots,
    simulate_beads,
    simulate_psf,
)

#: The lens, the side of ROIs, how far z goes, and the planes of bead stacks, in nm.
OPTICS: dict[str, Any] = {"zernike": {"astigmatism": 0.1, "coma": 0.03}}
LOBES: dict[str, Any] = {"zernike": {"astigmatism": 0.25, "secondary_astigmatism": -0.15}}
SIDE, REACH, STEP = 13, 600.0, 20.0
PLANES = np.arange(-1000, 1000, STEP)
PHOTONS, BACKGROUND = 2000, 10
#: What is asked for: rms over the bound; shares of wrong minima of 500 and of 2000 photons; fits/s
#: on two cores; seconds of a calibration; spread of errors by number of beads.
BOUND, WRONG, WANTED, SECONDS = 1.06, {500: 0.01, 2000: 0.001}, 2e5, 5.0
SPREADS = {5: 0.08, 20: 0.05}
FAR, SIGMAS, WORSE = 150.0, 6.0, 10.0


@lru_cache
def true_psf(lobes: bool = False) -> MeasuredPsf:
    """Return the PSF of the simulator as a spline, finely sampled along z."""
    planes = np.arange(-900, 901, STEP)
    wide = simulate_psf(planes, 41, **(LOBES if lobes else OPTICS))
    return MeasuredPsf.from_planes(wide[:, 8:33, 8:33], STEP, plane=45, pixel_size=100.0)


def simulated(
    count: int, photons: float, seed: int, optics: dict[str, Any] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return cut-outs with shot noise, and y, x and z of their spots."""
    rng = np.random.default_rng(seed)
    truth = np.column_stack(
        [*rng.uniform(-0.5, 0.5, (2, count)), rng.uniform(-REACH, REACH, count)]
    )
    spots = np.empty((count, SIDE, SIDE), np.uint16)
    cut = np.s_[:-1, (41 - SIDE) // 2 : (41 + SIDE) // 2, (41 - SIDE) // 2 : (41 + SIDE) // 2]
    for first in range(0, count, 2000):
        y, x, z = np.vstack([truth[first : first + 2000], np.zeros(3)]).T
        light = simulate_psf(z, 41, y=y, x=x, **(optics or OPTICS))
        light /= light[-1].sum()
        spots[first : first + 2000] = rng.poisson(photons * light[cut] + BACKGROUND)
    return spots, truth


def calibrated(count: int, photons: float, seed: int = 3) -> tuple[MeasuredPsf, float]:
    """Return the PSF measured on a number of beads, and the processor time that it took."""
    side = int(np.ceil(np.sqrt(count))) * 55
    stack, _ = simulate_beads(
        PLANES, (side, side), count=count, photons=photons, height=30.0, seed=seed, **OPTICS
    )
    known = Settings(gain=1.0, offset=100.0, voxel_size=(STEP, 100.0, 100.0))
    begin = time.process_time()
    psf = calibrate_psf(stack, STEP, settings=known)
    return psf, time.process_time() - begin


def ratios(psf: MeasuredPsf, count: int, spread_bar: float) -> None:
    """Print how fits scatter, beside the bound and their own standard errors."""
    spots, truth = simulated(count, PHOTONS, 2)
    fits = fit_spots(spots, model=psf, estimator="mle", gain=1.0, backend="cpu")
    least = true_psf().precision(PHOTONS, BACKGROUND, z=truth[:, 2])
    middle = (SIDE - 1) / 2
    for axis, (name, unit) in enumerate({"y": 100.0, "x": 100.0, "z": 1.0}.items()):
        error = unit * (fits.columns[name] - truth[:, axis] - (middle if axis < 2 else 0))
        error -= np.median(error)  # where 0 is
        own = unit * fits.columns[f"{name}_stderr"]
        bound = getattr(least, f"{name}_stderr")
        near = np.abs(error) < SIGMAS * np.maximum(own, bound)
        over = np.sqrt(np.mean((error / bound)[near] ** 2))
        spread = (error / own)[near].std()
        rms = np.sqrt(np.mean(error[near] ** 2))
        print(f"  {name}  rms {rms:4.1f} nm, over the bound {over:6.3f} {bar(over, most=BOUND)}"
              f"  spread {spread:6.3f} {bar(abs(spread - 1), most=spread_bar)}")  # fmt: skip


def precision(options: argparse.Namespace) -> None:
    """Print the scatter of fits with PSFs measured on 5 and on 20 beads."""
    for count, most in SPREADS.items():
        psf, taken = calibrated(count, 4000 if count == 5 else 5000)
        light = psf.bead_photons.max() if psf.bead_photons is not None else 0.0
        asked = bar(taken, most=SECONDS) if count == 20 else ""
        print(f"\n{count} beads × {len(PLANES)} planes: {taken:.1f} s of processor time {asked}")
        print(f"  {light / PHOTONS:.0f} × a spot's {PHOTONS} photons in the sharpest plane")
        ratios(psf, 4000 if options.quick else 20_000, most)


def minima(options: argparse.Namespace) -> None:
    """Print how many fits end in a wrong minimum."""
    count = 4000 if options.quick else 20_000
    for name, optics in (("astigmatic", OPTICS), ("two lobes", LOBES)):
        psf = true_psf(optics is LOBES)
        for photons, most in WRONG.items():
            spots, truth = simulated(count, photons, 4, optics)
            fit = partial(fit_spots, spots, model=psf, estimator="mle", gain=1.0, backend="cpu")
            found, best = fit(), fit(start=truth + np.array([6, 6, 0]))
            z = truth[:, 2]
            limit = np.maximum(FAR, SIGMAS * psf.precision(photons, BACKGROUND, z=z).z_stderr)
            far, worse = np.abs(found.z - z) > limit, found.chi_square > best.chi_square + WORSE
            share, astray = np.mean(far | worse), np.mean(np.abs(best.z - z) > limit)
            print(f"  {name:10s} {photons:5d} photons: {share:.2%} wrong {bar(share, most=most)}; "
                  f"{worse.mean():.2%} worse than a fit started at the truth; "
                  f"{astray:.2%} of such fits end far from it")  # fmt: skip


def speed(options: argparse.Namespace) -> None:
    """Print fits per second, and those of others."""
    count = 20_000 if options.quick else 200_000
    spots, _ = simulated(2000, PHOTONS, 1)
    spots = np.tile(spots, (count // len(spots), 1, 1))
    fit = partial(fit_spots, spots, model=true_psf(), gain=1.0, backend="cpu")
    kinds = {
        "maximum likelihood": partial(fit, estimator="mle"),
        "without errors": partial(fit, estimator="mle", errors=False),
        "least squares": fit,
    }
    taken = in_turns(kinds, 1 if options.quick else 5, time.process_time)
    print(f"{count} fits of {SIDE}×{SIDE} pixels, uint16, starts along z found; fits/s on "
          f"{cores()} cores")  # fmt: skip
    rates = {name: count * cores() / min(own) for name, own in taken.items()}
    for name, rate in rates.items():
        asked = bar(rate, least=WANTED * cores() / 2, form=".3g") if "maximum" in name else ""
        print(f"  {name:24s} {rate:10.0f} {asked}", flush=True)


def picasso(spots: np.ndarray, voxels: np.ndarray) -> np.ndarray:
    """Return z, in planes, by Picasso's maximum likelihood with its own number of starts."""
    from picasso.localize import fit_spots_splinefit
    from picasso.spline import spline_coefficients

    cut = slice((voxels.shape[1] - SIDE) // 2, (voxels.shape[1] + SIDE) // 2)
    data = np.ascontiguousarray((voxels[:, cut, cut] / voxels.max()).transpose(2, 1, 0))
    known = {
        "model": "spline-3d", "coefficients": spline_coefficients(data), "n_data": data.shape,
        "n_intervals": [size - 1 for size in data.shape], "box": SIDE, "lateral_centered": True,
        "z_center": len(voxels) / 2, "z_init": len(voxels) / 2, "n_channels": 1,
    }  # fmt: skip
    return -np.asarray(fit_spots_splinefit(spots.astype(np.float32), known, mle=True))[:, 3]


def smappy(spots: np.ndarray, voxels: np.ndarray) -> np.ndarray:
    """Return z, in planes, by SMAPpy's maximum likelihood from one start, in focus."""
    from smappy.calibrate.core import spline_coefficients
    from smappy.io.calibration import SplineCalibration
    from smappy.psf import SplinePSF

    focus = float(voxels.max(axis=(1, 2)).argmax())
    model = SplinePSF(SplineCalibration(spline_coefficients(voxels), 1.0, focus))
    found = model.fit(spots.astype(np.float32), n_threads=cores())
    return np.asarray(found.theta)[:, 4]


#: What each is asked to be slower by.
PEERS = {"picasso": (picasso, 20.0), "smappy": (smappy, 40.0)}


def peers(options: argparse.Namespace) -> None:
    """Print how many times faster than other programs fits are, and how far z is off."""
    psf, (spots, truth) = true_psf(), simulated(2000, PHOTONS, 1)
    ours = partial(fit_spots, spots, model=psf, estimator="mle", gain=1.0, backend="cpu")
    print(f"maximum likelihood of {len(spots)} spots, {SIDE}×{SIDE} pixels, with standard errors")
    for name, (peer, least) in PEERS.items():
        try:
            found = peer(spots, psf.voxels)  # compiles
        except ImportError:
            print(f"  {name} is not installed")
            continue
        fit = {name: partial(peer, spots, psf.voxels), "ours": ours}
        taken = in_turns(fit, 1 if options.quick else 3, time.process_time)
        times = {one: min(own) / len(spots) for one, own in taken.items()}
        ratio = times[name] / times["ours"]
        away = np.abs(np.array([(found - psf.plane) * STEP, ours().z]) - truth[:, 2])
        print(
            f"  {name:8s} {cores() / times[name]:8.0f} fits/s on {cores()} cores, ours "
            f"{cores() / times['ours']:8.0f}: {ratio:5.1f} × {bar(ratio, least=least)}; |error of "
            f"z| {np.median(away[0]):.1f} nm, ours {np.median(away[1]):.1f}; above {FAR:.0f} nm "
            f"{np.mean(away[0] > FAR):.1%}, ours {np.mean(away[1] > FAR):.1%}"
        )


if __name__ == "__main__":
    run(__doc__, {"speed": speed, "precision": precision, "minima": minima, "peers": peers})
