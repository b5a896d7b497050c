"""Sums over a large ROI's pixels, on every instruction set, against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from large_requests import (
    AMPLITUDE,
    BACKGROUND,
    ELECTRONS,
    FLAT,
    LEVEL,
    MAP_UNIT,
    PEAK,
    SCALE,
    WEIGHT,
    assert_alike,
    on_cpu,
    prepared,
)

from napari_spotfit import Settings
from napari_spotfit.engine.cpu.fit_kind import LargeFit
from napari_spotfit.engine.cpu.layouts import LargeTask
from napari_spotfit.engine.kernel_arguments import PIXEL_TYPES

pytestmark = pytest.mark.usefixtures("instruction_set")

#: Settings, and a shape in the order of the kernels.
KINDS = {
    "round": (Settings(), (50.3, 40.2, 12.0)),
    "narrow integrated": (Settings(pixel="integrated"), (50.3, 40.2, 0.9)),
    "integrated": (Settings(pixel="integrated"), (50.3, 40.2, 5.0)),
    "wide integrated": (Settings(pixel="integrated"), (50.3, 40.2, 12.0)),
    "elliptical": (Settings(model="gaussian_elliptical"), (50.3, 40.2, 12.0, 3.0)),
    "rotated": (Settings(model="gaussian_rotated"), (50.3, 40.2, 12.0, 7.0, 0.4)),
    "lorentzian": (Settings(model="lorentzian"), (50.3, 40.2, 3.0)),
}
SHAPE = (90, 101)


def directions(settings, shape):
    """Return f_1, …, f_K, f, 1 at all pixels, with derivatives by finite differences."""
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


def numbers(d, weight, push, total):
    """Return the matrix, vector and total that the library computes."""
    matrix = (d * weight.ravel()) @ d.T
    return np.concatenate([matrix[np.triu_indices(len(d))], d @ push.ravel(), [total]])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_least_squares(kind, weighted):
    settings, shape = KINDS[kind]
    rng = np.random.default_rng(0)
    counts, weight, plane = rng.normal(LEVEL, 9, SHAPE), np.ones(SHAPE), None
    if weighted:
        settings = settings.changed(estimator="wlse")
        plane = rng.uniform(0.1, 2, SHAPE).astype(np.float32)
        plane[::5, ::3], counts[::5, ::3] = 0, np.nan
        weight = WEIGHT * plane
    d = directions(settings, np.array(shape))
    pixels = np.nan_to_num((counts - LEVEL) * SCALE)
    residual = pixels - AMPLITUDE * d[-2].reshape(SHAPE) - BACKGROUND
    fit = prepared(settings, LargeTask.RESIDUALS, shape, SHAPE, planes=weighted)
    expected = numbers(d, weight, weight * residual, (weight * residual**2).sum())
    assert_alike(on_cpu(fit, counts, plane), expected, len(shape), 3e-6)


@pytest.mark.parametrize("mapped", [False, True])
def test_noise(mapped):
    settings, shape = KINDS["rotated"]
    settings = settings.changed(estimator="wlse", gain=1.0)
    rng = np.random.default_rng(2)
    counts = rng.normal(LEVEL, 9, SHAPE)
    plane = rng.uniform(0.1, 2, SHAPE).astype(np.float32)
    plane[::5, ::3] = 0
    variances = rng.uniform(0, 30, SHAPE).astype(np.float32) if mapped else None
    d = directions(settings, np.array(shape))
    more = 0.0 if variances is None else MAP_UNIT * variances
    variance = PEAK * d[-2].reshape(SHAPE) + FLAT + more
    fit = prepared(settings, LargeTask.NOISE, shape, SHAPE, planes=True)
    expected = numbers(d, (WEIGHT * plane) ** 2 * variance, np.zeros(SHAPE), 0.0)
    assert_alike(on_cpu(fit, counts, plane, variances), expected, len(shape), 3e-6)


@pytest.mark.parametrize("task", [LargeTask.DEVIANCE, LargeTask.FISHER])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", ["round", "rotated"])
def test_maximum_likelihood(kind, known, task):
    settings, shape = KINDS[kind]
    settings = settings.changed(estimator="mle", gain=1.0)
    rng = np.random.default_rng(1)
    counts, variance, plane = rng.poisson(40, SHAPE).astype(float), np.zeros(SHAPE), None
    counts[0, :9] = -1
    if known:
        variance = rng.uniform(0, 4, SHAPE).astype(np.float32)
        variance[::5, ::3], counts[::5, ::3] = np.nan, np.nan
        plane = variance
    d = directions(settings, np.array(shape))
    good = ~np.isnan(variance)
    h = ELECTRONS[0] * d[-2].reshape(SHAPE) + ELECTRONS[1] + variance
    e = np.maximum(counts + variance, 0)
    q = e / h - 1
    weight = 1 / h if task == LargeTask.FISHER else (1 + q / 2) / h
    logarithm = np.log(np.where(e > 0, e / h, 1))
    deviance = 2 * np.nansum(h - e + e * logarithm)
    fit = prepared(settings, task, shape, SHAPE, planes=known)
    expected = numbers(d, np.where(good, weight, 0), np.where(good, q, 0), deviance)
    assert_alike(on_cpu(fit, counts, plane), expected, len(shape), 3e-6)


@pytest.mark.parametrize("pixel", PIXEL_TYPES)
def test_pixels_of_any_type(pixel):
    settings, shape = KINDS["rotated"]
    counts = np.random.default_rng(3).poisson(LEVEL, SHAPE).astype(pixel)
    d = directions(settings, np.array(shape))
    residual = (counts - LEVEL) * SCALE - AMPLITUDE * d[-2].reshape(SHAPE) - BACKGROUND
    fit = prepared(settings, LargeTask.RESIDUALS, shape, SHAPE)
    expected = numbers(d, np.ones(SHAPE), residual, (residual**2).sum())
    assert_alike(on_cpu(fit, counts), expected, len(shape), 3e-6)


@pytest.mark.parametrize("known", [False, True])
def test_cells(known):
    rng = np.random.default_rng(4)
    counts, plane = rng.integers(-99, 99, SHAPE).astype(np.int16), None
    weight = np.ones(SHAPE)
    if known:
        plane = rng.uniform(0.1, 2, SHAPE).astype(np.float32)
        plane[::5, ::3] = 0
        plane[40:60, 40:60] = 0
        weight = plane
    fit = LargeFit(Settings(estimator="wlse"), SHAPE, planes=known)
    fit.begin(None, 7.0)
    request = fit.request
    found = on_cpu(fit, counts, plane).reshape(request.cell_rows, request.cell_columns, 5)
    for row, column in np.ndindex(found.shape[:2]):
        part = tuple(slice(i * request.cell, (i + 1) * request.cell) for i in (row, column))
        good = counts[part][weight[part] > 0] - 7.0
        expected = [len(good), np.inf, -np.inf, 0, weight[part].sum()]
        if len(good):
            expected[1:4] = good.min(), good.max(), good.mean()
        np.testing.assert_allclose(found[row, column], expected, rtol=1e-6)
