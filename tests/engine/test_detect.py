"""Detection: every spot and nothing else, on simulated frames."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import (
    DTYPES,
    assert_same,
    border_of,
    filtered_by_scipy,
    light,
    matches,
    movie_of,
    noise_of,
    on_grid,
    places,
    scattered,
)
from scipy.ndimage import gaussian_filter, maximum_filter

from napari_spotfit.engine.detection.detection_settings import MAXIMUM
from napari_spotfit.engine.detection.nonmax_suppression import drop_neighbours
from napari_spotfit.models.bounds import LARGEST
from napari_spotfit.settings.settings import Settings


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_spot_is_found_and_nothing_else(detect, dtype):
    rng = np.random.default_rng(1)
    centres = on_grid(rng, (96, 160), 16)
    movie = movie_of(rng, centres, frames=4, shape=(96, 160), photons=700) - 60
    assert movie.max() < 256  # all of the dtypes hold it
    found = detect(movie.astype(dtype), Settings())
    for frame in range(4):
        here = places(found)[found.frame == frame]
        assert len(here) == len(centres)
        assert matches(centres, here, 1.5) == len(centres)
    assert [column.dtype for column in found] == [*[np.int64] * 3, *[np.float32] * 2]


def test_all_pixel_types_give_the_same(detect):
    rng = np.random.default_rng(2)
    movie = movie_of(rng, scattered(rng, (60, 70), 20), 3, (60, 70), photons=500) - 90
    results = [detect(movie.astype(dtype), Settings()) for dtype in DTYPES]
    assert len(results[0].y) > 30
    for result in results[1:]:
        assert_same(results[0], result)


def test_dim_spots_are_found_as_often_as_theory_says(detect):
    # The noise, and the spot's own shot noise, spread its height: of those of 7 times the
    # noise, 95 % exceed 5.
    rng = np.random.default_rng(3)
    centres = np.round(on_grid(rng, (256, 256), 32))
    unit = filtered_by_scipy(light([[16.0, 16.0]], 1, 1.3, (33, 33)), 1.3).max()
    photons = 7 * noise_of(rng.poisson(100, (1, 256, 256)).astype(float))[0] / unit
    movie = movie_of(rng, centres, 20, (256, 256), photons=photons, background=100)
    found = detect(movie.astype(np.uint16), Settings())
    right = sum(matches(centres, places(found)[found.frame == i], 2) for i in range(20))
    assert 0.91 <= right / (20 * len(centres)) <= 0.99


def test_noise_alone_is_hardly_ever_a_spot(detect):
    rng = np.random.default_rng(4)
    found = detect(rng.normal(1000, 10, (40, 256, 256)).astype(np.float32), Settings())
    # By simulation, 0.05 in a frame.
    assert len(found.y) <= 8
    on_border = (np.minimum(found.y, found.x) < 2) | (np.maximum(found.y, found.x) > 253)
    assert on_border.sum() <= 2


def test_results_are_ordered(detect):
    rng = np.random.default_rng(5)
    movie = movie_of(rng, scattered(rng, (80, 80), 30), 50, (80, 80))
    found = detect(movie.astype(np.uint16), Settings(min_distance=3))
    order = np.lexsort((found.x, found.y, found.frame))
    assert len(order) > 1000
    np.testing.assert_array_equal(order, np.arange(len(order)))


@pytest.mark.parametrize("sigma", [0.8, 1.0, 2.0, 2.5, 3.0])
def test_default_sigma_finds_spots_of_other_widths(detect, sigma):
    rng = np.random.default_rng(6)
    centres = on_grid(rng, (256, 256), 32)
    movie = movie_of(rng, centres, 2, (256, 256), photons=1000 * sigma**2, sigma=sigma)
    found = detect(movie.astype(np.uint16), Settings())
    for frame in range(2):
        here = places(found)[found.frame == frame]
        assert matches(centres, here, 2) == len(centres)
        assert len(here) <= len(centres) + 1


def test_crowded_spots_do_not_hide_in_what_is_taken_for_noise(detect):
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


def test_smooth_texture_is_not_taken_for_crowded_spots(detect):
    rng = np.random.default_rng(8)
    blurred = gaussian_filter(rng.normal(0, 1, (4, 256, 256)), (0, 1.2, 1.2))
    found = detect((1000 + 100 * blurred).astype(np.float32), Settings())
    assert len(found.y) <= 4


def test_threshold_in_counts_is_a_height_in_the_filtered_image(detect):
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
def test_maxima_are_those_of_brute_force(detect, seed, shape, sigma, limit):
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


def test_score_is_height_over_noise(detect):
    rng = np.random.default_rng(18)
    movie = movie_of(rng, on_grid(rng, (128, 128), 16), 2).astype(float)
    spread = noise_of(movie)
    for unit, limit in (("noise", 5), ("counts", 3)):
        found = detect(movie, Settings(threshold=limit, threshold_unit=unit))
        assert len(found.y) >= 2 * 49
        heights = np.array([filtered_by_scipy(frame, 1.3) for frame in movie])
        border = border_of(1.3, (128, 128))
        expected = heights[found.frame, found.y, found.x] / spread[found.frame]
        np.testing.assert_allclose(found.score, expected / border[found.y, found.x], rtol=1e-4)
    for unit in ("noise", "counts"):
        assert len(detect(movie, Settings(threshold=LARGEST, threshold_unit=unit)).y) == 0
    raised = detect(movie, Settings(threshold=40))
    whole = detect(movie, Settings())
    assert 0 < len(raised.y) < len(whole.y)
    assert_same(raised, [column[whole.score > 40] for column in whole])


def test_of_two_close_spots_the_brighter_stays(detect):
    shape = (40, 60)
    centres = [(20.0, 20.0), (20.0, 25.0)]
    frame = light(centres, [3000, 2000], 1.0, shape)[None] + 10
    both = detect(frame, Settings(sigma=1.0, min_distance=5))
    assert places(both).tolist() == [[20, 20], [20, 25]]
    one = detect(frame, Settings(sigma=1.0, min_distance=5.01))
    assert places(one).tolist() == [[20, 20]]
    other = detect(frame[:, :, ::-1].copy(), Settings(sigma=1.0, min_distance=5.01))
    assert places(other).tolist() == [[20, 39]]


def test_equally_bright_spots_that_are_close_leave_the_first(detect):
    frame = np.zeros((1, 40, 40), np.float32)
    for y, x in ((20, 17), (20, 23), (14, 20)):
        frame[0, y, x] = 100
    found = detect(frame, Settings(min_distance=8))
    assert places(found).tolist() == [[14, 20]]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.floats(1, 20))
def test_suppression_is_greedy_by_height(seed, count, distance):
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
    maxima = np.zeros(len(spots), MAXIMUM)
    maxima["frame"], maxima["y"], maxima["x"] = spots.T
    maxima["height"], maxima["score"] = heights, np.arange(len(spots))
    left = drop_neighbours(maxima, height=25, distance=distance)
    np.testing.assert_array_equal(left, maxima[np.sort(kept)])


def test_spots_a_hair_closer_than_the_distance_leave_the_higher():
    maxima = np.zeros(2, MAXIMUM)
    maxima["x"], maxima["height"] = [12, 13], [3, 1]
    left = drop_neighbours(maxima, height=1, distance=np.nextafter(1, 2))
    np.testing.assert_array_equal(left, maxima[:1])


def test_suppression_does_not_compare_all_with_all():
    # It would take minutes.
    rng = np.random.default_rng(33)
    maxima = np.zeros(300_000, MAXIMUM)
    maxima["x"], maxima["height"] = 2 * np.arange(300_000), rng.permutation(300_000) + 1
    left = drop_neighbours(maxima, height=1, distance=5.0)["x"] // 2
    free, kept = np.ones(300_004, bool), np.zeros(300_000, bool)
    for i in np.argsort(-maxima["height"]):
        if free[i + 2]:
            kept[i] = True
            free[i : i + 5] = False
    np.testing.assert_array_equal(left, np.flatnonzero(kept))


def test_mask_says_where_spots_may_be_and_changes_nothing_else(detect):
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


def test_a_brighter_spot_outside_the_mask_hides_none_inside(detect):
    frame = light([(20.0, 18.0), (20.0, 24.0)], [9000, 3000], 1.3, (40, 40))[None]
    mask = np.zeros((40, 40), bool)
    mask[:, 21:] = True
    found = detect(frame, Settings(min_distance=10), mask)
    assert places(found).tolist() == [[20, 24]]


@pytest.mark.parametrize("shape", [(20, 30), (200, 300)])
def test_threads_and_batches_change_nothing(detect, shape):
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


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64])
def test_threads_that_share_a_large_frame_change_nothing(detect, dtype):
    rng = np.random.default_rng(34)
    shape = (1300, 1100)
    frames = movie_of(rng, scattered(rng, shape, 2000), 2, shape).clip(0, 250).astype(dtype)
    frames[1, 300:340, 500:530] = 250  # a plateau on the border of tiles
    if frames.dtype.kind == "f":
        frames[0, 700, 600] = np.nan
    for options in (Settings(), Settings(sigma=4.0, threshold=2.0, min_distance=6)):
        alone = detect(frames, options.changed(threads=1))
        assert len(alone.y) > 1000
        for count in (2, 3, 16):
            assert_same(alone, detect(frames, options.changed(threads=count)))


def test_many_callers_at_once(detect):
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
