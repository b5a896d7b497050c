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
