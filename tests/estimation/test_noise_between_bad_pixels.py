"""The noise of images in which bad pixels lie everywhere, and blocks have too few others."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scenes import light

import napari_spotfit as spotfit

SHAPE, FRAMES, PHOTONS, SIGMA = (128, 128), 6, 3000, 1.5


@pytest.fixture(scope="module")
def scene():
    """Return a movie of spots that stand alone, and their places."""
    rng = np.random.default_rng(5)
    grid = np.stack(np.meshgrid(*2 * [np.arange(10, 119, 24)], indexing="ij"), -1).reshape(-1, 2)
    places = [grid + rng.uniform(-3, 3, grid.shape) for _ in range(FRAMES)]
    movie = [rng.poisson(40 + light(own, PHOTONS, SIGMA, SHAPE)) + 100 for own in places]
    frame = np.repeat(np.arange(FRAMES), len(grid))
    return np.stack(movie).astype(np.uint16), np.column_stack([frame, np.concatenate(places)])


def at_random(share):
    return np.random.default_rng(3).random(SHAPE) < share


def lines(step, axis=0):
    return np.indices(SHAPE)[axis] % step == 0


def lattice():
    y, x = np.indices(SHAPE)
    return (y % 7 == 0) & (x % 5 == 0)


def said_of(call, *given, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits = call(*given, **options)
    return fits, [str(one.message) for one in caught]


def spread_of(fits, places):
    return float(
        np.std([(fits.columns[k] - places[:, i]) / fits.columns[f"{k}_stderr"]
                for i, k in ((1, "y"), (2, "x"))])
    )  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [at_random(0.05), at_random(0.1), at_random(0.3), lattice(), lines(4), lines(3)],
    ids=["5 %", "10 %", "30 %", "lattice", "every 4th row", "every 3rd row"],
)
@pytest.mark.parametrize("as_nan", [False, True])
def test_errors_between_bad_pixels(scene, bad, as_nan):
    """They were 1.3 to 2 times too small, and no noise was measured."""
    movie, places = scene
    if as_nan:
        image, known = np.where(bad, np.nan, movie).astype(np.float32), {}
    else:
        image, known = movie, {"bad_pixels": bad}
    fits, said = said_of(spotfit.localize, image, sigma=SIGMA, **known)
    assert not said
    assert fits.good.sum() >= 0.97 * len(places)
    again = spotfit.fit_at(image, places, sigma=SIGMA, **known)
    assert spread_of(again, places) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("axis", [0, 1])
def test_every_other_row(scene, axis):
    """Errors were 45 times too small, and no spot was found, without a warning."""
    movie, places = scene
    bad = lines(2, axis)
    _, said = said_of(spotfit.localize, movie, sigma=SIGMA, bad_pixels=bad)
    assert "with some beside nearly each of the others" in said[0]
    fits = spotfit.fit_at(movie, places, sigma=SIGMA, bad_pixels=bad)
    assert spread_of(fits, places) == pytest.approx(1, abs=0.3)


def test_a_part_of_the_image_is_no_mask_of_holes(scene):
    movie, _ = scene
    bad = np.ones(SHAPE, bool)
    bad[20:100, 20:100] = False
    fits, said = said_of(spotfit.localize, movie, sigma=SIGMA, bad_pixels=bad)
    assert not said
    assert fits.settings.noise.blocks > 8
