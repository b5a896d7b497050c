"""Models and estimators in public functions: columns, start values, fixed parameters, bounds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import reference
from reference import Kind

from napari_spotfit import Profile, SpotFits, fit_at, fit_spots, localize, simulate_movie
from napari_spotfit import simulate_spots as simulate
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import MODELS

SHAPES = {"sigma": 1.4, "sigma_x": 1.8, "sigma_y": 1.2, "angle": 25.0, "width": 1.5}
SHAPES["exponent"] = 2.5
LIGHT = ["amplitude", "background", "photons", "chi_square", "reduced_chi_square"]
KINDS = [
    (model, pixel)
    for model, profile in MODELS.items()
    for pixel in ("sampled", "integrated")
    if pixel == "sampled" or profile.integrated
]
every_kind = pytest.mark.parametrize(("model", "pixel"), KINDS)


def spots_of(model, pixel="sampled", count=30, size=11, seed=0, **changed):
    """Return spots without noise, and their parameters by name."""
    rng, profile = np.random.default_rng(seed), MODELS[model]
    rows, columns = np.indices((size, size), float)
    truth, spots = [], []
    for _ in range(count):
        y, x = (size - 1) / 2 + rng.uniform(-0.6, 0.6, 2)
        values = {"y": y, "x": x, "amplitude": rng.uniform(100, 300), "background": 10.0}
        values |= {name: SHAPES[name] * rng.uniform(0.9, 1.1) for name in profile.widths} | changed
        truth.append(values)
        spots.append(profile.evaluate((rows, columns), values, pixel))
    return np.array(spots), {name: np.array([one[name] for one in truth]) for name in truth[0]}


@every_kind
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_columns_and_truth(backend, model, pixel, estimator):
    spots, truth = spots_of(model, pixel)
    weights = np.random.default_rng(1).uniform(0.5, 2, (11, 11)) if estimator == "wlse" else None
    fits = fit_spots(
        spots.astype(np.float32),
        model=model,
        pixel=pixel,
        estimator=estimator,
        weights=weights,
        backend=backend,
    )
    widths = list(MODELS[model].widths)
    parameters = ["y", "x", *widths, "amplitude", "background", "photons"]
    expected = ["y", "x", *widths, *LIGHT, "iterations", "stop_condition"]
    assert list(fits.columns) == expected + [f"{name}_stderr" for name in parameters]
    assert fits.converged.all()
    for name in ("y", "x"):
        np.testing.assert_allclose(fits.columns[name], truth[name], atol=1e-4)
    for name in widths:
        tolerance = {"angle": 0.02, "exponent": 2e-3}.get(name, 3e-4)
        np.testing.assert_allclose(fits.columns[name], truth[name], atol=tolerance, err_msg=name)
    np.testing.assert_allclose(fits.amplitude, truth["amplitude"], rtol=5e-4)
    if model == "lorentzian":
        area = (np.pi * truth["width"]) ** 2
    elif model == "moffat":
        area = np.pi * truth["width"] ** 2 / (truth["exponent"] - 1)
    else:
        area = 2 * np.pi * truth.get("sigma_x", truth.get("sigma"))
        area = area * truth.get("sigma_y", truth.get("sigma"))
    np.testing.assert_allclose(fits.photons, area * truth["amplitude"], rtol=1e-3)


@pytest.mark.parametrize("model", list(MODELS))
def test_own_start_values_in_the_order_of_the_results(backend, model):
    clean, truth = spots_of(model, count=60, seed=2)
    spots = np.random.default_rng(3).poisson(clean)
    names = [parameter.name for parameter in MODELS[model].shape]
    own = np.column_stack([truth[name] for name in names])
    fits = fit_spots(spots, model=model, backend=backend)
    started = fit_spots(spots, model=model, start=own, backend=backend)
    assert started.iterations.mean() < fits.iterations.mean()
    both = fits.converged & started.converged
    assert both.mean() > 0.95
    np.testing.assert_allclose(started.x[both], fits.x[both], atol=3e-3)
    nothing = fit_spots(spots, model=model, start=own * np.nan, backend=backend)
    np.testing.assert_array_equal(nothing.x, fits.x)


@cache
def held_exactly(model, estimator, held):
    """Return spots, their truth, and the reference's fits and errors, for all instruction sets."""
    clean, truth = spots_of(model, count=20, seed=4, **{k: v for k, v in held if v})
    spots = np.random.default_rng(5).poisson(clean).astype(np.float32)
    kind, exact = Kind(MODELS[model], estimator=estimator), []
    names, fixed = reference.names(kind), tuple(name for name, _ in held)
    for i, spot in enumerate(spots):
        best = reference.best(kind, spot, [float(truth[name][i]) for name in names], fixed=fixed)
        errors, _ = reference.standard_error(kind, best.values, spot, None, fixed)
        exact.append((best, errors))
    return spots, truth, names, exact


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize(
    ("model", "held"),
    [
        ("gaussian", {"sigma": 1.4}),
        ("gaussian", {"y": None, "x": None}),
        ("gaussian_elliptical", {"sigma_x": 1.8}),
        ("gaussian_rotated", {"angle": 25.0}),
        ("gaussian_rotated", {"sigma_x": 1.8, "sigma_y": 1.2}),
        ("lorentzian", {"width": 1.5, "x": None}),
    ],
)
def test_held_parameters_stay_and_the_rest_is_the_best(backend, estimator, model, held):
    spots, truth, names, exact = held_exactly(model, estimator, tuple(held.items()))
    start = np.full((20, len(MODELS[model].shape)), np.nan)
    start[:, 0], start[:, 1] = truth["y"], truth["x"]
    fits = fit_spots(
        spots, model=model, estimator=estimator, fixed=held, start=start, backend=backend
    )
    assert fits.converged.all()
    for name, value in held.items():
        kept = truth[name] if value is None else value
        np.testing.assert_allclose(fits.columns[name], kept, rtol=1e-6)
        assert not fits.columns[f"{name}_stderr"].any()
    for i, (best, expected) in enumerate(exact):
        ours = [float(fits.columns[name][i]) for name in names]
        np.testing.assert_allclose(ours[:2], best.values[:2], atol=3e-3)
        errors = [float(fits.columns[f"{name}_stderr"][i]) for name in names]
        np.testing.assert_allclose(errors, expected, rtol=0.03, atol=1e-6)
    freedom = 121 - len(names) + len(held)
    np.testing.assert_allclose(fits.reduced_chi_square * freedom, fits.chi_square, rtol=1e-5)


