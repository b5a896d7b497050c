"""Cut-outs of spots in volumes: truth, SciPy's minimum, errors, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import reference

from napari_spotfit import Camera, StopCondition, fit_spots, localize
from napari_spotfit.models.profiles import ALL_MODELS, MODELS

SHAPE = (7, 10, 11)
ESTIMATORS = {"lse": {}, "wlse": {"weights": np.ones(SHAPE)}, "mle": {"gain": 1.0}}
MODEL_KINDS = [
    (name, pixel)
    for name in sorted(ALL_MODELS.keys() - MODELS)
    for pixel in ("sampled", "integrated")
]


def kind_of(model, pixel="sampled", estimator="lse", plane=None):
    return reference.Kind(ALL_MODELS[model], pixel, estimator, plane)


def volumes(kind, count=40, *, shape=SHAPE, amplitude=120.0, background=10.0, seed=1):
    """Return volumes without noise, and the parameters of their spots in the order of results."""
    rng = np.random.default_rng(seed)
    names = reference.names(kind)
    truth = np.empty((count, len(names)))
    truth[:, :3] = (np.array(shape) - 1) / 2 + rng.uniform(-0.7, 0.7, (count, 3))
    truth[:, 3:-2] = rng.uniform(1.0, 1.5, (count, len(names) - 5))
    truth[:, -3] = rng.uniform(1.2, 1.9, count)
    truth[:, -2:] = amplitude, background
    clean = np.array([reference.image(kind, values, shape) for values in truth])
    return clean, {name: truth[:, i] for i, name in enumerate(names)}, truth


def parameters_of(fits, kind):
    return np.column_stack([fits.columns[name] for name in reference.names(kind)])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("model", "pixel"), MODEL_KINDS)
def test_the_truth_is_found_without_noise(backend, model, pixel, estimator):
    kind = kind_of(model, pixel)
    clean, truth, _ = volumes(kind)
    fits = fit_spots(
        clean.astype(np.float32), model=model, pixel=pixel, estimator=estimator, backend=backend,
        **ESTIMATORS[estimator],
    )  # fmt: skip
    assert fits.converged.all()
    assert list(fits.columns)[:3] == ["z", "y", "x"]
    for name in ("z", "y", "x", *kind.profile.widths):
        np.testing.assert_allclose(fits.columns[name], truth[name], atol=2e-3, err_msg=name)
    widths = np.prod([truth["sigma" if "sigma" in truth else f"sigma_{a}"] for a in "xy"], axis=0)
    light = truth["amplitude"] * (2 * np.pi) ** 1.5 * widths * truth["sigma_z"]
    np.testing.assert_allclose(fits.photons, light, rtol=3e-3)


@pytest.mark.parametrize("known", [False, True], ids=["", "planes"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_minimum_is_that_of_scipy(machine, estimator, known):
    rng = np.random.default_rng(3)
    plane = None
    given = {}
    if known:
        bad = rng.random(SHAPE) < 0.05
        given["bad_pixels"] = bad
        if estimator == "wlse":
            given["weights"] = rng.uniform(0.5, 2, SHAPE)
            plane = np.where(bad, 0, given["weights"])
        elif estimator == "mle":
            given["camera"] = Camera(variance=rng.uniform(0, 5, SHAPE), gain=1.0)
            plane = np.where(bad, np.nan, given["camera"].variance)
        else:
            plane = np.where(bad, 0, 1.0)
    else:
        given |= {name: value for name, value in ESTIMATORS[estimator].items() if name != "gain"}
    kind = kind_of("gaussian_3d", estimator=estimator, plane=plane)
    clean, _, truth = volumes(kind, 12)
    noisy = rng.poisson(clean).astype(np.float32)
    if known:
        noisy[:, bad] = 3000  # it counts for nothing
    camera = {} if "camera" in given else {"gain": 1.0}
    fits = fit_spots(
        noisy, model="gaussian_3d", estimator=estimator, backend=machine, **given, **camera
    )
    assert fits.converged.all()
    for volume, values, own in zip(noisy, truth, parameters_of(fits, kind), strict=True):
        best = reference.best(kind, volume, values)
        assert best.success
        np.testing.assert_allclose(own[:5], best.values[:5], atol=3e-3)
        np.testing.assert_allclose(own[5:], best.values[5:], rtol=5e-3, atol=0.05)


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_standard_errors_are_the_scatter_of_repeated_fits(machine, estimator):
    kind = kind_of("gaussian_3d_elliptical")
    clean, _, truth = volumes(kind, 1, amplitude=250.0)
    noisy = np.random.default_rng(4).poisson(np.repeat(clean, 3000, axis=0)).astype(np.uint16)
    fits = fit_spots(noisy, model=kind.profile.name, estimator=estimator, gain=1.0, backend=machine)
    for name, value in zip(reference.names(kind), truth[0], strict=True):
        score = (fits.columns[name] - value) / fits.columns[f"{name}_stderr"]
        assert 0.93 < np.std(score) < 1.07, name
        assert abs(np.mean(score)) < 0.15, name


def test_errors_are_those_of_the_reference(machine):
    kind = kind_of("gaussian_3d")
    clean, _, _ = volumes(kind, 8)
    noisy = np.random.default_rng(5).poisson(clean).astype(np.float32)
    variance = np.random.default_rng(6).uniform(0, 9, SHAPE)
    for given, known in (({}, {}), ({"camera": Camera(variance=variance, gain=1.0)},
                                    {"gain": 1.0, "variance": variance})):  # fmt: skip
        fits = fit_spots(noisy, model="gaussian_3d", backend=machine, **given)
        for i, own in enumerate(parameters_of(fits, kind)):
            expected, _ = reference.standard_error(kind, own, noisy[i], **known)
            errors = [fits.columns[f"{name}_stderr"][i] for name in reference.names(kind)]
            np.testing.assert_allclose(errors, expected, rtol=0.02)


def test_exchanged_axes_give_exchanged_results(machine):
    clean, _, _ = volumes(kind_of("gaussian_3d_elliptical"), 20, shape=(9, 9, 9))
    noisy = np.random.default_rng(7).poisson(clean).astype(np.float32)
    fits = fit_spots(noisy, model="gaussian_3d_elliptical", backend=machine)
    turned = fit_spots(
        np.ascontiguousarray(noisy.transpose(0, 3, 1, 2)), model="gaussian_3d_elliptical",
        backend=machine,
    )  # fmt: skip
    for own, other in (("z", "y"), ("y", "x"), ("x", "z")):
        for name in ("{}", "sigma_{}", "{}_stderr"):
            np.testing.assert_allclose(
                fits.columns[name.format(own)], turned.columns[name.format(other)], atol=2e-3
            )


def test_start_values_bounds_and_held_widths(machine):
    kind = kind_of("gaussian_3d")
    clean, truth, _ = volumes(kind, 6)
    start = np.full((6, 5), np.nan, np.float32)
    start[:, 0] = truth["z"]
    fits = fit_spots(
        clean, model="gaussian_3d", start=start, fixed={"sigma_z": 1.5},
        bounds={"sigma": (0.5, 1.2)}, backend=machine,
    )  # fmt: skip
    assert (fits.sigma_z == np.float32(1.5)).all()
    assert (fits.sigma_z_stderr == 0).all()
    assert fits.sigma.max() <= np.float32(1.2)
    np.testing.assert_allclose(fits.z, truth["z"], atol=0.02)


def test_one_bad_volume_spoils_no_other(machine):
    clean, truth, _ = volumes(kind_of("gaussian_3d"), 20)
    clean[3], clean[7, 2, 2, 2] = 5.0, np.nan
    fits = fit_spots(clean.astype(np.float32), model="gaussian_3d", backend=machine)
    invalid = fits.stop_condition == StopCondition.INVALID
    assert invalid.nonzero()[0].tolist() == [3, 7]
    assert np.isnan(fits.z[invalid]).all()
    np.testing.assert_allclose(fits.z[~invalid], truth["z"][~invalid], atol=2e-3)


@pytest.mark.parametrize("shape", [(3, 4, 4), (32, 5, 32), (4, 32, 6), (12, 15, 14)])
def test_any_sides_do(machine, shape):
    kind = kind_of("gaussian_3d")
    clean, truth, _ = volumes(kind, 17, shape=shape)
    given = {"z": truth["z"]} if min(shape) < 5 else {}
    start = None
    if given:
        start = np.column_stack([truth[name] for name in ("z", "y", "x", "sigma", "sigma_z")])
    fits = fit_spots(
        clean.astype(np.float32), model="gaussian_3d", start=start,
        backend=machine if np.prod(shape) <= 4096 else "cpu",
    )  # fmt: skip
    np.testing.assert_allclose(fits.z, truth["z"], atol=3e-3)
    np.testing.assert_allclose(fits.x, truth["x"], atol=3e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: fit_spots(v[0], model="gaussian_3d"), r"shape \(n, planes, rows, columns\)"),
        (lambda v: fit_spots(v), r"shape \(n, rows, columns\) for the model gaussian"),
        (lambda v: fit_spots(v[:, :2], model="gaussian_3d"), "3 to 32 planes and 4 to 32 pixels"),
        (lambda v: localize(v[0, :2], model="gaussian_3d"), "need 3 planes at least; the image of"),
        (lambda v: fit_spots(v[:, 0], model="gaussian_3d"), r"\(n, planes, rows, columns\)"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0).poisson(10, (5, *SHAPE)))
