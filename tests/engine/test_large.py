"""Fits in ROIs beyond 32 pixels a side, on either backend, against known truth and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cpu_fits import fit_rois as on_cpu
from same_fits import assert_same

from napari_spotfit import Fitter, Flag, Settings, StopCondition, fit_at
from napari_spotfit.engine.backend import Block
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import Profile
from napari_spotfit.settings.validation import ROI_MAX

OWN = Profile.from_expression(
    "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)", start={"s": "sigma", "q": 1},
    bounds={"q": (0.2, 5)},
)  # fmt: skip
#: Models with true shapes, in pixels of an image of 70 rows and 90 columns.
KINDS = {
    "round": (Settings(), {"sigma": 7.0}),
    "small": (Settings(), {"sigma": 1.5}),
    "integrated": (Settings(pixel="integrated"), {"sigma": 3.0}),
    "wide integrated": (Settings(pixel="integrated"), {"sigma": 12.0}),
    "elliptical": (Settings(model="gaussian_elliptical"), {"sigma_x": 6.0, "sigma_y": 11.0}),
    "rotated": (
        Settings(model="gaussian_rotated"), {"sigma_x": 12.0, "sigma_y": 7.0, "angle": 25.0}
    ),
    "lorentzian": (Settings(model="lorentzian"), {"width": 6.0}),
    "custom": (Settings(model=OWN), {"s": 8.0, "q": 1.4}),
}  # fmt: skip
SHAPE = (70, 90)
CENTER = {"y": 31.3, "x": 47.8}


@pytest.fixture
def fit(backend):
    """Fit ROIs in frames of the host's memory."""
    if backend == "cpu":
        return on_cpu
    from napari_spotfit.engine.cuda.fit import fit_rois

    return fit_rois


def image_of(settings, truth, amplitude=200.0, background=30.0, shape=SHAPE, center=CENTER):
    y, x = np.indices(shape, float)
    light = {"amplitude": amplitude, "background": background}
    return settings.profile.evaluate((y, x), center | truth | light, settings.pixel)


def fit_one(fit, image, settings, plane=None, start=None):
    """Return the results of one fit by their names."""
    planes = None if plane is None else Planes(plane[None].astype(np.float32))
    start = None if start is None else np.array([start], np.float32)
    columns = fit(image[None], None, image.shape, settings, start, planes=planes)
    return {name: value[0] for name, value in columns.items()}


def best(image, settings, truth, plane=None):
    """Return shape, amplitude and background by their names, and the minimum, by SciPy."""
    kind = reference.Kind(settings.profile, settings.pixel, settings.estimator, plane)
    found = reference.best(kind, image, [*(CENTER | truth).values(), image.max() - 4, 4.0])
    return dict(zip(reference.names(kind), found.values, strict=True)), found.chi_square


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_truth_is_recovered_without_noise(fit, kind, estimator):
    settings, truth = KINDS[kind]
    settings = settings.changed(estimator=estimator, gain=1)
    found = fit_one(fit, image_of(settings, truth).astype(np.float32), settings)
    assert StopCondition(found["stop_condition"]).converged
    for name, value in (CENTER | truth).items():
        tolerance = 1e-3 if name == "angle" else 1e-4
        assert found[name] == pytest.approx(value, abs=tolerance), name
    assert found["amplitude"] == pytest.approx(200, rel=1e-4)
    assert found["background"] == pytest.approx(30, rel=1e-4)


@pytest.mark.parametrize("estimator", ["lse", "wlse"])
@pytest.mark.parametrize("kind", KINDS)
def test_fits_agree_with_scipy(fit, kind, estimator):
    settings, truth = KINDS[kind]
    rng = np.random.default_rng(3)
    image = rng.poisson(image_of(settings, truth)).astype(float)
    settings, plane = settings.changed(estimator=estimator), None
    if estimator == "wlse":
        plane = rng.uniform(0.2, 2, SHAPE).astype(np.float32)
        plane[::9, ::4] = 0
    expected, misfit = best(image, settings, truth, plane)
    if plane is not None:
        image[::9, ::4] = np.nan
    found = fit_one(fit, image, settings, plane)
    assert StopCondition(found["stop_condition"]).converged
    for name, value in expected.items():
        assert abs(found[name] - value) < 0.05 * found[f"{name}_stderr"], name
        if name not in ("amplitude", "background", "angle"):
            assert abs(found[name] - value) < 3e-3, name
    assert found["chi_square"] == pytest.approx(misfit, rel=1e-5)


