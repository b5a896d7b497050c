"""z from astigmatic widths against its bound: matched spots, a lens with coma, and real beads.

Spots of a Gaussian whose widths are those of the calibration show what the search for z loses.
The lens with coma is a scalar pupil; it is calibrated on noisy beads, and judged on other spots, by
the beads' image as fits are, and by widths alone.
``real`` needs a stack of beads, ``--beads``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import bar, run

import napari_spotfit as spotfit
from napari_spotfit.models.calibration import Curve

#: The matched simulation: widths at the waist, foci and depth in px and nm; photons and background.
WAIST, FOCUS, DEPTH, RANGE = 1.3, 250.0, 400.0, 400.0
MATCHED, BRIGHT = (2000, 10), (3000, 10)
LENS = {"zernike": {"astigmatism": 0.1, "coma": 0.03}, "numerical_aperture": 1.4}
PIXEL = 100.0
#: Spots a plane; a tenth of them through the lens with coma.
SPOTS = 10_000
SIDE = 13
#: What is asked for.
MOST_OVER_BOUND, MOST_X, MOST_SECONDS = 1.06, 5.9, 5.0
SPREAD = {5: 0.08, 20: 0.05}


class Errors(NamedTuple):
    """Errors of spots at one height, and their standard errors, of the good fits."""

    z: np.ndarray
    z_stderr: np.ndarray
    x: np.ndarray
    raw_x: np.ndarray


def matched(options: argparse.Namespace) -> None:
    """Print the r.m.s. error of z over the bound for Gaussians of known widths."""
    spots = 1000 if options.quick else SPOTS
    x, y = (Curve("huang", (WAIST, c, DEPTH, 0.0, 0.0)) for c in (FOCUS, -FOCUS))
    lens = spotfit.AstigmatismCalibration(x, y, -500.0, 500.0)
    photons, background = MATCHED
    print(f"\nmatched spots, {photons} photons, background {background}, {spots} a plane")
    print("z nm   good    bias     rms   bound   rms/bound  spread")
    worst = 0.0
    for z in np.arange(-RANGE, RANGE + 1, 100):
        rois, _ = spotfit.simulate_spots(
            spots, SIDE, photons=photons, background=background, sigma=float(x(z)),
            sigma_y=float(y(z)), seed=int(z) + 1000,
        )  # fmt: skip
        fits = spotfit.fit_spots(rois, model=lens, gain=1.0)
        error = (fits.z - z)[fits.good]
        rms, bound = float(np.sqrt(np.mean(error**2))), bound_of_z(x, y, z)
        worst = max(worst, rms / bound)
        spread = np.std(error / fits.z_stderr[fits.good])
        print(
            f"{z:5.0f} {fits.good.mean():6.3f} {error.mean():7.2f} {rms:7.2f} {bound:7.2f} "
            f"{rms / bound:10.3f} {spread:8.3f}"
        )
    print(f"worst rms over the bound {worst:.3f} {bar(worst, most=MOST_OVER_BOUND)}")


def bound_of_z(x: Curve, y: Curve, z: float) -> float:
    """Return the least standard deviation of z, by the Fisher information."""
    at = np.arange(SIDE) - (SIDE - 1) / 2

    def light(point: np.ndarray) -> np.ndarray:
        right, down, height, photons, background = point
        sigma_x, sigma_y = x(height), y(height)
        u = np.exp(-0.5 * ((at - right) / sigma_x) ** 2)
        v = np.exp(-0.5 * ((at - down) / sigma_y) ** 2)
        return photons * np.outer(v, u).ravel() / (2 * np.pi * sigma_x * sigma_y) + background

    point, steps = np.array([0, 0, z, *MATCHED], float), (1e-3, 1e-3, 0.1, 1.0, 0.01)
    moves = np.diag(steps)
    slopes = np.stack([light(point + move) - light(point - move) for move in moves])
    slopes /= 2 * np.array(steps)[:, None]
    return float(np.sqrt(np.linalg.inv((slopes / light(point)) @ slopes.T)[2, 2]))


def with_coma(options: argparse.Namespace) -> None:
    """Print errors of z and x of a lens with coma, calibrated on 5 and on 20 beads."""
    spots = (1000 if options.quick else SPOTS) // 10
    planes = np.arange(-500.0, 500.0, 10.0)
    heights = np.arange(-RANGE, RANGE + 1, 100)
    cut_outs = {z: pupil_spots(z, spots) for z in heights}
    for count in (5, 20):
        stack, _ = spotfit.simulate_beads(
            planes, (256, 256), count=count, height=30.0, seed=count, **LENS
        )
        settings = spotfit.Settings(gain=1.0, offset=100.0, roi_size=SIDE)
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lens = spotfit.calibrate_astigmatism(stack, 10.0, settings=settings)
        seconds = time.perf_counter() - begun
        print(f"\n{count} beads × {len(planes)} planes in {seconds:.1f} s: {lens.words}")
        print("z nm   good   z: bias    rms  stderr  spread   x: bias   sd nm   sd by widths: z, x")
        widths = replace(lens, psf=None)
        alone = {z: errors_of(widths, z, *cut_outs[z])[0] for z in heights}
        found = {z: errors_of(lens, z, *cut_outs[z]) for z in heights}
        for z, (own, share) in found.items():
            print(
                f"{z:5.0f} {share:6.3f} {own.z.mean():9.2f} {own.z.std():6.2f} "
                f"{own.z_stderr.mean():7.2f} {np.std(own.z / own.z_stderr):7.2f} "
                f"{own.x.mean():9.2f} {own.x.std():7.2f} {alone[z].z.std():15.2f} "
                f"{alone[z].x.std():6.2f}"
            )
        parts = [own for own, _ in found.values()]
        zero = np.median(np.concatenate([own.z for own in parts]))
        spread = np.std(np.concatenate([(own.z - own.z.mean()) / own.z_stderr for own in parts]))
        places, raw = (
            np.concatenate([getattr(own, name) for own in parts]) for name in ("x", "raw_x")
        )
        rms, before = (np.sqrt(np.mean((one - np.median(one)) ** 2)) for one in (places, raw))
        apart = abs(spread - 1)
        print(f"z = 0 at {-zero:.1f} nm; z-spread {spread:.3f} {bar(apart, most=SPREAD[count])}")
        if count == 20:
            mean = np.sqrt(np.mean([own.x.std() ** 2 for own in parts]))
            print(f"x rms {before:.1f} nm before, {rms:.2f} after {bar(rms, most=MOST_X)}")
            print(f"x rms {mean:.2f} nm without bias at each height")
            print(f"calibrated in {seconds:.1f} s {bar(seconds, most=MOST_SECONDS)}")


def pupil_spots(z: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cut-outs of points at a height with noise, and their x."""
    rng = np.random.default_rng(int(z) + 5000)
    photons, background = BRIGHT
    y, x = np.append(rng.uniform(-0.5, 0.5, (2, count)), [[0], [0]], axis=1)
    psf = spotfit.simulate_psf(np.append(np.full(count, z), 0.0), SIDE, y=y, x=x, **LENS)
    light = photons * psf[:-1] / psf[-1].sum() + background
    return rng.poisson(light).astype(np.float32), x[:-1] + SIDE // 2


