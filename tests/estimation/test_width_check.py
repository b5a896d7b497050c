"""A σ that spots which stand alone contradict is warned of, and no other."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from napari_spotfit import localize, localize_iter, simulate_movie
from napari_spotfit.simulate import add_spots


def said_of(movie, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        localize(movie, **options)
    return [str(one.message) for one in caught if "stand alone" in str(one.message)]


def movie_of(sigma, photons=3000, frames=4, seed=3):
    """Return a movie in which many spots overlap."""
    count = round(240 / max(sigma, 1) ** 2)
    movie, _ = simulate_movie(
        frames, sigma=sigma, photons=photons, spots_per_frame=count, shape=(128, 128), seed=seed
    )
    return movie


@pytest.mark.parametrize("sigma", [0.8, 1.3, 2.0])
@pytest.mark.parametrize("times", [0.8, 1.25])
def test_another_width_is_named(sigma, times):
    (said,) = said_of(movie_of(sigma), sigma=times * sigma)
    found = float(re.findall(r"Give sigma=([\d.]+)", said)[0])
    assert found == pytest.approx(sigma, rel=0.04)


@pytest.mark.parametrize("sigma", [0.6, 0.8, 1.3, 2.0])
@pytest.mark.parametrize("photons", [300, 1000, 30_000])
def test_the_right_width_is_not_warned_of(sigma, photons):
    movie = movie_of(sigma, photons)
    for times in (0.97, 1.0, 1.03):
        assert not said_of(movie, sigma=times * sigma)


def test_what_depends_on_no_width_is_not_warned_of():
    movie = movie_of(1.3)
    assert not said_of(movie, sigma=1.7, fixed={"sigma": 1.7})
    assert not said_of(movie)
    assert not said_of(movie[:1, :32, :32], sigma=1.7)  # fewer than ten spots


def movie_of_lone_spots(seed=4):
    movie, _ = simulate_movie(
        16, sigma=1.3, photons=3000, spots_per_frame=2, shape=(128, 128), seed=seed
    )
    return movie


@pytest.mark.parametrize("neighbours", ["auto", "exclude"])
@pytest.mark.parametrize("sigma", [0.7, 0.85, 1.7, 2.6])
def test_where_few_spots_overlap_only_what_is_far_off_is_warned_of(sigma, neighbours):
    (said,) = said_of(movie_of_lone_spots(), sigma=sigma, neighbours=neighbours)
    assert "are judged, by the given one" in said
    found = float(re.findall(r"Give sigma=([\d.]+)", said)[0])
    assert found == pytest.approx(1.3, rel=0.03)


@pytest.mark.parametrize("sigma", [1.1, 1.5])
def test_where_few_spots_overlap_what_is_near_is_not_warned_of(sigma):
    assert not said_of(movie_of_lone_spots(), sigma=sigma)


def test_spots_of_all_widths_are_not_warned_of():
    """Where some are out of focus, the sharpest ones have the σ that is given."""
    parts = [movie_of(sigma, seed=seed) for seed, sigma in enumerate((1.3, 1.3, 1.5, 1.8))]
    assert not said_of(np.concatenate(parts), sigma=1.3)


def test_parts_of_a_movie_are_looked_at_together():
    with pytest.warns(UserWarning, match="stand alone"):
        list(localize_iter(movie_of(1.3), sigma=1.7))


def movie_apart(sigma, seed=8):
    """Return a movie of spots that stand alone, and bright."""
    rng = np.random.default_rng(seed)
    light = np.full((2, 128, 128), 10.0)
    for frame in light:
        places = [(y, x) for y in range(14, 120, 20) for x in range(14, 120, 20)]
        spots = pd.DataFrame(places + rng.uniform(-1, 1, (36, 2)), columns=["y", "x"])
        add_spots(frame, spots.assign(sigma=sigma, photons=5000.0), "integrated")
    return rng.poisson(light).astype(np.uint16)


@pytest.mark.parametrize("times", [0.8, 0.9, 1.1])
@pytest.mark.parametrize(
    "options",
    [{}, {"neighbours": "exclude"}, {"neighbours": "joint"}, {"estimator": "mle", "gain": 1.0}],
    ids=["auto", "exclude", "joint", "mle"],
)
def test_lone_bright_spots_show_a_slightly_wrong_width(times, options):
    movie = movie_apart(1.3)
    (said,) = said_of(movie, sigma=1.3 * times, pixel="integrated", **options)
    found = float(re.findall(r"Give sigma=([\d.]+)", said)[0])
    assert found == pytest.approx(1.3, rel=0.01)
    for right in (0.97, 1.0, 1.03):
        assert not said_of(movie, sigma=1.3 * right, pixel="integrated", **options)


def test_the_width_of_the_light_counts_as_that_of_sampled_pixels():
    assert not said_of(movie_apart(1.0), sigma=1.0)
    assert not said_of(movie_apart(1.0), sigma=math.hypot(1.0, 12**-0.5))
