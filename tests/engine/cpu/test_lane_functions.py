"""Functions of lanes against NumPy and SciPy in double precision, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from interpreter import apply
from scipy import special

pytestmark = pytest.mark.usefixtures("instruction_set")

SMALL = np.logspace(-20, 0, 3000)
UNIT = np.linspace(-1, 1, 20_001)


def uniform(low, high):
    """Return the function that makes random numbers."""
    return lambda: np.random.default_rng(0).uniform(low, high, 50_000)


def errors_in_ulp(found, expected):
    """Return the distance in units of the last digit of single precision."""
    digit = np.spacing(np.maximum(np.abs(expected), 1.2e-38).astype(np.float32)).astype(float)
    return np.abs(found - expected) / digit


@pytest.mark.parametrize(
    ("name", "function", "random", "more", "ulp"),
    [
        ("exp", np.exp, uniform(-87, 88), (UNIT, SMALL, -SMALL), 1.5),
        ("log", np.log, lambda: 10 ** uniform(-37, 37)(), (1 - SMALL, 1 + SMALL), 1.5),
        ("tanh", np.tanh, uniform(-20, 20), (UNIT, SMALL, -SMALL), 3),
        ("erf", special.erf, uniform(-6, 6), (UNIT, SMALL, -SMALL), 3),
        ("sin", np.sin, tuple, (UNIT, SMALL, -SMALL), 2),
        ("cos", np.cos, tuple, (UNIT, SMALL), 2),
        ("tan", np.tan, tuple, (UNIT, SMALL, -SMALL), 4),
        ("sqrt", np.sqrt, lambda: 10 ** uniform(-37, 37)(), (), 0.5),
    ],
)
def test_functions_are_exact_to_the_last_digits(name, function, random, more, ulp):
    numbers = np.concatenate([random(), *more]).astype(np.float32)
    numbers = numbers[numbers != 0]
    expected = function(numbers.astype(float))
    assert errors_in_ulp(apply(name, numbers), expected).max() <= ulp + 1e-6


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_of_many_turns(name):
    numbers = np.random.default_rng(1).uniform(-5000, 5000, 100_000).astype(np.float32)
    expected = getattr(np, name)(numbers.astype(float))
    np.testing.assert_allclose(apply(name, numbers), expected, rtol=0, atol=1e-7)


def test_directions():
    y, x = np.random.default_rng(2).normal(size=(2, 50_000)).astype(np.float32)
    y[:6], x[:6] = (0, 1, 0, -1, 1e-30, 1), (1, 0, -1, 0, 1, 1e-30)
    expected = np.arctan2(y.astype(float), x.astype(float))
    assert errors_in_ulp(apply("atan2", y, x), expected).max() <= 2.5
    assert apply("atan2", np.zeros(3, np.float32), np.zeros(3, np.float32)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", [np.nan, np.inf, 0, 1, 1]),
        ("log", [np.nan, np.inf, np.nan, -np.inf, -np.inf]),
        ("tanh", [np.nan, 1, -1, 0, 0]),
        ("erf", [np.nan, 1, -1, 0, 0]),
        ("sqrt", [np.nan, np.inf, np.nan, 0, 0]),
        ("abs", [np.nan, np.inf, np.inf, 0, 0]),
        ("sign", [1, 1, -1, 1, 1]),
        ("nonzero", [np.nan, np.inf, -np.inf, 1e-30, 1e-30]),
    ],
)
def test_special_numbers(name, expected):
    numbers = np.array([np.nan, np.inf, -np.inf, 0, -0.0], np.float32)
    np.testing.assert_allclose(apply(name, numbers), expected, rtol=1e-6, atol=2e-38)


def test_arithmetic():
    a, b, c = np.random.default_rng(3).normal(size=(3, 1000)).astype(np.float32)
    exact = {
        "copy": a, "neg": -a, "+": a + b, "-": a - b, "*": a * b, "/": a / b, "abs": np.abs(a),
    }  # fmt: skip
    for name, expected in exact.items():
        np.testing.assert_array_equal(apply(name, a, b), expected)
    x, y, z = (values.astype(float) for values in (a, b, c))
    joined = {"a*b + c": x * y + z, "a*b - c": x * y - z, "c - a*b": z - x * y}
    for name, expected in joined.items():
        np.testing.assert_allclose(apply(name, a, b, c), expected, rtol=1e-6, atol=3e-7)