@pytest.mark.parametrize("kind", ["round", "rotated", "custom"])
def test_likelihood_agrees_with_scipy(fit, kind):
    settings, truth = KINDS[kind]
    settings = settings.changed(estimator="mle", gain=1.0)
    image = np.random.default_rng(14).poisson(image_of(settings, truth, 60, 4)).astype(float)
    expected, deviance = best(image, settings, truth)
    found = fit_one(fit, image, settings)
    assert StopCondition(found["stop_condition"]).converged
    for name, value in expected.items():
        assert abs(found[name] - value) < 0.05 * found[f"{name}_stderr"], name
    assert found["chi_square"] == pytest.approx(deviance, rel=1e-5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_errors_are_the_spread_of_estimates(fit, estimator):
    settings = Settings(model="gaussian_rotated", estimator=estimator, gain=2.0, offset=100.0)
    truth = {"sigma_x": 6.0, "sigma_y": 3.5, "angle": 20.0}
    true = {"y": 19.3, "x": 25.8} | truth | {"amplitude": 40.0, "background": 6.0}
    light = image_of(settings, truth, 40.0, 6.0, (40, 50), {"y": 19.3, "x": 25.8})
    true["photons"] = 2 * np.pi * 6 * 3.5 * 40 / 2
    rng = np.random.default_rng(4)
    images = 2.0 * rng.poisson(light / 2, (300, *light.shape)) + 100
    planes = None
    if estimator == "wlse":
        planes = Planes((1 / (light + 10))[None].astype(np.float32))
    columns = fit(images, None, light.shape, settings, None, planes=planes)
    for name, value in true.items():
        pull = (columns[name] - value) / columns[f"{name}_stderr"]
        # Of 300 fits; the bar of 5 % is tested with many more small ones.
        assert 0.87 < pull.std() < 1.13, name
        assert abs(pull.mean()) < 0.2, name


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_errors_where_the_background_is_at_its_bound(fit, estimator):
    settings = Settings(estimator=estimator, gain=1.0, background_min=0)
    light = image_of(settings, {"sigma": 12.0}, 30.0, 0.0, (40, 50), {"y": 19.3, "x": 25.8})
    images = np.random.default_rng(15).poisson(light, (400, *light.shape)).astype(float)
    columns = fit(images, None, light.shape, settings, None)
    stuck = np.isnan(columns["background_stderr"])
    assert 0.3 < stuck.mean() < 0.7
    assert columns["background"][stuck].max() < 0.01
    for name, value in {"x": 25.8, "y": 19.3, "sigma": 12.0, "photons": 30 * 288 * np.pi}.items():
        pull = (columns[name] - value) / columns[f"{name}_stderr"]
        # 400 fits tell a spread to 3.5 %; with a background that counts as free it is 0.65 to 0.75.
        assert pull.std() == pytest.approx(1, abs=0.12), name


def test_scmos_variances_are_part_of_the_model(fit):
    settings = Settings(estimator="mle", gain=1.0)
    rng = np.random.default_rng(5)
    variance = rng.exponential(20, SHAPE).astype(np.float32)
    light = image_of(settings, {"sigma": 4.0}, amplitude=60, background=3)
    images = rng.poisson(light, (40, *SHAPE)) + rng.normal(0, np.sqrt(variance), (40, *SHAPE))
    images[:, ::11, ::7], variance[::11, ::7] = 1e6, np.nan
    columns = fit(images, None, SHAPE, settings, None, planes=Planes(variance[None]))
    for name, value in {"x": CENTER["x"], "y": CENTER["y"], "sigma": 4.0, "amplitude": 60}.items():
        pull = (columns[name] - value) / columns[f"{name}_stderr"]
        assert abs(pull.mean()) < 0.6, name
        assert 0.6 < pull.std() < 1.4, name


@pytest.mark.parametrize("pixel", ["u1", "u2", "i2", "f4", "f8"])
def test_rois_lie_anywhere_in_frames_of_any_type(fit, pixel):
    settings = Settings(model="gaussian_elliptical")
    light = image_of(settings, {"sigma_x": 6.0, "sigma_y": 8.0}, amplitude=90)
    frames = np.random.default_rng(6).poisson(light, (2, *SHAPE)).astype(pixel)
    corners = np.array([[1, 5, 17], [-1, 0, 0], [0, 3, 20]], np.int64)
    shape = (51, 63)
    together = fit(frames, corners, shape, settings)
    for number, (frame, top, left) in enumerate(corners):
        if frame < 0:
            assert together["stop_condition"][number] == StopCondition.INVALID
            assert np.isnan(together["x"][number])
            continue
        cut = frames[frame, top : top + shape[0], left : left + shape[1]]
        alone = fit_one(fit, np.ascontiguousarray(cut), settings)
        for name, value in alone.items():
            np.testing.assert_array_equal(together[name][number], value, err_msg=name)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kind", ["round", "rotated"])
def test_results_do_not_depend_on_threads(instruction_set, kind, estimator):
    settings, truth = KINDS[kind]
    settings = settings.changed(estimator=estimator, gain=1.0)
    rng = np.random.default_rng(7)
    image = rng.poisson(image_of(settings, truth, shape=(700, 300))).astype(np.uint16)
    plane = rng.uniform(0.5, 2, image.shape) if estimator == "wlse" else None
    planes = None if plane is None else Planes(plane[None].astype(np.float32))
    block, found = Block(image[None], image[None], planes), []
    for count in (1, 2, 5):
        job = FitJob.of_spots(settings.changed(threads=count), image.shape, image.dtype)
        columns = Cpu(count).fit(job, block)
        found.append({name: values[0] for name, values in columns.items()})
    assert StopCondition(found[0]["stop_condition"]).converged
    assert found[0] == found[1] == found[2]
    assert found[0] == fit_one(on_cpu, image, settings, plane)


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("size", [41, 271])
def test_excluded_pixels_do_not_depend_on_threads(instruction_set, size, estimator):
    """ROIs that one thread fits, and such as all work on; some keep all of their pixels."""
    rng = np.random.default_rng(8)
    centers = np.array([[150, 160], [160, 250], [420, 150], [430.4, 440.7], [445.0, 470.5]])
    y, x = np.indices((600, 620))
    image = np.full((600, 620), 100.0)
    for v, u in centers:
        image += 900 * np.exp(-((y - v) ** 2 + (x - u) ** 2) / (2 * 9.0**2))
    image = rng.poisson(image).astype(np.uint16)
    image[425:434, 436:444] = 65535
    image[140, 150] = image[170, 240] = 20_000
    bad = np.zeros(image.shape, bool)
    bad[400:430:3, ::5] = True
    known = {"sigma": 9.0, "estimator": estimator, "gain": 1.0, "backend": "cpu", "bad_pixels": bad}
    one, three = (fit_at(image, centers, size, threads=n, **known) for n in (1, 3))
    assert_same(three, one)
    assert one.valid.all()
    assert one.flags[3] & Flag.SATURATED
    # One by one, with what is excluded named by the caller.
    with Fitter(size, neighbours="exclude", **known) as fitter:
        for i, center in enumerate(centers):
            own = np.vstack([center, np.delete(centers, i, axis=0)])
            excluded = fitter.explain(image, own)
            (top, left), named = excluded.corner, np.zeros(image.shape, bool)
            named[top : top + size, left : left + size] = excluded.pixels
            assert excluded.neighbour.any() == (i > 2 or size > 41)
            alone = fit_at(image, [center], size, **known | {"bad_pixels": named | bad})
            for name in ("y", "x", "sigma", "photons", "chi_square"):
                np.testing.assert_array_equal(alone.columns[name][0], one.columns[name][i], name)


@pytest.mark.parametrize("shape", [(4, 300), (300, 5), (33, 2000)])
def test_narrow_rois(fit, shape):
    settings, truth = Settings(gain=1.0), {"sigma": 6.0}
    center = {"y": 0.52 * shape[0], "x": 0.4 * shape[1]}
    light = image_of(settings, truth, shape=shape, center=center)
    found = fit_one(fit, np.random.default_rng(16).poisson(light).astype(float), settings)
    assert StopCondition(found["stop_condition"]).converged
    for name, value in (center | truth).items():
        assert abs(found[name] - value) < 4 * found[f"{name}_stderr"], name


@pytest.mark.parametrize("size", [15, 64])
def test_bright_integrated_spots_end_where_likelihood_is_best(fit, size):
    # Rounding errors of the profile made the deviance rise and fall near its minimum.
    settings = Settings(pixel="integrated", estimator="mle", gain=1.0)
    rng = np.random.default_rng(0)
    sigma = size / 8
    images = []
    for _ in range(60):
        center = {"y": size / 2 + rng.uniform(-1, 1), "x": size / 2 + rng.uniform(-1, 1)}
        amplitude = 2e5 / (2 * np.pi * sigma**2)
        light = image_of(settings, {"sigma": sigma}, amplitude, 10, (size, size), center)
        images.append(rng.poisson(light))
    found = fit(np.array(images, np.float32), None, (size, size), settings)
    assert set(found["stop_condition"]) == {StopCondition.MIN_DELTA}


def test_errors_count_the_read_out_noise(fit):
    settings = Settings(gain=2.0, offset=100.0, variance=900.0)
    truth = {"y": 19.3, "x": 25.8, "sigma": 6.0, "amplitude": 90.0, "background": 6.0}
    light = image_of(settings, {"sigma": 6.0}, 90.0, 6.0, (40, 50), {"y": 19.3, "x": 25.8})
    rng = np.random.default_rng(17)
    images = 2.0 * rng.poisson(light / 2, (300, *light.shape)) + 100
    images += rng.normal(0, 30, images.shape)
    columns = fit(images, None, light.shape, settings)
    for name, value in truth.items():
        pull = (columns[name] - value) / columns[f"{name}_stderr"]
        assert 0.87 < pull.std() < 1.13, name


def test_smaller_and_larger_rois_agree(fit):
    settings = Settings(model="gaussian_rotated", gain=1.0)
    truth = {"sigma_x": 3.0, "sigma_y": 2.0, "angle": 30.0}
    image = np.random.default_rng(8).poisson(image_of(settings, truth)).astype(np.uint16)
    corners = np.array([[0, 16, 32]], np.int64)
    small = fit(image[None], corners, (ROI_MAX, ROI_MAX), settings)
    large = fit(image[None], corners, (ROI_MAX + 1, ROI_MAX + 1), settings)
    for name in ("y", "x", "sigma_x", "sigma_y"):
        assert abs(small[name] - large[name]) < 0.3 * large[f"{name}_stderr"]
        np.testing.assert_allclose(small[f"{name}_stderr"], large[f"{name}_stderr"], rtol=0.05)


def test_held_and_bounded_parameters(fit):
    settings, truth = KINDS["rotated"]
    image = np.random.default_rng(9).poisson(image_of(settings, truth)).astype(np.uint16)
    held = fit_one(fit, image, settings.changed(fixed={"angle": 20, "sigma_y": 6.5}))
    assert held["angle"] == pytest.approx(20, abs=1e-4)
    assert held["sigma_y"] == pytest.approx(6.5)
    assert held["angle_stderr"] == held["sigma_y_stderr"] == 0
    assert held["x_stderr"] > 0
    bounded = fit_one(fit, image, settings.changed(bounds={"sigma_x": (3, 9)}, background_min=40))
    assert bounded["sigma_x"] == pytest.approx(9)
    assert bounded["background"] == pytest.approx(40)
    assert np.isnan(bounded["sigma_x_stderr"])
    assert np.isnan(bounded["background_stderr"])
    assert bounded["x_stderr"] > 0
    assert bounded["photons_stderr"] > 0
    assert StopCondition(bounded["stop_condition"]).converged


def test_the_callers_start_is_where_it_begins(fit):
    settings, truth = KINDS["round"]
    image = image_of(settings, truth).astype(np.float32)
    start = [CENTER["y"], CENTER["x"], 7.0]
    found = fit_one(fit, image, settings, start=start)
    assert found["iterations"] == 0
    assert found["sigma"] == pytest.approx(7)


@pytest.mark.parametrize(
    "start", [[30, 45, 8, 8, 0], [30, 45, np.nan, np.nan, 80], [30, 45, 9, 9, np.nan]]
)
def test_no_start_of_a_turned_gaussian_is_a_saddle(fit, start):
    settings, truth = KINDS["rotated"]
    image = np.random.default_rng(10).poisson(image_of(settings, truth)).astype(np.uint16)
    found = fit_one(fit, image, settings, start=start)
    assert found["angle"] == pytest.approx(25, abs=1)
    assert found["sigma_x"] == pytest.approx(12, abs=0.2)


def test_turned_gaussians_have_one_name(fit):
    settings = Settings(model="gaussian_rotated")
    for angle in (-80, -44, 10, 46, 90):
        truth = {"sigma_x": 12.0, "sigma_y": 7.0, "angle": angle}
        found = fit_one(fit, image_of(settings, truth).astype(np.float32), settings)
        assert -45 <= found["angle"] <= 45
        turned = abs(angle) > 45
        assert found["sigma_x"] == pytest.approx(7 if turned else 12, abs=1e-3)
        assert (found["angle"] - angle) % 90 == pytest.approx(0, abs=1e-2) or (
            (angle - found["angle"]) % 90 == pytest.approx(0, abs=1e-2)
        )


def test_only_the_angle_of_a_circle_is_unknown(fit):
    settings = Settings(model="gaussian_rotated", gain=1.0, fixed={"sigma_x": 7.0, "sigma_y": 7.0})
    found = fit_one(fit, image_of(settings, {"sigma_x": 7, "sigma_y": 7, "angle": 0}), settings)
    assert np.isnan(found["angle_stderr"])
    assert found["x_stderr"] > 0
    assert found["photons_stderr"] > 0


INVALID = {
    "constant": lambda image: np.full_like(image, 3.0),
    "one NaN": lambda image: np.where(
        np.arange(image.size).reshape(image.shape) == 99, np.nan, image
    ),
    "infinite": lambda image: np.where(image == image.max(), np.inf, image),
}


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("bad", INVALID)
def test_bad_images_are_invalid(fit, bad, estimator):
    settings, truth = KINDS["round"]
    image = INVALID[bad](image_of(settings, truth))
    found = fit_one(fit, image, settings.changed(estimator=estimator))
    assert found["stop_condition"] == StopCondition.INVALID
    assert all(np.isnan(found[name]) for name in ("x", "y", "sigma", "photons", "x_stderr"))


def test_too_few_pixels_and_no_light_are_invalid(fit):
    settings, truth = KINDS["round"]
    image, weights = image_of(settings, truth), np.zeros(SHAPE, np.float32)
    weighted = settings.changed(estimator="wlse")
    assert fit_one(fit, image, weighted, weights)["stop_condition"] == StopCondition.INVALID
    weights[30, 40:45] = 1
    assert fit_one(fit, image, weighted, weights)["stop_condition"] == StopCondition.INVALID
    likely = settings.changed(estimator="mle", offset=300.0)
    assert fit_one(fit, image, likely)["stop_condition"] == StopCondition.INVALID


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e6, 1e25])
def test_the_unit_of_the_data_does_not_matter(fit, scale):
    settings, truth = KINDS["rotated"]
    image = np.random.default_rng(11).poisson(image_of(settings, truth)).astype(float)
    plain = fit_one(fit, image, settings)
    scaled = fit_one(fit, scale * image, settings)
    for name in ("x", "y", "sigma_x", "angle", "x_stderr"):
        assert scaled[name] == pytest.approx(plain[name], rel=1e-5)
    assert scaled["amplitude"] == pytest.approx(scale * plain["amplitude"], rel=1e-5)


