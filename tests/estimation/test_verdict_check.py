"""Where hardly any fit is good for the settings, it is said; where nothing is there, it is not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from napari_spotfit import localize, simulate_movie


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
