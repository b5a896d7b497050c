"""Spots without light do not converge, and standard errors are numbers or NaN."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import StopCondition, fit_spots, simulate_spots
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import MODELS

models = pytest.mark.parametrize("model", list(MODELS))
estimators = pytest.mark.parametrize("estimator", ESTIMATORS)


def fitted(spots, model, estimator, **options):
    weights = np.ones(spots.shape[1:]) if estimator == "wlse" else None
    return fit_spots(spots, model=model, estimator=estimator, weights=weights, gain=1.0, **options)


@models
@estimators
def test_an_amplitude_of_0_is_no_minimum(backend, model, estimator):
    """Nothing tells where such a spot is, or how wide."""
    rows, columns = np.indices((9, 9), float)
    hole = 30 * np.exp(-((rows - 4) ** 2 + (columns - 4) ** 2) / 3)
    spots = np.random.default_rng(1).poisson(50 - hole, (800, 9, 9)).astype(np.float32)
    fits = fitted(spots, model, estimator, amplitude_min=0, backend=backend, max_iterations=100)
    dark = fits.amplitude == 0
    assert dark.sum() > 15
    assert not fits.converged[dark].any()
    assert (fits.stop_condition[dark] == StopCondition.NO_DECREASE).mean() > 0.9
    for name in ("x", "y", "amplitude"):
        assert np.isnan(fits.columns[f"{name}_stderr"][dark]).all(), name
    assert (fits.photons[dark] == 0).all()


@models
@estimators
def test_standard_errors_are_never_infinite(backend, model, estimator):
    rng, spots = np.random.default_rng(2), []
    spot = simulate_spots(1, 9, photons=500, background=1, seed=1)[0][0]
    spots += [spot * factor for factor in (1e-30, 1e-6, 1, 1e6, 1e30)]
    spots += [np.eye(9), np.ones((9, 9)) + 1e-7 * np.eye(9), rng.poisson(0.02, (9, 9))]
    spots += [np.where(spot == spot.max(), 1e30, 0), np.pad([[1.0]], 4), spot - spot]
    spots += list(rng.normal(0, 1, (60, 9, 9)))
    spots = np.array(spots)
    with np.errstate(over="ignore"):
        fits = fitted(spots.astype(np.float32), model, estimator, backend=backend)
    for name, values in fits.columns.items():
        if name.endswith("_stderr"):
            assert not np.isinf(values).any(), name
            assert np.isnan(values[~fits.valid]).all(), name