def test_an_offset_of_the_data_does_not_matter(fit):
    settings, truth = KINDS["rotated"]
    image = np.random.default_rng(12).poisson(image_of(settings, truth)).astype(np.uint16)
    plain, raised = fit_one(fit, image, settings), fit_one(fit, image + np.uint16(60000), settings)
    for name in ("x", "y", "sigma_x", "angle", "amplitude", "x_stderr"):
        assert raised[name] == pytest.approx(plain[name], rel=1e-4)
    assert raised["background"] - 60000 == pytest.approx(plain["background"], abs=0.05)


def test_a_small_spot_is_found_in_a_large_image(fit):
    settings = Settings(model="gaussian_rotated", gain=1.0)
    y, x = np.indices((1500, 1200), float)
    truth = {"y": 1203.4, "x": 77.7, "sigma_x": 4.0, "sigma_y": 2.5, "angle": -30.0}
    light = settings.profile.evaluate((y, x), truth | {"amplitude": 300, "background": 20})
    image = np.random.default_rng(13).poisson(light).astype(np.uint16)
    found = fit_one(fit, image, settings)
    assert StopCondition(found["stop_condition"]).converged
    for name, value in truth.items():
        assert abs(found[name] - value) < 4 * found[f"{name}_stderr"], name


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_steps_far_from_the_first_pixel_are_not_small(fit, estimator):
    settings = Settings(estimator=estimator, gain=1.0)
    center = {"y": 2100.7, "x": 1400.3}
    light = image_of(settings, {"sigma": 60.0}, 200, 100, (2200, 1500), center)
    image = np.random.default_rng(18).poisson(light).astype(np.uint16)
    start = [center["y"] + 4, center["x"] - 4, 55.0]
    near, far = (fit_one(fit, image, settings, start=own) for own in (None, start))
    for name in ("y", "x", "sigma"):
        assert abs(near[name] - far[name]) < 0.05 * near[f"{name}_stderr"], name
    assert far["stop_condition"] == StopCondition.MIN_DELTA
