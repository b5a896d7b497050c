"""A σ that spots which stand alone contradict is warned of, and no other."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from napari_spotfit import fit_at, localize, localize_iter, simulate_movie
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


def of_widths(work):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    named = ("was fixed at", "was given as", "a ROI of", "wider than twice")
    return [str(one.message) for one in caught if any(word in str(one.message) for word in named)]


def on_grid(shape, sigmas, photons=4000, step=18, seed=1, frames=4):
    """Return counts of spots on a grid, with places within half a pixel, in frames or a stack."""
    rng = np.random.default_rng(seed)
    stack = len(sigmas) > 2
    images = []
    for _ in range(1 if stack else frames):
        plane = np.mgrid[[slice(12, side - 11, step) for side in shape[-2:]]].reshape(2, -1).T
        places = plane + rng.uniform(-1, 1, plane.shape)
        if stack:
            depth = rng.uniform(4, shape[0] - 5, (len(plane), 1))
            places = np.hstack([depth, places])
        light = np.full(shape, 10.0)
        for place in places:
            lines = [
                np.exp(-((np.arange(side) - at) ** 2) / (2 * width**2)) / width
                for side, at, width in zip(shape, place, sigmas, strict=True)
            ]
            height = photons / (2 * np.pi) ** (len(shape) / 2)
            light += height * (np.einsum("z,y,x->zyx", *lines) if stack else np.outer(*lines))
        images.append(rng.poisson(light) + 100)
    return np.array(images[0] if stack else images).astype(np.uint16)


CAMERA = {"gain": 1.0, "offset": 100.0}


@pytest.mark.parametrize("known", [{}, CAMERA, {"sigma": 1.6}])
def test_a_fixed_width_that_is_not_that_of_the_spots_is_named(known):
    movie = on_grid((128, 128), (1.3, 1.3))
    for wrong in (1.0, 1.6):
        (said,) = of_widths(lambda wrong=wrong: localize(movie, fixed={"sigma": wrong}, **known))
        found = float(re.findall(r"Fix sigma at ([\d.]+)", said)[0])
        assert found == pytest.approx(1.3, rel=0.03)
    for right in (1.25, 1.3, 1.35):
        assert not of_widths(lambda right=right: localize(movie, fixed={"sigma": right}, **known))


def test_a_fixed_width_is_named_at_given_places_too():
    movie = on_grid((128, 128), (1.3, 1.3), frames=1)
    places = localize(movie, **CAMERA).points()
    for where, image in ((places, movie), (places[:, 1:], movie[0])):
        (said,) = of_widths(
            lambda where=where, image=image: fit_at(image, where, fixed={"sigma": 1.7}, sigma=1.7)
        )
        assert said.startswith("sigma was fixed at 1.7 px")
        assert not of_widths(
            lambda where=where, image=image: fit_at(image, where, fixed={"sigma": 1.3}, sigma=1.3)
        )


def test_fixed_widths_that_are_swapped_are_named():
    movie, model = on_grid((128, 128), (1.2, 1.9)), {"model": "gaussian_elliptical"}
    swapped, right = {"sigma_x": 1.2, "sigma_y": 1.9}, {"sigma_x": 1.9, "sigma_y": 1.2}
    (said,) = of_widths(lambda: localize(movie, fixed=swapped, **model, **CAMERA))
    assert "Fix sigma_x at 1.9" in said
    assert not of_widths(lambda: localize(movie, fixed=right, **model, **CAMERA))


@pytest.mark.parametrize("sigma_z", [0.8, 2.6, 3.5, 5.0])
def test_a_width_along_z_that_is_not_that_of_the_spots_is_named(sigma_z):
    stack = on_grid((24, 110, 110), (1.6, 1.4, 1.4))
    known = {"model": "gaussian_3d", "sigma": 1.4, **CAMERA}
    (said,) = of_widths(lambda: localize(stack, sigma_z=sigma_z, **known))
    found = float(re.findall(r"Give sigma_z=([\d.]+)", said)[0])
    assert found == pytest.approx(1.6, rel=0.04)


@pytest.mark.parametrize("depth", [10, 24])
def test_right_widths_of_stacks_are_not_warned_of(depth):
    stack = on_grid((depth, 110, 110), (1.6, 1.4, 1.4))
    for known in ({}, {"sigma": 1.4, "sigma_z": 1.6}, {"sigma": 1.45, "sigma_z": 1.75}):
        assert not of_widths(lambda known=known: localize(stack, model="gaussian_3d", **known))
    fixed = {"sigma": 1.4, "sigma_z": 1.6}
    assert not of_widths(lambda: localize(stack, model="gaussian_3d", fixed=fixed))


def test_a_roi_that_is_too_small_for_its_spots_is_named():
    movie = on_grid((320, 320), (5.0, 5.0), photons=20_000, step=70, frames=2)
    for known in ({"sigma": 5.0}, {}):
        (said,) = of_widths(lambda known=known: localize(movie, roi_size=9, **known))
        assert re.search(r"small for spots of σ (4\.9|5)", said)
        assert not of_widths(lambda known=known: localize(movie, roi_size=15, **known))
    assert not of_widths(lambda: localize(on_grid((128, 128), (1.3, 1.3)), roi_size=5, sigma=1.3))


def test_few_spots_that_are_all_far_too_wide_are_named():
    movie = on_grid((320, 320), (5.0, 5.0), photons=20_000, step=70, frames=2)
    (said,) = of_widths(lambda: localize(movie, sigma=1.3))
    assert "fits are wider than twice the σ that was given, 1.3 px" in said
