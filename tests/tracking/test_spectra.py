"""Power spectra and Allan deviations of known noise."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import allan_deviation, power_spectrum


def test_white_noise_has_a_flat_spectrum_that_sums_to_its_variance() -> None:
    rate, sigma = 500.0, 0.3
    noise = np.random.default_rng(1).normal(0.0, sigma, 100_000)
    frequency, density = power_spectrum(noise, rate)
    assert density.sum() * (frequency[1] - frequency[0]) == pytest.approx(sigma**2, rel=0.03)
    halves = density[: len(density) // 2].mean(), density[len(density) // 2 :].mean()
    assert halves == pytest.approx((2 * sigma**2 / rate,) * 2, rel=0.05)


def test_a_vibration_is_a_line_of_its_power() -> None:
    rate, amplitude = 1000.0, 2.0
    times = np.arange(20_000) / rate
    values = amplitude * np.sin(2 * np.pi * 30.0 * times)
    values[100:110] = np.nan  # frames without a displacement
    frequency, density = power_spectrum(values, rate)
    assert frequency[density.argmax()] == pytest.approx(30.0, abs=0.3)
    power = density.sum() * (frequency[1] - frequency[0])
    assert power == pytest.approx(amplitude**2 / 2, rel=0.02)


def test_means_of_white_noise_differ_less_the_longer_they_are() -> None:
    noise = np.random.default_rng(2).normal(0.0, 0.5, 200_000)
    time, deviation = allan_deviation(noise, rate=100.0)
    expected = 0.5 / np.sqrt(time * 100.0)
    assert deviation[:9] == pytest.approx(expected[:9], rel=0.05)


def test_a_random_walk_rises_with_the_root_of_time() -> None:
    walk = np.cumsum(np.random.default_rng(3).normal(0.0, 0.1, 400_000))
    time, deviation = allan_deviation(walk, rate=1.0)
    expected = 0.1 * np.sqrt(time / 3 * (1 + 0.5 / time**2))
    assert deviation[:9] == pytest.approx(expected[:9], rel=0.05)


@pytest.mark.parametrize("values", [np.zeros(7), np.full(20, np.nan), np.zeros((9, 9))])
def test_too_short_a_record_is_refused(values: np.ndarray) -> None:
    if values.ndim == 1:
        with pytest.raises(ValueError, match="8 finite values"):
            power_spectrum(values, 1.0)
    with pytest.raises(ValueError, match="along one axis"):
        allan_deviation(values, 1.0)


def test_a_rate_is_above_nought() -> None:
    with pytest.raises(ValueError, match="rate must be a finite number above 0"):
        allan_deviation(np.zeros(9), 0.0)
