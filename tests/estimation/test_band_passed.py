"""Band-passed images are named where noise goes by light that is gone; crowds in places are not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scenes import light
from scipy import ndimage

from napari_spotfit import localize
from napari_spotfit.estimation.band_noise import BandAreas
from napari_spotfit.estimation.band_passed import is_band_passed

SIDE, SIGMA = 256, 1.3
SHAPE = (SIDE, SIDE)


def cells(radius=40):
    """Return which part of a pixel is in a cell."""
    y, x = np.indices(SHAPE)
    inside = (np.hypot(y % 128 - 64, x % 128 - 64) < radius).astype(float)
    return ndimage.gaussian_filter(inside, 2.0)


def raw(seed=5):
    rng = np.random.default_rng(seed)
    places = rng.uniform(12, SIDE - 12, (40, 2))
    lights = light(places, 1500.0, SIGMA, SHAPE)
    return rng.poisson(10 + 200 * cells() + lights) + 100.0


def band(image, inner, outer):
    return ndimage.gaussian_filter(image, inner) - ndimage.gaussian_filter(image, outer)


WAYS = {
    "DoG 1, 1.6": lambda image: band(image, 1, 1.6),
    "DoG 1, 2": lambda image: band(image, 1, 2),
    "DoG 1.3, 3": lambda image: band(image, 1.3, 3),
    "LoG 1": lambda image: -ndimage.gaussian_laplace(image, 1.0),
    "LoG 1.3": lambda image: -ndimage.gaussian_laplace(image, 1.3),
    "rounded LoG": lambda image: np.rint(-5 * ndimage.gaussian_laplace(image, 1.0)),
}


@pytest.mark.parametrize("name", WAYS)
def test_band_passed_cells_are_named(name):
    with pytest.warns(UserWarning, match="was filtered|was deconvolved|was denoised"):
        fits = localize(WAYS[name](raw()), sigma=SIGMA, backend="cpu")
    assert fits.settings.noise.process


@pytest.mark.parametrize("name", WAYS)
def test_they_are_told_by_noise_without_light(name):
    assert is_band_passed(BandAreas([WAYS[name](raw())], SIGMA))


@pytest.mark.parametrize("width", [0.0, 0.5, 1.0, 2.0])
def test_raw_and_blurred_cells_are_not(width):
    image = ndimage.gaussian_filter(raw(), width) if width else raw()
    assert not is_band_passed(BandAreas([image], SIGMA))


def test_blurred_cells_have_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(ndimage.gaussian_filter(raw(), 1.0), sigma=SIGMA, backend="cpu")


@pytest.mark.parametrize("width", [0.0, 1.0])
@pytest.mark.parametrize("photons", [300.0, 1000.0, 10_000.0])
@pytest.mark.parametrize("density", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("sigma", [1.0, 1.8])
def test_spots_in_some_places_are_no_noise(sigma, density, photons, width):
    """Crowds in cells, and nothing between them, are told by how high and how deep they are."""
    rng = np.random.default_rng([round(10 * density), int(photons), round(10 * sigma)])
    places = rng.uniform(0, SIDE - 1, (round(density * SIDE**2 / 100), 2))
    places = places[cells()[tuple(places.astype(int).T)] > 0.5]
    bright = photons * rng.uniform(0.5, 1.5, len(places))
    image = rng.poisson(20 + light(places, bright, sigma, SHAPE)) + 100.0
    image = ndimage.gaussian_filter(image, width) if width else image
    assert not is_band_passed(BandAreas([image], sigma))


def test_few_areas_show_nothing():
    assert not is_band_passed(BandAreas([WAYS["LoG 1"](raw())[:64, :64]], SIGMA))


@pytest.mark.parametrize(("bright", "rounds"), [(100, 30), (100, 40), (200, 30)])
def test_amplified_noise_among_cells_is_named(bright, rounds):
    """Cells are brighter than most of an image, as spots of a crowd are; noise is everywhere."""
    rng, sigma = np.random.default_rng(5), 1.8
    lights = light(rng.uniform(12, SIDE - 12, (40, 2)), 3000.0, sigma, SHAPE)
    image = rng.poisson(10 + bright * cells(30) + lights) + 100.0
    with pytest.warns(UserWarning, match="was filtered|was deconvolved"):
        fits = localize(landweber(image, sigma, rounds), sigma=sigma, backend="cpu")
    assert fits.settings.noise.correlation > 2


def landweber(image, sigma, rounds):
    """Return an image after Landweber's iterations, of light that is not negative."""
    image = image - image.min()
    deconvolved = image
    for _ in range(rounds):
        rest = image - ndimage.gaussian_filter(deconvolved, sigma)
        deconvolved = np.maximum(deconvolved + 1.5 * ndimage.gaussian_filter(rest, sigma), 0)
    return deconvolved


@pytest.mark.parametrize(("width", "rounds"), [(1.8, 10), (1.8, 30), (1.3, 50)])
@pytest.mark.parametrize("seed", [1, 2])
def test_amplified_noise_between_sharp_edges_is_named(width, rounds, seed):
    """Edges of cells that differ have high maxima, and make as deep minima beside them."""
    rng = np.random.default_rng([6, seed])
    y, x = np.indices(SHAPE)
    base = np.full(SHAPE, 10.0)
    for bright in (50, 90, 130):
        for middle in rng.uniform(0, SIDE, (5, 2)):
            base[np.hypot(y - middle[0], x - middle[1]) < rng.uniform(18, 40)] += bright
    places = rng.uniform(12, SIDE - 12, (20, 2))
    lights = light(places, 2500.0, SIGMA, SHAPE)
    image = rng.poisson(ndimage.gaussian_filter(base, SIGMA) + lights).astype(float)
    with pytest.warns(UserWarning, match="was filtered|was deconvolved|was denoised"):
        fits = localize(landweber(image, width, rounds), sigma=SIGMA, backend="cpu")
    apart = np.hypot(fits.y[:, None] - places[:, 0], fits.x[:, None] - places[:, 1]).min(axis=1)
    assert np.count_nonzero(fits.good & (apart > 2)) <= 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(image, sigma=SIGMA, backend="cpu")
