"""Detection: every spot and nothing else, on simulated frames."""

from __future__ import annotations

import threading

import detection_reference as reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import (
    DTYPES,
    assert_same,
    estimated,
    filtered_by_scipy,
    light,
    matches,
    movie_of,
    on_grid,
    places,
    scattered,
)
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

from napari_spotfit import NoiseModel
from napari_spotfit.engine.candidates import choose_spots, in_order, strips_in_order
from napari_spotfit.engine.cpu.layouts import DetectionSettings, Mark
from napari_spotfit.engine.detection_settings import MAXIMUM, score_for
from napari_spotfit.models.number_checks import LARGEST
from napari_spotfit.settings.settings import Settings


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_spot_is_found_and_nothing_else(detect, dtype):
    rng = np.random.default_rng(1)
    centres = on_grid(rng, (96, 160), 16)
    movie = movie_of(rng, centres, frames=4, shape=(96, 160), photons=700) - 60
    assert movie.max() < 256  # all of the dtypes hold it
    # Noise is taken for a spot as often as is asked for.
    found = detect(movie.astype(dtype), Settings(sigma=1.3, false_spots=1.0))
    for frame in range(4):
        here = places(found)[found.frame == frame]
        assert len(here) == len(centres)
        assert matches(centres, here, 1.5) == len(centres)
    assert [column.dtype for column in found[:5]] == [*[np.int64] * 3, *[np.float32] * 2]
    assert found.z is None


def test_all_pixel_types_give_the_same(detect):
    rng = np.random.default_rng(2)
    movie = movie_of(rng, scattered(rng, (60, 70), 20), 3, (60, 70), photons=500) - 90
    results = [detect(movie.astype(dtype), Settings(sigma=1.3)) for dtype in DTYPES]
    assert len(results[0].y) > 30
    for result in results[1:]:
        assert_same(results[0], result)


def test_dim_spots_are_found_as_often_as_theory_says(detect):
    # The noise, and the spot's own shot noise, spread its score: of those of the least score and
    # two more, 95 % exceed it.
    rng = np.random.default_rng(3)
    centres = np.round(on_grid(rng, (256, 256), 32))
    wide = reference.kernels(1.3)[0]
    unit = filtered_by_scipy(light([[16.0, 16.0]], 1, 1.3, (33, 33)), 1.3).max()
    photons = (score_for(10.0, 1.3) + 2) * wide.gain * 10 / unit
    movie = movie_of(rng, centres, 20, (256, 256), photons=photons, background=100)
    found = detect(movie.astype(np.uint16), Settings(sigma=1.3))
    right = sum(matches(centres, places(found)[found.frame == i], 2) for i in range(20))
    assert 0.91 <= right / (20 * len(centres)) <= 0.99


@pytest.mark.parametrize("wanted", [3.0, 10.0, 100.0])
def test_noise_is_taken_for_spots_as_often_as_is_asked_for(detect, wanted):
    rng = np.random.default_rng(4)
    frames = rng.normal(1000, 10, (60, 256, 256)).astype(np.float32)
    found = detect(frames, Settings(sigma=1.3, false_spots=wanted))
    expected = wanted * frames.size / 1e6
    chance = 3 * np.sqrt(expected)
    assert expected / 1.4 - chance < len(found.y) < 1.4 * expected + chance
    # No more on the border than elsewhere.
    on_border = (np.minimum(found.y, found.x) < 2) | (np.maximum(found.y, found.x) > 253)
    assert on_border.sum() <= 0.032 * expected * 2 + 4


def test_results_are_ordered(detect):
    rng = np.random.default_rng(5)
    movie = movie_of(rng, scattered(rng, (80, 80), 30), 50, (80, 80))
    found = detect(movie.astype(np.uint16), Settings(sigma=1.3, min_distance=3))
    order = np.lexsort((found.x, found.y, found.frame))
    assert len(order) > 1000
    np.testing.assert_array_equal(order, np.arange(len(order)))


@pytest.mark.parametrize("sigma", [0.8, 1.0, 2.0, 2.5, 3.0])
def test_default_sigma_finds_spots_of_other_widths(detect, sigma):
    rng = np.random.default_rng(6)
    centres = on_grid(rng, (256, 256), 32)
    movie = movie_of(rng, centres, 2, (256, 256), photons=1000 * sigma**2, sigma=sigma)
    found = detect(movie.astype(np.uint16), Settings(sigma=1.3))
    for frame in range(2):
        here = places(found)[found.frame == frame]
        assert matches(centres, here, 2) == len(centres)
        # With noise in numbers that are asked for, 10 in 10⁶ pixels.
        assert len(here) <= len(centres) + 3


