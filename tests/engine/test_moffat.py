"""The Moffat profile: its truth, its light, and its fits against double precision."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import Kind

from napari_spotfit import Profile, fit_spots
from napari_spotfit.engine.verdicts import mean_sigma
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import MOFFAT

every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def spots_of(exponent, side=15, fwhm=3.0, count=300, amplitude=2000.0, background=10.0, seed=0):
    """Return noisy spots of one exponent and width, and their centres."""
    rng, (rows, columns) = np.random.default_rng(seed), np.indices((side, side), float)
    width = fwhm / 2 / np.sqrt(2 ** (1 / exponent) - 1)
    centres = (side - 1) / 2 + rng.uniform(-0.5, 0.5, (count, 2))
    values = {"width": width, "exponent": exponent, "amplitude": amplitude}
    values["background"] = background
    clean = [MOFFAT.evaluate((rows, columns), {"y": y, "x": x} | values) for y, x in centres]
    return rng.poisson(clean).astype(np.float32), centres, width


def fitted(spots, estimator, backend, **options):
    weights = np.ones(spots.shape[1:]) if estimator == "wlse" else None
    return fit_spots(
        spots, model="moffat", estimator=estimator, weights=weights, gain=1.0, backend=backend,
        **options,
    )  # fmt: skip


@every_estimator
@pytest.mark.parametrize("exponent", [1.5, 2.5, 4.765])
def test_the_truth_is_recovered_within_its_errors(backend, exponent, estimator):
    spots, centres, width = spots_of(exponent, count=2000)
    fits = fitted(spots, estimator, backend)
    assert fits.converged.mean() > 0.995
    light = np.pi * width**2 / (exponent - 1) * 2000.0
    for name, truth in (
        ("y", centres[:, 0]), ("x", centres[:, 1]), ("width", width), ("exponent", exponent),
        ("background", 10.0), ("photons", light),
    ):  # fmt: skip
        pull = (fits.columns[name] - truth) / fits.columns[f"{name}_stderr"]
        assert np.nanstd(pull) == pytest.approx(1, abs=0.06), name
        assert abs(np.nanmedian(pull)) < 0.2, name
    np.testing.assert_allclose(
        np.median(fits.mean_sigma), 3 / 2 / np.sqrt(2 * np.log(2)), rtol=0.01
    )


@every_estimator
def test_fits_agree_with_double_precision(backend, estimator):
    spots, _, _ = spots_of(2.5, side=11, count=40)
    fits = fitted(spots, estimator, backend, max_iterations=50)
    kind = Kind(MOFFAT, estimator="mle" if estimator == "mle" else "lse")
    names = reference.names(kind)
    assert fits.converged.all()
    for i, spot in enumerate(spots):
        ours = np.array([fits.columns[name][i] for name in names], float)
        best = reference.best(kind, spot, ours)
        errors, _ = reference.standard_error(kind, best.values, spot, 1.0)
        np.testing.assert_array_less(np.abs(ours - best.values), 0.03 * errors + 1e-6)
        np.testing.assert_allclose(fits.chi_square[i], best.chi_square, rtol=1e-3)
        own = [fits.columns[f"{name}_stderr"][i] for name in names]
        np.testing.assert_allclose(own, errors, rtol=0.05)


@every_estimator
def test_a_known_exponent_is_held(backend, estimator):
    spots, _, width = spots_of(3.0, side=9)
    fits = fitted(spots, estimator, backend, fixed={"exponent": 3.0})
    assert fits.converged.all()
    assert (fits.exponent == 3).all()
    assert (fits.exponent_stderr == 0).all()
    assert np.median(fits.width) == pytest.approx(width, rel=0.01)


def test_a_light_without_end_is_no_number(backend):
    """With an exponent of 1 or less the wings hold more than anything."""
    spots, _, _ = spots_of(1.5, count=20)
    fits = fitted(spots, "lse", backend, fixed={"exponent": 1.0})
    assert fits.converged.all()
    assert np.isnan(fits.photons).all()
    assert np.isnan(fits.photons_stderr).all()
    assert np.isfinite(fits.mean_sigma).all()


def test_the_built_in_exponent_has_bounds(backend):
    rows, columns = np.indices((11, 11), float)
    clean = 1000 * np.exp(-((rows - 5) ** 2 + (columns - 5) ** 2) / 2 / 1.2**2) + 10
    spots = np.random.default_rng(1).poisson(clean, (200, 11, 11))
    fits = fitted(spots.astype(np.float32), "lse", backend, max_iterations=100)
    assert fits.valid.all()
    assert fits.exponent.max() <= 100
    assert fits.width.max() <= 11
    with pytest.raises(ValueError, match="the upper bound of exponent = 1 must be above the least"):
        fitted(spots[:1], "lse", backend, bounds={"exponent": (None, 1.0)})


def test_others_models_cannot_take_its_columns():
    with pytest.raises(ValueError, match="'exponent' is a reserved name"):
        Profile.from_expression(
            "exp(-(((x-x0)**2 + (y-y0)**2) / width**2)**exponent)",
            start={"width": "2*sigma", "exponent": 1},
        )
    nothing = mean_sigma({"width": np.float64(2.0)})
    assert np.isnan(nothing)
