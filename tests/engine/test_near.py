"""Which points have another one near, beside a loop over all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from napari_spotfit.engine.near import has_near


@given(st.integers(0, 2**32), st.integers(0, 300), st.sampled_from([(4.5, 2.5), (1.0, 1.0)]))
@effort(max_examples=50, deadline=None)
def test_near_points_are_those_of_a_loop(seed, count, reach):
    rng = np.random.default_rng(seed)
    frame, y, x = rng.integers(0, 4, count), *rng.uniform(-3, 20, (2, count)).round(1)
    expected = [
        any(
            j != i
            and frame[j] == frame[i]
            and abs(y[j] - y[i]) <= reach[0]
            and abs(x[j] - x[i]) <= reach[1]
            for j in range(count)
        )
        for i in range(count)
    ]
    np.testing.assert_array_equal(has_near(frame, y, x, (18, 19), reach), np.array(expected, bool))


def test_a_thousand_fits_at_one_place_are_one_spot():
    count = 100_000
    y, zero = np.full(count, 7.25), np.zeros(count, np.int64)
    rank = np.random.default_rng(0).permutation(count).astype(float)
    near = has_near(zero, y, y, (16, 16), (1.0, 1.0), rank)
    assert np.flatnonzero(~near).tolist() == [int(np.argmin(rank))]
    assert has_near(zero, y, y, (16, 16), (4.5, 4.5)).all()
