"""The models' formulas, and simulations of them."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import simulate_spots
from napari_spotfit.models.profiles import MODELS

SHAPE = {
    "y": 4.2, "x": 3.7, "sigma": 1.1, "sigma_x": 1.6, "sigma_y": 0.9, "angle": 25.0, "width": 1.3,
    "exponent": 2.2, "amplitude": 50.0, "background": 7.0,
}  # fmt: skip
ROWS, COLUMNS = np.indices((9, 8), float)


@pytest.mark.parametrize("model", MODELS.values(), ids=str)
def test_the_peak_is_the_amplitude(model):
    assert model.evaluate((4.2, 3.7), SHAPE) == pytest.approx(57)
    assert np.all(model.evaluate((ROWS, COLUMNS), SHAPE) < 57)
    assert model.parameter_count == len(model.widths) + 4


@pytest.mark.parametrize("model", MODELS.values(), ids=str)
def test_integrated_is_the_mean_over_each_pixel(model):
    if model.integrated is None:
        with pytest.raises(ValueError, match=f"the model {model.name} has no formula"):
            model.evaluate((ROWS, COLUMNS), SHAPE, "integrated")
        return
    # Gauss–Legendre, five points along each axis.
    places, weights = np.polynomial.legendre.leggauss(5)
    mean = sum(
        v * u / 4 * model.evaluate((ROWS + dy / 2, COLUMNS + dx / 2), SHAPE)
        for dy, v in zip(places, weights, strict=True)
        for dx, u in zip(places, weights, strict=True)
    )
    np.testing.assert_allclose(
        model.evaluate((ROWS, COLUMNS), SHAPE, "integrated"), mean, atol=1e-5
    )


def test_a_turned_gaussian_not_turned_is_elliptical():
    elliptical, rotated = MODELS["gaussian_elliptical"], MODELS["gaussian_rotated"]
    straight = SHAPE | {"angle": 0.0}
    expected = elliptical.evaluate((ROWS, COLUMNS), straight)
    np.testing.assert_allclose(rotated.evaluate((ROWS, COLUMNS), straight), expected)
    # By a right angle the widths change places; by two nothing changes.
    swapped = straight | {"sigma_x": 0.9, "sigma_y": 1.6, "angle": 90.0}
    np.testing.assert_allclose(rotated.evaluate((ROWS, COLUMNS), swapped), expected)
    half = SHAPE | {"angle": 205.0}
    np.testing.assert_allclose(
        rotated.evaluate((ROWS, COLUMNS), half), rotated.evaluate((ROWS, COLUMNS), SHAPE)
    )


def test_the_angle_goes_from_x_towards_y():
    long = SHAPE | {"y": 4.0, "x": 4.0, "angle": 45.0}
    rotated = MODELS["gaussian_rotated"]
    assert rotated.evaluate((6.0, 6.0), long) > rotated.evaluate((2.0, 6.0), long)


@pytest.mark.parametrize(
    ("model", "pixel", "options"),
    [
        ("gaussian", "sampled", {}),
        ("gaussian", "integrated", {}),
        ("gaussian_elliptical", "integrated", {"sigma_y": 0.9}),
        ("gaussian_rotated", "sampled", {"sigma_y": 0.9, "angle": (-30.0, 30.0)}),
    ],
)
def test_simulated_spots_have_the_models_shape(model, pixel, options):
    spots, truth = simulate_spots(
        3, 11, photons=1e8, background=100.0, sigma=1.4, pixel=pixel, seed=1, **options
    )
    rows, columns = np.indices((11, 11), float)
    for spot, (_, row) in zip(spots, truth.iterrows(), strict=True):
        area = 2 * np.pi * 1.4 * (0.9 if "sigma_y" in options else 1.4)
        shape = dict(row) | {"amplitude": 1e8 / area}
        expected = MODELS[model].evaluate((rows, columns), shape, pixel)
        np.testing.assert_allclose(spot, expected, rtol=5e-3, atol=6 * np.sqrt(expected.max()))


def test_a_simulated_camera_has_its_offset_gain_and_noise():
    maps = np.random.default_rng(0).uniform(0.5, 2, (3, 5, 6))
    offset, gain, variance = 100 * maps[0], maps[1], 30 * maps[2]
    spots, _ = simulate_spots(
        20_000, (5, 6), photons=1e-9, background=20, offset=offset, gain=gain, variance=variance,
        seed=1,
    )  # fmt: skip
    np.testing.assert_allclose(spots.mean(0), offset + 20 * gain, atol=0.3)
    np.testing.assert_allclose(spots.var(0), 20 * gain**2 + variance, rtol=0.05)


def test_turned_spots_must_be_sampled_and_elliptical():
    for options in ({}, {"sigma_y": 1.0, "pixel": "integrated"}):
        with pytest.raises(ValueError, match="rotated spots need sigma_y"):
            simulate_spots(1, angle=10.0, **options)


def test_every_model_says_its_formula():
    for profile in MODELS.values():
        names = {parameter.name for parameter in profile.shape} - {"y", "x"}
        said = {"sigma": "σ²", "sigma_x": "σx²", "sigma_y": "σy²", "angle": "α", "width": "w²"}
        for name in names:
            assert said.get(name, name) in profile.formula, (profile.name, name)
