"""Bright spots that do not overlap, and move each other all the same, are fitted together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.special import erf

from napari_spotfit import localize

SIGMA, SIDE, APART = 1.3, 320, 45.0


def pairs(photons, gap, seed, others=None):
    """Return a frame of pairs some σ apart, far from each other, and the places of all spots."""
    rng = np.random.default_rng(seed)
    line = np.arange(30, SIDE - 30, APART)
    first = np.array([(y, x) for y in line for x in line]) + rng.uniform(-0.5, 0.5, (36, 2))
    angle = rng.uniform(0, 2 * np.pi, len(first))
    second = first + gap * SIGMA * np.column_stack([np.sin(angle), np.cos(angle)])
    places = np.vstack([first, second])
    light = np.repeat([photons, photons if others is None else others], len(first))
    edges = (np.arange(SIDE + 1) - 0.5 - places[..., np.newaxis]) / (SIGMA * 2**0.5)
    down, across = np.diff(0.5 * erf(edges), axis=2).transpose(1, 0, 2)
    image = 10 + np.einsum("n,ny,nx->yx", light, down, across, optimize=True)
    return rng.poisson(image).astype(np.float32), places


def spread_of_errors(fits, places):
    """Return how far good fits are from true places, in standard errors."""
    good = fits[fits.good]
    apart, own = cKDTree(places).query(np.column_stack([good.y, good.x]))
    z = np.concatenate(
        [(good.y - places[own, 0]) / good.y_stderr, (good.x - places[own, 1]) / good.x_stderr]
    )[np.tile(apart < 0.5, 2)]
    assert len(z) > 1.8 * len(places)
    return (np.percentile(z, 84.13) - np.percentile(z, 15.87)) / 2


@pytest.mark.parametrize("neighbours", ["joint", "auto"])
@pytest.mark.parametrize(("photons", "gap"), [(1e4, 4.2), (1e4, 4.6), (1e5, 4.6), (1e5, 5.5)])
def test_errors_of_bright_spots_that_are_near(photons, gap, neighbours):
    """Fitted one by one, they were off by 1.2 to 9.5 times their errors."""
    image, places = pairs(photons, gap, 3)
    fits = localize(
        image, sigma=SIGMA, pixel="integrated", gain=1.0, estimator="mle", neighbours=neighbours
    )
    assert spread_of_errors(fits, places) == pytest.approx(1, abs=0.22)


def test_a_bright_spot_moves_a_dim_one_and_not_the_other_way_round():
    image, places = pairs(1e5, 5.0, 4, others=2000.0)
    fits = localize(image, sigma=SIGMA, pixel="integrated", gain=1.0, neighbours="auto")
    good = fits[fits.good]
    _, own = cKDTree(places).query(np.column_stack([good.y, good.x]))
    has_own_width = np.isfinite(good.sigma_stderr)
    assert has_own_width[own < 36].mean() > 0.9
    assert has_own_width[own >= 36].mean() < 0.1


@pytest.mark.parametrize(("photons", "gap"), [(1000.0, 4.3), (1e4, 6.5)])
def test_spots_that_no_light_moves_keep_their_own_fits(photons, gap):
    image, _ = pairs(photons, gap, 5)
    by_kind = [
        localize(image, sigma=SIGMA, pixel="integrated", gain=1.0, neighbours=kind)
        for kind in ("exclude", "auto")
    ]
    for name in ("y", "x", "photons", "sigma", "flags"):
        assert np.array_equal(*(getattr(fits, name) for fits in by_kind))


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_do_not_depend_on_other_frames_and_threads(threads):
    frames = [pairs(1e5, gap, 6)[0] for gap in (4.6, 8.0, 5.2)]
    options = {"sigma": SIGMA, "pixel": "integrated", "gain": 1.0, "neighbours": "auto"}
    noise = localize(frames[0], **options).settings.noise
    together = localize(np.stack(frames), **options, noise=noise, threads=threads)
    for number, frame in enumerate(frames):
        own, alone = together[together.frame == number], localize(frame, **options, noise=noise)
        for name in ("y", "x", "photons", "y_stderr"):
            assert np.array_equal(getattr(own, name), getattr(alone, name))
