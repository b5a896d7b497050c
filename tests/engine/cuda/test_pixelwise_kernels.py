"""All kernels but the round Gaussian's fast path on the host: models, estimators, planes.

They are compared with the CPU's twin, with SciPy in double precision, and with themselves.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import reference
from emulated_fits import (
    as_single,
    assert_alike,
    assert_equal,
    cut,
    cut_outs,
    fit_rois,
    frames_with_rois,
    rows_of,
)
from model_spots import ESTIMATORS, MODELS, SUPER, planes_for, settings_of, spots_of
from walled import exit_status, walled

from napari_spotfit import Settings, StopCondition, simulate_spots
from napari_spotfit.engine.cpu.fit import fit_rois as on_cpu
from napari_spotfit.engine.cuda import layout, pixelwise
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.models.profiles import Profile

#: Every number of lanes, missing rows, every type of pixels.
CASES = [
    ((4, 4), "f4"), ((5, 8), "u1"), ((7, 7), "u2"), ((9, 9), "i2"), ((13, 13), "f8"),
    ((19, 19), "u1"), ((31, 6), "f4"), ((32, 32), "u2"),
]  # fmt: skip
BY_SHAPE = dict(CASES)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("model", MODELS)
def test_fits_are_the_best_in_double_precision(model, estimator):
    settings, plane = settings_of(model, estimator), planes_for(estimator, (9, 9))
    spots, _ = spots_of(settings, 12)
    own = fit_rois(spots, settings=settings, planes=plane)
    assert np.isin(own["stop_condition"], (2, 3)).all()
    values = None if plane is None else plane.values[0]
    kind = reference.Kind(settings.profile, settings.pixel, settings.estimator, values)
    for i, spot in enumerate(spots):
        found = np.array([own[name][i] for name in reference.names(kind)], float)
        best = reference.best(kind, spot, found)
        np.testing.assert_allclose(found[:2], best.values[:2], atol=2e-3)
        assert own["chi_square"][i] == pytest.approx(best.chi_square, rel=1e-5, abs=1e-5)
        errors, _ = reference.standard_error(kind, found, spot, gain=1.0)
        names = [f"{name}_stderr" for name in reference.names(kind)]
        np.testing.assert_allclose([own[name][i] for name in names], errors, rtol=0.01)


@pytest.mark.parametrize(
    ("model", "estimator"),
    [
        ("gaussian", "wlse"), ("gaussian", "mle"), ("gaussian", "mle with variance"),
        ("integrated", "lse"), ("integrated", "mle"), ("elliptical", "lse"), ("rotated", "lse"),
        ("rotated", "mle with variance"), ("lorentzian", "lse"), ("custom", "wlse"),
    ],
)  # fmt: skip
def test_fits_are_those_of_the_cpu(model, estimator):
    settings, planes = settings_of(model, estimator), planes_for(estimator, (9, 9))
    spots, _ = spots_of(settings, 200, photons=900)
    ours = fit_rois(spots, settings=settings, planes=planes)
    assert_alike(ours, on_cpu(spots, None, (9, 9), settings, planes=planes))


def test_an_angle_of_ones_own_ends_where_it_does_on_the_cpu():
    turned = Profile.from_expression(
        "exp(-((x-x0)*cos(t) + (y-y0)*sin(t))**2 / (2*a**2)"
        " - ((y-y0)*cos(t) - (x-x0)*sin(t))**2 / (2*b**2))",
        start={"a": "1.1*sigma", "b": "0.9*sigma", "t": 0.3},
    )
    spots, _ = simulate_spots(
        4000, 9, photons=400, background=40 / 81, sigma=(1, 2), jitter=0.75, seed=9
    )
    settings = Settings(model=turned, errors=False)
    ours, theirs = fit_rois(spots, settings=settings), on_cpu(spots, None, (9, 9), settings)
    apart = np.hypot(ours["x"] - theirs["x"], ours["y"] - theirs["y"])
    assert np.mean(apart > 1e-3) < 1e-3


@pytest.mark.parametrize("gain", [None, 2.5])
@pytest.mark.parametrize("model", ["rotated", "elliptical", "lorentzian", "custom"])
def test_photons_and_their_errors(model, gain):
    settings = settings_of(model, gain=gain, offset=2.0)
    spots, _ = spots_of(settings, 40, background=9)
    spots += 2
    ours, theirs = fit_rois(spots, settings=settings), on_cpu(spots, None, (9, 9), settings)
    for name in ("photons", "photons_stderr", "background", "reduced_chi_square"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-3, err_msg=name)
    kind = reference.Kind(settings.profile)
    names = [name for name in reference.names(kind) if name not in ("y", "x", "background")]
    for i in range(10):
        values = np.array([ours[name][i] for name in reference.names(kind)], float)
        _, covariance = reference.standard_error(kind, values, spots[i] - 2, gain)
        slopes = np.zeros(len(values))
        for name in names:
            j = reference.names(kind).index(name)
            step = 1e-4 * abs(values[j]) * np.eye(len(values))[j]
            change = light(kind, values + step) - light(kind, values - step)
            slopes[j] = change / (2 * step[j])
        error = np.sqrt(slopes @ covariance @ slopes) / (gain or 1)
        assert ours["photons"][i] == pytest.approx(light(kind, values) / (gain or 1), rel=2e-3)
        assert ours["photons_stderr"][i] == pytest.approx(error, rel=0.02)


def light(kind, values):
    """Return the counts of a profile, by its formula or over a ROI of 9×9 pixels."""
    given = dict(zip(reference.names(kind), values, strict=True))
    if kind.profile.name == "lorentzian":
        return np.pi**2 * given["width"] ** 2 * given["amplitude"]
    if kind.profile is SUPER:
        values = np.array(values)
        values[-1] = 0
        return reference.image(kind, values, (9, 9)).sum()
    return 2 * np.pi * given["sigma_x"] * given["sigma_y"] * given["amplitude"]


@pytest.mark.parametrize("model", MODELS)
def test_spots_without_noise_give_the_truth(model):
    settings = settings_of(model, max_iterations=60)
    rng = np.random.default_rng(3)
    _, truth = spots_of(settings, 50, shape=(11, 11))
    kind = reference.Kind(settings.profile, settings.pixel)
    spots = np.stack([reference.image(kind, values, (11, 11)) for values in truth])
    spots = (spots * rng.uniform(0.1, 100, (50, 1, 1))).astype(np.float32)
    for estimator in ("lse", "mle"):
        own = fit_rois(spots, settings=settings.changed(estimator=estimator))
        assert np.isin(own["stop_condition"], (1, 2, 3)).all()
        for i, name in enumerate(reference.names(kind)[:-2]):
            if name in ("sigma_x", "sigma_y", "angle") and model == "rotated":
                continue  # their names may be exchanged
            np.testing.assert_allclose(own[name], truth[:, i], atol=1e-4, err_msg=name)


@pytest.mark.parametrize(("shape", "pixel"), CASES)
@pytest.mark.parametrize("estimator", ["wlse", "mle with variance"])
def test_rois_in_frames_are_those_cut_out(shape, pixel, estimator):
    settings = settings_of("gaussian", estimator)
    frames, corners = frames_with_rois(shape, pixel)
    for count in (1, len(frames)):
        planes = planes_for(estimator, frames.shape[1:], count)
        ours = fit_rois(frames, corners, settings, planes=planes, shape=shape)
        own = corners * [[count > 1, 1, 1]]
        parts = Planes(cut(planes.values, own, shape))
        spots = cut(frames, corners, shape)
        assert_equal(ours, fit_rois(spots, settings=settings, planes=parts))
        theirs = on_cpu(as_single(frames), corners, shape, settings, planes=planes)
        assert (ours["stop_condition"] == theirs["stop_condition"]).mean() > 0.95
        both = np.isfinite(ours["x"]) & np.isfinite(theirs["x"])
        assert (np.abs(ours["x"] - theirs["x"])[both] < 1e-3).mean() > 0.97


@pytest.mark.parametrize(("shape", "pixel"), CASES)
def test_rotated_fits_in_rois_of_any_shape(shape, pixel):
    settings, spots = settings_of("rotated"), cut_outs(shape, pixel, 70)
    ours, theirs = (
        fit_rois(spots, settings=settings),
        on_cpu(as_single(spots), None, shape, settings),
    )
    both = np.isin(ours["stop_condition"], (2, 3)) & np.isin(theirs["stop_condition"], (2, 3))
    assert both.mean() > (0.6 if min(shape) < 6 else 0.9)
    assert (np.abs(ours["x"] - theirs["x"])[both] < 1e-3).mean() > 0.97


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("pixel", layout.PIXEL_TYPES)
def test_equal_pixels_of_any_type_give_equal_results(pixel, gather):
    shape, settings = (7, 7), settings_of("gaussian", "mle")
    if gather:
        frames, corners = frames_with_rois(shape, "u1")
    else:
        frames, corners = cut_outs(shape, "u1"), None
    run = partial(fit_rois, corners=corners, settings=settings, shape=shape)
    assert_equal(run(frames.astype(pixel)), run(frames.astype("u2")))


@pytest.mark.parametrize("shape", [(9, 9), (16, 16), (32, 32)])
def test_neighbours_change_nothing(shape):
    settings = settings_of("rotated", "mle")
    spots = cut_outs(shape, BY_SHAPE.get(shape, "f4"), 71, blank=9)
    order = np.random.default_rng(2).permutation(len(spots))
    fits = fit_rois(spots, settings=settings)
    assert_equal(fit_rois(spots[order], settings=settings), rows_of(fits, order))
    assert_equal(fit_rois(spots[33:34], settings=settings), rows_of(fits, slice(33, 34)))


@pytest.mark.parametrize("estimator", ["wlse", "mle with variance"])
def test_what_bad_pixels_hold_does_not_matter(estimator):
    settings, planes = settings_of("elliptical", estimator), planes_for(estimator, (9, 9))
    spots, _ = spots_of(settings, 50)
    good = fit_rois(spots, settings=settings, planes=planes)
    for bad in (np.nan, np.inf, -np.inf, 1e30):
        spots[:, 0, 0] = spots[:, -1, 1] = bad
        assert_equal(fit_rois(spots, settings=settings, planes=planes), good)
    spots[7, 4, 4], spots[8, 0, 1] = np.nan, np.inf
    ours = fit_rois(spots, settings=settings, planes=planes)
    bad = np.isin(np.arange(50), (7, 8))
    assert_equal(rows_of(ours, ~bad), rows_of(good, ~bad))
    assert (ours["stop_condition"][bad] == StopCondition.INVALID).all()
    assert np.isnan(ours["photons_stderr"][bad]).all()


def test_weights_may_have_any_unit():
    settings, planes = settings_of("gaussian", "wlse"), planes_for("wlse", (9, 9))
    spots, _ = spots_of(settings, 50)
    ours = fit_rois(spots, settings=settings, planes=planes)
    for unit in (2.0**-20, 2.0**20):
        scaled = fit_rois(spots, settings=settings, planes=Planes(planes.values * np.float32(unit)))
        for name in ours:
            factor = unit if "chi" in name else 1
            np.testing.assert_allclose(scaled[name], ours[name] * factor, 1e-5, err_msg=name)


@pytest.mark.parametrize("estimator", ["wlse", "mle with variance"])
def test_too_few_pixels(estimator):
    settings = settings_of("gaussian", estimator)
    spots, _ = spots_of(settings, 4)
    values = np.full((4, 81), 0 if estimator == "wlse" else np.nan, np.float32)
    for plane, count in zip(values, (0, 1, 5, 6), strict=True):
        plane[[40, 31, 49, 39, 41, 30][:count]] = 1
    ours = fit_rois(spots, settings=settings, planes=Planes(values.reshape(4, 9, 9)))
    assert (ours["stop_condition"][:3] == StopCondition.INVALID).all()
    assert ours["stop_condition"][3] != StopCondition.INVALID
    assert np.isnan(ours["amplitude"][:3]).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("model", MODELS)
def test_hopeless_spots_end_with_finite_numbers_or_none(model, estimator):
    """Flat, dark, saturated, empty, a single pixel, an edge, huge and tiny numbers."""
    rng = np.random.default_rng(5)
    spots = rng.poisson(3, (40, 9, 9)).astype(np.float32)
    spots[0], spots[1], spots[2] = 0, 7, -5
    spots[3:6] = 0
    spots[3, 4, 4], spots[4, 0, 0], spots[5, :, 4:] = 1, 1e6, 65535
    spots[6] += 60000
    spots[7], spots[8] = spots[7] * 1e-15, spots[8] * 1e15
    spots[9] = np.minimum(1e5 * np.exp(-0.1 * np.hypot(*np.indices((9, 9)) - 4) ** 2), 3e4)
    spots[10], spots[11] = -spots[9], np.indices((9, 9))[0]
    spots[12:20] = rng.normal(0, 1, (8, 9, 9))
    planes = planes_for(estimator, (9, 9))
    settings = settings_of(model, estimator)
    ours = fit_rois(spots, settings=settings, planes=planes)
    valid = ours["stop_condition"] != StopCondition.INVALID
    assert not valid[:3].any()
    assert valid[12:].all()
    for name, values in ours.items():
        if not name.endswith("_stderr"):
            assert np.isfinite(values[valid]).all(), name
    if estimator.startswith("mle"):
        assert (ours["amplitude"][valid] >= 0).all()
        assert (ours["background"][valid] >= 0).all()
    assert (ours["iterations"] <= settings.max_iterations).all()


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("estimator", ["lse", "mle with variance"])
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("shape", [(7, 7), (31, 6), (32, 32)])
def test_nothing_is_read_outside(shape, estimator, gather, at_end):
    """Before what a kernel reads, or after it, there is no memory at all."""
    settings = settings_of("rotated", estimator)
    if gather:
        frames, corners = frames_with_rois(shape, BY_SHAPE[shape])
        corners[::9, 0] = -1
    else:
        frames, corners = cut_outs(shape, BY_SHAPE[shape], 67), None
    n = 67 if corners is None else len(corners)
    start = np.full((n, 5), np.nan, np.float32)
    planes = planes_for(estimator, frames.shape[1:])
    run = partial(fit_rois, settings=settings, shape=shape)
    run(frames, corners, start=start, planes=planes)  # compiles it
    inputs = [value if value is None else walled(value, at_end) for value in (frames, corners)]
    known = None if planes is None else Planes(walled(planes.values, at_end))
    begin = walled(start, at_end)
    assert exit_status(lambda: run(*inputs, start=begin, planes=known)) == 0


def test_a_large_offset_costs_no_precision():
    settings = settings_of("rotated", "mle")
    spots, _ = spots_of(settings, 40)
    plain = fit_rois(spots.astype("f8"), settings=settings)
    raised = fit_rois(spots.astype("f8") + 1e9, settings=settings.changed(offset=1e9))
    np.testing.assert_allclose(raised["x"], plain["x"], atol=1e-3)
    np.testing.assert_allclose(raised["photons"], plain["photons"], rtol=1e-3)


def test_fits_share_lanes_by_their_size():
    assert pixelwise.lanes(7, 7, planes=False) == 1
    assert pixelwise.lanes(31, 6, planes=True) == 4
    for rows in range(4, 33):
        for columns in (4, 9, 32):
            for planes in (False, True):
                shared = pixelwise.lanes(rows, columns, planes)
                assert 32 % shared == 0
