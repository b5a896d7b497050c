"""Noise and width of crowds in frames that have too few blocks for a line of noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial import cKDTree
from scipy.special import erf

from napari_spotfit import NoiseModel, Settings, estimate_sigma, localize, noise_model
from napari_spotfit.estimation.small_frames import with_line_of_pixels

SIGMA = 1.3


def light_of(places, photons, side, sigma=SIGMA):
    """Return the light of spots on a background of 10."""
    edges = (np.arange(side + 1) - 0.5 - places[..., np.newaxis]) / (sigma * 2**0.5)
    down, across = np.diff(0.5 * erf(edges), axis=2).transpose(1, 0, 2)
    return 10 + photons * np.einsum("ny,nx->yx", down, across, optimize=True)


def crowd(photons, seed, side=32, per_square=0.076, sigma=SIGMA):
    """Return an image of spots at random places, by their number in σ², and the places."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(1.5, side - 2.5, (round(per_square * (side / sigma) ** 2), 2))
    return rng.poisson(light_of(places, photons, side, sigma)).astype(np.uint16), places


@pytest.mark.parametrize("photons", [1000.0, 10_000.0])
@pytest.mark.parametrize("gain", [1.0, 3.0])
@pytest.mark.parametrize("bad", [0.0, 0.02])
def test_noise_of_a_small_crowd_grows_with_light(photons, gain, bad):
    slopes = []
    for seed in range(4):
        image, _ = crowd(photons, seed)
        frame = np.rint(gain * image + np.random.default_rng(seed).normal(100, 2, image.shape))
        frame[np.random.default_rng(seed).random(image.shape) < bad] = np.nan
        noise = noise_model(frame, settings=Settings(sigma=SIGMA))
        slopes.append(noise.slope / gain)
        dark = 100 + gain * np.percentile(image, 10)
        assert noise.variance(dark) < 4 * gain * (dark - 100)
    assert np.mean(slopes) == pytest.approx(1, abs=0.15)
    assert np.allclose(slopes, 1, atol=0.5)


def test_noise_of_flat_small_frames_stays_that_of_their_blocks():
    of_blocks, changed = NoiseModel(0.0, 50.0, 25.0, blocks=4), 0
    for seed in range(24):
        flat = np.random.default_rng(seed).poisson(50.0, (1, 40, 40))
        noise = with_line_of_pixels(of_blocks, flat, SIGMA)
        changed += noise != of_blocks
        assert noise.variance(50.0) == pytest.approx(50, rel=0.25)
    assert changed <= 3


def test_frames_with_enough_blocks_and_narrow_spots_have_no_line_of_pixels():
    image = crowd(3000.0, 1)[0][np.newaxis]
    for blocks, sigma in ((8, SIGMA), (1, 0.9)):
        noise = NoiseModel(0.0, 50.0, 25.0, blocks=blocks)
        assert with_line_of_pixels(noise, image, sigma) is noise


def test_spots_of_a_small_crowd_are_found_with_nothing_known():
    true, found, paired = 0, 0, 0
    for seed in range(6):
        image, places = crowd(3000.0, 50 + seed)
        fits = localize(image, backend="cpu")
        good = np.column_stack([fits.y, fits.x])[fits.good]
        near = cKDTree(good).query(places)[0] < 2.5 if len(good) else np.zeros(len(places), bool)
        true, found, paired = true + len(places), found + len(good), paired + int(near.sum())
    assert paired >= 0.7 * true
    assert found <= true


@pytest.mark.parametrize(("photons", "side"), [(1000.0, 32), (3000.0, 32), (3000.0, 48)])
def test_width_of_small_crowds_is_that_of_joint_fits(photons, side):
    off = []
    for seed in range(5):
        image, _ = crowd(photons, 20 + seed, side)
        found = estimate_sigma(image, settings=Settings(pixel="integrated", backend="cpu"))
        off.append(found.sigma / SIGMA - 1)
    assert np.median(np.abs(off)) < 0.04
    assert np.mean(np.abs(off) < 0.12) >= 0.8


def test_spectrum_shows_the_width_where_no_single_spot_does():
    image, _ = crowd(30_000.0, 100, 256, 0.2, 1.0)
    alone = Settings(pixel="integrated", backend="cpu", neighbours="exclude")
    with pytest.raises(ValueError, match="good fits of spots"):
        estimate_sigma(image, settings=alone)
    found = estimate_sigma(image, settings=alone.changed(neighbours="auto"))
    assert found.sigma == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("blur", [1.0, 1.5, 2.5])
def test_filtered_noise_has_no_width(blur):
    """Its spectrum is that of spots where these have most light."""
    rng = np.random.default_rng(3)
    noise = ndimage.gaussian_filter(rng.poisson(40.0, (256, 256)) * 100.0, blur)
    settings = Settings(backend="cpu")
    with pytest.raises(ValueError, match="needs 3 good fits"):
        estimate_sigma(noise.astype(np.float32), settings=settings)
