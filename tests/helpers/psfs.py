"""Measured PSFs of the simulator."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from napari_spotfit import MeasuredPsf, simulate_psf

PSFS = {
    "astigmatic": {"astigmatism": 0.1, "coma": 0.03},
    "saddle": {"astigmatism": 0.25, "secondary_astigmatism": -0.15},
}


@lru_cache
def measured_psf(name="astigmatic", dz=40.0, side=21):
    """Return a PSF of 1600 nm along z."""
    planes = np.arange(-800, 801, dz)
    values = simulate_psf(planes, side, zernike=PSFS[name])
    return MeasuredPsf.from_planes(values, dz, plane=len(planes) // 2, pixel_size=100.0)


def spots_of(psf, count, photons, background, *, reach=600, seed=1, noise=True, side=13):
    """Return cut-outs of spots, their z, and y and x."""
    rng = np.random.default_rng(seed)
    z = rng.uniform(-reach, reach, count)
    at = (side - 1) / 2 + rng.uniform(-0.5, 0.5, (count, 2))
    y, x = np.ogrid[:side, :side]
    light = psf.lattice.sample(z[:, None, None], y - at[:, 0, None, None], x - at[:, 1, None, None])
    expected = photons * np.maximum(light, 0) + background
    return (rng.poisson(expected) if noise else expected).astype(np.float32), z, at


def crowd_of_psf(psf, count, photons=4000.0, background=10.0, *, reach=400, side=64, seed=1):
    """Return an image of spots at random places, and their y, x and z."""
    rng = np.random.default_rng(seed)
    truth = np.column_stack(
        [rng.uniform(3, side - 4, (count, 2)), rng.uniform(-reach, reach, count)]
    )
    return rng.poisson(background + light_of(psf, truth, photons, side)).astype(np.uint16), truth


def light_of(psf, places, photons, side):
    """Return the light of spots at y, x and z, as far as the PSF is known."""
    own, light = np.arange(side), np.zeros((side, side))
    for y, x, z in places:
        down, across = own - y, own - x
        near = abs(down)[:, None] <= psf.lattice.reach, abs(across) <= psf.lattice.reach
        light += photons * psf.lattice.sample(z, down[:, None], across) * (near[0] & near[1])
    return np.maximum(light, 0)
