"""Brightest projections are named by the skewness of their noise; raw images are not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scenes import light
from scipy import ndimage

from napari_spotfit import localize
from napari_spotfit.estimation.measured_noise import measure_noise
from napari_spotfit.settings.noise_model import Process
from napari_spotfit.settings.settings import Settings

SIDE, SIGMA = 320, 1.3
SHAPE = (SIDE, SIDE)


def background(kind):
    if kind == "gradient":
        return 12 + 40 * np.indices(SHAPE)[1] / SIDE
    inside = (np.indices(SHAPE) // 64).sum(axis=0) % 2
    return 12 + 150 * ndimage.gaussian_filter(inside.astype(float), SIGMA)


def planes(kind, count=9, seed=1):
    """Return planes through spots that are as sharp in all of them, and noise of their own."""
    rng = np.random.default_rng([seed, count])
    places = rng.uniform(12, SIDE - 12, (20, 2))
    spots = light(places, 1500.0, SIGMA, SHAPE)
    return np.stack([rng.poisson(background(kind) + spots) for _ in range(count)]).astype("u2")


def process_of(image, sigma=SIGMA):
    frames = np.ascontiguousarray(image[np.newaxis], np.float32)
    return measure_noise(frames, Settings(sigma=sigma)).process


@pytest.mark.parametrize("kind", ["gradient", "cells"])
@pytest.mark.parametrize("count", [6, 9])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_brightest_of_planes_is_named(kind, count, seed):
    with pytest.warns(UserWarning, match='more skewed.*model="gaussian_3d"'):
        fits = localize(planes(kind, count, seed).max(axis=0), sigma=SIGMA, backend="cpu")
    assert fits.settings.noise.process == Process.PROJECTED


@pytest.mark.parametrize("kind", ["gradient", "cells"])
def test_a_plane_the_mean_and_the_sum_are_as_a_camera_takes_them(kind):
    stack = planes(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for image in (stack[0], stack.mean(axis=0), stack.sum(axis=0)):
            localize(image, sigma=SIGMA, backend="cpu")


@pytest.mark.parametrize("kind", ["gradient", "cells"])
@pytest.mark.parametrize("seed", range(4))
def test_few_photons_amplified_ones_and_noisy_pixels_are_skewed_by_themselves(kind, seed):
    rng = np.random.default_rng([seed, 3])
    for dimmer in (1, 4, 15):
        photons = rng.poisson(background(kind) / dimmer)
        amplified = rng.gamma(np.maximum(photons, 1), 30) * (photons > 0) + rng.normal(0, 3, SHAPE)
        noisy = np.where(rng.random(SHAPE) < 2e-3, 20.0, 1.5)
        for image in (photons, amplified, photons + noisy * rng.normal(size=SHAPE)):
            assert process_of(image) != Process.PROJECTED


@pytest.mark.parametrize("density", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("photons", [60, 200, 800, 20_000])
@pytest.mark.parametrize("sigma", [0.8, 1.3])
def test_crowds_of_dim_and_sharp_spots_are_no_skewed_noise(density, photons, sigma):
    rng = np.random.default_rng([photons, int(10 * density)])
    places = rng.uniform(0, SIDE - 1, (int(density * SIDE**2 / 100), 2))
    spots = light(places, photons * rng.exponential(size=len(places)), sigma, SHAPE)
    for kind in ("gradient", "cells"):
        image = rng.poisson(background(kind) + spots)
        assert process_of(image, sigma) != Process.PROJECTED
