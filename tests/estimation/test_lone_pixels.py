"""Hot pixels are named where they are taken for noise."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import light, looked_at

from napari_spotfit.estimation.lone_pixels import lone_pixels

SHAPE = (256, 256)


def hot_movie(seed, share, frames):
    """Return counts of 60 spots, and which pixels are hot."""
    rng = np.random.default_rng(seed)
    lit = 20 + light(rng.uniform(6, 250, (60, 2)), 1000, 1.3, SHAPE)
    counts = rng.poisson(np.broadcast_to(lit, (frames, *SHAPE))) + 100
    hot = rng.random(SHAPE) < share
    counts[:, hot] += rng.uniform(200, 2000, hot.sum()).astype(int)
    return counts.astype(np.uint16), hot


@pytest.mark.parametrize("seed", [41, 42])
@pytest.mark.parametrize("share", [0.02, 0.04])
def test_hot_pixels_are_named_and_not_the_gain(seed, share):
    """There were no spots, and the gain was said to be 1300 times too small, or nothing."""
    movie, hot = hot_movie(seed, share, 3)
    for image, options in (
        (movie, {}), (movie, {"gain": 1.0, "offset": 100.0}),
        (movie[0], {"gain": 1.0, "offset": 100.0}),
    ):  # fmt: skip
        said = looked_at(image, **options)[2]
        assert "of the pixels are hot" in said[0]
        assert "bad_pixels=" in said[0]
        assert not any("gain is in counts per electron" in one for one in said)
    places, _, said = looked_at(movie, bad_pixels=hot)
    assert not said
    assert 165 < len(places) < 190


def test_few_hot_pixels_are_not_taken_for_noise():
    movie, _ = hot_movie(43, 0.002, 3)
    places, _, said = looked_at(movie)
    assert not any("hot" in one for one in said)
    assert len(places) > 165


@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8])
@pytest.mark.parametrize("density", [0.3, 1.0, 2.0])
def test_sharp_spots_are_not_alone(sigma, density):
    """Noise is taken for more than most pixels have there, too."""
    rng = np.random.default_rng([44, round(10 * sigma), round(10 * density)])
    places = rng.uniform(0, 255, (round(density * 655), 2))
    for photons in (500, 5000, 1e5):
        frame = rng.poisson(1 + light(places, photons, sigma, SHAPE)) + 100.0
        assert lone_pixels(frame[np.newaxis], 1e6, fixed=False) == 0


def test_amplified_photons_are_at_other_places_in_each_frame():
    rng = np.random.default_rng(45)
    photons = rng.poisson(0.03, (4, *SHAPE))
    frames = rng.gamma(np.maximum(photons, 1), 300.0) * (photons > 0)
    frames += rng.normal(100, 3, frames.shape)
    assert lone_pixels(frames, 1e4, fixed=False) > 0.01
    assert lone_pixels(frames, 1e4, fixed=True) == 0
    assert lone_pixels(frames[:1], 1e4, fixed=True) == 0
