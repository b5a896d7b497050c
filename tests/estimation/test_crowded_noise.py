"""Crowds of bright or sharp spots are no filtered images; those that were filtered stay so."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import ndimage
from scipy.special import erf

from napari_spotfit import Settings, localize
from napari_spotfit.estimation.measured_noise import measure_noise
from napari_spotfit.estimation.white_floor import white_floor


def crowd(sigma, photons, density, seed=1, side=128, gain=1.0, background=5.0):
    """Return counts of spots at random places, by their number in σ², and those that are usual."""
    rng = np.random.default_rng(seed)
    far = 3 * sigma
    count = rng.poisson(density * ((side + 2 * far) / sigma) ** 2)
    places = rng.uniform(-far, side - 1 + far, (count, 2))
    edges = (np.arange(side + 1) - 0.5 - places[..., np.newaxis]) / (sigma * 2**0.5)
    down, across = np.diff(0.5 * erf(edges), axis=2).transpose(1, 0, 2)
    of_each = photons * rng.uniform(0.2, 1.8, count)
    light = background + np.einsum("n,ny,nx->yx", of_each, down, across, optimize=True)
    electrons = rng.poisson(light) + rng.normal(0, 1.0, light.shape)
    counts = np.clip(np.rint(100 + gain * electrons), 0, 65535).astype(np.uint16)
    return counts, gain**2 * (float(light.mean()) + 1)


CROWDS = [
    (0.7, 5500.0, 0.15, 1.0, 0.6), (0.7, 1500.0, 0.1, 0.5, 0.7), (0.8, 3000.0, 0.2, 2.0, 0.45),
    (1.0, 20_000.0, 0.2, 0.5, 0.4), (1.3, 3000.0, 0.25, 1.0, 0.3), (2.1, 20_000.0, 0.2, 1.0, 0.3),
]  # fmt: skip


@pytest.mark.parametrize(("sigma", "photons", "density", "gain", "share"), CROWDS)
def test_a_crowd_is_no_filtered_image(sigma, photons, density, gain, share):
    """With noise of up to 14,000 times its variance, none of 3000 spots was found."""
    image, variance = crowd(sigma, photons, density, gain=gain)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the image")
        fits = localize(image, pixel="integrated", backend="cpu")
    noise = fits.settings.noise
    assert not noise.is_filtered
    assert fits.settings.sigma == pytest.approx(sigma, rel=0.1)
    assert 0.4 < noise.variance(image.mean()) / variance < 5
    assert fits.good.sum() > share * density * (128 / sigma) ** 2


@pytest.mark.parametrize(("sigma", "photons", "density"), [
    (0.8, 3000.0, 0.2), (1.0, 20_000.0, 0.2), (1.3, 3000.0, 0.25), (2.1, 20_000.0, 0.2),
])  # fmt: skip
@pytest.mark.parametrize("name", ["Gaussian 1", "mean", "largest"])
def test_a_filtered_crowd_stays_a_filtered_image(name, sigma, photons, density):
    image, _ = crowd(sigma, photons, density)
    raw = image.astype(float)
    filtered = {
        "Gaussian 1": lambda: np.rint(ndimage.gaussian_filter(raw, 1)).astype(np.uint16),
        "mean": lambda: np.rint(ndimage.uniform_filter(raw, 3)).astype(np.uint16),
        "largest": lambda: ndimage.maximum_filter(image, 3),
    }[name]()
    settings = Settings(sigma=sigma, backend="cpu")
    assert measure_noise(filtered[np.newaxis], settings).is_filtered


def test_the_floor_is_the_noise_below_the_light():
    image, variance = crowd(1.0, 5000.0, 0.2)
    floor = white_floor(image[np.newaxis])
    assert floor.variance == pytest.approx(variance, rel=3 * floor.error)
    assert floor.error < 0.06
    assert floor.sigma == pytest.approx(1.0, rel=0.03)
    assert floor.is_white
    filtered = white_floor(ndimage.gaussian_filter(image.astype(float), 0.5)[np.newaxis])
    assert not filtered.is_white


def test_too_few_or_bad_pixels_have_no_floor():
    image, _ = crowd(1.0, 5000.0, 0.2)
    assert white_floor(image[np.newaxis, :20]) is None
    assert white_floor(np.full((1, 64, 64), np.nan)) is None
    assert white_floor(np.full((1, 64, 64), 7.0)) is None
    some = image.astype(float)
    some[3, 4] = np.nan
    assert white_floor(some[np.newaxis]).sigma == pytest.approx(1.0, rel=0.03)


def test_light_that_is_taken_for_noise_is_warned_of():
    """Nothing was found in a crowd whose noise was taken to be 12 times what it is, in silence."""
    image, _ = crowd(0.6, 20_000.0, 0.1, gain=3.0, background=200.0)
    smooth = ndimage.gaussian_filter(image.astype(np.float32), 0.3)
    with pytest.warns(UserWarning, match="gain, offset and variance, and sigma"):
        fits = localize(smooth, pixel="integrated", backend="cpu")
    assert fits.settings.noise.is_filtered
