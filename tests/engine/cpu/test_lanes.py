"""The vector type against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from napari_spotfit.engine.cpu import lane_memory
from napari_spotfit.engine.cpu.lane_functions import exp2_negative
from napari_spotfit.engine.cpu.lanes import (
    WIDTH,
    absolute,
    clamp,
    count,
    load,
    maximum,
    minimum,
    multiply_add,
    select,
    spread,
    square_root,
    store,
)

SPECIAL = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-30], np.float32)


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    a = np.concatenate([rng.normal(0, 3, 24), SPECIAL]).astype(np.float32)
    b = np.concatenate([rng.normal(0, 3, 24), SPECIAL[::-1]]).astype(np.float32)
    return a, b


@njit
def _arithmetic(a, b, out):
    for row in range(a.size // WIDTH):
        x, y = load(a, row), load(b, row)
        results = (
            x + y,
            x - y,
            x * y,
            x / y,
            -x,
            multiply_add(x, y, x),
            absolute(x),
            square_root(x),
            minimum(x, y),
            maximum(x, y),
            clamp(x, spread(-1), spread(1)),
            select((x < y) & ~(x == y) | (x >= spread(2)), x, spread(7)),
        )
        for i, result in enumerate(results):
            store(out[i], row, result)


def test_arithmetic_is_numpys(numbers):
    a, b = numbers
    out = np.empty((12, a.size), np.float32)
    _arithmetic(a, b, out)
    with np.errstate(all="ignore"):
        expected = np.array(
            [
                a + b,
                a - b,
                a * b,
                a / b,
                -a,
                a * b + a,
                np.abs(a),
                np.sqrt(a),
                np.where(a < b, a, b),
                np.where(a > b, a, b),
                np.clip(a, -1, 1),
                np.where((a < b) & ~(a == b) | (a >= 2), a, 7),
            ]
        )
    np.testing.assert_allclose(out, expected, rtol=3e-7, atol=1e-6)


@njit
def _count_positive(a):
    return count(load(a, 0) > spread(0))


def test_count_counts_lanes(numbers):
    a = numbers[0][-WIDTH:]
    assert _count_positive(a) == np.sum(a > 0)


@njit
def _exp2(a, out):
    for row in range(a.size // WIDTH):
        store(out, row, exp2_negative(load(a, row)))


def test_exp2_is_exact_to_single_precision():
    a = -np.linspace(0, 125.9, 16_000).astype(np.float32)
    out = np.empty_like(a)
    _exp2(a, out)
    np.testing.assert_allclose(out, np.exp2(a.astype(float)), rtol=2.5e-7)
    far = np.full(WIDTH, -1e9, np.float32)
    _exp2(far, out[:WIDTH])
    assert (out[:WIDTH] < 1.2e-38).all()


@njit
def _transpose(source, stride, offset, target, row):
    lane_memory.transpose(source, stride, offset, target, row)


def test_transpose_turns_runs_into_lanes():
    source = np.arange(40 * WIDTH, dtype=np.float32)
    target = np.zeros(20 * WIDTH, np.float32)
    _transpose(source, 37, 5, target, 3)
    runs = np.array([source[i * 37 + 5 : i * 37 + 5 + WIDTH] for i in range(WIDTH)])
    assert np.array_equal(target.reshape(20, WIDTH)[3 : 3 + WIDTH], runs.T)
    assert not target[: 3 * WIDTH].any()


@njit
def _differences(values, reference, out):
    lane_memory.store_elements(out, 0, lane_memory.load_difference(values, 1, reference))
    out[WIDTH] = lane_memory.difference(values[0], reference)


@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "f4", "f8"])
def test_differences_are_taken_before_rounding(dtype):
    kind = np.dtype(dtype)
    large = (
        200 if kind == "u1" else 30_000 if kind.kind in "ui" else 2.0**24 if kind == "f4" else 1e15
    )
    values = (large + np.arange(WIDTH + 1) % 7).astype(kind)
    out = np.empty(WIDTH + 1, np.float32)
    _differences(values, values[3], out)
    expected = (values.astype(float) - float(values[3])).astype(np.float32)
    assert np.array_equal(out, np.append(expected[1:], expected[0]))


@njit
def _store_as(values, out):
    lane_memory.store_elements(out, 2, load(values, 0))


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8"])
def test_lanes_are_stored_as_the_arrays_type(dtype):
    values = np.arange(WIDTH, dtype=np.float32) * 3
    out = np.full(WIDTH + 4, 99, dtype)
    _store_as(values, out)
    assert np.array_equal(out[2:-2], values.astype(dtype))
    assert (out[[0, 1, -2, -1]] == 99).all()
