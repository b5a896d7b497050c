"""Angles, held parameters and bounds in the kernel that visits every pixel, on the host."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from emulated_fits import fit_rois
from model_spots import ESTIMATORS, planes_for, settings_of, spots_of

from napari_spotfit.engine.cpu.fit import fit_rois as on_cpu


def test_angles_are_between_the_diagonals():
    """A long spot at every angle, from the built-in start and from widths that are equal."""
    angles = np.linspace(-90, 90, 61)[1:]
    settings = settings_of("rotated", gain=None, max_iterations=50)
    kind = reference.Kind(settings.profile)
    truth = [[6.1, 5.9, 2.2, 1.3, angle, 900, 20] for angle in angles]
    spots = np.stack([reference.image(kind, values, (13, 13)) for values in truth])
    spots = np.random.default_rng(6).poisson(spots).astype(np.float32)
    nan = np.nan
    starts = ([nan, nan, nan, nan, nan], [6, 6, 1.7, 1.7, 30], [6, 6, 2, 1.5, nan])
    for start in (None, *starts):
        given = None if start is None else np.tile(np.float32(start), (60, 1))
        own = fit_rois(spots, settings=settings, start=given)
        assert np.isin(own["stop_condition"], (2, 3)).all()
        assert (np.abs(own["angle"]) <= 45).all()
        along_x = np.abs(angles) <= 45
        long = np.where(along_x, own["sigma_x"], own["sigma_y"])
        short = np.where(along_x, own["sigma_y"], own["sigma_x"])
        sure = np.abs(np.abs(angles) - 45) > 3
        np.testing.assert_allclose(long[sure], 2.2, atol=0.2)
        np.testing.assert_allclose(short[sure], 1.3, atol=0.15)
        turned = np.where(along_x, own["angle"], own["angle"] + 90) - angles
        assert (np.abs((turned[sure] + 90) % 180 - 90) < 8).all()
        assert np.isfinite(own["angle_stderr"]).all()


def test_a_round_spot_has_no_angle():
    rows, columns = np.indices((9, 9))
    spot = 500 * np.exp(-((rows - 4.0) ** 2 + (columns - 4.0) ** 2) / 3.4) + 10
    start = np.float32([[4, 4, 1.3, 1.3, 10]])
    settings = settings_of("rotated", "mle", fixed={"angle": None})
    for options in (settings, settings_of("rotated", "mle")):
        own = fit_rois(spot[np.newaxis].astype(np.float32), settings=options, start=start)
        assert own["stop_condition"][0] in (1, 2, 3)
        for name in ("sigma_x", "sigma_y"):
            assert own[name][0] == pytest.approx(np.sqrt(1.7), abs=1e-3)
            assert np.isfinite(own[f"{name}_stderr"][0])
        assert np.isfinite(own["photons_stderr"][0])
    assert np.isnan(own["angle_stderr"][0])


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("model", ["gaussian", "elliptical", "rotated", "custom"])
def test_parameters_that_are_held(model, estimator):
    settings = settings_of(model, estimator)
    spots, truth = spots_of(settings, 50)
    names = reference.names(reference.Kind(settings.profile))
    width = "angle" if model == "rotated" else names[2]
    value = 12.0 if model == "rotated" else 1.4
    held = settings.changed(fixed={width: value, "x": None})
    start = np.full((50, len(names) - 2), np.nan, np.float32)
    start[:, 1] = truth[:, 1]
    own = fit_rois(spots, settings=held, start=start)
    assert np.isin(own["stop_condition"], (2, 3)).mean() > 0.9
    np.testing.assert_allclose(own[width], value, rtol=1e-6)
    np.testing.assert_array_equal(own["x"], start[:, 1])
    for name in (width, "x"):
        assert (own[f"{name}_stderr"] == 0).all()
    kind = reference.Kind(settings.profile, estimator=estimator)
    for i in np.flatnonzero(np.isin(own["stop_condition"], (2, 3)))[:10]:
        found = np.array([own[name][i] for name in names], float)
        best = reference.best(kind, spots[i], found, fixed=(width, "x"))
        assert own["chi_square"][i] == pytest.approx(best.chi_square, rel=1e-5)
        assert own["y"][i] == pytest.approx(best.values[0], abs=2e-3)
        errors, _ = reference.standard_error(kind, found, spots[i], 1.0, fixed=(width, "x"))
        assert own["y_stderr"][i] == pytest.approx(errors[0], rel=0.01)
        freedom = 81 - (len(names) - 2)
        assert own["reduced_chi_square"][i] == pytest.approx(own["chi_square"][i] / freedom)


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_bounds(estimator):
    bounds = {"sigma_x": (1.3, 1.5), "y": (-0.2, 0.2), "angle": (-20, 20)}
    settings = settings_of("rotated", estimator, bounds=bounds, max_iterations=60)
    spots, _ = spots_of(settings, 60)
    own = fit_rois(spots, settings=settings)
    assert (np.isin(own["stop_condition"], (2, 3, 4))).mean() > 0.9
    for name, (low, high) in bounds.items():
        middle = 4 if name == "y" else 0
        ends = np.float32(middle + low), np.float32(middle + high)
        assert (own[name] >= ends[0] - 1e-5).all()
        assert (own[name] <= ends[1] + 1e-5).all()
    kind = reference.Kind(settings.profile, estimator=estimator)
    low = {"sigma_x": 1.3, "y": 3.8, "angle": -20}
    high = {"sigma_x": 1.5, "y": 4.2, "angle": 20}
    better = []
    for i in range(20):
        found = np.array([own[name][i] for name in reference.names(kind)], float)
        best = reference.best(kind, spots[i], found, low=low, high=high)
        better.append(own["chi_square"][i] / best.chi_square - 1)
    assert np.mean(np.array(better) < 1e-4) > 0.8


#: Bounds that most of the spots get to, and of which parameter.
STUCK = {
    "background": {"background_max": 2}, "amplitude": {"amplitude_max": 120},
    "sigma_x": {"bounds": {"sigma_x": (2, 3)}},
}  # fmt: skip


@pytest.mark.parametrize("name", STUCK)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("model", ["elliptical", "rotated"])
def test_errors_at_bounds_are_those_of_the_cpu(model, estimator, name):
    settings = settings_of(model, estimator, max_iterations=60, **STUCK[name])
    planes = planes_for(estimator, (9, 9))
    spots, _ = spots_of(settings, 100)
    ours = fit_rois(spots, settings=settings, planes=planes)
    theirs = on_cpu(spots, None, (9, 9), settings, planes=planes)
    stuck = np.isnan(theirs[f"{name}_stderr"])
    assert stuck.mean() > 0.8
    assert (np.isnan(ours[f"{name}_stderr"]) == stuck).mean() > 0.97
    same = np.hypot(ours["x"] - theirs["x"], ours["y"] - theirs["y"]) < 1e-4
    assert same.mean() > 0.7
    for error in (own for own in ours if own.endswith("_stderr") and own != "angle_stderr"):
        a, b = ours[error][same], theirs[error][same]
        assert (np.isnan(a) == np.isnan(b)).mean() > 0.97
        both = np.isfinite(a) & np.isfinite(b)
        if both.any():
            assert np.quantile(np.abs(a / b - 1)[both], 0.95) < 2e-3, error
