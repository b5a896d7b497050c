"""What drift without markers leaves: far jumps and motion within segments, and what it says."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from blinking import table_of
from numpy.typing import NDArray

from napari_spotfit import Drift, SpotFits, estimate_drift
from napari_spotfit.analysis.drift_search import shift_between

Floats = NDArray[np.float64]
FRAMES, ERROR, SIZE = 2000, 0.12, 128.0


def seen(seed: int, along_y: Floats, count: int = 4500, number: int = 300) -> SpotFits:
    """Return localisations of molecules on a sample that moves along y."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(5, SIZE - 5, (number, 2))[rng.integers(0, number, count)]
    frame = np.sort(rng.integers(0, FRAMES, count))
    places += rng.normal(0, ERROR, places.shape)
    return table_of(frame, places[:, 0] + along_y[frame], places[:, 1], ERROR)


def seen_in_turn(seed: int, along_y: Floats) -> SpotFits:
    """Return localisations of other molecules before and after the middle of the movie."""
    first, second = seen(seed, along_y), seen(seed + 1000, along_y)
    half = FRAMES // 2
    return SpotFits.concatenate([first[first.frame < half], second[second.frame >= half]])


def jumping(*at: tuple[int, float]) -> Floats:
    truth = np.zeros(FRAMES)
    for first, step in at:
        truth[first:] += step
    return truth


def swinging(size: float, period: float) -> Floats:
    return size * np.sin(2 * np.pi * np.arange(FRAMES) / period)


def estimated(fits: SpotFits, **more: Any) -> tuple[Drift, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = estimate_drift(fits, frames=FRAMES, **more)
    return found, [str(one.message) for one in caught]


def deviates(found: Drift, truth: Floats) -> Floats:
    """Return errors over the stated ones, where these are known."""
    known = np.isfinite(found.y_stderr)
    apart = (found.y - truth)[known]
    weights = 1 / found.y_stderr[known] ** 2
    return np.asarray((apart - np.average(apart, weights=weights)) / found.y_stderr[known])


@pytest.mark.parametrize("at", [
    [(900, 14.0)], [(900, -30.0)], [(900, 100.0)], [(700, 20.0), (1400, -45.0)],
    [(700, 20.0), (1300, -20.0)],
], ids=str)  # fmt: skip
def test_jumps_of_any_size_are_followed(at: list[tuple[int, float]]) -> None:
    truth = jumping(*at)
    found, said = estimated(seen(1, truth))
    assert any(f"jumps near frame {at[0][0] // 10}" in one for one in said)
    beside = np.min([np.abs(np.arange(FRAMES) - first) for first, _ in at], axis=0) < 10
    apart = (found.y - truth)[~beside]
    assert np.abs(apart - np.median(apart)).max() < 0.05
    assert np.sqrt(np.mean(deviates(found, truth)[~beside] ** 2)) < 2
    assert np.median(found.y_stderr) < 0.02


def test_other_molecules_after_a_time_are_no_known_drift() -> None:
    found, said = estimated(seen_in_turn(2, jumping()))
    assert any("too few molecules are seen again" in one for one in said)
    unknown = np.isnan(found.y_stderr)
    assert unknown[:950].all() or unknown[1050:].all()
    assert not found.used[unknown].any()
    assert not unknown.all()


@pytest.mark.parametrize(
    ("size", "period"),
    [(1.0, 60), (1.0, 100), (1.0, 200), (1.0, 400), (0.3, 40), (0.3, 100), (0.1, 100)],
)
def test_motion_within_segments_is_followed(size: float, period: float) -> None:
    truth, off = swinging(size, period), []
    for seed in range(3):
        found, _ = estimated(seen(10 + seed, truth))
        known = np.isfinite(found.y_stderr)
        assert known.mean() > 0.6
        assert np.std((found.y - truth)[known]) < 0.45 * size / np.sqrt(2)
        off.append(np.mean(deviates(found, truth) ** 2))
    assert 0.5 < np.sqrt(np.mean(off)) < 1.8


@pytest.mark.parametrize("method", ["aim", "rcc"])
@pytest.mark.parametrize(("size", "period"), [(1.0, 100), (0.5, 40)])
def test_motion_that_is_not_followed_is_in_the_errors(
    method: str, size: float, period: float
) -> None:
    truth = swinging(size, period)
    found, said = estimated(seen(20, truth, 20_000, 1000), method=method, segment=200)
    assert any("within segments of 200" in one for one in said)
    assert 0.75 < np.sqrt(np.mean(deviates(found, truth) ** 2)) < 1.3


@pytest.mark.parametrize("count", [3000, 20_000])
def test_what_is_right_is_silent(count: int) -> None:
    for seed in range(6):
        truth = np.linspace(0, 2, FRAMES) * (seed % 2)
        found, said = estimated(seen(30 + seed, truth, count))
        assert not said
        assert np.sqrt(np.mean(deviates(found, truth) ** 2)) < 3


def test_a_shift_is_found_only_where_molecules_are_the_same() -> None:
    rng = np.random.default_rng(1)
    places = rng.uniform(0, 1000, (2, 200)).astype(np.float32)
    one, other = (
        places[:, rng.integers(0, 200, 800)] + rng.normal(0, 1, (2, 800)).astype(np.float32)
        for _ in range(2)
    )
    moved = other + np.array([[300], [-120]], np.float32)
    shift = shift_between(one, moved)
    assert shift == pytest.approx([300, -120], abs=0.3)
    assert shift_between(one, rng.uniform(0, 1000, (2, 800)).astype(np.float32)) is None
