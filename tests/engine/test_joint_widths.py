"""Joint fits of spots whose width is not the one that is given, or not known well."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from crowd_scenes import KNOWN, SIGMA, pairs_of, random_spots
from noisy_scenes import hits
from scenes import light
from scipy.optimize import linear_sum_assignment
from scipy.special import erf

from napari_spotfit import NoiseModel, localize

#: Spots a side, and how far they are apart, in px.
COUNT, PITCH = 9, 20


def shares(places, side, sigma):
    """Return the light of spots with widths of their own along an axis."""
    edges = np.arange(side + 1) - 0.5
    apart = (edges - places[:, np.newaxis]) / (
        np.broadcast_to(sigma, len(places))[:, None] * 2**0.5
    )
    return np.diff(0.5 * erf(apart), axis=1)


def lone_places(rng):
    """Return places of spots that are far from each other."""
    middle = np.arange(COUNT) * PITCH + PITCH / 2
    grid = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2)
    return grid + rng.uniform(-2, 2, grid.shape)


def lone_spots(photons, spread, seed):
    """Return an image of 81 spots whose widths differ from spot to spot by a fraction."""
    rng = np.random.default_rng(seed)
    places = lone_places(rng)
    sigma = SIGMA * rng.normal(1, spread, len(places))
    down, across = (shares(axis, COUNT * PITCH, sigma) for axis in places.T)
    return rng.poisson(10 + photons * np.einsum("ny,nx->yx", down, across)).astype(np.uint16)


@pytest.mark.parametrize("settings", [KNOWN, {"backend": "cpu"}], ids=["known", "unknown"])
@pytest.mark.parametrize("photons", [1000.0, 3000.0, 10_000.0, 100_000.0])
@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_spots_of_another_width_than_given_are_single_ones(settings, photons, spread):
    image = lone_spots(photons, spread, 5)
    for neighbours, times in product(("auto", "joint"), (0.8, 0.87, 0.95, 1.25)):
        used = settings | {"sigma": times * SIGMA, "neighbours": neighbours}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the noise
            fits = localize(image, **used)
        assert abs(int(fits.good.sum()) - COUNT**2) <= 3, (neighbours, times)


def test_pairs_stay_two_where_a_wider_spot_might_be_one():
    movie = pairs_of(1.25, 40, 3)
    for times in (0.95, 1.0):
        fits = localize(movie, **KNOWN | {"sigma": times * SIGMA}, neighbours="joint")
        assert np.bincount(fits.frame[fits.good], minlength=len(movie)).mean() > 1.85, times


@pytest.mark.parametrize("neighbours", ["auto", "joint"])
def test_stacks_of_spots_of_another_width_than_given_are_of_single_ones(neighbours):
    rng, depth, sigma_z = np.random.default_rng(2), 20, 1.2
    places = np.column_stack([rng.uniform(6, 13, COUNT**2), lone_places(rng)])[::3]
    sides = (depth, COUNT * PITCH, COUNT * PITCH)
    own = [
        shares(axis, side, width)
        for axis, side, width in zip(places.T, sides, (sigma_z, SIGMA, SIGMA), strict=True)
    ]
    light = 5 + 10_000 * np.einsum("nz,ny,nx->zyx", *own, optimize=True)
    stack = rng.poisson(light).astype(np.uint16)
    for sigma, along_z in ((0.8, 1.0), (0.87, 0.87), (1.2, 0.87)):
        used = KNOWN | {"sigma": sigma * SIGMA, "sigma_z": along_z * sigma_z}
        fits = localize(stack, model="gaussian_3d", neighbours=neighbours, **used)
        assert abs(int(fits.good.sum()) - len(places)) <= 1, (sigma, along_z)


def test_a_crowd_of_wider_spots_has_their_width_and_their_light():
    rng, photons, wide = np.random.default_rng(4), 20_000.0, 1.12 * SIGMA
    found = []
    for _ in range(20):
        places = np.array([[16.0, 13.0], [16.0, 18.5]]) + rng.uniform(-0.5, 0.5, (2, 2))
        down, across = (shares(axis, 32, wide) for axis in places.T)
        image = rng.poisson(10 + photons * np.einsum("ny,nx->yx", down, across)).astype(np.uint16)
        fits = localize(image, neighbours="joint", **KNOWN)
        found.append(fits[fits.good])
    assert [len(one) for one in found].count(2) >= 18
    two = [one for one in found if len(one) == 2 and (one.group_size == 2).all()]
    assert np.median([one.sigma for one in two]) == pytest.approx(wide, rel=0.01)
    assert np.median([one.photons for one in two]) == pytest.approx(photons, rel=0.01)


def shares_of_both(movie, places, sigma):
    """Return which shares of true spots, and of good fits, are pairs within 2 px."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "σ was given as")
        fits = localize(movie, **KNOWN | {"sigma": sigma}, neighbours="joint")
    good, pairs = fits[fits.good], 0
    for frame, own in enumerate(places):
        found = np.column_stack([good.y, good.x])[good.frame == frame]
        apart = np.hypot(*(own[:, np.newaxis] - found).transpose(2, 0, 1))
        pairs += (apart[linear_sum_assignment(np.minimum(apart, 2))] < 2).sum()
    return pairs / sum(map(len, places)), pairs / len(good)


