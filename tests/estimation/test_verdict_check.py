"""Where hardly any fit is good for the settings, it is said; where nothing is there, it is not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from napari_spotfit import fit_at, localize, simulate_movie
from napari_spotfit.estimation.verdict_check import VerdictCheck


def said_of(image, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits = localize(image, **options)
    return fits, [str(one.message) for one in caught if "fits are good, as" in str(one.message)]


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(4, sigma=1.3, photons=3000, spots_per_frame=10, shape=(96, 96), seed=1)[0]


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"max_iterations": 1}, "NOT_CONVERGED"),
        ({"sigma_max": 0.9}, "AT_BOUND"),
        ({"sigma": 0.6, "neighbours": "joint"}, "BLOB"),
    ],
)
def test_settings_that_leave_hardly_any_fit_good_are_named(movie, options, flag):
    fits, (said,) = said_of(movie, **options)
    assert said.startswith(f"only {fits.good.sum()} of {len(fits)} fits are good, as ")
    assert f"are {flag}. " in said


def long_spots(long):
    """Return a movie of spots alone that are longer along x than along y."""
    y, x = np.indices((96, 96))
    light = sum(
        np.exp(-((y - v) ** 2) / 2 - ((x - u) ** 2) / (2 * long**2))
        for v in range(12, 96, 16) for u in range(16, 96, 32)
    )  # fmt: skip
    return np.random.default_rng(1).poisson(200 * light + 10, (4, 96, 96)).astype(np.uint16)


def test_long_spots_need_an_elliptical_model():
    fits, (said,) = said_of(long_spots(4))
    assert fits.good.sum() < 0.1 * len(fits)
    assert "are ELONGATED. Fit model=" in said
    for image, options in ((long_spots(4), {"model": "gaussian_elliptical"}), (long_spots(1), {})):
        fits, said = said_of(image, **options)
        assert fits.good.sum() >= 4 * 18
        assert not said


def test_more_iterations_do_not_help_without_pixels(movie):
    image = movie.astype(np.float32)
    bad = np.ones(image.shape[1:], bool)
    bad[::5, ::5] = False
    y, x = np.indices((7, 7)) * 12 + 10
    places = np.column_stack([y.ravel(), x.ravel()])
    check = VerdictCheck()
    check.add(fit_at(image[0], places, 7, bad_pixels=bad, sigma=1.3))
    assert check.doubts().startswith("only 0 of 49 fits are good, as 49 are INVALID: too few")


def test_good_fits_are_not_warned_of(movie):
    assert not said_of(movie)[1]


def test_noise_is_not_warned_of():
    noise = np.random.default_rng(1).poisson(100, (512, 512)).astype(np.float32)
    fits, said = said_of(noise, sigma=1.3, false_spots=300, neighbours="exclude")
    assert len(fits) > 30
    assert not said


def test_few_fits_are_not_warned_of(movie):
    fits, said = said_of(movie[:1], max_iterations=1)
    assert 0 < len(fits) < 30
    assert not said


def poor_of(image, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        localize(image, **options)
    return [str(one.message) for one in caught if "are POOR_FIT" in str(one.message)]


def test_good_fits_of_another_shape_are_said_to_be_poor():
    rather_long = long_spots(1.6)
    for known in ({}, {"gain": 1.0}):
        fits = localize_quietly(rather_long, **known)
        assert fits.good.mean() > 0.5
        (said,) = poor_of(rather_long, **known)
        assert "longer than wide" in said
        assert ("another gain than 1 " in said) == bool(known)
        assert not poor_of(rather_long, model="gaussian_elliptical", **known)


def localize_quietly(image, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return localize(image, **options)


def test_crowds_are_not_said_to_be_poor():
    """Light of neighbours is left in many of them, also by the right camera."""
    for neighbours in ("exclude", "auto"):
        movie, _ = simulate_movie(
            4, sigma=1.3, photons=5000, spots_per_frame=220, shape=(96, 96), seed=2
        )
        assert not poor_of(movie, gain=1.0, offset=100.0, neighbours=neighbours)
