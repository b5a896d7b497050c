"""Noise that differs from place to place by more than light."""

from __future__ import annotations

import numpy as np
import pytest
from noisy_scenes import flat_scenes, noisy_scenes
from scenes import light, looked_at
from scipy import ndimage

from napari_spotfit import Settings
from napari_spotfit import noise_model as noise_of_image
from napari_spotfit.estimation.noise_by_place import variation
from napari_spotfit.settings.noise_model import Process

SHAPE = (384, 384)


def spots(seed, base, count=120, height=85, sigma=1.3):
    """Return counts of spots on a background."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(8, 376, (count, 2))
    lit = light(places, height * 2 * np.pi * sigma**2, sigma, SHAPE)
    return rng.poisson(base + lit).astype(float)


def noise_model(image, sigma):
    return noise_of_image(image, settings=Settings(sigma=sigma))


def gradient():
    return 6 + 100 * np.indices(SHAPE)[1] / SHAPE[1]


@pytest.mark.parametrize("times", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("shape", [(32, 32), (4, 20, 20)])
def test_what_neighbours_have_in_common(times, shape):
    rng = np.random.default_rng(4)
    side = np.where(np.arange(shape[-1]) < shape[-1] // 2, 1.0, times)
    ratios = np.exp(rng.normal(0, 0.4, shape)) * side
    ratios.ravel()[::7] = 0  # unknown
    found = variation(ratios)
    assert abs(found.deviation - np.log(times) / 2) < 0.07
    assert (found.significance > 5) == (times > 1)


def test_few_places_show_nothing():
    assert variation(np.ones((3, 3))) == (0.0, 0.0)
    assert variation(np.zeros((32, 32))) == (0.0, 0.0)


BANDS = {
    "DoG": lambda image: ndimage.gaussian_filter(image, 1) - ndimage.gaussian_filter(image, 5),
    "narrow DoG": lambda image: (
        ndimage.gaussian_filter(image, 0.7) - ndimage.gaussian_filter(image, 10)
    ),
    "wide DoG": lambda image: ndimage.gaussian_filter(image, 2) - ndimage.gaussian_filter(image, 4),
}


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("seed", [31, 32])
def test_band_passes_of_a_gradient(name, seed):
    """Up to 134 false good fits in 10⁶ px, where it is bright, without a warning."""
    image = BANDS[name](spots(seed, gradient(), 170, sigma=1.8))
    noise = noise_model(image, sigma=1.8)
    assert noise.process in (Process.FILTERED, Process.DENOISED)


def contrast_by_area(image, sigma=10):
    away = image - ndimage.gaussian_filter(image, sigma)
    return away / np.sqrt(ndimage.gaussian_filter(away**2, sigma))


@pytest.mark.parametrize("seed", [33, 34])
def test_contrast_by_area(seed):
    image = contrast_by_area(spots(seed, gradient(), 170, sigma=1.8)).astype(np.float32)
    said = looked_at(image, sigma=1.8)[2]
    assert any("parts of the image have" in one or "probably" in one for one in said)


@pytest.mark.parametrize("on", ["gradient", "flat"])
def test_a_brightest_projection_of_blurred_planes(on):
    """Noise of the band was nine times the expected one: 294 false good fits in 10⁶ px."""
    rng, base = np.random.default_rng(35), gradient() if on == "gradient" else np.full(SHAPE, 20.0)
    lit = base + light(rng.uniform(8, 376, (170, 2)), 2e3, 1.8, SHAPE)
    planes = [
        ndimage.gaussian_filter(rng.poisson(
            ndimage.gaussian_filter(lit, 0.5 + 0.9 * abs(z - 4))
        ).astype(float), 1) for z in range(9)
    ]  # fmt: skip
    places, noise, said = looked_at(np.max(planes, axis=0), sigma=1.8)
    few = len(places) <= 175
    assert few or (noise.process and any("probably" in one for one in said))


@pytest.mark.parametrize("blur", [0.5, 0.7, 1.0])
def test_blurs_are_as_expected_everywhere(blur):
    rng = np.random.default_rng(36)
    inside = (np.indices(SHAPE) // 96).sum(axis=0) % 2.0
    cells = rng.poisson(10 + 150 * ndimage.gaussian_filter(inside, 1.3))
    for image in (spots(37, 20.0), cells.astype(float)):
        assert not noise_model(ndimage.gaussian_filter(image, blur), sigma=1.3).process


def test_raw_images_are_even():
    scenes = [*flat_scenes(1.3, seed=8), *noisy_scenes(1.3, 384, 1, 150, seed=8)]
    for scene in scenes:
        if scene.name not in ("median", "interpolated", "blurred", "JPEG 90", "JPEG 75"):
            noise = noise_model(np.stack(scene.frames), sigma=1.3)
            assert not noise.is_uneven, scene.name
            assert noise.uneven < 1.2, scene.name


def test_amplified_noise_beside_spots():
    """Landweber's deconvolution of a gradient had 5962 false good fits in 10⁶ px, unwarned."""
    image = spots(38, gradient(), 170, sigma=1.8)
    away = image - image.min()
    guess = away.copy()
    for _ in range(10):
        left = away - ndimage.gaussian_filter(guess, 1.8)
        guess = np.maximum(guess + 1.5 * ndimage.gaussian_filter(left, 1.8), 0)
    places, noise, said = looked_at(guess, sigma=1.8)
    assert noise.is_filtered
    assert any("probably was deconvolved" in one for one in said)
    assert len(places) < 1.2 * 170
