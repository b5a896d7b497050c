"""Fits beside Picasso's, to the last step; `make test-peers` runs this where Picasso is."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from napari_spotfit import fit_spots, simulate_spots

#: Ours, and Picasso's in its order.
PARAMETERS = {
    "gaussian": ("amplitude", "x", "y", "sigma", "background"),
    "gaussian_elliptical": ("amplitude", "x", "y", "sigma_x", "sigma_y", "background"),
}


@pytest.fixture(scope="module")
def picasso():
    """Fit spots with Picasso, until nothing changes any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is as it is
        pytest.importorskip("picasso")
        from picasso.fitting import gaussfit, seeds

    def fit(spots, model, mle):
        spherical = model == "gaussian"
        start = seeds.initial_parameters_gauss(spots, spots.shape[1], spherical=spherical)
        kind = gaussfit.SPHERICAL if spherical else gaussfit.ELLIPTIC
        values, _, states, _ = gaussfit.fit_spots(kind, spots, start, mle, 1e-8, 200)
        return values, states == gaussfit.FIT_STATE_CONVERGED

    return fit


@pytest.mark.parametrize("size", [7, 9, 13])
@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("model", PARAMETERS)
def test_the_best_fit_is_picassos(picasso, model, estimator, size):
    spots, _ = simulate_spots(1000, size, photons=2000, background=5, sigma=1.2, seed=size)
    spots = spots.astype(np.float32)
    theirs, found = picasso(spots, model, estimator == "mle")
    ours = fit_spots(spots, model=model, estimator=estimator, backend="cpu")
    both = found & ours.converged
    assert both.mean() > 0.97
    for name, values in zip(PARAMETERS[model], theirs.T, strict=True):
        # A search ends within a small part of the standard error.
        apart = np.abs(ours.columns[name] - values) / ours.columns[f"{name}_stderr"]
        assert np.quantile(apart[both], 0.99) < 0.02, name
        assert np.median(apart[both]) < 0.004, name
