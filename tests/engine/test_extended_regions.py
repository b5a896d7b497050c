"""What all crowds of a region say together: granules are no pairs of spots, and dimers are."""

from __future__ import annotations

import numpy as np
import pytest
from crowd_scenes import BACKGROUND, KNOWN, SIGMA, light_of
from scipy.ndimage import gaussian_filter

from napari_spotfit import localize
from napari_spotfit.engine.extended_regions import SIDE, CrowdEvidence, ExtendedRegions
from napari_spotfit.images import frames as frames_module

# Granules, rods and pairs that are not resolved are no points of the given width.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* good fits are POOR_FIT"),
    pytest.mark.filterwarnings("ignore:σ was given as"),
]

SIZE, FINE = 320, 4


def middles(shape, rng, every=27):
    """Return places on a lattice, shaken, so that things hardly overlap, and an angle of each."""
    ends = (size - 14 for size in shape)
    grid = np.stack(np.meshgrid(*(np.arange(18, end, every) for end in ends), indexing="ij"))
    places = grid.reshape(2, -1).T + rng.uniform(-3, 3, (grid[0].size, 2))
    return places, rng.uniform(0, np.pi, len(places))


def granules(times, height, shape=(SIZE, SIZE), seed=51):
    """Return the light of elongated Gaussians."""
    light, (y, x) = np.zeros(shape), np.indices(shape, float)
    for (down, across), angle in zip(*middles(shape, np.random.default_rng(seed)), strict=True):
        own = np.s_[int(down) - 14 : int(down) + 15, int(across) - 14 : int(across) + 15]
        v, u = y[own] - down, x[own] - across
        along, beside = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
        light[own] += height * np.exp(-((along / times) ** 2 + beside**2) / (2 * SIGMA**2))
    return light


def rods(length, height, seed=52):
    """Return the light of rods with sharp ends, 2 px wide, blurred."""
    fine, (y, x) = np.zeros((SIZE * FINE, SIZE * FINE)), np.indices((SIZE * FINE, SIZE * FINE))
    places, angles = middles((SIZE, SIZE), np.random.default_rng(seed))
    for (down, across), angle in zip((places + 0.5) * FINE, angles, strict=True):
        own = np.s_[int(down) - 30 : int(down) + 31, int(across) - 30 : int(across) + 31]
        v, u = y[own] - down, x[own] - across
        along, beside = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
        fine[own] = (abs(along) < length * FINE / 2) & (abs(beside) < FINE)
    blurred = gaussian_filter(fine, SIGMA * FINE)
    return height * blurred.reshape(SIZE, FINE, SIZE, FINE).mean((1, 3))


def dimers(apart, seed=53):
    """Return two points at each place, that many σ apart."""
    places, angles = middles((SIZE, SIZE), np.random.default_rng(seed))
    step = apart * SIGMA / 2 * np.column_stack([np.sin(angles), np.cos(angles)])
    return np.concatenate([places + step, places - step])


def counts(light, seed):
    return np.random.default_rng(seed).poisson(light).astype(np.uint16)


def good(image, neighbours):
    fits = localize(image, neighbours=neighbours, **KNOWN)
    return int(fits.good.sum())


@pytest.mark.parametrize(("times", "height"), [(1.45, 80), (1.45, 200), (1.6, 80)])
def test_granules_hardly_longer_than_wide_are_no_pairs(times, height):
    image = counts(BACKGROUND + granules(times, height), 54)
    assert good(image, "auto") <= 1.1 * good(image, "exclude")


@pytest.mark.parametrize("length", [4, 5])
def test_short_rods_are_no_pairs(length):
    image = counts(BACKGROUND + rods(length, 300), 55)
    assert good(image, "auto") <= 1.1 * good(image, "exclude") + 2


@pytest.mark.parametrize(("apart", "photons"), [(1.3, 1000), (1.5, 1000), (1.5, 3000), (2, 500)])
def test_pairs_of_one_distance_are_two_spots_each(apart, photons):
    image = counts(light_of(dimers(apart), float(photons), SIZE), 56)
    assert good(image, "auto") >= 0.9 * good(image, "joint") > 1.4 * good(image, "exclude")


