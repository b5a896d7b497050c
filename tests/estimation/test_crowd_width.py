"""The width of spots whose light overlaps, by joint fits of all of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import erf

from napari_spotfit import localize


def crowd(sigma, photons, density, seed, side=128):
    """Return an image of spots at random places, by their number in 100 px²."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(1, side - 2, (rng.poisson(density * side**2 / 100), 2))
    edges = (np.arange(side + 1) - 0.5 - places[..., np.newaxis]) / (sigma * 2**0.5)
    down, across = np.diff(0.5 * erf(edges), axis=2).transpose(1, 0, 2)
    light = 10 + photons * np.einsum("ny,nx->yx", down, across, optimize=True)
    return rng.poisson(light).astype(np.uint16)


@pytest.mark.parametrize("known", [{}, {"gain": 1.0, "variance": 0.0}], ids=["unknown", "known"])
@pytest.mark.parametrize(
    ("sigma", "photons", "density"),
    [(1.4, 50_000.0, 3.0), (2.0, 50_000.0, 1.5), (3.0, 5000.0, 0.5), (1.3, 1000.0, 2.0)],
)
def test_width_of_bright_and_of_dim_crowds_is_right(known, sigma, photons, density):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the noise
        for seed in (12, 21):
            image = crowd(sigma, photons, density, seed)
            fits = localize(image, pixel="integrated", neighbours="auto", backend="cpu", **known)
            assert fits.settings.sigma == pytest.approx(sigma, rel=0.05), seed
