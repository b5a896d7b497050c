"""Pixels that are no numbers are bad pixels of the frames where they are."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import Fitter, Flag, StopCondition, fit_at, localize, simulate_movie

FRAMES, SHAPE = 4, (128, 128)


@pytest.fixture(scope="module")
def scene():
    movie, truth = simulate_movie(
        FRAMES, SHAPE, spots_per_frame=20, photons=3000, background=20, sigma=1.3, seed=1
    )
    return movie.astype(np.float32), truth[["frame", "y", "x"]].to_numpy()


def holes(share, count=1):
    return np.random.default_rng(2).random((count, *SHAPE)) < share


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"neighbours": "exclude"}, {"estimator": "mle", "gain": 1.0, "offset": 100.0},
        {"model": "gaussian_rotated"},
    ],
    ids=str,
)  # fmt: skip
def test_fits_are_those_of_named_bad_pixels(scene, options, dtype):
    """Of the spots beside 1 % of such pixels more than half were INVALID, without a warning."""
    movie, bad = scene[0].astype(dtype), holes(0.01)[0]
    fits = localize(np.where(bad, np.nan, movie).astype(dtype), sigma=1.3, **options)
    named = localize(movie, sigma=1.3, bad_pixels=bad, **options)
    assert len(fits) == len(named)
    for name in ("y", "x", "photons", "y_stderr"):
        np.testing.assert_allclose(fits.columns[name], named.columns[name], rtol=2e-3)
    np.testing.assert_array_equal(fits.flags, named.flags)
    assert (fits.flags & Flag.BAD_PIXELS).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e30])
def test_other_pixels_in_each_frame(scene, value):
    movie, places = scene
    broken = np.where(holes(0.01, FRAMES), value, movie).astype(np.float32)
    whole = fit_at(movie, places, 9, sigma=1.3)
    fits = fit_at(broken, places, 9, sigma=1.3)
    assert fits.good.sum() > 0.95 * whole.good.sum()
    known = fits.good & whole.good
    off = np.hypot(fits.y - places[:, 1], fits.x - places[:, 2])[known]
    assert np.median(off) < 0.06
    with Fitter(roi_size=9, sigma=1.3) as fitter:
        own = places[places[:, 0] == 0, 1:]
        assert fitter.fit_at(broken[0], own).good.sum() >= 0.9 * whole.good[: len(own)].sum()


def test_other_rois_stay_as_they_are(scene):
    """One NaN changes the fits around it alone."""
    movie, places = scene
    broken = movie.copy()
    broken[0, 64, 64] = np.nan
    noise = localize(movie, sigma=1.3).settings.noise
    whole, fits = (fit_at(one, places, 9, sigma=1.3, noise=noise) for one in (movie, broken))
    away = (places[:, 0] > 0) | (abs(places[:, 1:] - 64).max(axis=1) > 12)
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(fits.columns[name][away], column[away])


def test_where_nothing_is_left_there_is_no_fit():
    image = np.full((32, 32), np.nan, np.float32)
    with pytest.warns(UserWarning, match="NaN"):
        fits = fit_at(image, [[16, 16]], 9, sigma=1.3)
    assert fits.stop_condition[0] == StopCondition.INVALID
