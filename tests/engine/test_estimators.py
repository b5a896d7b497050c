"""Estimators: precision at the bound, correct errors, weights, bad pixels and cameras."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import reference
from reference import Kind

from napari_spotfit import Camera, StopCondition, fit_spots, simulate_spots
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import GAUSSIAN, MODELS

#: Absolute errors over the true σ, 9×9, 400:40 counts, maximum likelihood: median and mean.
CENTRE, WIDTH = (0.0379, 0.0454), (0.0299, 0.0402)


def paper_spots(count, size, photons=400):
    return simulate_spots(
        count, size, photons=photons, background=40 / size**2, sigma=(1, 2), jitter=0.75, seed=size
    )


@pytest.mark.parametrize("size", [5, 7, 9, 11, 13, 15])
def test_maximum_likelihood_converges_on_dim_spots(machine, size):
    spots, _ = paper_spots(20_000, size)
    fits = fit_spots(spots, estimator="mle", gain=1.0, errors=False, backend=machine)
    assert fits.converged.mean() >= 0.995


def test_maximum_likelihood_is_as_accurate_as_can_be(machine):
    spots, truth = paper_spots(50_000, 9)
    fits = fit_spots(spots, estimator="mle", gain=1.0, errors=False, backend=machine)
    width = truth["sigma"].to_numpy()
    centre = np.abs(np.r_[fits.x - truth["x"], fits.y - truth["y"]]) / np.r_[width, width]
    sigma = np.abs(fits.sigma - width) / width
    # 1 % for the scatter of a mean over these spots.
    assert np.median(centre) < CENTRE[0] * 1.01
    assert centre.mean() < CENTRE[1] * 1.01
    assert np.median(sigma) < WIDTH[0]
    assert sigma.mean() < WIDTH[1]


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("photons", [500, 2000, 10_000])
@pytest.mark.parametrize("sigma", [1.0, 1.3, 1.8])
@pytest.mark.parametrize("background", [0.0, 5.0])
def test_standard_errors_match_the_spread(machine, estimator, photons, sigma, background):
    spots, truth = simulate_spots(
        5000, 13 if sigma > 1.5 else 9, photons=photons, background=background, sigma=sigma, seed=1
    )
    fits = fit_spots(spots, estimator=estimator, gain=1.0, backend=machine)
    # A background of nothing lies on its bound: what is estimated there is no bell curve.
    bounded = estimator == "mle" and background == 0
    for name in ("x", "y", "sigma", "photons", *(() if bounded else ("background",))):
        pull = (fits.columns[name] - truth[name]) / fits.columns[f"{name}_stderr"]
        assert np.std(pull) == pytest.approx(1, abs=0.06), name


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("photons", [2000, 10_000])
def test_errors_match_the_spread_where_the_background_is_at_its_bound(machine, estimator, photons):
    spots, truth = simulate_spots(20_000, 11, photons=photons, background=0, sigma=1.8, seed=1)
    options = {"weights": np.ones((11, 11))} if estimator == "wlse" else {}
    fits = fit_spots(
        spots, estimator=estimator, gain=1.0, background_min=0, backend=machine, **options
    )
    # Likelihood needs a little of a background.
    lowest = 1e-4 * spots.mean((1, 2)) if estimator == "mle" else 0
    stuck = fits.background <= lowest + 1e-5
    assert 0.4 < stuck.mean() < 0.8
    assert (np.isnan(fits.background_stderr) != stuck).mean() < 0.002
    for name in ("x", "y", "sigma", "photons"):
        pull = (fits.columns[name] - truth[name]) / fits.columns[f"{name}_stderr"]
        assert np.std(pull) == pytest.approx(1, abs=0.035), name


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("model", "stuck", "bounds"),
    [
        ("gaussian", ["background"], {"background_max": 10}),
        ("gaussian", ["background"], {"background_min": 30, "offset": 50.0}),
        ("gaussian", ["amplitude"], {"amplitude_max": 60}),
        ("gaussian", ["amplitude"], {"amplitude_min": 400}),
        ("gaussian", ["sigma"], {"sigma_max": 1.1}),
        ("gaussian", ["x", "amplitude"], {"bounds": {"x": (1, 1.5)}, "amplitude_max": 60}),
        ("gaussian_elliptical", ["sigma_y"], {"bounds": {"sigma_y": (1.6, 3)}}),
        ("gaussian_rotated", ["background"], {"background_max": 10}),
        ("gaussian_rotated", ["sigma_x"], {"bounds": {"sigma_x": (None, 1.1)}}),
        ("gaussian_rotated", ["angle"], {"bounds": {"angle": (50, 60)}}),
    ],
    ids=str,
)
def test_what_is_at_a_bound_counts_as_known(backend, estimator, model, stuck, bounds):
    spots, _ = simulate_spots(
        64, 9, photons=2000, background=20, sigma=1.7, sigma_y=1.3, angle=20, jitter=0.2,
        offset=bounds.get("offset", 0.0), seed=14,
    )  # fmt: skip
    options = {"weights": np.full((9, 9), 0.5)} if estimator == "wlse" else {}
    fits = fit_spots(
        spots, model=model, estimator=estimator, gain=1.0, max_iterations=100,
        backend=backend, **options, **bounds,
    )  # fmt: skip
    kind = Kind(MODELS[model], estimator=estimator)
    names, checked = reference.names(kind), 0
    for i in np.flatnonzero(fits.converged):
        found = np.array([fits.columns[name][i] for name in names], float)
        errors = np.array([fits.columns[f"{name}_stderr"][i] for name in names], float)
        unknown = [name for name, error in zip(names, errors, strict=True) if np.isnan(error)]
        if set(unknown) != set(stuck):
            continue
        expected, _ = reference.standard_error(kind, found, spots[i], 1.0, stuck)
        free = [j for j, name in enumerate(names) if name not in stuck]
        np.testing.assert_allclose(errors[free], expected[free], rtol=0.01)
        assert fits.photons_stderr[i] > 0
        checked += 1
    assert checked > 32


@pytest.mark.parametrize("sigma", [1.0, 1.6])
def test_maximum_likelihood_reaches_the_bound(machine, sigma):
    photons, background = 1000, 2.0
    spots, truth = simulate_spots(
        5000, 11, photons=photons, background=background, sigma=sigma, seed=2
    )
    fits = fit_spots(spots, estimator="mle", gain=1.0, errors=False, backend=machine)
    kind, amplitude = Kind(GAUSSIAN, estimator="mle"), photons / (2 * np.pi * sigma**2)
    bound = []
    for y, x in truth[["y", "x"]].to_numpy()[::100]:
        at = [y, x, sigma, amplitude, background]
        bound.append(reference.standard_error(kind, at, spots[0])[0] ** 2)
    bound = np.sqrt(np.mean(bound, axis=0))
    for i, name in enumerate(("y", "x", "sigma")):
        spread = np.std(fits.columns[name] - truth[name])
        assert spread == pytest.approx(bound[i], rel=0.05), name


@cache
def fitted_exactly(model, estimator):
    """Return spots, their weights, and the reference's fits and errors of them.

    The same for all instruction sets: most of the time is the reference's.
    """
    rng, profile = np.random.default_rng(3), MODELS[model]
    rows, columns = np.indices((9, 9), float)
    spots, starts, weights = [], [], rng.uniform(0.5, 2, (60, 9, 9))
    for _ in range(60):
        at = {"y": rng.uniform(3.5, 4.5), "x": rng.uniform(3.5, 4.5), "angle": rng.uniform(-40, 40)}
        at |= {name: rng.uniform(1, 1.8) for name in profile.widths if name != "angle"}
        at |= {"amplitude": rng.uniform(60, 300), "background": rng.uniform(1, 10)}
        if model == "moffat":  # its wings show in bright spots
            at |= {"exponent": at["width"] + 1, "amplitude": 10 * at["amplitude"]}
        spots.append(rng.poisson(profile.evaluate((rows, columns), at)))
        starts.append(at)
    weights[:, 1, 1] = 0
    given = weights if estimator == "wlse" else None
    exact = []
    for i, (spot, at) in enumerate(zip(spots, starts, strict=True)):
        kind = Kind(profile, "sampled", estimator, None if given is None else given[i])
        best = reference.best(kind, spot, [at[name] for name in reference.names(kind)])
        exact.append((best, reference.standard_error(kind, best.values, spot, 1.0)[0]))
    return np.array(spots), given, exact


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_agrees_with_double_precision(backend, model, estimator):
    spots, weights, exact = fitted_exactly(model, estimator)
    fits = fit_spots(
        spots, model=model, estimator=estimator, weights=weights, gain=1.0, backend=backend
    )
    assert fits.converged.all()
    for i, (best, errors) in enumerate(exact):
        ours = [float(fits.columns[name][i]) for name in ("y", "x")]
        np.testing.assert_allclose(ours, best.values[:2], atol=3e-3)
        np.testing.assert_allclose(fits.chi_square[i], best.chi_square, rtol=1e-3)
        ours = [float(fits.columns[name][i]) for name in ("y_stderr", "x_stderr")]
        np.testing.assert_allclose(ours, errors[:2], rtol=0.03)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_bad_pixels_do_not_count_whatever_they_hold(backend, estimator):
    spots, _ = simulate_spots(200, 9, photons=2000, background=4, seed=4)
    bad = np.zeros(spots.shape, bool)
    bad[:, 0, 0] = bad[:, 3, 5] = True
    spoilt = spots.copy()
    spoilt[:, 0, 0], spoilt[:, 3, 5] = np.nan, 1e7
    options = {"estimator": estimator, "gain": 1.0, "bad_pixels": bad, "backend": backend}
    options |= {"weights": np.ones((9, 9))} if estimator == "wlse" else {}
    clean, fits = fit_spots(spots, **options), fit_spots(spoilt, **options)
    assert fits.converged.all()
    for name in ("y", "x", "sigma", "photons", "chi_square", "x_stderr", "photons_stderr"):
        np.testing.assert_allclose(fits.columns[name], clean.columns[name], rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(fits.reduced_chi_square * (81 - 2 - 5), fits.chi_square, rtol=1e-5)


def test_weights_count_in_proportion(backend):
    spots, _ = simulate_spots(200, 9, photons=2000, background=4, seed=5)
    weights = np.random.default_rng(6).uniform(0.1, 3, (9, 9))
    options = {"estimator": "wlse", "backend": backend}
    fits = fit_spots(spots, weights=weights, **options)
    scaled = fit_spots(spots, weights=weights * 1e6, **options)
    for name in ("x", "sigma", "amplitude", "x_stderr"):
        np.testing.assert_allclose(scaled.columns[name], fits.columns[name], rtol=2e-3)
    np.testing.assert_allclose(scaled.chi_square, fits.chi_square * 1e6, rtol=1e-3)
    equal = fit_spots(spots, weights=np.full((9, 9), 0.01), **options)
    np.testing.assert_allclose(equal.x, fit_spots(spots, backend=backend).x, atol=1e-3)


def test_a_cameras_variance_counts_in_maximum_likelihood(backend):
    rng = np.random.default_rng(7)
    variance = rng.choice([2.0, 400.0], (9, 9))
    spots, truth = simulate_spots(
        4000, 9, photons=1000, background=3, offset=100.0, gain=2.0, variance=variance, seed=8
    )
    common = {"estimator": "mle", "backend": backend}
    knowing = fit_spots(spots, camera=Camera(100.0, 2.0, variance), **common)
    ignorant = fit_spots(spots, camera=Camera(100.0, 2.0), **common)
    assert knowing.converged.mean() > 0.99
    errors = [np.std(fits.x - truth["x"]) for fits in (knowing, ignorant)]
    assert errors[0] < 0.9 * errors[1]
    pull = (knowing.x - truth["x"]) / knowing.x_stderr
    assert np.std(pull) == pytest.approx(1, abs=0.06)
    assert np.median(knowing.photons) == pytest.approx(1000, rel=0.02)
    assert np.median(knowing.background) == pytest.approx(6, rel=0.1)


@pytest.mark.parametrize("estimator", ["wlse", "mle"])
def test_a_fit_does_not_depend_on_its_neighbours_or_the_threads(backend, estimator):
    spots, _ = simulate_spots(5003, 7, photons=300, background=1, seed=9)
    weights = np.random.default_rng(10).uniform(0.5, 2, (7, 7))
    options = {"estimator": estimator, "gain": 1.0, "backend": backend}
    options |= {"weights": weights} if estimator == "wlse" else {}
    fits = fit_spots(spots, threads=1, **options)
    order = np.random.default_rng(0).permutation(len(spots))
    other = fit_spots(spots[order], threads=3, **options)
    for name, values in fits.columns.items():
        np.testing.assert_array_equal(values[order], other.columns[name], err_msg=name)


def test_spots_without_light_are_invalid_and_spoil_no_other(backend):
    spots, _ = simulate_spots(64, 7, photons=1000, background=1, seed=11)
    options = {"estimator": "mle", "gain": 1.0, "backend": backend}
    good = fit_spots(spots, **options)
    bad = spots.copy()
    bad[3], bad[9, 2, 2], bad[20] = 0, np.nan, 5
    fits = fit_spots(bad, **options)
    invalid = np.isin(np.arange(64), (3, 9, 20))
    np.testing.assert_array_equal(fits.stop_condition == StopCondition.INVALID, invalid)
    for name, values in fits.columns.items():
        np.testing.assert_array_equal(values[~invalid], good.columns[name][~invalid])
        if name not in ("iterations", "stop_condition"):
            assert np.isnan(values[invalid]).all()


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_too_few_good_pixels_make_a_fit_invalid(backend, estimator):
    spots, _ = simulate_spots(32, 7, photons=3000, background=1, seed=12)
    bad = np.zeros((32, 7, 7), bool)
    bad[5] = True
    bad[6].ravel()[5:] = True
    fits = fit_spots(spots, estimator=estimator, gain=1.0, bad_pixels=bad, backend=backend)
    np.testing.assert_array_equal(np.flatnonzero(~fits.valid), [5, 6])


def test_light_is_never_negative_in_maximum_likelihood(backend):
    rng = np.random.default_rng(13)
    dark = rng.poisson(2.0, (500, 9, 9))
    fits = fit_spots(dark, estimator="mle", gain=1.0, backend=backend)
    assert fits.valid.all()
    assert fits.amplitude.min() >= 0
    assert fits.background.min() >= 0
    for name in ("y", "x", "sigma", "amplitude", "background", "photons", "chi_square"):
        assert np.isfinite(fits.columns[name]).all(), name
