"""Which fits have neighbours at their start or end, compared with loops over all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from judging import Origin, judge_in_image

from napari_spotfit import Flag, Settings

KNOWN = Settings(roi_size=(9, 5))


def flags_of(frame, starts, ends, shape, threads=None):
    """Return the flags of fits with random initial and final positions."""
    count = len(frame)
    columns = {"y": ends[:, 0].copy(), "x": ends[:, 1].copy()}
    columns["stop_condition"] = np.full(count, 2, np.uint8)
    corners = np.zeros((count, 3), np.int64)
    corners[:, 0] = frame
    judge_in_image(columns, KNOWN.changed(threads=threads), Origin(corners, starts, shape, 1.3))
    return columns["flags"]


@given(
    st.integers(0, 2**32), st.integers(0, 200), st.sampled_from([20, 200]), st.booleans(),
    st.sampled_from([0.3, 3.0]),
)  # fmt: skip
@effort(max_examples=60, deadline=None)
def test_near_fits_are_those_of_a_loop(seed, count, size, by_row, moves):
    """Crowded and not, a few of them and many, row by row as detections, and in any order."""
    rng = np.random.default_rng(seed)
    frame = np.sort(rng.integers(0, 4, count))
    starts = rng.uniform(-3, size, (count, 2)).round(1)
    if by_row:
        starts = starts[np.lexsort((starts[:, 0], frame))]
    ends = starts + rng.normal(0, moves, (count, 2)).round(1)
    moved = [math.sqrt(y * y + x * x) for y, x in ends - starts]
    neighbour, duplicate = np.zeros((2, count), bool)
    for i in range(count):
        for j in np.flatnonzero(frame == frame[i]):
            if i == j:
                continue
            neighbour[i] |= np.all(abs(starts[j] - starts[i]) <= (4.5, 2.5))
            down, across = ends[j] - ends[i]
            together = down * down + across * across <= 1
            duplicate[i] |= together and (moved[j], *ends[j], j) < (moved[i], *ends[i], i)
    flags = flags_of(frame, starts, ends, (size, size + 1))
    np.testing.assert_array_equal((flags & Flag.NEIGHBOUR) != 0, neighbour)
    np.testing.assert_array_equal((flags & Flag.DUPLICATE) != 0, duplicate)


def test_a_thousand_fits_at_one_place_are_one_spot():
    count = 100_000
    starts = np.random.default_rng(0).uniform(6, 8, (count, 2))
    ends = np.full((count, 2), 7.25)
    flags = flags_of(np.zeros(count, np.int64), starts, ends, (16, 16))
    nearest = np.hypot(*(starts - ends).T).argmin()
    assert np.flatnonzero((flags & Flag.DUPLICATE) == 0).tolist() == [nearest]
    assert (flags & Flag.NEIGHBOUR).all()


@pytest.mark.parametrize("per_frame", [1, 7, 50_000])
def test_threads_share_frames(per_frame):
    rng = np.random.default_rng(1)
    frame = np.arange(70_000) // per_frame
    starts = rng.uniform(0, 500, (len(frame), 2))
    ends = starts + rng.normal(0, 2, starts.shape)
    one, some = (flags_of(frame, starts, ends, (500, 500), threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, some)
