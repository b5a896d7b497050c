"""ROIs around spots, in parts, and rows put in place, against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_spotfit.engine.rois import in_two_parts, put_rows, rois_around

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(0, 50), st.integers(4, 30), st.integers(4, 30), st.integers(2, 6))
def test_rois_are_around_their_spots_and_within_their_frames(seed, count, rows, columns, shape):
    rng = np.random.default_rng(seed)
    size = np.array([rows, columns]) + rng.integers(0, 40, 2)
    frame = np.sort(rng.integers(0, 9, count))
    places = rng.uniform(-0.5, size - 0.5, (count, 2))
    halves = rng.random((count, 2)) < 0.5  # halfway between pixels
    places[halves] = np.floor(places[halves]) + 0.5
    rois = rois_around(frame, places, tuple(size), (rows, columns), shape)
    first = np.rint(places).astype(int) - np.array([rows, columns]) // 2
    first = np.clip(first, 0, size - [rows, columns])
    np.testing.assert_array_equal(rois.corners, np.column_stack([frame, first]))
    np.testing.assert_array_equal(rois.start[:, :2], (places - first).astype(np.float32))
    assert rois.start.shape == (count, shape)
    assert np.isnan(rois.start[:, 2:]).all()


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(0, 50), st.booleans())
def test_parts_are_in_order_and_their_rows_find_back(seed, count, started):
    rng = np.random.default_rng(seed)
    second = rng.random(count) < rng.random()
    corners = rng.integers(-1, 100, (count, 3))
    start = rng.random((count, 4)).astype(np.float32) if started else None
    parts = in_two_parts(second, corners, start)
    expected = np.concatenate([np.flatnonzero(~second), np.flatnonzero(second)])
    assert parts.first == (~second).sum()
    np.testing.assert_array_equal(parts.numbers, expected)
    np.testing.assert_array_equal(parts.corners, corners[expected])
    if start is None:
        assert parts.start is None
    else:
        np.testing.assert_array_equal(parts.start, start[expected])
    table = {
        kind: rng.integers(0, 100, count).astype(kind) for kind in ("u1", "u2", "f4", "f8", "i8")
    }
    back = {name: np.empty_like(column) for name, column in table.items()}
    for rows in (slice(0, parts.first), slice(parts.first, None)):
        numbers = parts.numbers[rows]
        put_rows({name: column[numbers] for name, column in table.items()}, numbers, back)
    for name, column in table.items():
        np.testing.assert_array_equal(back[name], column)
