"""Noise and PSF are estimated right if a part of an image has no noise, or too much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import ndimage
from scipy.spatial import cKDTree

from napari_spotfit import localize, noise_model, simulate_movie
from napari_spotfit.estimation.constant_areas import constant_areas

SIDE = 400


@pytest.fixture(scope="module")
def scene():
    """A frame, and y and x of its spots."""
    movie, truth = simulate_movie(
        1, shape=(SIDE, SIDE), spots_per_frame=120, photons=1000, background=10, seed=4
    )
    return movie[0], np.column_stack([truth["y"], truth["x"]])


def judged(image, places, **options):
    """Return recall, number of false positives, and z-scores of good fits."""
    fits = localize(image, **options)
    good = fits[fits.good]
    distance, own = cKDTree(places).query(np.column_stack([good.y, good.x]))
    near = distance < 2
    off = np.concatenate([good.y - places[own, 0], good.x - places[own, 1]])
    z = (off / np.concatenate([good.y_stderr, good.x_stderr]))[np.tile(near, 2)]
    scatter = np.median(abs(z)) / 0.6745
    return len(set(own[near])) / len(places), np.count_nonzero(~near), scatter, fits.settings.sigma


def test_padded_frames(scene):
    image, places = scene
    mosaic = np.full((720, 720), 0, np.uint16)
    mosaic[70:470, 100:500] = image
    white = np.where(mosaic, mosaic, 65535)
    y, x = np.indices(image.shape) - SIDE / 2
    inside = np.hypot(y, x) < 170
    kept = places[np.hypot(*(places - SIDE / 2).T) < 160]
    moved = places + np.array([70, 100])
    for padded, there in (
        (mosaic, moved), (white, moved), (np.where(inside, image, 0).astype(np.uint16), kept),
    ):  # fmt: skip
        found, false, scatter, sigma = judged(padded, there)
        assert found > 0.9
        assert false < 15
        assert 0.75 < scatter < 1.3
        assert sigma == pytest.approx(1.3, rel=0.05)


def test_a_turned_frame(scene):
    image, _ = scene
    turned = localize(ndimage.rotate(image.astype(float), 20, order=1))
    assert 90 < turned.good.sum() < 135
    assert np.median(turned.y_stderr[turned.good]) > 0.03


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_cells_whose_background_was_cut_off_at_zero(scene, share):
    _, places = scene
    rng = np.random.default_rng(0)
    surface = ndimage.gaussian_filter(rng.normal(size=(SIDE, SIDE)), 25)
    cells = surface > np.quantile(surface, 1 - share)
    y, x = np.indices((SIDE, SIDE))
    light = 2 + 60 * ndimage.gaussian_filter(cells.astype(float), 2)
    for cy, cx in places:
        light += 150 * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / (2 * 1.3**2))
    image = np.clip(rng.poisson(light) - 25.0, 0, None).astype(np.uint16)
    within = places[cells[tuple(places.round().astype(int).clip(0, SIDE - 1).T)]]
    fits = localize(image)
    good = fits[fits.good]
    near = cKDTree(places).query(np.column_stack([good.y, good.x]))[0] < 2
    assert np.count_nonzero(~near) < 10
    found = cKDTree(np.column_stack([good.y, good.x])).query(within)[0] < 2
    assert found.mean() > 0.9


@pytest.mark.parametrize(("blur", "scale"), [(0.7, 1), (0.85, 1), (1.0, 10), (1.5, 3), (2.0, 10)])
def test_filtered_counts_that_were_rounded(scene, blur, scale):
    """Fine detail is rounding alone; it had thousands of false spots."""
    image, places = scene
    filtered = ndimage.gaussian_filter(image * float(scale), blur).round().astype(np.uint16)
    found, false, scatter, _ = judged(filtered, places)
    assert found > 0.9
    assert false < 5
    assert 0.8 < scatter < 1.8
    noise = np.random.default_rng(1).poisson(100, (512, 512)) * float(scale)
    nothing = ndimage.gaussian_filter(noise, blur).round().astype(np.uint16)
    assert localize(nothing, sigma=1.6).good.sum() < 20


@pytest.mark.parametrize("blur", [0.7, 1.0, 2.0])
def test_filtered_numbers(scene, blur):
    """Of a wide filter fine detail has less than single precision shows."""
    image, places = scene
    found, false, scatter, _ = judged(ndimage.gaussian_filter(image.astype(float), blur), places)
    assert found > 0.9
    assert false < 5
    assert 0.7 < scatter < 1.3


@pytest.mark.parametrize("blur", [0.8, 1.0, 1.2])
@pytest.mark.parametrize("count", [1500, 2500])
def test_filtered_crowds(blur, count):
    """The noise that a filter has left is not what lies between crowded spots."""
    movie, truth = simulate_movie(
        1, shape=(SIDE, SIDE), spots_per_frame=count, photons=1000, background=10, seed=7
    )
    image = ndimage.gaussian_filter(movie[0].astype(float), blur)
    assert noise_model(image).is_filtered
    assert not noise_model(movie[0]).is_filtered
    with pytest.warns(UserWarning, match="filtered"):
        _, false, _, _ = judged(image, np.column_stack([truth["y"], truth["x"]]))
    assert false < 30


@pytest.mark.parametrize("share", [0.003, 0.01, 0.02])
def test_many_bad_pixels(scene, share):
    image, places = scene
    bad = np.random.default_rng(0).random(image.shape) < share
    found, false, scatter, _ = judged(image, places, bad_pixels=bad)
    assert found > 0.9
    assert false < 5
    assert 0.8 < scatter < 1.25
    marked = np.where(bad, np.nan, image)
    for options in ({"bad_pixels": bad}, {}):
        noise = noise_model(image if options else marked, **options)
        assert noise.variance(110) == pytest.approx(noise_model(image).variance(110), rel=0.15)


def dense_frame(side):
    movie, _ = simulate_movie(1, (side, side), spots_per_frame=60 * side**2 // 64**2, seed=0)
    return movie


def found_with(movie, bad, **options):
    """Return the numbers of fits at good pixels: of all of them, and of those that are left."""
    y, x = np.rint(localize(movie, sigma=1.3, **options).points()[:, 1:].T).astype(int)
    kept = np.count_nonzero(~bad[y.clip(0, len(bad) - 1), x.clip(0, len(bad) - 1)])
    masked = localize(movie, sigma=1.3, bad_pixels=bad, **options)
    missing = localize(np.where(bad, np.nan, movie), sigma=1.3, **options)
    return kept, min(len(masked), len(missing))


@pytest.mark.parametrize("side", [48, 64, 96])
@pytest.mark.parametrize("count", [1, 5, 20])
def test_few_bad_pixels_of_a_small_frame(side, count):
    """It has few blocks; nearly half of the spots were lost."""
    bad = np.zeros((side, side), bool)
    bad.ravel()[np.random.default_rng(0).choice(bad.size, count, replace=False)] = True
    for options in ({}, {"gain": 1.0, "offset": 100.0}):
        kept, found = found_with(dense_frame(side), bad, **options)
        assert found >= 0.97 * kept - 1


@pytest.mark.parametrize("side", [48, 64, 96])
@pytest.mark.parametrize("part", [1 / 2, 1 / 3])
def test_a_part_of_a_small_frame(side, part):
    bad = np.indices((side, side))[1] >= part * side
    kept, found = found_with(dense_frame(side), bad)
    assert found >= 0.9 * kept


def test_a_small_frame_without_a_block():
    """Four pixels in a hundred are bad; calm ones between them show the noise."""
    bad = np.random.default_rng(2).random((48, 48)) < 0.043
    kept, found = found_with(dense_frame(48), bad)
    assert found >= 0.9 * kept


def test_rows_and_columns_of_bad_pixels(scene):
    image, places = scene
    bad = np.zeros(image.shape, bool)
    bad[::20] = bad[:, ::28] = True
    assert noise_model(image, bad_pixels=bad).blocks > 50
    found, false, scatter, _ = judged(image, places, bad_pixels=bad)
    assert found > 0.8
    assert false < 5
    assert 0.8 < scatter < 1.25


@pytest.mark.parametrize("share", [0.003, 0.005])
def test_many_hot_pixels(scene, share):
    """They hid each other where a block had several."""
    image, places = scene
    rng = np.random.default_rng(1)
    hot = rng.random(image.shape) < share
    found, false, scatter, _ = judged(
        image + np.where(hot, rng.poisson(rng.exponential(500, image.shape)), 0), places
    )
    assert found > 0.9
    assert false < 10
    assert 0.7 < scatter < 1.25


@pytest.mark.parametrize("step", [2, 5, 10])
def test_a_step_that_has_no_noise(scene, step):
    """Two taps of a camera, or the glow of its amplifier: the line of variance is flat."""
    image, places = scene
    image = image.copy()
    image[SIDE // 2 :] += np.uint16(step)
    found, false, scatter, _ = judged(image, places)
    assert found > 0.9
    assert false < 10
    assert 0.8 < scatter < 1.35


@pytest.mark.parametrize("sigma", [0.6, 0.7, 0.8, 0.87, 1.0, 1.3])
def test_a_gain_that_is_offered_is_right(sigma):
    """The spots of a narrow PSF have fine detail of their own."""
    movie, _ = simulate_movie(
        20, shape=(128, 128), spots_per_frame=10, photons=20_000, background=10, sigma=sigma, seed=3
    )
    gain = noise_model(movie).gain
    assert gain is None or gain == pytest.approx(1, rel=0.15)
    assert (gain is None) == (sigma < 0.95)


@given(st.integers(0, 1 << 32), st.floats(-4, 1))
@hypothesis_settings(max_examples=40, deadline=None)
def test_sparse_counts_are_no_constant_area(seed, decades):
    counts = np.random.default_rng(seed).poisson(10**decades, (2, 200, 150))
    assert constant_areas(counts) is None
    counts[:, 20:180, 10:140] += 1  # what is beside has an end
    if decades > -1:
        counts[:, :, 60:] = 7
        areas = constant_areas(counts)
        assert areas[:, :, 60:].all()
        assert not areas[:, :, :59].any()


def test_what_is_all_constant_stays_as_it_is():
    assert constant_areas(np.zeros((1, 50, 50))).all()
    assert noise_model(np.zeros((2, 50, 50), np.uint16)).blocks == 0
