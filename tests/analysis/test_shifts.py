"""The mean of shifts agrees with the rules step by step, and is robust against wrong shifts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_spotfit.analysis.shifts import robust_mean


def weighted(shifts, errors, taken):
    weights = 1 / errors[taken] ** 2
    return (weights * shifts[taken]).sum(axis=0) / weights.sum(axis=0), weights.sum(axis=0) ** -0.5


def step_by_step(shifts, errors, candidates):
    """Return which of more than two shifts are used."""
    allowed = 4 * np.sqrt(errors**2 + 0.003**2)

    def near(center, times=1.0, more=0.0):
        return candidates & (np.abs(shifts - center) <= times * allowed + more).all(axis=1)

    mean, _ = weighted(shifts, errors, candidates)
    if candidates.sum() >= 8 and (near(mean) == candidates).all():
        return candidates
    own = shifts[candidates]
    middle = np.sort(own, axis=0)[len(own) // 2]
    spread = np.sort(np.abs(own - middle), axis=0)[len(own) // 2]
    first = near(middle, 1.25, spread)
    if not first.any():
        return candidates
    second = near(weighted(shifts, errors, first)[0])
    return second if second.any() else first


@settings(deadline=None, max_examples=300)
@given(
    st.integers(3, 40), st.floats(0, 0.6), st.floats(0.001, 0.5), st.integers(0, 2**32 - 1),
    st.booleans(),
)  # fmt: skip
def test_the_mean_is_that_of_the_rules(count, wrong, error, seed, rounded):
    rng = np.random.default_rng(seed)
    errors = error * rng.uniform(0.5, 2.0, (count, 2))
    shifts = rng.normal([0.3, -0.2], errors)
    apart = rng.random(count) < wrong
    shifts[apart] += rng.normal(0, 20 * error, (apart.sum(), 2))
    shifts = np.round(shifts, 2) if rounded else shifts  # some are at one place
    candidates = rng.random(count) < 0.8
    candidates[:3] = True
    errors[~candidates] = math.nan
    found = robust_mean(shifts, errors, candidates)
    expected = step_by_step(shifts, errors, candidates)
    np.testing.assert_array_equal(found.taken, expected)
    mean, spread = weighted(shifts, errors, expected)
    np.testing.assert_allclose(found.shift, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.errors, spread, rtol=1e-9)


@pytest.mark.parametrize("count", [8, 9, 30])
def test_a_third_that_is_wrong_moves_nothing(count):
    rng = np.random.default_rng(count)
    errors = np.full((count, 2), 0.01)
    shifts = rng.normal([1.0, 2.0], errors)
    right = robust_mean(shifts, errors, np.arange(count) >= count // 3)
    shifts[: count // 3] += [0.7, -0.4]
    found = robust_mean(shifts, errors, np.ones(count, bool))
    assert not found.taken[: count // 3].any()
    np.testing.assert_allclose(found.shift, right.shift, atol=1e-12)


def test_of_two_that_do_not_agree_the_sharper_one_counts():
    shifts, both = np.array([[0.0, 0.0], [1.0, 0.0]]), np.ones(2, bool)
    errors = np.array([[0.1, 0.1], [0.05, 0.1]])
    found = robust_mean(shifts, errors, both)
    assert found.taken.tolist() == [False, True]
    assert found.shift.tolist() == [1.0, 0.0]
    assert robust_mean(shifts / 10, errors, both).taken.all()


@pytest.mark.parametrize("count", [1, 2, 3, 9, 30])
def test_one_axis_is_as_two_that_are_the_same(count):
    rng = np.random.default_rng(count)
    errors = rng.uniform(0.01, 0.03, (count, 1))
    shifts = rng.normal(1.0, errors)
    shifts[: count // 3] += 0.7
    candidates = rng.random(count) < 0.9
    one = robust_mean(shifts, errors, candidates)
    both = robust_mean(np.repeat(shifts, 2, axis=1), np.repeat(errors, 2, axis=1), candidates)
    np.testing.assert_array_equal(one.taken, both.taken)
    np.testing.assert_array_equal([*one.shift, *one.errors], [both.shift[0], both.errors[0]])


def test_of_none_nothing_is_known():
    found = robust_mean(np.zeros((3, 2)), np.ones((3, 2)), np.zeros(3, bool))
    assert np.isnan(found.shift).all()
    assert np.isnan(found.errors).all()
    assert not found.taken.any()
