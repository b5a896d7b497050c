"""Subnormal numbers count as zero while spots are fitted, and only then."""

import platform

import numpy as np
import pytest
from numba import njit

from napari_spotfit import fit_spots, simulate_spots
from napari_spotfit.engine.cpu.subnormals import count_as, count_as_zero

TINY = np.float32(1e-40)


@njit
def begin():
    return count_as_zero()


@njit
def end(before):
    count_as(before)


def half_of_tiny():
    return np.array([TINY])[0] * np.float32(0.5)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="elsewhere they are fast")
def test_they_count_as_zero_until_the_rule_is_put_back():
    assert half_of_tiny() > 0
    before = begin()
    flushed = half_of_tiny()
    end(before)
    assert flushed == 0
    assert half_of_tiny() > 0


@pytest.mark.parametrize("size", [9, 40])
def test_a_fit_leaves_the_callers_arithmetic_as_it_was(size):
    spots, _ = simulate_spots(20, size, sigma=1.0, seed=1)
    fit_spots(spots, threads=1)
    assert half_of_tiny() > 0