def test_crowded_spots_do_not_hide_in_what_is_taken_for_noise(detect):
    rng = np.random.default_rng(7)
    right = total = detected = 0
    for count in (400, 1200):  # the mean distance is 13 and 7 px
        centres = scattered(rng, (256, 256), count)
        movie = movie_of(rng, centres, 1, (256, 256), photons=2000)
        here = places(detect(movie.astype(np.uint16), Settings(sigma=1.3)))
        right, total = right + matches(centres, here, 2), total + count
        detected += len(here)
    # Of the missing, most are within 3 px of another one, as one maximum with it.
    assert right / total > 0.72
    assert right / detected > 0.98


def test_smooth_texture_is_not_taken_for_crowded_spots(detect):
    rng = np.random.default_rng(8)
    blurred = gaussian_filter(rng.normal(0, 1, (4, 256, 256)), (0, 1.2, 1.2))
    found = detect((1000 + 100 * blurred).astype(np.float32), Settings(sigma=1.3))
    assert len(found.y) <= 4


def test_threshold_in_counts_is_a_height_in_the_filtered_image(detect):
    rng = np.random.default_rng(17)
    centres = on_grid(rng, (80, 80), 20)
    frame = light(centres, 1000 * (1 + np.arange(len(centres))), 1.3, (80, 80)) + 5
    heights = filtered_by_scipy(frame, 1.3)
    for limit in (15.0, 100.0, 200.0, 290.0):
        found = detect(frame[None], Settings(sigma=1.3, threshold=limit))
        tall = centres[[heights[int(y) - 1 : int(y) + 3, int(x) - 1 : int(x) + 3].max() > limit
                        for y, x in centres]]  # fmt: skip
        assert len(found.y) == len(tall)
        assert matches(tall, places(found), 1) == len(tall)
        np.testing.assert_allclose(found.height, heights[found.y, found.x], rtol=1e-4)
    assert len(detect(frame[None], Settings(sigma=1.3, threshold=LARGEST)).y) == 0


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(40, 150), st.integers(40, 300)),
    st.sampled_from([0.5, 0.8, 1.3, 2.0, 4.0]),
    st.sampled_from([0.0, 0.5, 3.0]),
)
def test_spots_are_those_of_the_method_in_double_precision(detect, seed, shape, sigma, slope):
    rng = np.random.default_rng(seed)
    frame = 100 + slope * rng.poisson(8.0 + 20 * light(scattered(rng, shape, 20), 5, 4, shape))
    frame = frame + rng.normal(0, 2, shape)
    noise = NoiseModel(slope, 4 - 100 * slope, 2.0)
    own = Settings(sigma=sigma, false_spots=3000.0, noise=noise)
    found = detect(frame[None], own)
    least = score_for(3000.0, sigma)
    theirs = reference.detect(frame, sigma, reference.Noise(slope, 4 - 100 * slope, 2.0), least)
    # The reference knows of no border; and rounding decides of what is as good as equal.
    margin = round(5 * 1.6 * sigma)
    inside = lambda all_: np.all((all_ >= margin) & (all_ < np.array(shape) - margin), axis=1)  # noqa: E731
    ours = {tuple(place): i for i, place in enumerate(places(found)) if inside(place[None])[0]}
    others = {tuple(p): i for i, p in enumerate(theirs.places) if inside(p[None])[0]}
    # Of pixels beside each other that are equal but for rounding, either may be the highest.
    alone = [
        place
        for here, there in ((ours, theirs.places), (others, places(found)))
        for place in here.keys() - (ours.keys() & others.keys())
        if np.abs(there - np.array(place)).max(axis=1).min() > 1
    ]
    assert len(alone) <= 2
    both = ours.keys() & others.keys()
    for name, values in (("score", theirs.score), ("height", np.maximum(theirs.height, 0))):
        mine = getattr(found, name)[[ours[place] for place in both]]
        same = np.isclose(mine, values[[others[place] for place in both]], rtol=2e-3, atol=2e-3)
        # Where a spot's two bands are highest on one pixel, rounding may decide which one counts.
        assert (~same).sum() <= 1, name


def test_fewer_false_spots_are_a_part_of_more(detect):
    rng = np.random.default_rng(18)
    movie = movie_of(rng, on_grid(rng, (128, 128), 16), 2).astype(float)
    few, many = (detect(movie, Settings(sigma=1.3, false_spots=wanted)) for wanted in (0.01, 10.0))
    assert 0 < len(few.y) < len(many.y) + 1
    assert (few.score > score_for(0.01, 1.3)).all()
    assert (many.score > score_for(10.0, 1.3)).all()
    near = cKDTree(places(many) + [1000, 0] * many.frame[:, None]).query(
        places(few) + [1000, 0] * few.frame[:, None]
    )[0]
    assert (near <= 2).all()


