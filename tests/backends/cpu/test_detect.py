"""Detection on the CPU: against simulated truth, SciPy, brute force and real files."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.ndimage import gaussian_filter, maximum_filter
from scipy.optimize import curve_fit
from scipy.spatial import cKDTree
from scipy.special import erf

from napari_spotfit.backends.cpu import bandpass, noise, thinning
from napari_spotfit.backends.cpu.detect import Candidates, detect
from napari_spotfit.settings import Settings

DTYPES = [np.uint8, np.uint16, np.int16, np.float32, np.float64]


def light(places, photons, sigma, shape):
    """Return pixel-integrated Gaussians, their centres (y, x) in rows."""
    sides = []
    for axis in (0, 1):
        edges = np.arange(shape[axis] + 1) - 0.5 - np.asarray(places, float)[:, axis, None]
        sides.append(np.diff(erf(edges / (np.sqrt(2) * sigma)), axis=1) / 2)
    return (sides[0].T * photons) @ sides[1]


def scattered(rng, shape, count):
    """Return random centres, up to the outer edges of the image."""
    return rng.uniform(-0.5, np.array(shape) - 0.5, (count, 2))


def on_grid(rng, shape, step):
    """Return centres that are well apart, each somewhere near a pixel of a grid."""
    rows, columns = (np.arange(step // 2, size - step // 2, step) for size in shape)
    grid = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)
    return grid + rng.uniform(-1, 1, grid.shape)


def movie_of(rng, centres, frames=1, shape=(128, 128), photons=1000, background=10, sigma=1.3):
    image = light(centres, photons, sigma, shape) + background
    return rng.poisson(image, (frames, *shape)) + 100


def places(found):
    return np.column_stack([found.y, found.x])


def matches(truth, found, radius):
    """Count the pairs of emitter and detection, nearest first, each in one pair only."""
    if len(found) == 0:
        return 0
    pairs = cKDTree(truth).sparse_distance_matrix(cKDTree(found), radius, output_type="ndarray")
    taken, used = set(), set()
    for i, j, _ in np.sort(pairs, order="v"):
        if i not in taken and j not in used:
            taken.add(i)
            used.add(j)
    return len(taken)


def filtered_by_scipy(frame, sigma):
    frame = np.asarray(frame, float)
    narrow, wide = (
        gaussian_filter(frame, width, mode="mirror", truncate=bandpass.TRUNCATE)
        for width in (sigma, sigma * bandpass.RATIO)
    )
    return narrow - wide


def filtered_by_us(frames, sigma):
    n, height, width = frames.shape
    band = bandpass.make_filter(sigma, (height, width))
    images = np.zeros((n, height * band.layout.stride + bandpass.WIDTH), np.float32)
    filtered, bad = np.zeros_like(images), np.zeros(n, np.int64)
    bandpass.load(frames.reshape(n, -1), band.layout, images, bad)
    for i in range(n):
        if bad[i]:
            bandpass.band_pass_good(images[i], band, filtered[i])
        else:
            bandpass.band_pass(images[i : i + 1], band, filtered[i : i + 1])
    rows = filtered[:, : height * band.layout.stride].reshape(n, height, band.layout.stride)
    return rows[:, :, :width], (images, filtered, band)


def noise_of(frames, sigma=1.3):
    _, (images, filtered, band) = filtered_by_us(frames, sigma)
    result = np.zeros(len(frames))
    noise.estimate_noise(images, filtered, band.layout, band.gain, result)
    return result


def assert_same(a, b):
    for ours, theirs in zip(a, b, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- what is found -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_spot_is_found_and_nothing_else(dtype):
    rng = np.random.default_rng(1)
    centres = on_grid(rng, (96, 160), 16)
    movie = movie_of(rng, centres, frames=4, shape=(96, 160), photons=700) - 60
    assert movie.max() < 256  # all of the dtypes hold it
    found = detect(movie.astype(dtype), Settings())
    for frame in range(4):
        here = places(found)[found.frame == frame]
        assert len(here) == len(centres)
        assert matches(centres, here, 1.5) == len(centres)
    assert [column.dtype for column in found] == [np.int64, np.int64, np.int64, np.float32]


def test_all_pixel_types_give_the_same():
    rng = np.random.default_rng(2)
    movie = movie_of(rng, scattered(rng, (60, 70), 20), 3, (60, 70), photons=500) - 90
    results = [detect(movie.astype(dtype), Settings()) for dtype in DTYPES]
    assert len(results[0].y) > 30
    for result in results[1:]:
        assert_same(results[0], result)


def test_dim_spots_are_found_as_often_as_theory_says():
    # The noise, and the spot's own shot noise, spread its height: of those of 7 times the
    # noise, 95 % exceed 5.
    rng = np.random.default_rng(3)
    centres = np.round(on_grid(rng, (256, 256), 32))
    unit = filtered_by_scipy(light([[16.0, 16.0]], 1, 1.3, (33, 33)), 1.3).max()
    photons = 7 * noise_of(rng.poisson(100, (1, 256, 256)).astype(float))[0] / unit
    movie = movie_of(rng, centres, 20, (256, 256), photons=photons, background=100)
    found = detect(movie, Settings())
    right = sum(matches(centres, places(found)[found.frame == i], 2) for i in range(20))
    assert 0.91 <= right / (20 * len(centres)) <= 0.99


def test_noise_alone_is_hardly_ever_a_spot():
    rng = np.random.default_rng(4)
    found = detect(rng.normal(1000, 10, (40, 256, 256)).astype(np.float32), Settings())
    # By simulation, 0.05 in a frame.
    assert len(found.y) <= 8
    on_border = (np.minimum(found.y, found.x) < 2) | (np.maximum(found.y, found.x) > 253)
    assert on_border.sum() <= 2


def test_results_are_ordered():
    rng = np.random.default_rng(5)
    movie = movie_of(rng, scattered(rng, (80, 80), 30), 50, (80, 80))
    found = detect(movie.astype(np.uint16), Settings(min_distance=3))
    order = np.lexsort((found.x, found.y, found.frame))
    assert len(order) > 1000
    np.testing.assert_array_equal(order, np.arange(len(order)))


@pytest.mark.parametrize("sigma", [0.8, 1.0, 2.0, 2.5, 3.0])
def test_default_sigma_finds_spots_of_other_widths(sigma):
    rng = np.random.default_rng(6)
    centres = on_grid(rng, (256, 256), 32)
    movie = movie_of(rng, centres, 2, (256, 256), photons=1000 * sigma**2, sigma=sigma)
    found = detect(movie.astype(np.uint16), Settings())
    for frame in range(2):
        here = places(found)[found.frame == frame]
        assert matches(centres, here, 2) == len(centres)
        assert len(here) <= len(centres) + 1


def test_crowded_spots_do_not_hide_in_what_is_taken_for_noise():
    rng = np.random.default_rng(7)
    right = total = detected = 0
    for count in (400, 1200):  # the mean distance is 13 and 7 px
        centres = scattered(rng, (256, 256), count)
        movie = movie_of(rng, centres, 1, (256, 256), photons=2000)
        here = places(detect(movie.astype(np.uint16), Settings()))
        right, total = right + matches(centres, here, 2), total + count
        detected += len(here)
    # Of the missing, most are within 3 px of another one, as one maximum with it.
    assert right / total > 0.72
    assert right / detected > 0.98


def test_smooth_texture_is_not_taken_for_crowded_spots():
    rng = np.random.default_rng(8)
    blurred = gaussian_filter(rng.normal(0, 1, (4, 256, 256)), (0, 1.2, 1.2))
    found = detect((1000 + 100 * blurred).astype(np.float32), Settings())
    assert len(found.y) <= 4


# --- the band-pass -------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.3, 3.0, 10.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (40, 1), (2, 2), (5, 7), (33, 47), (96, 64)])
def test_band_pass_is_scipys(sigma, shape):
    rng = np.random.default_rng(9)
    frames = rng.integers(0, 60000, (2, *shape)).astype(np.uint16)
    ours, _ = filtered_by_us(frames, sigma)
    for frame, result in zip(frames, ours, strict=True):
        np.testing.assert_allclose(result, filtered_by_scipy(frame, sigma), rtol=0, atol=0.02)


def test_band_pass_is_exact_on_a_high_level():
    rng = np.random.default_rng(10)
    frames = 1e9 + rng.normal(0, 1, (1, 40, 40))
    ours, _ = filtered_by_us(frames, 1.3)
    np.testing.assert_allclose(ours[0], filtered_by_scipy(frames[0] - 1e9, 1.3), rtol=0, atol=1e-5)


def test_border_noise_is_what_scipy_makes_of_white_noise():
    rng = np.random.default_rng(11)
    white = rng.normal(0, 1, (4000, 24, 20))
    spread = np.array([filtered_by_scipy(frame, 1.3) for frame in white]).std(axis=0)
    band = bandpass.make_filter(1.3, (24, 20))
    np.testing.assert_allclose(band.gain, np.sqrt(np.mean(spread**2)), rtol=0.02)
    np.testing.assert_allclose(band.border * band.gain, spread, rtol=0.06)
    assert band.border_min == band.border.min()
    # A long axis is told from a short one.
    long = bandpass.make_filter(1.3, (24, 400)).border
    assert long[12, 200] == pytest.approx(long[12, 100], rel=1e-6)
    np.testing.assert_allclose(
        long[:, :10] / long[12, 200], band.border[:, :10] / band.border[12, 10], rtol=1e-5
    )


def test_bad_pixels_are_left_out_of_the_means():
    rng = np.random.default_rng(12)
    frame = rng.normal(500, 20, (40, 50))
    good = rng.uniform(size=frame.shape) > 0.1
    good[10:16, 20:30] = False
    broken = np.where(good, frame, np.nan)
    ours, _ = filtered_by_us(broken[None], 1.3)
    parts = []
    for width in (1.3, 1.3 * bandpass.RATIO):
        options = {"mode": "mirror", "truncate": bandpass.TRUNCATE}
        weight = gaussian_filter(good.astype(float), width, **options)
        light_ = gaussian_filter(np.where(good, frame - 500, 0), width, **options)
        parts.append((light_ / weight, weight))
    expected = np.where(parts[0][1] > 0.5, parts[0][0] - parts[1][0], 0)
    np.testing.assert_allclose(ours[0], expected, rtol=0, atol=2e-3)
    assert (ours[0][12:14, 23:27] == 0).all()


# --- the noise -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 64), (256, 256), (100, 700), (1200, 900)])
@pytest.mark.parametrize("sigma", [0.7, 1.3, 4.0])
def test_noise_of_white_noise(shape, sigma):
    rng = np.random.default_rng(13)
    frames = rng.normal(200, 7, (3, *shape))
    expected = bandpass.make_filter(sigma, shape).gain * 7
    # As precise as the number of independent filtered pixels allows.
    tolerance = 3 * sigma / np.sqrt(min(shape[0] * shape[1], 8192)) + 0.02
    np.testing.assert_allclose(noise_of(frames, sigma), expected, rtol=tolerance)


@pytest.mark.parametrize(("count", "most"), [(0, 1.05), (45, 1.1), (400, 1.6), (1200, 5)])
@pytest.mark.parametrize("photons", [300, 1000, 5000])
def test_noise_does_not_grow_with_spots(count, most, photons):
    rng = np.random.default_rng(14)
    empty = noise_of(movie_of(rng, np.zeros((0, 2)), 1, (256, 256)).astype(float))
    movie = movie_of(rng, scattered(rng, (256, 256), count), 2, (256, 256), photons=photons)
    ratio = noise_of(movie.astype(float)) / empty
    assert (ratio > 0.94).all()
    assert (ratio < most).all()
    if count == 1200:  # it would have been hopeless
        assert np.std(filtered_by_scipy(movie[0], 1.3)) / empty[0] > 2 * ratio[0] or photons == 300


@pytest.mark.parametrize("side", [250, 180, 110])
def test_noise_is_that_of_the_area_that_has_some(side):
    rng = np.random.default_rng(15)
    frame = np.full((1, 256, 256), 300.0)
    frame[:, :side, -side:] += rng.normal(0, 5, (side, side))
    whole = noise_of(rng.normal(300, 5, (1, 256, 256)))[0]
    assert noise_of(frame)[0] == pytest.approx(whole, rel=0.3)
    assert len(detect(frame, Settings()).y) <= 1


def test_noise_of_blurred_images_is_not_that_of_single_pixels():
    rng = np.random.default_rng(16)
    for blur in (0.4, 0.7, 1.0, 1.5):
        image = gaussian_filter(rng.normal(0, 1, (1, 256, 256)), (0, blur, blur))
        measured = noise_of(image)[0]
        assert measured == pytest.approx(np.std(filtered_by_scipy(image[0], 1.3)), rel=0.1)


# --- threshold, distance, mask -------------------------------------------------------


def test_threshold_in_counts_is_a_height_in_the_filtered_image():
    rng = np.random.default_rng(17)
    centres = on_grid(rng, (80, 80), 20)
    frame = light(centres, 1000 * (1 + np.arange(len(centres))), 1.3, (80, 80)) + 5
    heights = filtered_by_scipy(frame, 1.3)
    for limit in (15.0, 100.0, 200.0, 290.0):
        found = detect(frame[None], Settings(threshold=limit, threshold_unit="counts"))
        peaks = (heights == maximum_filter(heights, 3)) & (heights > limit)
        np.testing.assert_array_equal(places(found), np.argwhere(peaks))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from([0.5, 1.3, 2.0]),
    st.floats(0, 3),
)
def test_maxima_are_those_of_brute_force(seed, shape, sigma, limit):
    frame = np.random.default_rng(seed).normal(0, 5, shape)
    heights = filtered_by_scipy(frame, sigma)
    found = detect(frame[None], Settings(threshold=limit, threshold_unit="counts", sigma=sigma))
    # Rounding decides only between heights that are as good as equal.
    rounding = 1e-4
    around = np.pad(heights, 1, constant_values=-np.inf)
    around = np.lib.stride_tricks.sliding_window_view(around, (3, 3)).reshape(*shape, 9)
    others = np.delete(around, 4, axis=-1).max(axis=-1)
    surely = (heights > limit + rounding) & (heights > others + rounding)
    perhaps = (heights > limit - rounding) & (heights > others - rounding)
    result = np.zeros(shape, bool)
    result[found.y, found.x] = True
    assert result.sum() == len(found.y)
    assert not (surely & ~result).any()
    assert not (result & ~perhaps).any()


def test_score_is_height_over_noise():
    rng = np.random.default_rng(18)
    movie = movie_of(rng, on_grid(rng, (128, 128), 16), 2).astype(float)
    spread = noise_of(movie)
    for unit, limit in (("noise", 5), ("counts", 3)):
        found = detect(movie, Settings(threshold=limit, threshold_unit=unit))
        assert len(found.y) >= 2 * 49
        heights = np.array([filtered_by_scipy(frame, 1.3) for frame in movie])
        border = bandpass.make_filter(1.3, (128, 128)).border
        expected = heights[found.frame, found.y, found.x] / spread[found.frame]
        np.testing.assert_allclose(found.score, expected / border[found.y, found.x], rtol=1e-4)
    raised = detect(movie, Settings(threshold=40))
    whole = detect(movie, Settings())
    assert 0 < len(raised.y) < len(whole.y)
    assert_same(raised, [column[whole.score > 40] for column in whole])


def test_of_two_close_spots_the_brighter_stays():
    shape = (40, 60)
    centres = [(20.0, 20.0), (20.0, 25.0)]
    frame = light(centres, [3000, 2000], 1.0, shape)[None] + 10
    both = detect(frame, Settings(sigma=1.0, min_distance=5))
    assert places(both).tolist() == [[20, 20], [20, 25]]
    one = detect(frame, Settings(sigma=1.0, min_distance=5.01))
    assert places(one).tolist() == [[20, 20]]
    other = detect(frame[:, :, ::-1].copy(), Settings(sigma=1.0, min_distance=5.01))
    assert places(other).tolist() == [[20, 39]]


def test_equally_bright_spots_that_are_close_leave_the_first():
    frame = np.zeros((1, 40, 40), np.float32)
    for y, x in ((20, 17), (20, 23), (14, 20)):
        frame[0, y, x] = 100
    found = detect(frame, Settings(min_distance=8))
    assert places(found).tolist() == [[14, 20]]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.floats(1, 20))
def test_thinning_is_greedy_by_height(seed, count, distance):
    rng = np.random.default_rng(seed)
    spots = np.unique(rng.integers(0, [3, 25, 25], (count, 3)), axis=0)
    heights = rng.integers(1, 8, len(spots)).astype(np.float32)  # many ties
    kept = []
    for i in np.lexsort((np.arange(len(spots)), -heights)):
        apart = [
            spots[i, 0] != spots[j, 0] or np.hypot(*(spots[i, 1:] - spots[j, 1:])) >= distance
            for j in kept
        ]
        if all(apart):
            kept.append(i)
    expected = spots[np.sort(kept)]
    scores = np.arange(len(spots), dtype=np.float32)
    left = thinning.drop_neighbours(spots.copy(), heights.copy(), scores, distance)
    ours, theirs = spots.copy(), heights.copy()
    left = thinning.drop_neighbours(ours, theirs, scores, distance)
    np.testing.assert_array_equal(ours[:left], expected)
    np.testing.assert_array_equal(theirs[:left], heights[np.sort(kept)])


def test_mask_says_where_spots_may_be_and_changes_nothing_else():
    rng = np.random.default_rng(19)
    movie = movie_of(rng, scattered(rng, (90, 70), 40), 3, (90, 70)).astype(np.uint16)
    whole = detect(movie, Settings())
    one = rng.uniform(size=(90, 70)) < 0.5
    each = rng.uniform(size=movie.shape) < 0.5
    for mask, inside in ((one, one[whole.y, whole.x]), (each, each[whole.frame, whole.y, whole.x])):
        assert 0 < inside.sum() < len(inside)
        assert_same(detect(movie, Settings(), mask), [column[inside] for column in whole])
    assert len(detect(movie, Settings(), np.zeros((90, 70), bool)).y) == 0
    with pytest.raises(ValueError, match=r"\(90, 70\) or \(3, 90, 70\); got \(70, 90\)"):
        detect(movie, Settings(), one.T)


def test_a_brighter_spot_outside_the_mask_hides_none_inside():
    frame = light([(20.0, 18.0), (20.0, 24.0)], [9000, 3000], 1.3, (40, 40))[None]
    mask = np.zeros((40, 40), bool)
    mask[:, 21:] = True
    found = detect(frame, Settings(min_distance=10), mask)
    assert places(found).tolist() == [[20, 24]]


# --- borders, plateaus, bad pixels ---------------------------------------------------


def test_spots_on_the_border_are_found():
    rng = np.random.default_rng(20)
    shape = (70, 90)
    y, x = shape[0] - 1, shape[1] - 1
    centres = [(0, 0), (0, x), (y, 0), (y, x), (0, 45), (y, 45), (35, 0), (35, x)]
    centres += [(-0.4, 20), (20, -0.4), (y + 0.4, 20), (20, x + 0.4), (1, 70), (50, 1)]
    movie = movie_of(rng, centres, 5, shape)
    found = detect(movie.astype(np.uint16), Settings())
    for frame in range(5):
        here = places(found)[found.frame == frame]
        assert len(here) == len(centres)
        assert matches(np.array(centres, float), here, 1) == len(centres)


def test_slopes_and_steps_are_no_spots():
    rng = np.random.default_rng(21)
    y, x = np.mgrid[:200, :200] / 200
    for shape in (1000 * x, 1000 * y + 500 * x, 800 * (x - 0.5) ** 2, 500 * np.cos(3 * y)):
        movie = rng.poisson(np.broadcast_to(shape - shape.min() + 1000, (4, 200, 200)))
        # The noise itself is higher where it is bright.
        assert len(detect(movie.astype(np.uint16), Settings(threshold=6)).y) <= 1


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (2, 5)])
def test_equal_pixels_make_one_spot(size):
    frame = np.full((1, 30, 30), 7, np.uint16)
    frame[0, 10 : 10 + size[0], 12 : 12 + size[1]] = 100
    found = detect(frame, Settings())
    assert len(found.y) == 1
    assert 10 <= found.y[0] < 10 + size[0]
    assert 12 <= found.x[0] < 12 + size[1]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("photons", [3e3, 1e4, 1e5, 1e7])
def test_a_saturated_spot_is_one_spot_in_its_middle(photons, dtype):
    rng = np.random.default_rng(22)
    centres = on_grid(rng, (160, 160), 40)
    movie = np.minimum(movie_of(rng, centres, 3, (160, 160), photons=photons, sigma=2), 250)
    found = detect(movie.astype(dtype), Settings())
    for frame in range(3):
        here = places(found)[found.frame == frame]
        assert len(here) == len(centres)
        assert matches(centres, here, 1.5) == len(centres)
    assert_same(found, detect(movie.astype(dtype), Settings(min_distance=2.01)))


def test_a_large_flat_area_is_one_spot_at_most():
    frame = np.full((1, 100, 100), 10.0)
    y, x = np.mgrid[:100, :100]
    frame[0][np.hypot(y - 50, x - 40) < 22] = 500
    frame[0, 50, 62:70] = 500  # a handle moves its middle, not out of it
    found = detect(frame, Settings())
    assert len(found.y) == 1
    assert frame[0, found.y[0], found.x[0]] == 500
    # In order although the middles are not where the maxima were
    pair = np.concatenate([frame, frame.transpose(0, 2, 1)], axis=2)
    found = detect(pair, Settings())
    assert len(found.y) == 2
    assert sorted(map(tuple, places(found))) == [tuple(place) for place in places(found)]


def test_plateaus_on_the_border_and_in_the_corner():
    frame = np.full((1, 60, 60), 10, np.uint8)
    frame[0, :6, :6] = frame[0, 20:27, 53:] = frame[0, 54:, 20:27] = 255
    found = detect(frame, Settings())
    assert len(found.y) == 3
    assert np.abs(places(found) - [[2.5, 2.5], [23, 56], [56.5, 23]]).max() < 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e300])
def test_a_bad_pixel_spoils_its_neighbourhood_only(bad):
    rng = np.random.default_rng(23)
    movie = movie_of(rng, on_grid(rng, (96, 96), 16), 3, (96, 96)).astype(float)
    broken = movie.copy()
    broken[1, 30, 40] = bad
    whole, found = detect(movie, Settings()), detect(broken, Settings())
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
def test_absurd_pixels_spoil_their_neighbourhood_only(bad, unit):
    rng = np.random.default_rng(31)
    movie = movie_of(rng, on_grid(rng, (96, 96), 16), 1, (96, 96)) * np.float32(unit)
    movie = movie.astype(np.float32)
    broken = movie.copy()
    broken[0, 40:43, 40:44] = bad
    whole, found = detect(movie, Settings()), detect(broken, Settings())
    far = [np.hypot(result.y - 41, result.x - 41) > 12 for result in (whole, found)]
    np.testing.assert_array_equal(places(found)[far[1]], places(whole)[far[0]])
    np.testing.assert_allclose(found.score[far[1]], whole.score[far[0]], rtol=0.1)
    assert len(found.y) <= len(whole.y) + 4


def test_a_spot_with_a_dead_pixel_is_found():
    rng = np.random.default_rng(24)
    movie = movie_of(rng, [(20.0, 20.0)], 1, (40, 40)).astype(np.float32)
    movie[0, 20, 20] = np.nan
    found = detect(movie, Settings())
    assert matches(np.array([[20.0, 20.0]]), places(found), 1.5) == 1
    assert len(found.y) == 1


def test_a_frame_without_data_around_it():
    # As after registration; the background steps up to a bright image.
    rng = np.random.default_rng(25)
    centres = on_grid(rng, (128, 128), 16)
    movie = movie_of(rng, centres, 2, background=1000, photons=5000).astype(np.float32)
    movie[:, :50], movie[:, :, 100:] = np.nan, np.nan
    there = centres[(centres[:, 0] > 51) & (centres[:, 1] < 98)]
    found = detect(movie, Settings())
    for frame in range(2):
        here = places(found)[found.frame == frame]
        assert matches(there, here, 2) == len(there)
        assert len(here) <= len(there) + 3  # spots on the edge of what is there


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [0, 1, 100])
def test_constant_frames_are_empty(dtype, value):
    assert len(detect(np.full((3, 40, 50), value, dtype), Settings(threshold=0)).y) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.1, 1e17 / 3, -1e300])
def test_senseless_frames_are_empty(value):
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            frames = np.full((2, 40, 50), value).astype(dtype)
        assert len(detect(frames, Settings()).y) == 0


@pytest.mark.parametrize("shape", [(0, 10, 10), (3, 0, 10), (3, 10, 0), (0, 0, 0)])
def test_no_pixels_no_spots(shape):
    found = detect(np.zeros(shape, np.uint16), Settings(), np.zeros(shape, bool))
    assert isinstance(found, Candidates)
    assert [column.shape for column in found] == [(0,)] * 4
    assert [column.dtype for column in found] == [np.int64, np.int64, np.int64, np.float32]


def test_negative_values_are_nothing_special():
    rng = np.random.default_rng(26)
    movie = movie_of(rng, scattered(rng, (64, 64), 10), 2, (64, 64))
    a, b = (detect((movie - level).astype(np.int16), Settings()) for level in (0, 5000))
    assert len(a.y) > 10
    assert_same(a, b)


def test_noise_free_spots_have_finite_scores():
    frame = light([(20.0, 20.0), (40.3, 31.2)], [1000, 50], 1.3, (60, 60))[None]
    frame[frame < 1e-3] = 0
    found = detect(frame, Settings(threshold=3))
    assert np.isfinite(found.score).all()
    assert [20, 20] in places(found).tolist()
    lone = np.zeros((1, 256, 256), np.uint8)
    lone[0, 8, 30] = 1  # between the rows that the noise is taken from
    found = detect(lone, Settings(sigma=0.5))
    assert places(found).tolist() == [[8, 30]]
    assert found.score[0] == np.finfo(np.float32).max


def test_rounding_errors_are_no_spots():
    y, x = np.mgrid[:200, :300]
    for slope in (7.3 * y + 3.1 * x + 1000, 731.7 * y + 300.3 * x):
        found = detect(slope[None].astype(np.float32), Settings(threshold=0))
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
    st.floats(0, 8),
    st.sampled_from(["noise", "counts"]),
    st.floats(0.5, 10),
    st.floats(1, 10),
)
def test_anything_goes(frames, threshold, unit, sigma, distance):
    options = Settings(threshold=threshold, threshold_unit=unit, sigma=sigma, min_distance=distance)
    found = detect(frames, options)
    place = (found.frame, found.y, found.x)
    frames[place]  # inside
    assert np.isfinite(found.score).all()
    assert (found.score > (threshold if unit == "noise" else 0)).all()
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
def test_the_scale_of_the_data_does_not_matter(seed, power, dtype):
    rng = np.random.default_rng(seed)
    movie = movie_of(rng, scattered(rng, (50, 40), 8), 1, (50, 40)).astype(dtype) - 110
    movie = movie.astype(dtype)
    plain = detect(movie, Settings())
    scaled = detect(
        (movie * 2.0 ** (power if dtype == np.float64 else power / 2)).astype(dtype), Settings()
    )
    np.testing.assert_array_equal(places(plain), places(scaled))
    np.testing.assert_allclose(plain.score, scaled.score, rtol=1e-4)


# --- threads, memory, inputs ---------------------------------------------------------


@pytest.mark.parametrize("shape", [(20, 30), (200, 300)])
def test_threads_and_batches_change_nothing(shape):
    rng = np.random.default_rng(27)
    movie = movie_of(rng, scattered(rng, shape, 20), 37, shape).astype(np.float32)
    movie[5, 3, 4] = np.nan
    mask = rng.uniform(size=movie.shape) < 0.9
    whole = detect(movie, Settings(threads=1), mask)
    assert len(whole.y) > 100
    for count in (2, 3, 8, None):
        assert_same(whole, detect(movie, Settings(threads=count), mask))
    for size in (1, 2, 10):
        parts = [
            detect(movie[i : i + size], Settings(), mask[i : i + size]) for i in range(0, 37, size)
        ]
        frames = [part.frame + i * size for i, part in enumerate(parts)]
        np.testing.assert_array_equal(whole.frame, np.concatenate(frames))
        for column in (1, 2, 3):
            joined = np.concatenate([part[column] for part in parts])
            np.testing.assert_array_equal(whole[column], joined)


def test_many_callers_at_once():
    rng = np.random.default_rng(28)
    movie = movie_of(rng, scattered(rng, (128, 128), 30), 40).astype(np.uint16)
    expected, results = detect(movie, Settings()), []
    callers = [
        threading.Thread(target=lambda: results.append(detect(movie, Settings(threads=2))))
        for _ in range(6)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 6
    for result in results:
        assert_same(expected, result)


def test_memory_does_not_grow_with_the_movie():
    movie = np.random.default_rng(29).poisson(10, (2, 128, 128)).astype(np.uint16)
    movie = np.broadcast_to(movie[:, None], (2, 300, 128, 128)).reshape(600, 128, 128)
    detect(movie[:10], Settings())
    tracemalloc.start()
    detect(movie, Settings(threads=2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < movie.nbytes / 3  # 20 MB; a copy as float32 would be twice that


def test_frames_are_only_read(tmp_path):
    rng = np.random.default_rng(30)
    movie = movie_of(rng, scattered(rng, (64, 64), 10), 3, (64, 64)).astype(np.uint16)
    expected = detect(movie, Settings())
    copy = movie.copy()
    copy.flags.writeable = False
    assert_same(expected, detect(copy, Settings()))
    np.testing.assert_array_equal(movie, copy)
    movie.tofile(tmp_path / "movie.raw")
    mapped = np.memmap(tmp_path / "movie.raw", np.uint16, "r", shape=movie.shape)
    assert_same(expected, detect(mapped, Settings()))
    broken = movie.astype(np.float32)
    broken[0, 5, 5] = np.nan
    before = broken.copy()
    detect(broken, Settings())
    np.testing.assert_array_equal(broken, before)


# --- real files ----------------------------------------------------------------------


def gaussian_fit(frame, y, x, half=4):
    """Fit a round Gaussian with SciPy, as the simplest of all localisations."""
    y, x = (
        int(np.clip(y, half, frame.shape[0] - 1 - half)),
        int(np.clip(x, half, frame.shape[1] - 1 - half)),
    )
    roi = frame[y - half : y + half + 1, x - half : x + half + 1].astype(float)
    grid = np.mgrid[: 2 * half + 1, : 2 * half + 1].reshape(2, -1)

    def model(grid, v, u, sigma, height, base):
        return base + height * np.exp(-((grid[0] - v) ** 2 + (grid[1] - u) ** 2) / (2 * sigma**2))

    start = (half, half, 1.3, roi.max() - roi.min(), roi.min())
    fitted, _ = curve_fit(model, grid, roi.ravel(), start, maxfev=2000)
    return y - half + fitted[0], x - half + fitted[1]


def test_simulated_storm_file(dax):
    movie, truth = dax
    found = detect(movie.astype(np.uint16), Settings())
    isolated = hit = false = 0
    distances = []
    for frame in range(len(movie)):
        emitters = truth.loc[truth["frame"] == frame, ["y", "x"]].to_numpy()
        here = places(found)[found.frame == frame]
        tree = cKDTree(emitters)
        alone = tree.query(emitters, 2)[0][:, 1] >= 13.5
        distance, nearest = cKDTree(here).query(emitters[alone])
        isolated, hit = isolated + alone.sum(), hit + (distance <= 2).sum()
        false += (tree.query(here)[0] > 2).sum()
        for emitter, spot in zip(emitters[alone][:4], here[nearest][:4], strict=True):
            distances.append(np.hypot(*(gaussian_fit(movie[frame], *spot) - emitter)))
    assert isolated > 200
    assert hit / isolated >= 0.97
    assert false / len(found.y) <= 0.02
    assert np.median(distances) < 0.1


def test_dna_paint_file(paint):
    movie, localisations = paint
    found = detect(movie.astype(np.uint16), Settings())
    near, distances = 0, []
    used = np.zeros(len(found.y), bool)
    for i, spot in enumerate(localisations):
        here = np.flatnonzero(found.frame == spot["frame"])
        offset = np.hypot(found.y[here] - spot["y"], found.x[here] - spot["x"])
        used[here[offset < 1.5]] = True
        near += offset.size > 0 and offset.min() < 1
        if i % 10 == 0:
            best = here[offset.argmin()]
            fitted = gaussian_fit(movie[spot["frame"]], found.y[best], found.x[best], half=3)
            distances.append(np.hypot(fitted[0] - spot["y"], fitted[1] - spot["x"]))
    assert near / len(localisations) >= 0.97
    assert np.median(distances) < 0.1
    assert np.mean(np.array(distances) < 0.3) >= 0.97
    # The others are dim blinks of the same nine origami.
    assert (~used).sum() < 0.1 * len(localisations)
    sites = np.array([(y, x) for y in (6, 16, 26) for x in (6, 16, 26)]) - 0.5
    assert (cKDTree(sites).query(places(found)[~used])[0] < 3).mean() > 0.97


def test_hybiss_file(hybiss):
    found = detect(hybiss[None].astype(np.uint16), Settings())
    assert 200 <= len(found.y) <= 350
    # Spots that stand out to the eye, away from the out-of-focus light
    for spot in ((37, 190), (21, 251), (76, 190), (92, 170), (150, 157), (442, 124)):
        assert cKDTree(places(found)).query(spot)[0] <= 1.5
    # The brightest blob is one spot, not one per noise peak.
    assert (np.hypot(found.y - 392, found.x - 64) < 5).sum() == 1


def test_stuck_particles_file(stuck):
    found = detect(stuck.astype(np.uint16), Settings())
    counts = np.bincount(found.frame, minlength=5)
    assert counts.min() >= 42
    assert counts.max() <= 48
    # They do not move: each frame shows those of the first.
    first = places(found)[found.frame == 0]
    for frame in range(1, 5):
        here = places(found)[found.frame == frame]
        assert np.mean(cKDTree(first).query(here)[0] < 3) > 0.9
