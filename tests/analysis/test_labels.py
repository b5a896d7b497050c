"""Spots per label, against loops over spots and labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_spotfit import SpotFits, label_spots, per_label


def fits(points: np.ndarray, **columns: np.ndarray) -> SpotFits:
    """Return fits at points (…, y, x)."""
    axes = points.shape[1] - 2
    names = (*(f"axis_{axis}" for axis in range(axes - 1)), "frame") if axes else ()
    index = {name: points[:, axis].astype(int) for axis, name in enumerate(names)}
    stop = np.zeros(len(points), np.uint8)
    centres = {"y": points[:, -2], "x": points[:, -1], "stop_condition": stop}
    return SpotFits({**index, **centres, **columns}, names)


def random_points(seed: int, count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return points in and a little outside of an image."""
    rng = np.random.default_rng(seed)
    leading = [rng.integers(0, size, count) for size in shape[:-2]]
    return np.column_stack([*leading, *(rng.uniform(-3, size + 2, count) for size in shape[-2:])])


def random_labels(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).choice([0, 1, 2, 5, 300], shape).astype(np.uint16)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("leading", [(), (4,), (3, 4)])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_pixel_that_a_centre_lies_in(lazy, leading, seed):
    labels = random_labels(seed, (*leading, 9, 12))
    points = random_points(seed + 1, 60, (3, 4, 9, 12))
    # Labels with fewer leading axes apply to all frames.
    array = pytest.importorskip("dask.array").from_array(labels, chunks=3) if lazy else labels
    found = label_spots(fits(points), array)
    for point, label in zip(points, found, strict=True):
        place = tuple(math.floor(one + 0.5) for one in point[2 - len(leading) :])
        inside = all(0 <= one < size for one, size in zip(place, labels.shape, strict=True))
        assert label == (labels[place] if inside else 0)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), angle=st.floats(0, 6), zoom=st.floats(0.3, 3))
def test_labels_on_another_grid(seed, angle, zoom):
    labels, points = random_labels(seed, (9, 12)), random_points(seed, 40, (5, 9, 12))
    turn = zoom * np.array(
        [(math.cos(angle), -math.sin(angle)), (math.sin(angle), math.cos(angle))]
    )
    matrix = np.zeros((3, 4))
    matrix[:2, 1:3], matrix[:2, 3], matrix[2, 3] = turn, (2, -1), 1
    found = label_spots(fits(points), labels, matrix)
    moved = fits(np.column_stack([points[:, 0], points[:, 1:] @ turn.T + (2, -1)]))
    same = np.eye(4)[1:3]  # they lie beyond the labels, too
    np.testing.assert_array_equal(found, label_spots(moved, labels, same))
    np.testing.assert_array_equal(found, label_spots(fits(points), labels, matrix[:2]))


def test_every_label_has_a_row_and_nan_is_left_out():
    labels = np.zeros((4, 9), np.int32)
    labels[:, :3], labels[:, 5:7], labels[:, 7:] = 4, -2, 9
    x = np.array([0, 1, 2, 3, 4, 5, 6.4, 20])
    photons = np.array([10, 20, np.nan, 1, 2, np.inf, 7, 5], np.float32)
    table = per_label(fits(np.column_stack([np.ones(8), x]), photons=photons), labels)
    assert list(table) == ["label", "pixels", "count", "photons_sum", "photons_mean"]
    assert table["label"].tolist() == [-2, 4, 9]
    assert table["pixels"].tolist() == [8, 12, 8]
    assert table["count"].tolist() == [2, 3, 0]
    assert table["photons_sum"].tolist() == [7, 30, 0]
    np.testing.assert_array_equal(table["photons_mean"], [7, 15, np.nan])


@pytest.mark.parametrize("kind", ["?", "u1", "i4", "u8", ">i2"])
def test_any_whole_numbers_are_labels(kind):
    labels = np.zeros((2, 5, 5), kind)
    labels[1, 2:] = 1
    table = per_label(fits(np.array([(0, 3, 3), (1, 3, 3), (1, 4, 1)])), labels, ())
    assert table.to_numpy().tolist() == [[1, 15, 2]]


def test_labels_that_no_column_has_a_place_for_are_refused():
    labels = np.zeros((5, 9), np.uint64)
    labels[:, :3], labels[:, 6:] = 2**63 - 1, 2**63
    here, there = fits(np.array([(2, 1)])), fits(np.array([(2, 7)]))
    assert label_spots(here, labels).tolist() == [2**63 - 1]
    with pytest.raises(ValueError, match=r"labels must be at most 9223372036854775807 .*5808"):
        label_spots(there, labels)
    for one in (here, there):
        with pytest.raises(ValueError, match=r"at most 9223372036854775807 .* Number them from 1"):
            per_label(one, labels, ())
    assert per_label(here, labels[:, :6], ()).to_numpy().tolist() == [[2**63 - 1, 15, 1]]


def test_labels_without_any():
    table = per_label(fits(np.zeros((2, 2))), np.zeros((5, 5), int), ())
    assert len(table) == 0
    assert label_spots(fits(np.full((1, 2), np.nan)), np.ones((5, 5), int)).tolist() == [0]


def test_what_does_not_fit_is_said():
    one = fits(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="the labels have 3 axes, more than"):
        label_spots(one, np.ones((1, 5, 5), int))
    with pytest.raises(TypeError, match="labels must be whole numbers"):
        label_spots(one, np.ones((5, 5)))
    with pytest.raises(ValueError, match=r"to_labels must have the shape \(2, 3\)"):
        label_spots(one, np.ones((5, 5), int), np.eye(4))
    with pytest.raises(ValueError, match="got 'brightness'"):
        per_label(one, np.ones((5, 5), int), ["brightness"])


def test_labels_of_another_size_are_refused():
    """Each spot had label 0, and each cell no spot."""
    spots = fits(np.array([[10.0, 20.0], [200.0, 80.0]]))
    with pytest.raises(ValueError, match=r"they are 64 x 64 pixels; .* an image of 201 x 81"):
        per_label(spots, np.ones((64, 64), int), ())
    with pytest.raises(ValueError, match="as large as the image"):
        label_spots(fits(np.array([[5.0, 1.0, 1.0]])), np.ones((4, 9, 9), int))
    assert label_spots(fits(np.array([[5.0, 66.0]])), np.ones((64, 64), int)).tolist() == [0]


@pytest.mark.parametrize("axes", [("frame", "channel"), ("channel", "frame")])
def test_labels_of_frames_are_those_of_all_channels(axes):
    places = {"frame": np.array([0, 1, 1]), "channel": np.array([1, 0, 1])}
    fits = SpotFits(places | {"y": np.ones(3), "x": np.ones(3)}, axes)
    labels = np.stack([np.full((4, 4), 5), np.full((4, 4), 6)])
    assert label_spots(fits, labels).tolist() == [5, 6, 6]
    of_channels = np.empty((2, 2, 4, 4), int)
    for channel in range(2):
        index = [slice(None)] * 2
        index[axes.index("channel")] = channel
        of_channels[tuple(index)] = labels + 10 * channel
    assert label_spots(fits, of_channels).tolist() == [15, 6, 16]
