"""What the benchmark compares with must be right: the paper's design, a thread per pixel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import emulated
import numpy as np
import pytest
import reference

from napari_spotfit import StopCondition, simulate_spots
from napari_spotfit.models.stopping import MAX_ITERATIONS
from napari_spotfit.simulate import profile

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def paper_kernel():
    spec = importlib.util.spec_from_file_location("paper_kernel", BENCHMARKS / "paper_kernel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fit(paper_kernel):
    def fit(spots, start, iterations=MAX_ITERATIONS):
        count, rows, columns = spots.shape
        results = np.full((len(paper_kernel.COLUMNS), count), -1, np.float32)
        used, stop = np.zeros(count, np.uint16), np.full(count, 255, np.uint8)
        emulated.launch(
            paper_kernel.FILE.name, f"fit_{spots.dtype}",
            (count,), (paper_kernel.block_of(rows, columns),),
            (spots, start.astype(np.float32), np.int32(count), *paper_kernel.limits(iterations),
             results, used, stop),
            folder=BENCHMARKS, ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
        named = dict(zip(paper_kernel.COLUMNS, results, strict=True))
        return named | {"iterations": used, "stop": stop}

    return fit


def starts(spots):
    """Start values y, x, σ by Fit2DGaussian's rule."""
    return np.array([reference.start_values(spot)[:3] for spot in spots])


def noise_free(truth, rows, columns, amplitude, background):
    width = truth["sigma"].to_numpy()
    v, u = (profile(truth[name].to_numpy(), size, width) for name, size in
            (("y", rows), ("x", columns)))  # fmt: skip
    scale = 2 * np.pi * width[:, None, None] ** 2 * amplitude
    return (scale * v[:, :, None] * u[:, None, :] + background).astype(np.float32)


@pytest.mark.parametrize("shape", [(4, 4), (7, 7), (9, 9), (8, 11), (32, 32)])
def test_noise_free_spots_are_recovered(fit, shape):
    count = 3 if shape == (32, 32) else 20
    _, truth = simulate_spots(count, shape, sigma=(0.9, 1.3), jitter=0.4, seed=2)
    spots = noise_free(truth, *shape, 100.0, 20.0)
    fits = fit(spots, starts(spots))
    for name in ("y", "x", "sigma"):
        np.testing.assert_allclose(fits[name], truth[name], atol=2e-3)
    np.testing.assert_allclose(fits["amplitude"], 100, rtol=5e-3)
    np.testing.assert_allclose(fits["background"], 20, atol=0.3)
    assert fits["chi_square"].max() < 1e-3 * 100**2
    assert (fits["iterations"] > 0).all()


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_noisy_spots_reach_the_least_squares_minimum(fit, dtype):
    spots, _ = simulate_spots(60, 7, photons=400, background=40 / 49, sigma=(1, 2), seed=3)
    spots = spots.astype(dtype)
    begin = starts(spots)
    fits = fit(spots, begin)
    assert np.isin(fits["stop"], [StopCondition.MIN_DELTA, StopCondition.MIN_STEP,
                                  StopCondition.NO_DECREASE]).mean() > 0.9  # fmt: skip
    best = [reference.fit(spot) for spot in spots]
    within = 0
    for i, result in enumerate(best):
        lowest = 2 * result.cost
        assert fits["chi_square"][i] >= lowest * (1 - 1e-4)
        if fits["chi_square"][i] <= lowest * (1 + 1e-4):
            ours = [fits[name][i] for name in ("y", "x", "sigma")]
            np.testing.assert_allclose(ours, result.x[:3], atol=0.02)
            within += 1
    assert within >= 57
    # With a wrong Jacobian it gets there, too, but in many more iterations.
    assert fits["iterations"].mean() < 6


def test_iterations_are_limited(fit):
    spots, _ = simulate_spots(5, 9, seed=4)
    fits = fit(spots, starts(spots), iterations=1)
    np.testing.assert_array_equal(fits["stop"], StopCondition.MAX_ITERATIONS)
    np.testing.assert_array_equal(fits["iterations"], 1)


def test_bad_pixels_are_invalid(fit):
    spots, _ = simulate_spots(2, 7, seed=5)
    spots[0, 3, 3] = np.nan
    fits = fit(spots, np.full((2, 3), 3.0))
    assert fits["stop"][0] == StopCondition.INVALID
    assert fits["stop"][1] != StopCondition.INVALID
