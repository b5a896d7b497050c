"""Detection at borders, on plateaus, and with bad pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scenes import (
    DTYPES,
    assert_same,
    estimated,
    light,
    matches,
    movie_of,
    on_grid,
    places,
    scattered,
)
from scipy.spatial import cKDTree

from napari_spotfit import NoiseModel
from napari_spotfit.engine.candidates import Candidates
from napari_spotfit.engine.detection_settings import score_for
from napari_spotfit.settings.settings import Settings


def test_spots_on_the_border_are_found(detect):
    rng = np.random.default_rng(20)
    shape = (70, 90)
    y, x = shape[0] - 1, shape[1] - 1
    centres = [(0, 0), (0, x), (y, 0), (y, x), (0, 45), (y, 45), (35, 0), (35, x)]
    centres += [(-0.4, 20), (20, -0.4), (y + 0.4, 20), (20, x + 0.4), (1, 70), (50, 1)]
    movie = movie_of(rng, centres, 5, shape)
    found = detect(movie.astype(np.uint16), Settings(sigma=1.3))
    for frame in range(5):
        here = places(found)[found.frame == frame]
        assert len(here) == len(centres)
        assert matches(np.array(centres, float), here, 1) == len(centres)


def test_slopes_and_steps_are_no_spots(detect):
    rng = np.random.default_rng(21)
    y, x = np.mgrid[:200, :200] / 200
    for shape in (1000 * x, 1000 * y + 500 * x, 800 * (x - 0.5) ** 2, 500 * np.cos(3 * y)):
        movie = rng.poisson(np.broadcast_to(shape - shape.min() + 1000, (4, 200, 200)))
        # The noise itself is higher where it is bright.
        assert len(detect(movie.astype(np.uint16), Settings(sigma=1.3, false_spots=1.0)).y) <= 1


@pytest.mark.parametrize("size", [(1, 2), (2, 1), (2, 2), (3, 3), (2, 5)])
def test_equal_pixels_make_one_spot(detect, size):
    frame = np.full((1, 30, 30), 7, np.uint16)
    frame[0, 10 : 10 + size[0], 12 : 12 + size[1]] = 100
    found = detect(frame, Settings(sigma=1.3))
    assert len(found.y) == 1
    assert 10 <= found.y[0] < 10 + size[0]
    assert 12 <= found.x[0] < 12 + size[1]


def test_a_hot_pixel_is_no_spot_unless_spots_are_as_small(detect):
    frame = np.full((1, 30, 30), 7, np.uint16)
    frame[0, 12, 14] = 100
    for sigma in (0.8, 1.3, 3.0):
        assert len(detect(frame, Settings(sigma=sigma)).y) == 0
    frame[0, 11:14, 13:16] += 30
    known = Settings(sigma=0.8, noise=NoiseModel(0.0, 4.0, 4.0))
    assert places(detect(frame, known)).tolist() == [[12, 14]]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("photons", [3e3, 1e4, 1e5, 1e7])
def test_a_saturated_spot_is_one_spot_in_its_middle(detect, photons, dtype):
    rng = np.random.default_rng(22)
    centres = on_grid(rng, (160, 160), 40)
    movie = np.minimum(movie_of(rng, centres, 3, (160, 160), photons=photons, sigma=2), 250)
    found = detect(movie.astype(dtype), Settings(sigma=1.3, false_spots=0.1))
    for frame in range(3):
        here = places(found)[found.frame == frame]
        assert len(here) == len(centres)
        assert matches(centres, here, 1.5) == len(centres)
    again = detect(movie.astype(dtype), Settings(sigma=1.3, false_spots=0.1, min_distance=2.01))
    assert_same(found, again)


def test_a_large_flat_area_is_one_spot_at_most(detect):
    frame = np.full((1, 100, 100), 10.0)
    y, x = np.mgrid[:100, :100]
    frame[0][np.hypot(y - 50, x - 40) < 22] = 500
    frame[0, 50, 62:70] = 500  # a handle moves its middle, not out of it
    found = detect(frame, Settings(sigma=1.3))
    assert len(found.y) == 1
    assert frame[0, found.y[0], found.x[0]] == 500
    # In order although the middles are not where the maxima were
    pair = np.concatenate([frame, frame.transpose(0, 2, 1)], axis=2)
    found = detect(pair, Settings(sigma=1.3))
    assert len(found.y) == 2
    assert sorted(map(tuple, places(found))) == [tuple(place) for place in places(found)]


def test_middles_of_plateaus_are_not_too_close_to_other_spots(detect):
    rng = np.random.default_rng(32)
    frames = rng.choice([0, 1, 5], size=(400, 10, 10), p=[0.6, 0.1, 0.3]).astype(np.uint8)
    found = detect(frames, Settings(threshold=0, sigma=1))
    assert len(found.y) > 1000
    pairs = cKDTree(np.column_stack([100 * found.frame, places(found)]))
    assert len(pairs.query_pairs(1.99)) == 0


def test_plateaus_on_the_border_and_in_the_corner(detect):
    frame = np.full((1, 60, 60), 10, np.uint8)
    frame[0, :6, :6] = frame[0, 20:27, 53:] = frame[0, 54:, 20:27] = 255
    found = detect(frame, Settings(sigma=1.3))
    assert len(found.y) == 3
    assert np.abs(places(found) - [[2.5, 2.5], [23, 56], [56.5, 23]]).max() < 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e300])
def test_a_bad_pixel_spoils_its_neighbourhood_only(detect, bad):
    rng = np.random.default_rng(23)
    movie = movie_of(rng, on_grid(rng, (96, 96), 16), 3, (96, 96)).astype(float)
    broken = movie.copy()
    broken[1, 30, 40] = bad
    whole, found = detect(movie, Settings(sigma=1.3)), detect(broken, Settings(sigma=1.3))
    far = [
        (result.frame != 1) | (np.hypot(result.y - 30, result.x - 40) > 10)
        for result in (whole, found)
    ]
    assert far[0].sum() > 60
    for ours, theirs in zip(found[:3], whole[:3], strict=True):
        np.testing.assert_array_equal(ours[far[1]], theirs[far[0]])
    np.testing.assert_allclose(found.score[far[1]], whole.score[far[0]], rtol=0.02)
    assert len(found.y) <= len(whole.y) + 1


@pytest.mark.parametrize("bad", [1e6, 1e12, 1e29, 3e38, -3e38])
@pytest.mark.parametrize("unit", [1, 1e-15])
def test_absurd_pixels_spoil_their_neighbourhood_only(detect, bad, unit):
    rng = np.random.default_rng(31)
    movie = movie_of(rng, on_grid(rng, (192, 192), 16), 1, (192, 192)) * np.float32(unit)
    movie = movie.astype(np.float32)
    broken = movie.copy()
    broken[0, 40:43, 40:44] = bad
    whole, found = detect(movie, Settings(sigma=1.3)), detect(broken, Settings(sigma=1.3))
    far = [np.hypot(result.y - 41, result.x - 41) > 12 for result in (whole, found)]
    np.testing.assert_array_equal(places(found)[far[1]], places(whole)[far[0]])
    np.testing.assert_allclose(found.score[far[1]], whole.score[far[0]], rtol=0.1)
    assert len(found.y) <= len(whole.y) + 4


def test_a_spot_with_a_dead_pixel_is_found(detect):
    rng = np.random.default_rng(24)
    movie = movie_of(rng, [(20.0, 20.0)], 1, (40, 40)).astype(np.float32)
    movie[0, 20, 20] = np.nan
    found = detect(movie, Settings(sigma=1.3))
    assert matches(np.array([[20.0, 20.0]]), places(found), 1.5) == 1
    assert len(found.y) == 1


def test_a_frame_without_data_around_it(detect):
    # As after registration; the background steps up to a bright image.
    rng = np.random.default_rng(25)
    centres = on_grid(rng, (128, 128), 16)
    movie = movie_of(rng, centres, 2, background=1000, photons=5000).astype(np.float32)
    movie[:, :50], movie[:, :, 100:] = np.nan, np.nan
    there = centres[(centres[:, 0] > 51) & (centres[:, 1] < 98)]
    found = detect(movie, Settings(sigma=1.3))
    for frame in range(2):
        here = places(found)[found.frame == frame]
        assert matches(there, here, 2) == len(there)
        assert len(here) <= len(there) + 3  # spots on the edge of what is there


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [0, 1, 100])
def test_constant_frames_are_empty(detect, dtype, value):
    assert len(detect(np.full((3, 40, 50), value, dtype), Settings(sigma=1.3, threshold=0)).y) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.1, 1e17 / 3, -1e300])
def test_senseless_frames_are_empty(detect, value):
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            frames = np.full((2, 40, 50), value).astype(dtype)
        assert len(detect(frames, Settings(sigma=1.3)).y) == 0


@pytest.mark.parametrize("shape", [(0, 10, 10), (3, 0, 10), (3, 10, 0), (0, 0, 0)])
def test_no_pixels_no_spots(detect, shape):
    found = detect(np.zeros(shape, np.uint16), Settings(sigma=1.3), np.zeros(shape, bool))
    assert isinstance(found, Candidates)
    assert [column.shape for column in found[:5]] == [(0,)] * 5
    assert [column.dtype for column in found[:5]] == [*[np.int64] * 3, *[np.float32] * 2]


def test_negative_values_are_nothing_special(detect):
    rng = np.random.default_rng(26)
    movie = movie_of(rng, scattered(rng, (64, 64), 10), 2, (64, 64))
    a, b = (detect((movie - level).astype(np.int16), Settings(sigma=1.3)) for level in (0, 5000))
    assert len(a.y) > 10
    assert_same(a, b)


def test_noise_free_spots_have_finite_scores(detect):
    frame = light([(20.0, 20.0), (40.3, 31.2)], [1000, 50], 1.3, (60, 60))[None]
    frame[frame < 1e-3] = 0
    found = detect(frame, Settings(sigma=1.3))
    assert np.isfinite(found.score).all()
    assert [20, 20] in places(found).tolist()
    hot = np.zeros((1, 256, 256), np.float32)
    hot[0, 8:10, 30] = 1
    found = detect(hot, Settings(sigma=0.5, noise=NoiseModel(0.0, 0.0, 0.0)))
    assert places(found).tolist() == [[8, 30]]
    assert found.score[0] == np.finfo(np.float32).max


def test_rounding_errors_are_no_spots(detect):
    y, x = np.mgrid[:200, :300]
    steep = np.random.default_rng(25).uniform(-1000, 1000, (40, 2))
    for by_y, by_x, level in [(7.3, 3.1, 1000), (731.7, 300.3, 0), *np.c_[steep, np.zeros(40)]]:
        slope = (by_y * y + by_x * x + level).astype(np.float32)
        found = detect(slope[None], Settings(sigma=1.3, threshold=0))
        inside = (np.abs(found.y - 99.5) < 90) & (np.abs(found.x - 149.5) < 140)
        assert not inside.any()


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.dtype(dtype) for dtype in DTYPES]),
        hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=24),
        fill=st.nothing(),
    )
    | hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=12),
        elements=st.sampled_from([0, 1, 2, -3, 1e5, 1e17, 1e18, -1e300, np.nan, np.inf]),
    ),
    st.none() | st.floats(0, 8),
    st.floats(0.01, 1e4),
    st.floats(0.5, 10),
    st.floats(1, 10),
)
def test_anything_goes(detect, frames, threshold, false_spots, sigma, distance):
    options = Settings(sigma=sigma, min_distance=distance, threshold=threshold)
    if threshold is None:
        options = options.changed(false_spots=false_spots)
    try:
        options = estimated(frames, options)
    except ValueError:  # single precision has no squares of these
        return
    found = detect(frames, options)
    place = (found.frame, found.y, found.x)
    frames[place]  # inside
    assert np.isfinite(found.score).all()
    if threshold is None:
        assert (found.score > score_for(false_spots, sigma) * (1 - 1e-6)).all()
    np.testing.assert_array_equal(np.lexsort(place[::-1]), np.arange(len(found.y)))
    for i in range(len(frames)):
        here = places(found)[found.frame == i]
        if len(here) > 1:
            nearest = cKDTree(here).query(here, 2)[0][:, 1]
            assert nearest.min() >= distance - 1e-9
        alone = detect(frames[i : i + 1], options)
        np.testing.assert_array_equal(places(alone), here)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(-40, 40), st.sampled_from([np.float32, np.float64]))
def test_the_scale_of_the_data_does_not_matter(detect, seed, power, dtype):
    rng = np.random.default_rng(seed)
    movie = movie_of(rng, scattered(rng, (50, 40), 8), 1, (50, 40)).astype(dtype) - 110
    movie = movie.astype(dtype)
    plain = detect(movie, Settings(sigma=1.3))
    scaled = detect(
        (movie * 2.0 ** (power if dtype == np.float64 else power / 2)).astype(dtype),
        Settings(sigma=1.3),
    )
    np.testing.assert_array_equal(places(plain), places(scaled))
    np.testing.assert_allclose(plain.score, scaled.score, rtol=1e-4)
