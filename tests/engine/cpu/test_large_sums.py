"""Sums over a large ROI's pixels, against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from large_images import EVERY_FUNCTION, cpu_image

from napari_spotfit import Settings

#: Settings, and a shape in the order of the kernels.
KINDS = {
    "round": (Settings(), (50.3, 40.2, 12.0)),
    "narrow integrated": (Settings(pixel="integrated"), (50.3, 40.2, 0.9)),
    "integrated": (Settings(pixel="integrated"), (50.3, 40.2, 5.0)),
    "wide integrated": (Settings(pixel="integrated"), (50.3, 40.2, 12.0)),
    "elliptical": (Settings(model="gaussian_elliptical"), (50.3, 40.2, 12.0, 3.0)),
    "rotated": (Settings(model="gaussian_rotated"), (50.3, 40.2, 12.0, 7.0, 0.4)),
    "lorentzian": (Settings(model="lorentzian"), (50.3, 40.2, 3.0)),
    "every function": (Settings(model=EVERY_FUNCTION), (50.3, 40.2, 8.0, 1.6)),
}
SHAPE = (90, 101)
AMPLITUDE, BACKGROUND = 0.7, 0.2


def image(settings, data, plane=None):
    made = cpu_image(settings, data, plane)
    made.set_unit(0.0, 1.0)
    return made


def directions(settings, shape):
    """Return f_1, …, f_K, f, 1 at all pixels, the derivatives by differences."""
    y, x = np.indices(SHAPE, float)
    profile = settings.profile

    def f(values):
        known = dict(zip(("x", "y", *profile.widths), values, strict=True))
        if "angle" in known:
            known["angle"] = np.degrees(known["angle"])
        return (profile.integrated if settings.pixel == "integrated" else profile.sampled)(
            y, x, known
        )

    steps = 1e-5 * np.eye(len(shape))
    slopes = [(f(shape + step) - f(shape - step)) / 2e-5 for step in steps]
    return np.array([*slopes, f(shape), np.ones(SHAPE)]).reshape(len(shape) + 2, -1)


def assert_alike(sums, d, weight, push, total):
    matrix = (d * weight.ravel()) @ d.T
    size = np.sqrt(np.diag(matrix))
    np.testing.assert_allclose(sums.matrix, matrix, atol=2e-6 * np.outer(size, size).max())
    np.testing.assert_allclose(
        sums.matrix / np.outer(size, size), matrix / np.outer(size, size), atol=2e-6
    )
    np.testing.assert_allclose(sums.vector / size, d @ push.ravel() / size, atol=2e-6 * total**0.5)
    assert sums.total == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_least_squares(kind, weighted):
    settings, shape = KINDS[kind]
    rng = np.random.default_rng(0)
    data, weight, plane = rng.normal(size=(1, *SHAPE)), np.ones(SHAPE), None
    if weighted:
        settings = settings.changed(estimator="wlse")
        weight = rng.uniform(0.1, 2, SHAPE).astype(np.float32)
        weight[::5, ::3], data[0, ::5, ::3] = 0, np.nan
        plane = weight[None]
    d = directions(settings, np.array(shape))
    residual = data[0] - AMPLITUDE * d[-2].reshape(SHAPE) - BACKGROUND
    push = np.where(weight > 0, weight * residual, 0)
    made = image(settings, data, plane)
    sums = made.least_squares(np.array(shape), AMPLITUDE, BACKGROUND)
    assert_alike(sums, d, weight, push, np.nansum(push * residual))
    model = np.maximum(AMPLITUDE * d[-2] + BACKGROUND, 0)
    noise = made.noise(np.array(shape), AMPLITUDE, BACKGROUND, 0.3)
    expected = (d * weight.ravel() ** 2 * 0.3 * model) @ d.T
    np.testing.assert_allclose(noise, expected, atol=3e-6 * abs(expected).max())


@pytest.mark.parametrize("weighted", [False, True])
def test_likelihood(weighted):
    settings, shape = KINDS["rotated"]
    settings = settings.changed(estimator="mle")
    rng = np.random.default_rng(1)
    data, variance, plane = rng.poisson(9, (1, *SHAPE)).astype(float), np.zeros(SHAPE), None
    data[0, 0, :9] = -1
    if weighted:
        variance = rng.uniform(0, 4, SHAPE).astype(np.float32)
        variance[::5, ::3], data[0, ::5, ::3] = np.nan, np.nan
        plane = variance[None]
    d = directions(settings, np.array(shape))
    good = ~np.isnan(variance)
    h = 6 * d[-2].reshape(SHAPE) + 5 + variance
    e = np.maximum(data[0] + variance, 0)
    weight, push = np.where(good, 1 / h, 0), np.where(good, e / h - 1, 0)
    logarithm = np.log(np.where(e > 0, e / h, 1))
    deviance = 2 * np.nansum(h - e + e * logarithm)
    sums = image(settings, data, plane).likelihood(np.array(shape), 6.0, 5.0)
    assert_alike(sums, d, weight, push, deviance)
