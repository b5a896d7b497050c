"""Pairs agree with those of a full matrix, and chance with independent channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes_of_channels import fits_at, textured_cells
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from napari_spotfit import SpotFits, pair_spots
from napari_spotfit.analysis.linking import common_frames, in_order, partners


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 40), st.integers(0, 40), st.integers(2, 3), st.floats(0.05, 4), st.booleans(),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_pairs_are_those_of_a_full_matrix(count, other, axes, radius, rounded, seed):
    random = np.random.default_rng(seed)
    a, b = (random.uniform(-3, 3, (n, axes)) for n in (count, other))
    if rounded:  # some are at one place
        a, b = np.round(a), np.round(b)
    frames = [random.integers(0, 3, n) for n in (count, other)]
    found = partners(a, b, *frames, radius)
    costs = np.minimum(cdist(a, b, "sqeuclidean") - radius**2, 0)
    costs[frames[0][:, np.newaxis] != frames[1]] = 0
    best = costs[linear_sum_assignment(costs)].sum()
    paired = np.flatnonzero(found >= 0)
    assert len(set(found[paired])) == len(paired)
    assert (frames[0][paired] == frames[1][found[paired]]).all()
    assert (np.linalg.norm(a[paired] - b[found[paired]], axis=1) <= radius * (1 + 1e-12)).all()
    assert costs[paired, found[paired]].sum() == pytest.approx(best, abs=1e-9)


def test_a_chain_of_spots_is_paired_as_a_whole():
    # Each a is a little nearer to the b after it, and the last one would be alone.
    a = np.column_stack([np.zeros(500), np.arange(500.0)])
    b = np.column_stack([np.zeros(500), np.arange(500.0) + 0.4999])
    b[-1, 1] = -0.5001
    zeros = np.zeros(500, np.int64)
    assert partners(a, b, zeros, zeros, 0.7).tolist() == [499, *range(499)]
    assert partners(a, b, zeros, zeros, 0.5).tolist() == [*range(499), -1]


def test_rows_in_order_are_all_with_a_position():
    places = np.array([[1e300, 0.0], [np.nan, 1.0], [2.0, 3.0], [-5.0, np.inf]])
    frame = np.zeros(4, np.int64)
    assert sorted(in_order(places, frame, 2.0).tolist()) == [0, 2]
    assert partners(places, places, frame, frame, 1.0).tolist() == [0, -1, 2, -1]


def test_too_many_in_reach_are_refused():
    a = fits_at(np.random.default_rng(0).normal(0, 0.1, (5000, 2)))
    with pytest.raises(ValueError, match="choose a smaller radius"):
        pair_spots(a, a[::-1], 2.0)
    assert len(pair_spots(a[:300], a[:300], 2.0)) == 300


@pytest.mark.parametrize("radius", [0, -1, np.nan, np.inf])
def test_a_radius_must_be_above_0(radius):
    with pytest.raises(ValueError, match="radius must be"):
        pair_spots(fits_at([[1, 1]]), fits_at([[1, 1]]), radius)


@pytest.mark.parametrize("counts", [(0, 0), (0, 3), (3, 0), (1, 1)])
@pytest.mark.parametrize("labels", [None, np.ones((9, 9), int), np.zeros((9, 9), int)])
def test_empty_channels_have_no_pairs(counts, labels):
    places = np.array([[1.0, 1.0], [1.0, 8.0], [8.0, 1.0]])
    pairs = pair_spots(*(fits_at(places[:n]) for n in counts), 1.0, labels=labels)
    there = min(counts) and (labels is None or labels.any())
    assert len(pairs) == pairs.observed == (1 if there else 0)
    assert np.isfinite([pairs.expected, pairs.expected_shifted, pairs.excess]).all()


def test_rows_distances_and_errors():
    a = fits_at([[5, 5], [np.nan, 2], [20, 20], [40, 40]], [[0.3, 0.1]])
    b = fits_at([[41, 40], [20, 20], [5, 5.8]], [[0.4, 0.1]])
    pairs = pair_spots(a, b, 1.5)
    table = pairs.to_dataframe()
    assert table[["a", "b"]].values.tolist() == [[0, 2], [2, 1], [3, 0]]
    np.testing.assert_allclose(table.distance, [0.8, 0, 1], atol=1e-12)
    across = np.hypot(0.1, 0.1)
    mean = np.sqrt((0.5**2 + across**2) / 2)
    np.testing.assert_allclose(table.distance_stderr, [across, mean, 0.5], rtol=1e-6)
    without = pair_spots(fits_at([[5, 5]], None), b, 1.5)
    assert np.isnan(without.distance_stderr).all()


def test_spots_of_other_frames_files_and_cells_are_no_pairs():
    a = fits_at([[5, 5], [5, 5], [5, 15]], frame=[0, 1, 1])
    b = fits_at([[5, 5], [5, 14.9]], frame=[1, 2])
    assert pair_spots(a, b, 1).to_dataframe()[["a", "b"]].values.tolist() == [[1, 0]]
    files = [SpotFits(fits.columns | {"file": np.array(["x.tif"] * len(fits), object)}, ("frame",))
             for fits in (a, b)]  # fmt: skip
    assert pair_spots(*files, 1).observed == 1
    files[1] = SpotFits(files[1].columns | {"file": np.array(["y.tif"] * 2, object)}, ("frame",))
    assert pair_spots(*files, 1).observed == 0
    labels = np.zeros((20, 20), int)
    labels[:, :5], labels[:, 5:10] = 3, 8
    near = pair_spots(fits_at([[5, 4.4]]), fits_at([[5, 4.6]]), 1, labels=labels)
    assert near.observed == 0
    assert near.by_label.set_index("label")[["count_a", "count_b"]].values.tolist() == [
        [1, 0], [0, 1],
    ]  # fmt: skip
    own = pair_spots(fits_at([[5, 4.4], [5, 15]]), fits_at([[5, 4.0], [5, 15]]), 1, labels=labels)
    assert own.label.tolist() == [3]


def test_labels_of_frames_count_in_their_frames():
    labels = np.zeros((2, 20, 20), int)
    labels[0, :10], labels[1, 10:] = 1, 1
    a = fits_at([[5, 5], [5, 5]], frame=[0, 1])
    pairs = pair_spots(a, a[::1], 1, labels=labels)
    assert pairs.to_dataframe()[["a", "b", "label"]].values.tolist() == [[0, 0, 1]]
    assert pairs.by_label.pixels.tolist() == [400]
    assert pairs.expected == pytest.approx(1 - np.exp(-np.pi / 200))


def test_different_axes_and_several_channels_are_refused():
    one, other = fits_at([[5, 5]], frame=[0]), fits_at([[5, 5]])
    with pytest.raises(ValueError, match="same leading axes; they have frame and none"):
        pair_spots(one, other, 1)
    columns = fits_at([[5, 5], [6, 6]]).columns | {"channel": np.array([0, 1])}
    both = SpotFits(columns, ("channel",))
    with pytest.raises(ValueError, match="choose one"):
        pair_spots(both, other, 1)
    assert pair_spots(both[both.channel == 0], other, 1).observed == 1
    assert [len(one) for one in common_frames(both, other)] == [2, 1]


def test_depth_is_scaled_or_left_out():
    a = fits_at([[5, 5], [9, 9]], z=np.array([1.0, 1.0]))
    b = fits_at([[5, 5], [9, 9]], z=np.array([2.0, 9.0]))
    with pytest.raises(ValueError, match="z_scale must be"):
        pair_spots(a, b, 1)
    with pytest.raises(ValueError, match="only one of the channels has z"):
        pair_spots(a, fits_at([[5, 5]]), 1)
    assert pair_spots(a, b, 1, z_scale=0).observed == 2
    assert pair_spots(a, b, 1, z_scale=0.9).distance == pytest.approx([0.9])
    assert pair_spots(a, b, 1, z_scale=1.1).observed == 0


@pytest.mark.parametrize("kind", [{"shared": True}, {"shared": True, "per_cell": 10}, {}])
def test_independent_channels_have_as_many_pairs_as_by_chance(kind):
    kind = kind or {"shared": False, "nuclei": False}
    away = []
    for seed in range(20):
        labels, a, b = textured_cells(seed, **kind)
        pairs = pair_spots(fits_at(a), fits_at(b), 2.0, labels=labels)
        assert pairs.excess == pytest.approx(pairs.observed - pairs.expected_shifted)
        assert pairs.by_label.observed.sum() == pairs.observed
        assert pairs.by_label.excess.sum() == pytest.approx(pairs.excess)
        away.append(pairs.excess / pairs.stderr)
    assert np.count_nonzero(np.abs(away) <= 2) >= 18
    assert 0.5 < np.std(away) < 1.5


def test_true_pairs_are_the_excess():
    found = []
    for seed in range(10):
        labels, a, b = textured_cells(seed)
        true = a[:200] + np.random.default_rng(seed).normal(0, 0.3, (200, 2))
        pairs = pair_spots(fits_at(a), fits_at(np.concatenate([b, true])), 2.0, labels=labels)
        found.append(pairs.excess)
    # A quarter of them would be pairs by chance, and cannot be distinguished.
    assert np.mean(found) == pytest.approx(200 * (1 - 0.3), rel=0.25)


def test_frames_without_labels_have_chance_too():
    away, random = [], np.random.default_rng(5)
    for _ in range(30):
        a, b = random.uniform(0, 300, (2, 2000, 2))
        frame = random.integers(0, 4, 2000)
        pairs = pair_spots(fits_at(a, frame=frame), fits_at(b, frame=frame), 2, shape=(300, 300))
        away.append((pairs.excess / pairs.stderr, pairs.observed / pairs.expected))
    away = np.array(away)
    assert np.count_nonzero(np.abs(away[:, 0]) <= 2) >= 26
    assert away[:, 1].mean() == pytest.approx(1, abs=0.05)
