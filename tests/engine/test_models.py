"""Models on the backends: exact without noise, σ of the light, round spots with an angle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_spotfit import fit_spots, simulate_spots
from napari_spotfit.models.profiles import GAUSSIAN_ROTATED, MODELS


def noise_free(model, pixel, shape, parameters):
    rows, columns = np.indices(shape, float)
    return np.array([MODELS[model].evaluate((rows, columns), one, pixel) for one in parameters])


@pytest.mark.parametrize("shape", [(7, 7), (9, 12), (16, 16)])
@pytest.mark.parametrize(
    ("model", "pixel"),
    [
        ("gaussian", "integrated"),
        ("gaussian_elliptical", "sampled"),
        ("gaussian_elliptical", "integrated"),
        ("gaussian_rotated", "sampled"),
        ("lorentzian", "sampled"),
    ],
)
def test_noise_free_spots_are_recovered(backend, model, pixel, shape):
    rng = np.random.default_rng(0)
    truth = []
    for _ in range(50):
        y, x = (np.array(shape) - 1) / 2 + rng.uniform(-0.5, 0.5, 2)
        one = {"y": y, "x": x, "amplitude": 100.0, "background": 10.0}
        one |= {name: rng.uniform(0.8, 1.5) for name in MODELS[model].widths}
        if model == "gaussian_rotated":
            one["angle"] = rng.uniform(-44, 44)
        truth.append(one)
    spots = noise_free(model, pixel, shape, truth)
    fits = fit_spots(spots, model=model, pixel=pixel, backend=backend)
    assert fits.converged.all()
    for name in ("y", "x", *MODELS[model].widths):
        if name != "angle":
            expected = [one[name] for one in truth]
            np.testing.assert_allclose(fits.columns[name], expected, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("sigma", [0.8, 1.0, 1.4, 2.0])
def test_the_integrated_model_gives_the_width_of_the_light(backend, sigma):
    spots, _ = simulate_spots(
        20_000, 13, photons=20_000, background=2, sigma=sigma, pixel="integrated", seed=1
    )
    fits = fit_spots(spots, pixel="integrated", errors=False, backend=backend)
    assert np.mean(fits.sigma) == pytest.approx(sigma, abs=0.002)
    sampled = fit_spots(spots[:2000], errors=False, backend=backend)
    assert np.mean(sampled.sigma) == pytest.approx(np.sqrt(sigma**2 + 1 / 12), abs=0.02)


@pytest.mark.parametrize("ratio", [1.0, 1.0005, 1.01, 1.1, 2.5])
def test_turned_spots_however_round_they_are(backend, ratio):
    rng = np.random.default_rng(2)
    truth = []
    for angle in np.linspace(-89, 89, 60):
        y, x = 4 + rng.uniform(-0.5, 0.5, 2)
        axes = {"sigma_x": 1.2 * ratio**0.5, "sigma_y": 1.2 / ratio**0.5, "angle": angle}
        truth.append({"y": y, "x": x, "amplitude": 200.0, "background": 5.0} | axes)
    spots = noise_free("gaussian_rotated", "sampled", (9, 9), truth)
    for start in (None, np.tile([np.nan, np.nan, 1.2, 1.2, 0.0], (60, 1))):
        fits = fit_spots(spots, model="gaussian_rotated", start=start, backend=backend)
        assert fits.converged.all()
        assert (np.abs(fits.angle) <= 45.001).all()
        both = np.sort([fits.sigma_x, fits.sigma_y], axis=0)
        np.testing.assert_allclose(both[0], 1.2 / ratio**0.5, atol=1e-4)
        np.testing.assert_allclose(both[1], 1.2 * ratio**0.5, atol=1e-4)
        assert np.isfinite(fits.sigma_x_stderr).all()
        if ratio == 1:
            assert np.isnan(fits.angle_stderr).all()
        elif ratio > 1.05:
            difference = fits.angle - np.array([t["angle"] for t in truth])
            assert np.abs(np.mod(difference + 45, 90) - 45).max() < 0.05


@settings(max_examples=25, deadline=None)
@given(
    model=st.sampled_from(list(MODELS)),
    estimator=st.sampled_from(["lse", "mle"]),
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["dark", "flat", "hot", "edge", "saturated", "ramp"]),
)
def test_any_spot_ends_with_finite_numbers(model, estimator, seed, kind):
    rng = np.random.default_rng(seed)
    spots = rng.poisson(3.0, (32, 7, 7)).astype(np.float32)
    if kind == "flat":
        spots = rng.poisson(1e4, (32, 7, 7)).astype(np.float32)
    elif kind == "hot":
        spots[:, 3, 3] += 1e5
    elif kind == "edge":
        spots[:, :, 0] += 500
    elif kind == "saturated":
        spots[:, 2:5, 2:5] = 255
    elif kind == "ramp":
        spots += np.arange(7, dtype=np.float32) * 100
    fits = fit_spots(spots, model=model, estimator=estimator, backend="cpu")
    for name in ("y", "x", *MODELS[model].widths, "amplitude", "background", "photons"):
        assert np.array_equal(np.isfinite(fits.columns[name]), fits.valid), name


def test_starts_with_equal_widths_find_the_angle(backend):
    spots, truth = simulate_spots(
        500, 11, photons=5000, background=2, sigma=1.9, sigma_y=1.2, angle=30.0, seed=3
    )
    start = np.full((500, len(GAUSSIAN_ROTATED.shape)), np.nan)
    start[:, 2:4], start[:, 4] = 1.5, 0.0
    fits = fit_spots(spots, model="gaussian_rotated", start=start, gain=1.0, backend=backend)
    assert fits.converged.all()
    pull = (fits.angle - 30) / fits.angle_stderr
    assert np.std(pull) == pytest.approx(1, abs=0.12)
    assert np.median(fits.angle) == pytest.approx(30, abs=0.3)
    np.testing.assert_allclose(fits.x, truth["x"], atol=0.15)