def test_what_is_far_away_does_not_matter():
    rng, far = np.random.default_rng(57), int(2.2 * SIDE * SIGMA)
    shape = (SIZE, SIZE + far)
    pairs = dimers(1.4)
    light = light_of(pairs, 1000.0, SIZE + far)[:SIZE]
    assert light.shape == shape
    alone = counts(light, 58)
    beside = granules(1.45, 150, (SIZE, SIZE), seed=59)
    both = alone.copy()
    both[:, -SIZE:] += rng.poisson(beside).astype(np.uint16)
    left = [localize(image, neighbours="auto", **KNOWN) for image in (alone, both)]
    near = [fits[fits.x < SIZE] for fits in left]
    assert len(near[0]) > 150
    np.testing.assert_array_equal(near[0].y, near[1].y)
    np.testing.assert_array_equal(near[0].x, near[1].x)


def test_tiles_have_the_rows_of_whole_frames(monkeypatch):
    shape = (1400, 96)
    # Few of them in each part of the frame: what is left out must be seen from far away.
    image = counts(BACKGROUND + granules(1.42, 90, shape, seed=61), 62)
    known = KNOWN | {"neighbours": "auto", "false_spots": None}
    known = {name: value for name, value in known.items() if value is not None}
    whole = localize(image, **known)
    single = localize(image, **known | {"neighbours": "exclude"})
    assert whole.good.sum() <= 1.1 * single.good.sum()
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 100 * shape[1] * image.itemsize)
    tiled = localize(image, **known)
    np.testing.assert_array_equal(tiled.y, whole.y)
    np.testing.assert_array_equal(tiled.x, whole.x)
    np.testing.assert_array_equal(tiled.good, whole.good)


def evidence(ridge, *, wider=-9.0, spots=2, is_focus=False, side=100.0, frame=0, seed=63):
    """Return as many crowds as there are ridges, at places within a side."""
    ridge = np.asarray(ridge, float)
    count = len(ridge)
    places = np.random.default_rng(seed).uniform(0, side, (count, 2))
    return CrowdEvidence(
        np.full(count, frame), places, np.full(count, spots), np.full(count, is_focus),
        np.stack([ridge, ridge + wider]) * (spots - 1),
    )  # fmt: skip


def both(one, other):
    """Return the crowds of two frames."""
    ridges = np.concatenate([one.ridges, other.ridges], axis=1)
    rest = zip(one[:-1], other[:-1], strict=True)
    return CrowdEvidence(*(np.concatenate(columns) for columns in rest), ridges)


@pytest.mark.parametrize(("ridge", "found"), [(0.6, True), (0.2, False), (-0.6, False)])
def test_many_that_say_little_say_much(ridge, found):
    crowds = evidence(np.full(10, ridge))
    assert (ExtendedRegions(crowds).have(crowds) == found).all()


def test_those_that_are_clearly_spots_stay():
    crowds = evidence([*np.full(10, 2.0), -8.5, -40.0])
    np.testing.assert_array_equal(np.flatnonzero(~ExtendedRegions(crowds).have(crowds)), [10, 11])


def test_one_crowd_that_is_clearly_long_does_not_speak_for_others():
    crowds = evidence([500.0, *np.full(9, -1.0)], side=70.0)
    assert not ExtendedRegions(crowds).have(crowds).any()


def test_wider_ridges_need_more_and_are_of_few_spots():
    wide = evidence(np.full(10, -1.0), wider=3.0)
    assert ExtendedRegions(wide).have(wide).all()
    hardly = evidence(np.full(10, -1.0), wider=1.6)
    assert not ExtendedRegions(hardly).have(hardly).any()
    large = evidence(np.full(10, -1.0), wider=3.0, spots=6)
    assert not ExtendedRegions(large).have(large).any()


def test_frames_say_nothing_about_each_other():
    crowds = both(evidence(np.full(9, 0.6)), evidence(np.full(9, -0.1), frame=1))
    np.testing.assert_array_equal(ExtendedRegions(crowds).have(crowds), np.repeat([True, False], 9))


def test_nor_do_regions_that_are_far_away():
    near, far = evidence(np.full(9, 0.6)), evidence(np.full(9, -0.1))
    crowds = both(near, far._replace(places=far.places + 2 * SIDE))
    np.testing.assert_array_equal(ExtendedRegions(crowds).have(crowds), np.repeat([True, False], 9))


@pytest.mark.parametrize(("foci", "found"), [(8, True), (12, False)])
def test_foci_go_with_most_others(foci, found):
    others = evidence(np.full(10, 0.6), side=70.0)
    crowds = both(others, evidence(np.full(foci, 0.3), spots=4, is_focus=True, side=70.0))
    assert (ExtendedRegions(crowds).have(crowds) == found).all()