@pytest.mark.parametrize("share", [0.0005, 0.003])
def test_hot_pixels_are_no_spots(detect, share):
    rng = np.random.default_rng(36)
    centres = on_grid(rng, (160, 160), 32)
    movie = movie_of(rng, centres, 2, (160, 160), photons=2000)
    hot = rng.uniform(size=movie.shape[1:]) < share
    movie[:, hot] += rng.exponential(500, hot.sum()).astype(int)
    found = detect(movie.astype(np.uint16), Settings(sigma=1.3))
    for frame in range(2):
        here = places(found)[found.frame == frame]
        assert matches(centres, here, 1.5) >= len(centres) - 1
        assert len(here) <= len(centres) + 2 + 0.02 * hot.sum()


def test_edges_of_bright_areas_are_no_spots(detect):
    rng = np.random.default_rng(37)
    y, x = np.mgrid[:256, :256]
    cells = (
        10 + 200.0 * (np.hypot(y - 90, x - 100) < 60) + 2000.0 * (np.hypot(y - 190, x - 190) < 45)
    )
    movie = rng.poisson(gaussian_filter(cells, 1.0), (4, 256, 256)) + 100
    assert len(detect(movie.astype(np.uint16), Settings(sigma=1.3)).y) <= 12


def test_a_map_of_variances_counts(detect):
    rng = np.random.default_rng(38)
    deviation = np.where(rng.uniform(size=(256, 256)) < 0.05, 20.0, 2.0)
    frames = (1000 + deviation * rng.normal(size=(8, 256, 256))).astype(np.float32)
    known = Settings(sigma=1.3, noise=NoiseModel(0.0, 1e-3, 1e-3))
    variances = np.ascontiguousarray(deviation**2, np.float32)
    with_map = detect(frames, known, None, variances)
    # Some are hot pixels, which count for the mean of their neighbours.
    assert len(with_map.y) <= 10 * frames.size / 1e6 * 3
    without = detect(frames, known.changed(noise=NoiseModel(0.0, 4.0, 4.0)))
    assert len(without.y) > 20 * max(len(with_map.y), 1)


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
        frame[0, y - 1 : y + 2, x - 1 : x + 2] = 50
        frame[0, y, x] = 100
    found = detect(frame, Settings(sigma=1.3, min_distance=8))
    assert places(found).tolist() == [[14, 20]]


def left_of(maxima, shape, distance):
    """Return the numbers of the maxima that stay, all of which may be too close to others."""
    maxima["band"], maxima["score"] = Mark.CROWDED, np.arange(len(maxima))
    planes = DetectionSettings(height=shape[0], width=shape[1], depth=1, planes_per_pixel=1.0)
    left = choose_spots(maxima.copy(), planes, None, distance, merge=None)
    rows = left.score.astype(int)
    for name in ("frame", "y", "x", "height"):
        np.testing.assert_array_equal(getattr(left, name), maxima[name][rows])
    return rows


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
    maxima["height"] = heights
    np.testing.assert_array_equal(left_of(maxima, (25, 25), distance), np.sort(kept))


def test_spots_a_hair_closer_than_the_distance_leave_the_higher():
    maxima = np.zeros(2, MAXIMUM)
    maxima["x"], maxima["height"] = [12, 13], [3, 1]
    assert left_of(maxima, (1, 14), np.nextafter(1, 2)).tolist() == [0]


def test_suppression_does_not_compare_all_with_all():
    # It would take minutes.
    rng = np.random.default_rng(33)
    maxima = np.zeros(300_000, MAXIMUM)
    maxima["x"], maxima["height"] = 2 * np.arange(300_000), rng.permutation(300_000) + 1
    left = left_of(maxima, (1, 600_000), 5.0)
    free, kept = np.ones(300_004, bool), np.zeros(300_000, bool)
    for i in np.argsort(-maxima["height"]):
        if free[i + 2]:
            kept[i] = True
            free[i : i + 5] = False
    np.testing.assert_array_equal(left, np.flatnonzero(kept))


