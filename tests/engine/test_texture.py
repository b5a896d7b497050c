"""Texture is not taken for spots, and spots are not taken for texture."""

from __future__ import annotations

import numpy as np
import pytest
from detection_cases import textured
from noisy_scenes import hits
from scenes import light, scattered

from napari_spotfit import NoiseModel, Settings, detect_spots
from napari_spotfit.engine.cpu.backend import detect

SIGMA, SHAPE = 1.3, (384, 384)


@pytest.mark.parametrize(("length", "most"), [(2.5, 300), (4.0, 350)])
def test_texture_has_few_spots(length, most):
    """Without dark spots, 3500 and 700 were found per 10⁶ pixels."""
    found = [len(detect_spots(textured(np.random.default_rng(i), SHAPE, length), sigma=SIGMA))
             for i in range(3)]  # fmt: skip
    assert np.sum(found) / (3 * np.prod(SHAPE) / 1e6) < most


def test_bright_spots_on_texture_are_found():
    """Of maxima of the texture, 465 are found beside these 300 spots without dark spots."""
    found = right = 0
    for seed in range(5, 10):
        rng = np.random.default_rng(seed)
        truth = rng.uniform(8, SHAPE[0] - 8, (60, 2))
        image = textured(rng, SHAPE, 4.0, extra=light(truth, 3000, SIGMA, SHAPE))
        places = detect_spots(image, sigma=SIGMA)
        found, right = found + len(places), right + hits(places, truth, 2.0)
    assert right >= 295
    assert found - right <= 230


@pytest.mark.parametrize("count", [20, 300, 3000])
def test_spots_in_noise_are_no_texture(count):
    """A threshold as high as the noise asks for finds as many; it looks for no dark spots."""
    rng = np.random.default_rng([7, count])
    image = rng.poisson(20 + light(scattered(rng, SHAPE, count), 1000, SIGMA, SHAPE))
    image = (image + 100).astype(np.uint16)
    every = detect_spots(image, sigma=SIGMA, threshold=4.0)
    assert len(detect_spots(image, sigma=SIGMA)) >= 0.99 * len(every)


def test_dim_spots_beside_a_bright_one_are_found():
    rng = np.random.default_rng(11)
    grid = np.stack(np.meshgrid(*2 * [np.arange(20.0, 380, 24)], indexing="ij"), -1).reshape(-1, 2)
    lights = light(grid, 600, SIGMA, SHAPE) + light(grid[::8] + 9, 60_000, SIGMA, SHAPE)
    image = (rng.poisson(20 + lights) + 100).astype(np.uint16)
    assert hits(detect_spots(image, sigma=SIGMA), grid, 1.5) >= 0.97 * len(grid)


def test_pixels_of_much_noise_are_no_dark_spots():
    """Of 1600 dim spots, 1 in 20 pixels darker or brighter by chance hides hardly any."""
    rng = np.random.default_rng(12)
    grid = np.stack(np.meshgrid(*2 * [np.arange(6.0, 378, 9)], indexing="ij"), -1).reshape(-1, 2)
    spread = np.where(rng.random(SHAPE) < 0.05, 20.0, 2.0)
    image = rng.poisson(4 + light(grid, 260, SIGMA, SHAPE)) + 100 + rng.normal(0, spread)
    settings = Settings(sigma=SIGMA, noise=NoiseModel(1.0, -80.0, 4.0))
    frames = np.rint(image).astype(np.uint16)[np.newaxis]
    every = detect(frames, settings, texture=True)
    kept = detect(frames, settings)
    assert hits(kept.places(), grid, 1.5) >= 0.97 * hits(every.places(), grid, 1.5)


def test_lone_minima_of_noise_hide_no_dim_spots():
    """Noise alone has ten minima per 10⁶ pixels that are as deep as spots that count are high."""
    grid = np.stack(np.meshgrid(*2 * [np.arange(12.0, 372, 24)], indexing="ij"), -1).reshape(-1, 2)
    settings = Settings(sigma=SIGMA, noise=NoiseModel(1.0, 0.0, 4.0))
    frames = np.stack([
        np.random.default_rng(seed).poisson(120 + light(grid, 300, SIGMA, SHAPE)).astype(np.uint16)
        for seed in range(24)
    ])  # fmt: skip
    every, kept = (detect(frames, settings, texture=texture) for texture in (True, False))
    assert len(every.y) > 0.6 * 24 * len(grid)
    assert len(kept.y) >= 0.99 * len(every.y)


def test_those_who_ask_are_given_texture():
    frames = textured(np.random.default_rng(0), SHAPE, 2.5)[np.newaxis]
    settings = Settings(sigma=SIGMA, noise=NoiseModel(1.0, -100.0, 4.0))
    every = detect(frames, settings, texture=True)
    assert len(every.y) > 5 * len(detect(frames, settings).y)
