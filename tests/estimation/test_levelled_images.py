"""Top hats and rolling balls are named by where they leave the lowest value."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scenes import light
from scipy import ndimage

from napari_spotfit import localize
from napari_spotfit.estimation.levelled import is_levelled
from napari_spotfit.settings.noise_model import Process

SIDE, SIGMA = 256, 1.3
SHAPE = (SIDE, SIDE)


def gradient(seed=1):
    """Return counts of spots on light that grows from left to right."""
    rng = np.random.default_rng([seed, SIDE])
    base = 25 * (0.3 + 5 * np.indices(SHAPE)[1] / SIDE)
    places = rng.uniform(12, SIDE - 12, (40, 2))
    height = 15 * np.sqrt(base[tuple(np.rint(places).astype(int).T)])
    return rng.poisson(base + light(places, height * 2 * np.pi * SIGMA**2, SIGMA, SHAPE)) + 100.0


def disc(radius):
    return np.hypot(*np.mgrid[-radius : radius + 1, -radius : radius + 1]) <= radius


def rolled(image, radius=10):
    """Take away what a ball under an image reaches."""
    inside = disc(radius)
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    ball = np.sqrt(np.maximum(radius**2 - y**2 - x**2, 0.0))
    low = ndimage.grey_erosion(image, footprint=inside, structure=ball)
    return image - ndimage.grey_dilation(low, footprint=inside, structure=ball)


@pytest.mark.parametrize("way", [
    lambda image: ndimage.white_tophat(image, 5),
    lambda image: ndimage.white_tophat(image, 9),
    lambda image: ndimage.white_tophat(image, 15),
    lambda image: ndimage.white_tophat(image, footprint=disc(4)),
    rolled,
], ids=["5", "9", "15", "disc", "ball"])  # fmt: skip
def test_what_levels_an_image_is_named(way):
    with pytest.warns(UserWarning, match="top hat, a rolling ball") as said:
        fits = localize(way(gradient()), sigma=SIGMA, backend="cpu")
    assert "with its background" in str(said[0].message)
    assert fits.settings.noise.process == Process.LEVELLED


def in_cells(camera_offset=100.0, seed=3):
    """Return photons of spots in cells that differ in brightness, with noise of the read-out."""
    rng = np.random.default_rng([seed, SIDE])
    y, x = np.indices(SHAPE)
    inside = [np.hypot(y % 96 - 48, x % 96 - 48) < radius for radius in (26, 38)]
    base = 10 + ndimage.gaussian_filter(70.0 * inside[0] + 60.0 * inside[1], SIGMA)
    places = rng.uniform(12, SIDE - 12, (30, 2))
    height = 12 * np.sqrt(base[tuple(np.rint(places).astype(int).T)])
    spots = light(places, height * 2 * np.pi * SIGMA**2, SIGMA, SHAPE)
    return rng.poisson(base + spots) + rng.normal(camera_offset, 1.0, SHAPE)


@pytest.mark.parametrize("way", [
    lambda image: ndimage.white_tophat(image, 9),
    lambda image: ndimage.white_tophat(image, 15),
    lambda image: ndimage.white_tophat(image, footprint=disc(3)),
    lambda image: ndimage.white_tophat(image, footprint=disc(4)),
    lambda image: rolled(image, 6),
    rolled,
], ids=["9", "15", "disc 3", "disc 4", "ball 6", "ball 10"])  # fmt: skip
@pytest.mark.parametrize("seed", [3, 4])
def test_what_levels_cells_leaves_the_lowest_value_in_their_noise(way, seed):
    with pytest.warns(UserWarning, match="top hat, a rolling ball"):
        fits = localize(way(in_cells(seed=seed)), sigma=SIGMA, backend="cpu")
    assert fits.settings.noise.process == Process.LEVELLED


@pytest.mark.parametrize("cut", [0.0, 100.0, 110.0])
def test_raw_cells_are_not_levelled_whatever_a_camera_cuts_off(cut):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(np.maximum(in_cells(), cut), sigma=SIGMA, backend="cpu")


@pytest.mark.parametrize("dark", [1.0, 2.5, 6.0])
@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_the_lowest_value_in_the_dark_of_cells_and_clusters_is_chance(dark, gain):
    """In the dark many pixels have it; between spots that are bright, and at edges, some do."""
    rng = np.random.default_rng([8, int(10 * dark), int(gain)])
    y, x = np.indices(SHAPE)
    inside = ndimage.gaussian_filter((np.hypot(y % 96 - 48, x % 96 - 48) < 35) * 1.0, 1.0)
    middles = rng.uniform(20, SIDE - 20, (12, 2))
    places = middles[rng.integers(12, size=900)] + rng.normal(0, 10, (900, 2))
    clusters = light(places[((places > 0) & (places < SIDE - 1)).all(axis=1)], 300.0, SIGMA, SHAPE)
    for light_level in (dark + 40 * inside, dark + clusters, dark + 40 * inside + clusters):
        photons = rng.poisson(light_level)
        read = gain * (photons + rng.normal(0, 1.0, SHAPE))
        amplified = np.where(photons, rng.gamma(np.maximum(photons, 1), 30), 0.0)
        for counts in (photons, read, np.maximum(read, 0), np.rint(read), amplified):
            assert not is_levelled(counts, float((counts == np.rint(counts)).all()))


def test_raw_images_are_not_levelled():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(gradient(), sigma=SIGMA, backend="cpu")


@pytest.mark.parametrize("side", [96, 256])
@pytest.mark.parametrize("light_level", [0.3, 1.0, 2.0, 4.0])
def test_chance_levels_nothing(light_level, side):
    """Of few photons, amplified or not, and of what is cut off, each area has the lowest value."""
    rng, shape = np.random.default_rng([int(10 * light_level), side]), (side, side)
    y, x = np.indices(shape)
    mesh = 5 * (1 + np.sin(2 * np.pi * x / 7) * np.sin(2 * np.pi * y / 7)) - 4.5
    texture = ndimage.gaussian_filter(rng.random(shape), 3) * 10 * light_level
    for _ in range(3):
        counts = rng.poisson(light_level, shape)
        assert not is_levelled(counts)
        assert not is_levelled(np.where(counts, rng.gamma(np.maximum(counts, 1), 30), 0.0))
        assert not is_levelled(np.maximum(rng.normal(0, 1, shape), -light_level / 2))
        assert not is_levelled(rng.poisson(np.maximum(light_level + mesh, 0.01)))
        assert not is_levelled(rng.poisson(texture))


def test_dead_pixels_level_nothing():
    rng = np.random.default_rng(4)
    counts = rng.poisson(100.0, SHAPE)
    assert not is_levelled(np.where(rng.random(SHAPE) < 0.02, 0, counts))
