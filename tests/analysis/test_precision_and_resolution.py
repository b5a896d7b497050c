"""Precision and resolution against what is true in simulated tables, and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from blinking import blinking, molecules_of, table_of

from napari_spotfit import SpotFits, fourier_ring_correlation, merge_blinks, nena


def blinks(error: Any = 0.1, number: int = 2000, size: float = 128.0, seed: int = 0) -> SpotFits:
    """Return molecules that are seen in several successive frames."""
    frame, molecule = blinking(number, 1000, 3.0, 150.0, seed=seed).rows()
    rng = np.random.default_rng(seed + 10)
    errors = error(rng, len(frame)) if callable(error) else np.full(len(frame), error)
    return molecules_of(rng.uniform(0, size, (number, 2)), frame, molecule, errors, seed + 20)


def without_errors(fits: SpotFits) -> SpotFits:
    columns = {k: v for k, v in fits.columns.items() if not k.endswith("_stderr")}
    return SpotFits(columns, fits.index_names)


@pytest.mark.parametrize("known", [True, False])
def test_precision_of_molecules_in_successive_frames(known: bool) -> None:
    fits = blinks()
    found = nena(fits if known else without_errors(fits))
    assert found.precision == pytest.approx(0.1, rel=0.02)
    assert found.y == pytest.approx(0.1, rel=0.03)
    assert found.x == pytest.approx(0.1, rel=0.03)
    assert found.pairs > 10_000
    assert found.share > 0.9
    if known:
        assert found.kappa == pytest.approx(1, abs=0.02)
    else:
        assert math.isnan(found.kappa)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_few_pairs_of_one_molecule(share: float) -> None:
    rng, reach = np.random.default_rng(3), 5 * math.sqrt(2) * 0.1
    count = int((1 / share - 1) / (2 * reach) ** 2 * 900)
    places = rng.uniform(0, 30, (20, count, 2))
    both = np.stack([places, places], axis=1) + rng.normal(0, 0.1, (20, 2, count, 2))
    frame = np.broadcast_to(
        np.array([[4 * k, 4 * k + 1] for k in range(20)])[..., np.newaxis], (20, 2, count)
    )
    fits = table_of(frame.ravel(), both[..., 0].ravel(), both[..., 1].ravel(), 0.1)
    found = nena(fits)
    assert found.share == pytest.approx(share, abs=0.03)
    assert found.precision == pytest.approx(0.1, rel=0.03)
    assert nena(without_errors(fits)).precision == pytest.approx(0.1, rel=0.03)


def test_kappa_shows_wrong_errors_also_of_very_different_spots() -> None:
    fits = blinks(lambda rng, count: 0.1 * np.exp(0.4 * rng.normal(size=count)))
    found = nena(fits)
    assert found.kappa == pytest.approx(1, abs=0.02)
    true = math.sqrt(float(np.mean(fits.y_stderr.astype(float) ** 2)))
    assert found.precision == pytest.approx(true, rel=0.03)
    halved = {f"{axis}_stderr": fits.columns[f"{axis}_stderr"] / 2 for axis in "yx"}
    assert nena(fits.with_columns(fits.columns | halved)).kappa == pytest.approx(2, abs=0.05)


def test_axes_differ() -> None:
    fits = blinks()
    wide = fits.with_columns(
        fits.columns | {"x": fits.x + np.random.default_rng(0).normal(0, 0.1, len(fits))}
    )
    found = nena(without_errors(wide))
    assert found.y == pytest.approx(0.1, rel=0.03)
    assert found.x == pytest.approx(0.1 * math.sqrt(2), rel=0.03)
    assert found.precision == pytest.approx(0.1 * math.sqrt(1.5), rel=0.03)


def test_the_density_is_that_of_the_distances() -> None:
    found = nena(blinks(number=20_000))
    near = found.distances[found.distances < 0.5 * found.reach]
    grid = np.linspace(0, 0.5 * found.reach, 1001)
    expected = float(np.trapezoid(found.density(grid), grid)) if hasattr(np, "trapezoid") else (
        float(np.sum(found.density(grid)) * grid[1])
    )  # fmt: skip
    assert len(near) / len(found.distances) == pytest.approx(expected, abs=0.02)


def test_movies_rows_and_doubtful_fits() -> None:
    fits = blinks()
    found = nena(fits).precision
    mixed = np.random.default_rng(0).permutation(len(fits))
    assert nena(fits[mixed]).precision == pytest.approx(found, rel=1e-3)
    far = fits.with_columns(fits.columns | {"frame": fits.frame + 2**40})
    assert nena(far).precision == pytest.approx(found, rel=1e-6)
    files = fits.with_columns(
        fits.columns | {"file": np.where(fits.frame % 2, "a", "b").astype(object)}
    )
    with pytest.raises(ValueError, match="pairs of spots"):
        nena(files)
    lost = fits.columns | {"y": np.where(np.arange(len(fits)) % 9, fits.y, np.nan)}
    unknown = lost | {"x_stderr": np.where(np.arange(len(fits)) % 7, fits.x_stderr, np.nan)}
    assert nena(fits.with_columns(unknown)).precision == pytest.approx(found, rel=0.02)


def at_random(count: int, size: float) -> Any:
    return np.random.default_rng(0).uniform(0, size, (2, count))


FEW = blinks(number=20)


@pytest.mark.parametrize(
    ("fits", "message"),
    [
        (FEW[:0], "only 0 pairs"),
        (FEW[FEW.frame == FEW.frame[0]], "only 0 pairs"),
        (FEW[:30], "pairs of spots in successive frames"),
        (table_of(np.repeat(np.arange(50), 400), *at_random(20_000, 9)), "one molecule"),
        (SpotFits({k: v for k, v in FEW.columns.items() if k != "frame"}), "no column frame"),
        (merge_blinks(FEW), "were merged"),
    ],
)  # fmt: skip
def test_precision_names_what_is_missing(fits: SpotFits, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nena(fits)


@pytest.mark.parametrize(
    ("count", "number", "size", "error"),
    [(40_000, 2000, 50, 0.1), (20_000, 5000, 100, 0.1), (200_000, 3000, 64, 0.05),
     (100_000, 50_000, 180, 0.1)],
)  # fmt: skip
def test_resolution_of_random_molecules(count: int, number: int, size: float, error: float) -> None:
    rng = np.random.default_rng(2)
    places = rng.uniform(0, size, (number, 2))
    frame = np.sort(rng.integers(0, 5000, count))
    fits = molecules_of(places, frame, rng.integers(0, number, count), error, 5)
    found = fourier_ring_correlation(fits)
    closed = 2 * math.pi * error / math.sqrt(math.log(6 * count / number / 2))
    assert found.resolution == pytest.approx(closed, rel=0.05)
    assert found.resolution_stderr < 0.05 * found.resolution
    mean = count / number / 2 * np.exp(-4 * (math.pi * error * found.frequency) ** 2)
    apart = found.correlation - mean / (1 + mean)
    assert np.abs(np.convolve(apart[5:], np.ones(9) / 9, "valid")).max() < 0.12


@pytest.mark.parametrize(("frames", "known"), [(2, False), (1000, True)])
def test_two_frames_have_one_pair_of_halves(frames: int, known: bool) -> None:
    rng = np.random.default_rng(2)
    frame = np.sort(rng.integers(0, frames, 20_000))
    places = rng.uniform(0, 40, (1000, 2))
    fits = molecules_of(places, frame, rng.integers(0, 1000, 20_000), 0.1)
    found = fourier_ring_correlation(fits)
    assert found.resolution > 0
    assert np.isfinite(found.resolution_stderr) == known


def test_resolution_does_not_depend_on_rows_or_place() -> None:
    rng = np.random.default_rng(2)
    frame = np.sort(rng.integers(0, 1000, 20_000))
    places = rng.uniform(0, 40, (1000, 2))
    fits = molecules_of(places, frame, rng.integers(0, 1000, 20_000), 0.1)
    found = fourier_ring_correlation(fits).resolution
    assert fourier_ring_correlation(fits[rng.permutation(20_000)]).resolution == found
    moved = fits.columns | {"y": fits.y - 1e4, "frame": fits.frame + 2**40}
    other = fourier_ring_correlation(fits.with_columns(moved)).resolution
    assert other == pytest.approx(found, rel=0.02)
    lost = {"y": np.append(fits.y[:-1], np.nan)}
    assert fourier_ring_correlation(
        fits.with_columns(fits.columns | lost)
    ).resolution == pytest.approx(found, rel=0.02)


@pytest.mark.parametrize(
    ("fits", "message"),
    [
        (FEW[:0], "at least 100 are needed"),
        (FEW[:30], "at least 100 are needed"),
        (table_of(np.zeros(500), *at_random(500, 9)), "of frame 0"),
        (table_of(np.arange(500), *np.full((2, 500), 3.0)), "in one place"),
        (table_of(np.arange(500), *at_random(500, 90)), "not agree"),
        (SpotFits({k: v for k, v in FEW.columns.items() if k != "frame"}), "no column frame"),
        (blinks().with_columns(
            blinks().columns | {"file": np.array(["a", "b"])[blinks().frame % 2].astype(object)}
         ), "2 files"),
    ],
)  # fmt: skip
def test_resolution_names_what_is_missing(fits: SpotFits, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fourier_ring_correlation(fits)


def test_one_fit_far_away_does_not_hide_the_resolution() -> None:
    fits = blinks()
    whole = fourier_ring_correlation(fits)
    far = fits.x.copy()
    far[7] = 1e9
    with pytest.warns(UserWarning, match="1 of .* fits are far outside"):
        found = fourier_ring_correlation(fits.with_columns(fits.columns | {"x": far}))
    assert found.resolution == pytest.approx(whole.resolution, rel=0.01)
