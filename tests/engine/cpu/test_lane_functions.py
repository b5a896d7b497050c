"""Functions of lanes against SciPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy import special

from napari_spotfit.engine.cpu import lane_functions
from napari_spotfit.engine.cpu.lane_functions import (
    arctan2,
    error_function,
    exp2_negative,
    log_ratio,
)
from napari_spotfit.engine.cpu.lanes import WIDTH, load, spread, store

SMALL = np.logspace(-20, 0, 1600)


def values_of(function, *arguments):
    """Apply a function of lanes to arrays."""
    first = np.asarray(arguments[0], np.float32)
    second = np.asarray(arguments[-1], np.float32)
    two = len(arguments) == 2

    @njit
    def apply(a, b, out):
        for row in range(a.size // WIDTH):
            if two:
                store(out, row, function(load(a, row), load(b, row)))

    @njit
    def apply_one(a, out):
        for row in range(a.size // WIDTH):
            store(out, row, function(load(a, row)))

    out = np.empty_like(first)
    if two:
        apply(first, second, out)
    else:
        apply_one(first, out)
    return out


@pytest.mark.parametrize(
    ("name", "numbers", "tolerances"),
    [
        ("exp", np.linspace(-86, 86, 16_000), (3e-7, 0)),
        ("log", np.r_[np.logspace(-30, 30, 16_000), 1 - SMALL[:1584], 1 + SMALL], (3e-7, 1e-30)),
        ("sin", np.r_[np.linspace(-50, 50, 16_000), SMALL, -SMALL], (0, 1.5e-7)),
        ("cos", np.linspace(-50, 50, 16_000), (0, 1.5e-7)),
        ("tan", np.linspace(-1.4, 1.4, 16_000), (1e-6, 0)),
        ("tanh", np.r_[np.linspace(-20, 20, 16_000), SMALL, -SMALL], (3e-7, 0)),
        ("sqrt", np.linspace(0, 100, 16_000), (1e-7, 0)),
    ],
)
def test_functions_are_exact_to_single_precision(name, numbers, tolerances):
    numbers = np.asarray(numbers, np.float32)
    found = values_of(getattr(lane_functions, name), numbers)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(numbers.astype(float))
    relative, absolute = tolerances
    np.testing.assert_allclose(found, expected, rtol=relative, atol=absolute)


@pytest.mark.parametrize("name", ["exp", "log", "tanh"])
def test_functions_of_special_numbers(name):
    numbers = np.array([np.nan, np.inf, -np.inf, 0] * 4, np.float32)
    found = values_of(getattr(lane_functions, name), numbers)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(numbers.astype(float))
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-37)


@njit
def _error_function(a, out):
    for row in range(a.size // WIDTH):
        z = load(a, row)
        store(out, row, error_function(z, exp2_negative(z * z * spread(-1 / np.log(2)))))


def test_the_error_function_is_exact_to_2e_7():
    z = np.linspace(-6, 6, 160_000).astype(np.float32)
    out = np.empty_like(z)
    _error_function(z, out)
    np.testing.assert_allclose(out, special.erf(z.astype(float)), rtol=0, atol=2e-7)


def test_logarithms_of_ratios_are_exact_near_one():
    excess = np.r_[SMALL, -SMALL[:-160], np.linspace(-0.9, 100, 1600)].astype(np.float32)
    ratio = (1 + excess.astype(float)).astype(np.float32)
    found = values_of(log_ratio, ratio, excess)
    np.testing.assert_allclose(found, np.log1p(excess.astype(float)), rtol=3e-7)
    nothing = values_of(log_ratio, np.zeros(WIDTH), np.full(WIDTH, -1.0))
    assert np.isfinite(nothing).all()


def test_angles():
    y, x = np.random.default_rng(0).normal(size=(2, 16_000)).astype(np.float32)
    y[:4], x[:4] = (0, 1, 0, -1), (1, 0, -1, 0)
    np.testing.assert_allclose(values_of(arctan2, y, x), np.arctan2(y, x), atol=5e-7)
    assert not values_of(arctan2, np.zeros(WIDTH), np.zeros(WIDTH)).any()
