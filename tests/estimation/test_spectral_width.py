"""The width of spots by an image's power spectrum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import erf

from napari_spotfit import Settings, estimate_sigma
from napari_spotfit.estimation.spectral_width import spectral_width


def image_of(places, sigma, photons, side):
    """Return an image of spots, light integrated over pixels."""
    edges = (np.arange(side + 1) - 0.5 - places[..., np.newaxis]) / (sigma * 2**0.5)
    down, across = np.diff(0.5 * erf(edges), axis=2).transpose(1, 0, 2)
    return 10 + photons * np.einsum("ny,nx->yx", down, across, optimize=True)


def crowd(sigma, photons, per_square, seed, side):
    """Return an image of spots at random places, by their number in σ²."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(per_square * (side / sigma + 6) ** 2)
    places = rng.uniform(-3 * sigma, side - 1 + 3 * sigma, (count, 2))
    return rng.poisson(image_of(places, sigma, photons, side)).astype(np.uint16)


def packed(sigma, photons, seed, side, apart=2.0, count=500):
    """Return an image of spots that are nowhere nearer to each other than some σ."""
    rng = np.random.default_rng(seed)
    places = np.empty((0, 2))
    for place in rng.uniform(0, side - 1, (count, 2)):
        if not len(places) or np.hypot(*(places - place).T).min() > apart * sigma:
            places = np.vstack([places, place])
    return rng.poisson(image_of(places, sigma, photons, side)).astype(np.uint16)


@pytest.mark.parametrize("guess", [0.7, 1.0, 1.5, 2.0])
@pytest.mark.parametrize(("sigma", "photons"), [(0.8, 1000.0), (1.3, 300.0), (2.0, 50_000.0)])
def test_spectrum_shows_the_width_of_spots_however_dense_they_are(sigma, photons, guess):
    for per_square in (0.05, 0.3):
        image = crowd(sigma, photons, per_square, 5, round(100 * sigma))
        found = spectral_width(image[np.newaxis], guess * sigma, is_integrated=True)
        assert found.sigma == pytest.approx(sigma, rel=0.05)
        assert not found.is_bent


def test_errors_of_widths_are_those_of_many_images():
    found = [spectral_width(crowd(1.3, 1000.0, 0.1, seed, 80)[np.newaxis], 1.3, is_integrated=True)
             for seed in range(24)]  # fmt: skip
    scatter = np.std([one.sigma for one in found]) / 1.3
    assert scatter == pytest.approx(np.mean([one.error for one in found]), rel=0.4)
    assert np.mean([one.sigma for one in found]) == pytest.approx(1.3, rel=0.015)


def test_sampled_width_has_that_of_pixels_in_it():
    image = crowd(1.3, 1000.0, 0.1, 2, 200)[np.newaxis]
    own, sampled = (
        spectral_width(image, 1.3, is_integrated=is_integrated).sigma
        for is_integrated in (True, False)
    )
    assert sampled == pytest.approx(math.sqrt(own**2 + 1 / 12), rel=0.01)


def test_spectra_of_clusters_and_of_cells_are_bent():
    rng = np.random.default_rng(3)
    side, sigma = 120, 1.3
    places = np.repeat(rng.uniform(0, side, (40, 2)), 12, axis=0)
    clusters = image_of(places + rng.normal(0, 2 * sigma, places.shape), sigma, 1000.0, side)
    y, x = np.indices((side, side))
    cells = image_of(rng.uniform(0, side, (200, 2)), sigma, 200.0, side)
    for middle in rng.uniform(0, side, (6, 2)):
        cells += 150 * (np.hypot(y - middle[0], x - middle[1]) < 15)
    for light in (clusters, cells):
        assert spectral_width(rng.poisson(light)[np.newaxis], sigma, is_integrated=True).is_bent


def test_noise_and_flat_images_have_no_width():
    rng = np.random.default_rng(4)
    for frames in (rng.poisson(100.0, (2, 64, 64)), np.zeros((1, 64, 64)), np.ones((1, 8, 90))):
        assert spectral_width(frames, 1.3, is_integrated=True) is None


def test_few_bad_pixels_change_no_width_and_many_show_none():
    image = crowd(1.3, 1000.0, 0.1, 6, 150)[np.newaxis].astype(np.float32)
    plain = spectral_width(image, 1.3, is_integrated=True).sigma
    hot = np.zeros(image.shape, bool)
    hot[0, 10::40, 15::40] = True
    image[hot] = 60_000
    found = spectral_width(image, 1.3, is_integrated=True, bad=hot).sigma
    assert found == pytest.approx(plain, rel=0.02)
    image[hot] = np.nan
    assert spectral_width(image, 1.3, is_integrated=True).sigma == pytest.approx(found, rel=1e-6)
    image[0, ::3] = np.nan
    assert spectral_width(image, 1.3, is_integrated=True) is None


@pytest.mark.parametrize(
    ("sigma", "photons", "per_square"),
    [(0.8, 10_000.0, 0.05), (1.3, 300.0, 0.12), (1.3, 1000.0, 0.12), (2.0, 1000.0, 0.3),
     (2.0, 50_000.0, 0.12), (3.0, 300.0, 0.2)],
)  # fmt: skip
def test_width_of_dense_crowds_is_right(sigma, photons, per_square):
    image = crowd(sigma, photons, per_square, 31, round(80 * sigma))
    found = estimate_sigma(image, settings=Settings(pixel="integrated", backend="cpu"))
    assert found.sigma == pytest.approx(sigma, rel=0.06)


def test_width_of_spots_that_keep_apart_is_that_of_their_fits():
    image = packed(1.3, 3000.0, 8, 110)
    by_spectrum = spectral_width(image[np.newaxis], 1.3, is_integrated=True)
    assert by_spectrum.sigma < 0.97 * 1.3  # they are at no random places
    found = estimate_sigma(image, settings=Settings(pixel="integrated", backend="cpu"))
    assert found.sigma == pytest.approx(1.3, rel=0.02)
