"""Spots far out of focus look like several dim ones within a calibration's range: none is good."""

from __future__ import annotations

import ctypes
import warnings
from functools import lru_cache

import numpy as np
import pytest
from detection_on_host import HOST
from noisy_scenes import kinds

from napari_spotfit import (
    Flag,
    MeasuredPsf,
    Settings,
    calibrate_astigmatism,
    localize,
    simulate_beads,
    simulate_psf,
)
from napari_spotfit.engine.cpu.layouts import FittedSpot
from napari_spotfit.engine.cuda.roi_kernels import flags_by_surroundings
from napari_spotfit.engine.flags import NOT_GOOD
from napari_spotfit.engine.verdicts import verdict_settings

LENS = {"astigmatism": 0.1}
KNOWN = {"estimator": "mle", "gain": 1.0, "offset": 100.0, "backend": "cpu"}
APART, REACH = 90, 40


@lru_cache
def calibration(name):
    """Return a PSF known from -600 to 600 nm, or a lens from about -400 to 400."""
    if name == "psf":
        planes = simulate_psf(np.arange(-600, 601, 40), 21, zernike=LENS)
        return MeasuredPsf.from_planes(planes, 40.0, plane=15)
    z = np.arange(-700, 701, 20)
    stack, _ = simulate_beads(
        z, (256, 256), count=15, photons=20000, height=30, seed=3, zernike=LENS
    )
    return calibrate_astigmatism(stack, 20, settings=Settings(gain=1.0, offset=100.0))


@lru_cache
def beads(height, photons, side=3, seed=1):
    """Return a frame of beads far apart at one height, and their number."""
    rng, middles = np.random.default_rng(seed), APART * np.arange(side) + APART // 2
    light = np.full((APART * side, APART * side), 10.0)
    for y in middles:
        for x in middles:
            own = simulate_psf([height], 2 * REACH + 1, y=rng.uniform(-0.5, 0.5), zernike=LENS)[0]
            light[y - REACH : y + REACH + 1, x - REACH : x + REACH + 1] += photons * own
    return (rng.poisson(light) + 100).astype(np.uint16), side**2


def localized(frame, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that spots do not look like their PSF
        return localize(frame, model=calibration(name), **KNOWN)


@pytest.mark.parametrize("photons", [5000, 20_000, 100_000])
@pytest.mark.parametrize("height", [-1200, -1000, -800, 800, 1000, 1200])
@pytest.mark.parametrize("name", ["psf", "lens"])
def test_parts_of_spots_far_out_of_focus_are_not_good(name, height, photons):
    frame, count = beads(height, photons)
    fits = localized(frame, name)
    # Without this flag there are up to four good fits a bead.
    assert fits.good.sum() <= 0.25 * count + 1


@pytest.mark.parametrize("photons", [5000, 20_000])
@pytest.mark.parametrize("height", [-600, -500, 500, 600])
def test_halves_of_long_spots_behind_a_lens_are_not_good(height, photons):
    frame, count = beads(height, photons)
    # Without this flag there are three good fits a bead, most of them within 100 nm of 0.
    assert localized(frame, "lens").good.sum() <= 0.5 * count


@pytest.mark.parametrize("photons", [2000, 5000, 100_000])
@pytest.mark.parametrize("height", [-300, 0, 300])
@pytest.mark.parametrize("name", ["psf", "lens"])
def test_spots_within_the_range_are_good(name, height, photons):
    frame, count = beads(height, photons)
    fits = localized(frame, name)
    near = fits.good & (abs(fits.z - height) < 60)
    assert near.sum() >= count


def movie_like(background, spots, photons, seed):
    """Return a frame of spots within the range on a background."""
    rng, size = np.random.default_rng(seed), 384
    light = np.zeros((size + 60, size + 60))
    truth = np.column_stack([rng.uniform(2, size - 3, (spots, 2)), rng.uniform(-350, 350, spots)])
    for y, x, z in truth:
        row, column = round(y), round(x)
        own = simulate_psf([z], 41, y=y - row, x=x - column, zernike=LENS)[0]
        light[row + 10 : row + 51, column + 10 : column + 51] += photons * own
    kind = kinds((size, size), 313)[background]
    return kind.image(rng, light[30:-30, 30:-30]), truth


@pytest.mark.parametrize("name", ["psf", "lens"])
def test_few_true_spots_are_lost(name):
    """In cells, in crowds, on slopes, dim and bright."""
    lost = kept = 0
    for seed, scene in enumerate(
        [("cells 200", 80, 4000), ("cells 2000", 80, 10_000), ("nuclei", 80, 5000),
         ("gradient", 80, 2000), ("Poisson 5", 350, 1000), ("Poisson 5", 150, 20_000)]
    ):  # fmt: skip
        frame, truth = movie_like(*scene, seed)
        fits = localized(frame, name)
        for y, x, z in truth:
            near = np.hypot(fits.y - y, fits.x - x)
            i = int(np.nanargmin(near))
            if near[i] < 1.5 and abs(fits.z[i] - z) < 50:
                kept += bool(fits.good[i])
                lost += fits.flags[i] & int(NOT_GOOD) == int(Flag.Z_AT_LIMIT)
    assert kept > 500
    assert lost <= 0.01 * kept


def test_a_gpu_finds_the_same():
    """The kernel on the host, with threads one after the other."""
    frames = np.stack([beads(1000, 20_000)[0], beads(0, 20_000)[0]])
    fits = localized(frames, "psf")
    noise, lattice = fits.settings.noise, calibration("psf").range
    alone = (fits.z > lattice[0] + 70) & (fits.z < lattice[1] - 70)
    others = int(Flag.NOT_CONVERGED | Flag.AT_BOUND | Flag.WEAK | Flag.NEGATIVE)
    rows = np.flatnonzero(((fits.flags & others) == 0) & alone)
    spots = (FittedSpot * len(rows))()
    for spot, i in zip(spots, rows, strict=True):
        spot.fit, spot.frame, spot.y, spot.x = i, fits.frame[i], fits.y[i], fits.x[i]
        spot.level, spot.height = fits.background[i] + 100, fits.amplitude[i]
        spot.dark = max(noise.slope * fits.background[i] + noise.intercept, noise.least)
    packed = np.frombuffer(spots, np.uint8).reshape(len(rows), ctypes.sizeof(FittedSpot))
    _, rules = verdict_settings(fits.settings, fits.settings.roi_shape, True)
    found = flags_by_surroundings(HOST, frames, packed, len(rows), 1.5, rules)
    expected = fits.flags[rows] & int(Flag.Z_AT_LIMIT)
    assert 5 <= (expected != 0).sum() <= len(rows) - 5
    np.testing.assert_array_equal(found, expected)
