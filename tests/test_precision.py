"""Closed formulas of the localisation precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from napari_spotfit import fit_spots, localization_precision, simulate_spots


def exact_likelihood(photons, sigma, background):
    """Mortensen et al. 2010, eq. 5, whose integral Rieger and Stallinga approximate."""
    tau = 2 * np.pi * sigma**2 * background / photons
    integral, _ = quad(lambda t: np.log(t) / (1 + t / tau), 0, 1)
    return np.sqrt(sigma**2 / photons / (1 + integral))


@given(st.floats(100, 1e5), st.floats(0.8, 3), st.floats(0.01, 50))
def test_maximum_likelihood_is_near_the_exact_integral(photons, sigma, background):
    ours = localization_precision(photons, sigma, background, estimator="mle")
    assert ours == pytest.approx(exact_likelihood(photons, sigma, background), rel=0.03)


def test_without_background_light_alone_counts():
    assert localization_precision(400, 1.5, estimator="mle") == pytest.approx(1.5 / 20)
    assert localization_precision(400, 1.5) == pytest.approx(1.5 / 20 * 4 / 3)
    assert localization_precision(200, 1.5, 3) == pytest.approx(
        localization_precision(400, 1.5, 6, emccd=True)
    )


@pytest.mark.parametrize(
    ("estimator", "background", "tolerance"),
    [("lse", 2, 0.06), ("lse", 10, 0.06), ("mle", 2, 0.06), ("mle", 10, 0.06)],
)
def test_fits_scatter_as_the_formulas_say(backend, estimator, background, tolerance):
    """σ and background are fitted too, which costs nothing at the centre."""
    spots, truth = simulate_spots(
        4000, 13, photons=1500, background=background, sigma=1.4, pixel="integrated", seed=2
    )
    fits = fit_spots(
        spots, gain=1.0, estimator=estimator, pixel="integrated", errors=False, backend=backend
    )
    scatter = np.std(fits.x[fits.converged] - truth["x"].to_numpy()[fits.converged])
    expected = localization_precision(
        1500, 1.4, background, estimator=estimator, pixel="integrated"
    )
    assert scatter == pytest.approx(expected, rel=tolerance)


def test_arrays_and_gaps():
    errors = localization_precision([100, np.nan, 400], 1.3, [[0], [5]])
    assert errors.shape == (2, 3)
    assert list(np.isnan(errors[0])) == [False, True, False]
    assert np.all(errors[1, ::2] > errors[0, ::2])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"photons": [100, 0], "sigma": 1}, "photons must be above 0; got 0"),
        ({"photons": 1, "sigma": -1}, "sigma must be above 0; got -1"),
        ({"photons": 1, "sigma": 1, "background": -2}, "background must be 0 or more; got -2"),
        ({"photons": 1, "sigma": 1, "estimator": "wlse"}, "'lse' or 'mle'; got 'wlse'"),
        ({"photons": 1, "sigma": 1, "pixel": "half"}, "'sampled' or 'integrated'; got 'half'"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        localization_precision(**arguments)
