"""Fits of measured PSFs: truth, SciPy's minimum, errors, starts, limits, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from psfs import PSFS, measured_psf, spots_of
from scipy.optimize import minimize

from napari_spotfit import Flag, MeasuredPsf, Settings, fit_spots

SIDE = 13


@pytest.mark.parametrize("estimator", ["lse", "wlse", "mle"])
@pytest.mark.parametrize("name", PSFS)
def test_the_truth_is_found_without_noise(backend, name, estimator):
    psf = measured_psf(name)
    spots, z, at = spots_of(psf, 60, 3000, 10, noise=False)
    given = {"weights": np.ones(spots.shape[1:])} if estimator == "wlse" else {}
    fits = fit_spots(spots, model=psf, estimator=estimator, gain=1.0, backend=backend, **given)
    assert fits.converged.all()
    np.testing.assert_allclose(fits.z, z, atol=1.0)
    np.testing.assert_allclose(fits.y, at[:, 0], atol=0.005)
    np.testing.assert_allclose(fits.x, at[:, 1], atol=0.005)
    np.testing.assert_allclose(fits.photons, 3000, rtol=0.01)
    np.testing.assert_allclose(fits.background, 10, rtol=0.02)
    assert fits.units["z"] == fits.units["z_stderr"] == "nm"


@pytest.mark.parametrize("side", [7, 10, 13, 21, 32])
def test_rois_of_any_size_have_the_same_model(machine, side):
    psf = measured_psf(side=max(side + 8, 21))
    spots, z, at = spots_of(psf, 20, 20_000, 5, reach=250, noise=False, side=side)
    fits = fit_spots(spots, model=psf, estimator="mle", gain=1.0, backend=machine)
    np.testing.assert_allclose(fits.z, z, atol=1.0)
    np.testing.assert_allclose(fits.x, at[:, 1], atol=0.005)


def deviance(parameters, psf, spot):
    z, y, x, photons, background = parameters
    rows, columns = np.ogrid[: spot.shape[0], : spot.shape[1]]
    h = np.maximum(photons * psf.lattice.sample(z * 100, rows - y, columns - x) + background, 1e-3)
    return 2 * (h - spot + np.where(spot > 0, spot * np.log(np.maximum(spot, 1e-9) / h), 0)).sum()


def test_the_minimum_is_that_of_scipy(machine):
    psf = measured_psf()
    spots, z, at = spots_of(psf, 12, 1500, 8, seed=4)
    fits = fit_spots(spots, model=psf, estimator="mle", gain=1.0, backend=machine)
    for i, spot in enumerate(spots):
        start = [z[i] / 100, *at[i], 1500, 8]
        found = minimize(
            deviance, start, (psf, spot), method="Nelder-Mead",
            options={"xatol": 1e-6, "fatol": 1e-9, "maxiter": 4000, "adaptive": True},
        )  # fmt: skip
        assert fits.chi_square[i] <= found.fun + 2e-3
        if abs(fits.z[i] - found.x[0] * 100) < 50:
            assert fits.z[i] == pytest.approx(found.x[0] * 100, abs=0.6)
            assert fits.photons[i] == pytest.approx(found.x[3], rel=2e-3)


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_errors_are_those_of_the_noise(machine, estimator):
    psf = measured_psf()
    spots, z, at = spots_of(psf, 4000, 2500, 10, reach=500)
    fits = fit_spots(spots, model=psf, estimator=estimator, gain=1.0, backend=machine)
    scores = {
        "z": (fits.z - z) / fits.z_stderr,
        "y": (fits.y - at[:, 0]) / fits.y_stderr,
        "x": (fits.x - at[:, 1]) / fits.x_stderr,
        "photons": (fits.photons - 2500) / fits.photons_stderr,
    }
    for name, score in scores.items():
        assert score.std() == pytest.approx(1, abs=0.05), name
    if estimator == "mle":
        bound = psf.precision(2500, 10, z=z)
        assert np.sqrt(np.mean(((fits.z - z) / bound.z_stderr) ** 2)) < 1.05
        assert np.sqrt(np.mean(((fits.x - at[:, 1]) * 100 / bound.x_stderr) ** 2)) < 1.05


@pytest.mark.parametrize("name", PSFS)
def test_wrong_minima_are_rare(machine, name):
    psf = measured_psf(name)
    spots, z, at = spots_of(psf, 3000, 2000, 10)
    fits = fit_spots(spots, model=psf, estimator="mle", gain=1.0, backend=machine)
    start = np.column_stack([at, z])
    best = fit_spots(spots, model=psf, estimator="mle", gain=1.0, start=start, backend=machine)
    wrong = (fits.chi_square > best.chi_square + 10) | (
        np.abs(fits.z - z) > np.maximum(150, 6 * psf.precision(2000, 10, z=z).z_stderr)
    )
    assert wrong.sum() <= 3


def test_bad_pixels_and_variances_count_as_in_every_model(machine):
    psf = measured_psf()
    spots, z, _ = spots_of(psf, 500, 4000, 10)
    bad = np.zeros(spots.shape[1:], bool)
    bad[5, 6] = bad[2, 9] = True
    spots[:, bad] = 60_000
    for estimator in ("lse", "mle"):
        fits = fit_spots(
            spots, model=psf, estimator=estimator, gain=1.0, bad_pixels=bad, variance=4.0,
            backend=machine,
        )  # fmt: skip
        assert ((fits.z - z) / fits.z_stderr).std() < 1.3


def test_z_stays_within_the_planes_and_is_flagged(machine):
    psf = measured_psf()
    short = MeasuredPsf(psf.coefficients[10:-10], psf.dz, psf.plane - 10, psf.y, psf.x)
    spots, *_ = spots_of(psf, 400, 5000, 10, reach=700)
    fits = fit_spots(spots, model=short, estimator="mle", gain=1.0, backend=machine)
    low, high = short.range
    # In single precision.
    assert fits.z.min() >= np.float32(low)
    assert fits.z.max() <= np.float32(high)
    limit = (fits.z <= np.float32(low)) | (fits.z >= np.float32(high))
    assert limit.sum() > 50
    flagged = (fits.flags & int(Flag.Z_AT_LIMIT)) != 0
    np.testing.assert_array_equal(flagged, limit)
    assert not fits.good[flagged].any()
    assert not np.isfinite(fits.z_stderr[limit]).any()


def test_the_index_factor_scales_z_and_its_error(machine):
    psf = measured_psf()
    spots, *_ = spots_of(psf, 50, 3000, 10)
    less = MeasuredPsf(psf.coefficients, psf.dz, psf.plane, psf.y, psf.x, index_factor=0.8)
    plain, scaled = (
        fit_spots(spots, model=model, estimator="mle", gain=1.0, backend=machine)
        for model in (psf, less)
    )
    np.testing.assert_allclose(scaled.z, 0.8 * plain.z, atol=0.5)
    np.testing.assert_allclose(scaled.z_stderr, 0.8 * plain.z_stderr, rtol=0.01)


def test_z_can_be_fixed_bounded_and_given(machine):
    psf = measured_psf()
    spots, z, at = spots_of(psf, 100, 3000, 10, reach=300)
    fixed = fit_spots(spots, model=psf, fixed={"z": -120.0}, backend=machine)
    assert (fixed.z == -120).all()
    assert (fixed.z_stderr == 0).all()
    bounded = fit_spots(spots, model=psf, bounds={"z": (-100, 100)}, backend=machine)
    assert (np.abs(bounded.z) <= 100).all()
    inside = np.abs(z) < 50
    np.testing.assert_allclose(bounded.z[inside], z[inside], atol=120)
    kept = fit_spots(
        spots, model=psf, fixed={"z": None}, start=np.column_stack([at, z]), backend=machine
    )
    np.testing.assert_allclose(kept.z, z, atol=0.01)


def test_what_is_no_spot_ends_as_invalid_or_flagged(machine):
    psf = measured_psf()
    spots = np.zeros((4, SIDE, SIDE), np.float32)
    spots[1] = np.nan
    spots[2, 6, 6] = np.inf
    spots[3] = np.random.default_rng(1).normal(100, 3, (SIDE, SIDE))
    for estimator in ("lse", "mle"):
        fits = fit_spots(spots, model=psf, estimator=estimator, backend=machine)
        assert (fits.stop_condition[:3] == 5).all()
        assert np.isnan(fits.z[:3]).all()


def test_the_model_stands_in_settings():
    settings = Settings(model=measured_psf())
    assert settings.roi_shape == (13, 13)
    assert Settings(**settings.to_dict()) == settings
    with pytest.raises(ValueError, match="sampled"):
        Settings(model=measured_psf(), pixel="integrated")


def test_large_rois_are_refused():
    with pytest.raises(ValueError, match="4 to 32 pixels"):
        fit_spots(np.zeros((1, 40, 40)), model=measured_psf())