def test_a_held_centre_is_the_place_that_was_given(backend):
    movie, truth = simulate_movie(2, (60, 60), spots_per_frame=3, photons=4000, seed=1)
    places = truth[["frame", "y", "x"]].to_numpy()
    fits = fit_at(movie, places, fixed={"y": None, "x": None}, backend=backend)
    np.testing.assert_allclose(fits.points(), places, atol=1e-4)


@pytest.mark.parametrize("side", [9, 41])
def test_a_held_centres_numbers_count_from_the_middle(backend, side):
    spots, _ = simulate(5, side, sigma=side / 7, photons=5e4, seed=2)
    for estimator in ("lse", "mle"):
        options = {"estimator": estimator, "backend": backend}
        fits = fit_spots(spots, fixed={"x": 0.3, "y": -1.0}, **options)
        assert fits.valid.all()
        np.testing.assert_allclose(fits.x, side // 2 + 0.3, rtol=1e-6)
        np.testing.assert_allclose(fits.y, side // 2 - 1.0, rtol=1e-6)
        with pytest.raises(ValueError, match=f"x is fixed at {2 * side} px from the middle of the"):
            fit_spots(spots, fixed={"x": 2.0 * side}, **options)


def test_bounds_of_shapes_hold(backend):
    clean, _ = spots_of("gaussian_elliptical", count=100, seed=6)
    spots = np.random.default_rng(7).poisson(clean)
    bounds = {"sigma_x": (None, 1.75), "sigma_y": (1.25, None), "x": (-0.3, 0.3)}
    fits = fit_spots(spots, model="gaussian_elliptical", bounds=bounds, backend=backend)
    assert fits.converged.mean() > 0.95
    for values, low, high in (
        (fits.sigma_x, 0, 1.75), (fits.sigma_y, 1.25, 11), (fits.x - 5, -0.3, 0.3),
    ):  # fmt: skip
        assert values.min() >= low - 1e-5
        assert values.max() <= high + 1e-5
        assert (
            np.isclose(values, high, atol=1e-5).sum() + np.isclose(values, low, atol=1e-5).sum() > 5
        )


@pytest.mark.parametrize("model", ["gaussian_elliptical", "gaussian_rotated"])
@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_spots_that_are_hard_end_somewhere_with_finite_numbers(backend, model, estimator):
    rng = np.random.default_rng(8)
    round_ones, truth = simulate(50, 9, photons=2000, background=5, sigma=1.3, seed=9)
    flat = rng.poisson(100, (50, 9, 9)) + 0.0
    saturated = np.minimum(simulate(50, 9, photons=20_000, seed=10)[0], 500)
    spots = np.concatenate([round_ones, flat, saturated])
    start = np.full((150, len(MODELS[model].shape)), np.nan)
    start[:, 2:4] = 1.3  # equal widths
    for begin in (None, start):
        fits = fit_spots(spots, model=model, estimator=estimator, start=begin, backend=backend)
        assert fits.valid.all()
        for name in ("y", "x", "sigma_x", "sigma_y", "amplitude", "background", "photons"):
            assert np.isfinite(fits.columns[name]).all(), name
        assert fits.converged[:50].mean() > 0.95
        np.testing.assert_allclose(fits.x[:50], truth["x"], atol=0.25)


def test_the_angle_is_that_next_to_x(backend):
    for angle in (-44.0, -10.0, 0.0, 30.0, 44.0):
        spots, _ = spots_of("gaussian_rotated", angle=angle, sigma_x=1.9, sigma_y=1.1, count=10)
        turned = spots.transpose(0, 2, 1)  # x and y change places: 90° less the angle
        fits = fit_spots(spots, model="gaussian_rotated", backend=backend)
        np.testing.assert_allclose(fits.angle, angle, atol=0.05)
        np.testing.assert_allclose(fits.sigma_x, 1.9, atol=1e-3)
        fits = fit_spots(turned, model="gaussian_rotated", backend=backend)
        np.testing.assert_allclose(fits.angle, -angle, atol=0.05)
        np.testing.assert_allclose(fits.sigma_y, 1.9, atol=1e-3)


@pytest.mark.parametrize("model", list(MODELS))
def test_images_give_the_same_columns(backend, model):
    movie, truth = simulate_movie(2, (60, 60), spots_per_frame=4, photons=5000, seed=11)
    fits = localize(movie, 11, model=model, offset=100.0, backend=backend)
    assert set(MODELS[model].widths) < set(fits.columns)
    assert isinstance(fits[fits.converged], SpotFits)
    # A Lorentzian's wings have light of their own.
    assert np.median(fits.mean_sigma) == pytest.approx(
        1.3, abs=0.6 if model == "lorentzian" else 0.2
    )
    assert len(localize(movie[:, :20, :20] * 0, 11, sigma=1.3, model=model, backend=backend)) == 0
    assert len(truth) >= len(fits)


def test_a_model_of_ones_own(backend):
    """Written as an expression, the round Gaussian is the round Gaussian."""
    own = Profile.from_expression(
        "exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2))", start={"s": "sigma"}, name="mine"
    )
    spots, _ = simulate(300, 9, photons=1000, background=2, seed=12)
    for estimator in ("lse", "mle"):
        options = {"estimator": estimator, "backend": backend}
        ours, built_in = fit_spots(spots, model=own, **options), fit_spots(spots, **options)
        both = ours.converged & built_in.converged
        assert both.mean() > 0.98
        np.testing.assert_allclose(ours.x[both], built_in.x[both], atol=3e-3)
        np.testing.assert_allclose(ours.s[both], built_in.sigma[both], atol=5e-3)
        np.testing.assert_allclose(ours.x_stderr[both], built_in.x_stderr[both], rtol=0.03)
    assert ours.units["s"] == "px"


def test_large_spots_are_fitted_by_the_same_calls(backend):
    spots, truth = simulate(
        2, (120, 150), photons=5e6, background=20, sigma=15, sigma_y=9, angle=20, jitter=6, seed=13
    )
    options = {"model": "gaussian_rotated", "backend": backend, "gain": 1.0}
    fits = fit_spots(spots, **options)
    assert fits.converged.all()
    for name, tolerance in (("y", 0.05), ("x", 0.05), ("sigma_x", 0.05), ("angle", 0.5)):
        np.testing.assert_allclose(fits.columns[name], truth[name], atol=tolerance)
    np.testing.assert_allclose(fits.photons, truth["photons"], rtol=0.01)
    centre = [[0, 59, 74], [1, 59, 74]]
    at = fit_at(spots, centre, (119, 149), **options)
    np.testing.assert_allclose(at.points()[:, 1:], truth[["y", "x"]], atol=0.05)
    np.testing.assert_allclose(fits.x_stderr, at.x_stderr, rtol=0.05)


@pytest.mark.parametrize(("size", "estimator"), [(7, "lse"), (7, "mle"), (15, "lse"), (15, "mle")])
def test_photons_of_an_own_model_are_those_of_the_roi(backend, size, estimator):
    own = Profile.from_expression(
        "exp(-((x - x0)**2 + (y - y0)**2) / (2 * s**2))", start={"s": "sigma"}
    )
    spots, _ = simulate(50, size, photons=3000, background=5, seed=1)
    options = {"estimator": estimator, "errors": True, "backend": backend}
    fits, gaussian = fit_spots(spots, model=own, **options), fit_spots(spots, **options)
    kind = Kind(own, estimator=estimator)
    names = reference.names(kind)
    for i, spot in enumerate(spots):
        at = np.array([fits.columns[name][i] for name in names], float)
        _, covariance = reference.standard_error(kind, at, spot)
        light = at * (np.array(names) != "background")
        slopes = reference.derivatives(kind, light, spot.shape).sum(0)
        slopes[-1] = 0  # the background is no light of the spot
        photons = reference.image(kind, light, spot.shape).sum()
        np.testing.assert_allclose(fits.photons[i], photons, rtol=1e-5)
        error = np.sqrt(slopes @ covariance @ slopes)
        np.testing.assert_allclose(fits.photons_stderr[i], error, rtol=1e-4)
    if size == 15:  # it holds all the light, so that the integral is the same
        np.testing.assert_allclose(fits.photons, gaussian.photons, rtol=1e-3)
        np.testing.assert_allclose(fits.photons_stderr, gaussian.photons_stderr, rtol=1e-3)
    else:
        assert (fits.photons < 0.995 * gaussian.photons).all()
