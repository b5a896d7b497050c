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