# One crowd of a few spots a frame, or one of all that is fitted cell by cell.
@pytest.mark.parametrize(("density", "photons"), [(0.01, 10_000.0), (0.02, 10_000.0), (0.02, 5e4)])
def test_bright_crowds_of_another_width_than_given_are_found(density, photons):
    movie, places = random_spots(4, density, 12, photons=photons)
    known = shares_of_both(movie, places, SIGMA)
    assert min(known) > 0.93
    for times, fewer, false in (
        (0.9, 0.05, 0.12), (0.95, 0.02, 0.02), (1.05, 0.02, 0.02), (1.1, 0.07, 0.02),
        (1.2, 0.08, 0.02),
    ):  # fmt: skip
        found = shares_of_both(movie, places, times * SIGMA)
        assert found[0] > known[0] - fewer, times
        assert found[1] > known[1] - false, times


def test_crowds_of_the_given_width_keep_it():
    movie, _ = random_spots(12, 0.02, 13)
    fits = localize(movie, **KNOWN, neighbours="joint")
    together = fits[fits.good & (fits.group_size > 1)]
    assert (together.sigma == np.float32(SIGMA)).mean() > 0.98


@pytest.mark.parametrize("intercept", [-40.0, -90.0])
def test_background_below_a_line_of_noise_is_fitted(intercept):
    # As measured by bright spots: the line is below 0 where there is hardly any light.
    noise = NoiseModel(slope=1.05, intercept=intercept, least=10.0, blocks=100)
    image = lone_spots(50_000.0, 0.0, 6)
    fits = localize(image, sigma=0.93 * SIGMA, noise=noise, neighbours="joint", backend="cpu")
    assert abs(int(fits.good.sum()) - COUNT**2) <= 1
    assert np.median(fits.background[fits.good]) == pytest.approx(10, abs=3)


@pytest.mark.parametrize(("sigma", "photons", "density"), [
    (0.6, 3000, 5), (0.8, 500, 5), (0.8, 30_000, 2), (0.8, 30_000, 5), (0.8, 100_000, 5),
    (1.1, 10_000, 3), (1.1, 100_000, 3),
])  # fmt: skip
@pytest.mark.parametrize("times", [0.94, 1.0, 1.06])
def test_crowds_of_another_width_than_given_are_of_as_many_spots(sigma, photons, density, times):
    """The width of light is given, that of its pixels is up to 11 % larger."""
    rng, side = np.random.default_rng(77), 96
    truth = rng.uniform(-0.5, side - 0.5, (round(density * side**2 / 100), 2))
    image = rng.poisson(10 + light(truth, photons, sigma, (side, side)))
    right = {}
    for neighbours in ("auto", "exclude"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of noise that is hidden by spots
            fits = localize(image, sigma=times * sigma, neighbours=neighbours, backend="cpu")
        good = fits[fits.good]
        right[neighbours] = hits(np.column_stack([good.y, good.x]).astype(float), truth, 1)
        assert right[neighbours] > 0.95 * len(good)
    assert right["auto"] > 0.95 * right["exclude"]
    if times == 1 and photons >= 10_000:
        assert right["auto"] > 0.9 * len(truth)


def test_a_width_that_is_fixed_stays():
    image = lone_spots(10_000.0, 0.0, 5)
    image[:, 12:] += image[:, :-12]
    fixed = {"sigma": 0.9 * SIGMA}
    fits = localize(image, **KNOWN | fixed, neighbours="joint", fixed=fixed)
    np.testing.assert_allclose(fits.sigma, 0.9 * SIGMA, rtol=1e-6)


def test_bright_pairs_with_a_narrow_width_given_are_two():
    """Each that is detected as one was four or five, 0.9 times as wide."""
    rng = np.random.default_rng(301)
    first = np.mgrid[12:120:24, 12:120:24].reshape(2, -1).T + rng.uniform(-0.5, 0.5, (25, 2))
    angle, apart = rng.uniform(0, 2 * np.pi, 25), rng.uniform(1.4, 2.1, 25) * SIGMA
    truth = np.vstack([first, first + (apart * np.array([np.sin(angle), np.cos(angle)])).T])
    image = rng.poisson(10 + light(truth, 10_000, SIGMA, (132, 132)))
    fits = localize(
        image, sigma=0.9 * SIGMA, pixel="integrated", gain=1.0, estimator="mle",
        neighbours="joint", backend="cpu",
    )  # fmt: skip
    good = fits[fits.good]
    assert len(good) <= 1.1 * len(truth)
    assert hits(np.column_stack([good.y, good.x]).astype(float), truth, 1) >= 0.9 * len(truth)
