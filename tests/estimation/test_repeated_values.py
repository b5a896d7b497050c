"""Filters of rank repeat their neighbours' values."""

from __future__ import annotations

import numpy as np
import pytest
from noisy_scenes import noisy_scenes
from scenes import light, looked_at
from scipy import ndimage

from napari_spotfit.estimation.pixel_values import value_step
from napari_spotfit.estimation.repeated_values import repeats_neighbours

SHAPE = (256, 256)


def repeats(image):
    return repeats_neighbours(image, value_step(image[np.newaxis]))


def cells(rng):
    """Return counts of bright squares with spots of σ 1.3 px."""
    inside = (np.indices(SHAPE) // 64).sum(axis=0) % 2.0
    places = rng.uniform(8, 248, (75, 2))
    base = 10 + 150 * ndimage.gaussian_filter(inside, 1.3)
    return rng.poisson(base + light(places, 140 * 2 * np.pi * 1.3**2, 1.3, SHAPE)), places


def without_outliers(image, deviations):
    middle = ndimage.median_filter(image, 3)
    noise = np.median(abs(image - middle)) / 0.6745
    return np.where(abs(image - middle) > deviations * noise, middle, image)


RANKS = {
    "outliers by 2 deviations": lambda image: without_outliers(image, 2),
    "median": lambda image: ndimage.median_filter(image, 3),
    "largest of 3×3": lambda image: ndimage.maximum_filter(image, 3),
    "turned to the nearest pixel": lambda image: ndimage.rotate(image, 10, order=0, reshape=False),
}


@pytest.mark.parametrize("kind", [np.uint16, np.float32])
@pytest.mark.parametrize("name", RANKS)
def test_filters_of_rank_repeat_values(name, kind):
    for seed in (11, 12, 13):
        image, _ = cells(np.random.default_rng(seed))
        assert repeats(RANKS[name](image.astype(float)).astype(kind))
        assert not repeats(image.astype(kind))


def test_removed_outliers_of_numbers_without_steps():
    image = np.random.default_rng(1).normal(100, 4, SHAPE)
    assert repeats(without_outliers(image, 2))
    assert not repeats(image)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 0.7])
def test_rounded_blurs_do_not(sigma):
    """Neighbours are alike there, and so more often equal."""
    image, _ = cells(np.random.default_rng(2))
    assert not repeats(np.rint(ndimage.gaussian_filter(image.astype(float), sigma)))


def test_raw_images_do_not():
    for scene in noisy_scenes(1.3, 256, 1, 100, seed=7):
        if scene.name not in ("median", "JPEG 75"):
            assert not repeats(scene.frames[0]), scene.name


@pytest.mark.parametrize("gain", [0.25, 0.45, 2.2, 7.3])
def test_counts_that_were_multiplied_and_rounded_do_not(gain):
    """Steps between values are not all alike then."""
    rng = np.random.default_rng(3)
    lit = 40 + 30 * np.indices(SHAPE)[1] / 256 + light(rng.uniform(8, 248, (300, 2)), 3e3, 2, SHAPE)
    assert not repeats(np.rint(gain * rng.poisson(lit)).astype(np.uint16))


@pytest.mark.parametrize("seed", [21, 22])
def test_removed_outliers_are_warned_of(seed):
    """Of what was found in cells, .15 was false, without a warning."""
    image, _ = cells(np.random.default_rng(seed))
    _, noise, said = looked_at(without_outliers(image.astype(float), 2))
    assert noise.process
    assert any("probably was" in one for one in said)
    assert not any("probably" in one for one in looked_at(image)[2])