def errors_of(
    lens: spotfit.AstigmatismCalibration, z: float, rois: np.ndarray, x: np.ndarray
) -> tuple[Errors, float]:
    """Return the errors of good fits, and their share."""
    fits = spotfit.fit_spots(rois, model=lens, gain=1.0)
    plain = lens.settings | {"model": lens.profile.name}
    raw = spotfit.fit_spots(rois, settings=spotfit.Settings(gain=1.0, **plain))
    good = fits.good
    errors = fits.z - z, fits.z_stderr, PIXEL * (fits.x - x), PIXEL * (raw.x - x)
    return Errors(*(one[good] for one in errors)), float(good.mean())


def real(options: argparse.Namespace) -> None:
    """Print z of real beads, each by the calibration of the others."""
    path = options.beads
    if path is None:
        return
    import tifffile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lens = spotfit.calibrate_astigmatism(tifffile.imread(path), 100.0)
    quality = lens.quality
    assert quality is not None
    print(f"\n{path.name}: {lens.words}, {lens.x.kind}, lens turned by {lens.angle:.1f}°")
    print("z nm    bias  scatter   bound")
    for row in zip(*quality, strict=True):
        print("{:5.0f} {:7.1f} {:8.1f} {:7.1f}".format(*row))
    print(
        f"median scatter {np.median(quality.scatter):.1f} nm, bound {np.median(quality.bound):.1f}"
    )


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this program."""
    parser.add_argument(
        "--beads", type=Path, metavar="STACK.tif", help="real beads, in steps of 100 nm"
    )


if __name__ == "__main__":
    run(__doc__, {"matched": matched, "coma": with_coma, "real": real}, add)