def test_mask_says_where_spots_may_be_and_changes_nothing_else(detect):
    rng = np.random.default_rng(19)
    movie = movie_of(rng, scattered(rng, (90, 70), 40), 3, (90, 70)).astype(np.uint16)
    whole = detect(movie, Settings(sigma=1.3))
    one = rng.uniform(size=(90, 70)) < 0.5
    each = rng.uniform(size=movie.shape) < 0.5
    for mask, inside in ((one, one[whole.y, whole.x]), (each, each[whole.frame, whole.y, whole.x])):
        assert 0 < inside.sum() < len(inside)
        assert_same(detect(movie, Settings(sigma=1.3), mask), whole.rows(inside))
    assert len(detect(movie, Settings(sigma=1.3), np.zeros((90, 70), bool)).y) == 0
    with pytest.raises(ValueError, match=r"\(90, 70\) or \(3, 90, 70\); got \(70, 90\)"):
        detect(movie, Settings(sigma=1.3), one.T)


def test_a_brighter_spot_outside_the_mask_hides_none_inside(detect):
    frame = light([(20.0, 18.0), (20.0, 24.0)], [9000, 3000], 1.3, (40, 40))[None]
    mask = np.zeros((40, 40), bool)
    mask[:, 21:] = True
    found = detect(frame, Settings(sigma=1.3, min_distance=10), mask)
    assert places(found).tolist() == [[20, 24]]


@pytest.mark.parametrize("shape", [(20, 30), (200, 300)])
def test_threads_and_batches_change_nothing(detect, shape):
    rng = np.random.default_rng(27)
    movie = movie_of(rng, scattered(rng, shape, 20), 37, shape).astype(np.float32)
    movie[5, 3, 4] = np.nan
    mask = rng.uniform(size=movie.shape) < 0.9
    known = estimated(movie, Settings(sigma=1.3))
    whole = detect(movie, known.changed(threads=1), mask)
    assert len(whole.y) > 100
    for count in (2, 3, 8, None):
        assert_same(whole, detect(movie, known.changed(threads=count), mask))
    for size in (1, 2, 10):
        parts = [detect(movie[i : i + size], known, mask[i : i + size]) for i in range(0, 37, size)]
        frames = [part.frame + i * size for i, part in enumerate(parts)]
        np.testing.assert_array_equal(whole.frame, np.concatenate(frames))
        for column in (1, 2, 3):
            joined = np.concatenate([part[column] for part in parts])
            np.testing.assert_array_equal(whole[column], joined)


@pytest.mark.parametrize(
    ("dtype", "settings"),
    [
        (np.uint8, Settings(sigma=1.3)),
        (np.uint16, Settings(sigma=4.0, false_spots=2000.0, min_distance=6)),
        (np.float64, Settings(sigma=1.3)),
    ],
    ids=["uint8", "uint16", "float64"],
)
def test_threads_that_share_a_large_frame_change_nothing(detect, dtype, settings):
    rng = np.random.default_rng(34)
    shape = (1300, 1100)
    frames = movie_of(rng, scattered(rng, shape, 2000), 2, shape).clip(0, 250).astype(dtype)
    frames[1, 300:340, 500:530] = 250  # a plateau on the border of tiles
    if frames.dtype.kind == "f":
        frames[0, 700, 600] = np.nan
    known = estimated(frames, settings.changed(threads=1))
    assert estimated(frames, settings.changed(threads=16)).noise == known.noise
    alone = detect(frames, known)
    assert len(alone.y) > 900
    for count in (3, 16):
        assert_same(alone, detect(frames, known.changed(threads=count)))


def test_many_callers_at_once(detect):
    rng = np.random.default_rng(28)
    movie = movie_of(rng, scattered(rng, (128, 128), 30), 40).astype(np.uint16)
    expected, results = detect(movie, Settings(sigma=1.3)), []
    callers = [
        threading.Thread(
            target=lambda: results.append(detect(movie, Settings(sigma=1.3, threads=2)))
        )
        for _ in range(6)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 6
    for result in results:
        assert_same(expected, result)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 400), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_strips_are_put_in_the_order_of_rows(count, parts, seed):
    rng, (height, width, rows) = np.random.default_rng(seed), (96, 60, 32)
    maxima = np.zeros(count, MAXIMUM)
    # One pixel may have a maximum of each band; columns of parts come one part after the other.
    place = rng.choice(2 * height * width, count, replace=False) // 2
    maxima["y"], maxima["x"], maxima["band"] = (
        place // width,
        place % width,
        rng.integers(0, 2, count),
    )
    maxima["height"] = rng.uniform(0, 9, count)
    part = maxima["x"] * parts // width
    by_strip = maxima[np.lexsort([maxima["x"], maxima["y"], part, maxima["y"] // rows])]
    np.testing.assert_array_equal(strips_in_order(by_strip, height), in_order(by_strip))
