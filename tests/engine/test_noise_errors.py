"""Standard errors follow the noise of an image, or of a camera that multiplies electrons."""

from __future__ import annotations

from dataclasses import replace

import detection_on_host
import numpy as np
import pytest
import reference
from reference import Kind
from scenes import light, on_grid
from scipy.ndimage import gaussian_filter

from napari_spotfit import (
    Camera,
    NoiseModel,
    Settings,
    fit_at,
    fit_spots,
    localize,
    simulate_spots,
)
from napari_spotfit.engine.cuda import roi_kernels as on_a_gpu
from napari_spotfit.engine.filtered_noise import correct_errors, error_columns, filtered_noise
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import MODELS

SIDE, COUNT = 9, 20_000
PULLED = ("y", "x", "sigma", "amplitude", "background")
#: Unrealistic values, so that every one matters.
NOISE = NoiseModel(slope=1.7, intercept=-120.0, least=30.0, correlation=1.3)


def amplified(spots, rng, gain):
    """Return counts of photo-electrons that are multiplied before they are read out."""
    return rng.gamma(np.maximum(spots, 1), gain) * (spots > 0)


def sandwich(kind, found, shape, noise, more=0.0):
    """Return the standard errors in double precision, with the noise as the kernels have it."""
    plane = np.ones(shape) if kind.plane is None else np.asarray(kind.plane, float)
    good = plane.ravel() > 0
    j = reference.derivatives(kind, found, shape)[good]
    amplitude, background = found[-2:]
    f = (reference.image(kind, found, shape) - background) / amplitude
    variance = noise.slope * max(amplitude, 0) * f
    variance = variance + max(noise.slope * background + noise.intercept, noise.least)
    variance = noise.correlation**2 * variance + more
    weight = plane.ravel()[good]
    inverse = np.linalg.inv((j.T * weight) @ j)
    inside = (j.T * (weight**2 * variance.ravel()[good])) @ j
    return np.sqrt(np.diag(inverse @ inside @ inverse))


@pytest.mark.parametrize("amplitude", [300.0, -40.0])
@pytest.mark.parametrize("background", [90.0, 20.0])
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("estimator", ["lse", "wlse"])
def test_agrees_with_the_sandwich(backend, model, estimator, background, amplitude):
    """Also of dark spots, and where the line says less than the least."""
    rng = np.random.default_rng(4)
    shape = {"y": 4.2, "x": 3.8, "angle": 20.0, "sigma_y": 1.3, "exponent": 2.5}
    at = dict.fromkeys(MODELS[model].widths, 1.7) | shape
    at |= {"amplitude": amplitude, "background": background}
    clean = MODELS[model].evaluate(np.indices((SIDE, SIDE), float), at)
    spots = clean + rng.normal(0, 2, (20, SIDE, SIDE))
    weights = rng.uniform(0.5, 2, (SIDE, SIDE)) if estimator == "wlse" else None
    start = np.tile([at[name] for name in ("y", "x", *MODELS[model].widths)], (20, 1))
    fits = fit_spots(
        spots, start=start, weights=weights, model=model, estimator=estimator, noise=NOISE,
        backend=backend,
    )  # fmt: skip
    kind = Kind(MODELS[model], estimator=estimator, plane=weights)
    names = reference.names(kind)
    settled = np.flatnonzero(fits.converged & np.isfinite(fits.x_stderr))
    assert len(settled) > 10
    for i in settled:
        found = np.array([fits.columns[name][i] for name in names], float)
        errors = [fits.columns[f"{name}_stderr"][i] for name in names]
        np.testing.assert_allclose(errors, sandwich(kind, found, (SIDE, SIDE), NOISE), rtol=0.01)


@pytest.mark.parametrize("side", [9, 40])
def test_a_map_adds_what_a_pixel_has_more_than_others(backend, side):
    """Also in large ROIs, whose sums are others'."""
    rng = np.random.default_rng(5)
    spots, _ = simulate_spots(8, side, photons=4000, background=60, seed=2)
    variance = rng.choice([4.0, 4.0, 4.0, 300.0], (side, side)).astype(np.float32)
    fits = fit_spots(spots, noise=NOISE, camera=Camera(variance=variance), backend=backend)
    kind = Kind(MODELS["gaussian"])
    names = reference.names(kind)
    assert fits.converged.any()
    for i in np.flatnonzero(fits.converged):
        found = np.array([fits.columns[name][i] for name in names], float)
        errors = [fits.columns[f"{name}_stderr"][i] for name in names]
        expected = sandwich(kind, found, (side, side), NOISE, variance - 4.0)
        np.testing.assert_allclose(errors, expected, rtol=0.01)


def test_the_camera_offset_is_no_light(backend):
    """The line is one of counts as they are, whatever is taken off the background."""
    spots, _ = simulate_spots(50, SIDE, photons=900, background=90, seed=1)
    plain, shifted = (
        fit_spots(spots, noise=NOISE, offset=offset, backend=backend) for offset in (0.0, 70.0)
    )
    np.testing.assert_allclose(shifted.x_stderr, plain.x_stderr, rtol=1e-4)


def test_a_known_gain_goes_before_the_noise(backend):
    spots, _ = simulate_spots(50, SIDE, photons=900, background=9, gain=2.0, seed=1)
    plain, both = (fit_spots(spots, gain=2.0, noise=n, backend=backend) for n in (None, NOISE))
    np.testing.assert_array_equal(plain.x_stderr, both.x_stderr)
    own = NoiseModel.of_camera(2.0)
    same = fit_spots(spots, noise=own, backend=backend)
    np.testing.assert_allclose(same.x_stderr, plain.x_stderr, rtol=1e-6)
    np.testing.assert_allclose(same.photons, 2 * plain.photons, rtol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("side", [9, 33])
def test_an_emccd_doubles_the_variance(backend, estimator, side):
    rng = np.random.default_rng(7)
    count = COUNT if side == 9 else 300
    electrons, truth = simulate_spots(count, side, photons=5000, background=8, seed=3)
    spots = amplified(electrons, rng, 20.0) + 100
    known = {"gain": 20.0, "offset": 100.0, "estimator": estimator, "backend": backend}
    if estimator == "wlse":
        known["weights"] = np.ones((side, side))
    fits = fit_spots(spots, emccd=True, **known)
    plain = fit_spots(spots, **known)
    np.testing.assert_allclose(fits.x_stderr, plain.x_stderr * np.sqrt(2), rtol=1e-5)
    width = 0.05 if side == 9 else 0.15
    for name in ("y", "x", "sigma", "photons"):
        pull = (fits.columns[name] - truth[name]) / fits.columns[f"{name}_stderr"]
        assert np.std(pull[fits.converged]) == pytest.approx(1, abs=width), name


def isolated(noise_of, photons=2500, background=20, frames=6):
    """Return a movie of isolated spots, and their places."""
    rng = np.random.default_rng(21)
    movie, places = [], []
    for frame in range(frames):
        own = on_grid(rng, (384, 384), 24)
        movie.append(noise_of(rng, light(own, photons, 1.3, (384, 384)) + background))
        places.append(np.column_stack([np.full(len(own), frame), own]))
    return np.stack(movie), np.concatenate(places)


CAMERAS = {
    "counts": lambda rng, e: rng.poisson(e) + 100,
    "gain and read-out": lambda rng, e: 2.2 * rng.poisson(e) + rng.normal(100, 8, e.shape),
    "EMCCD": lambda rng, e: amplified(rng.poisson(e), rng, 30.0) + rng.normal(100, 5, e.shape),
    "white": lambda rng, e: rng.normal(100, 9, e.shape) + e,
}


@pytest.mark.parametrize(
    ("camera", "estimator"),
    # Of white noise, there is no likelihood of photons.
    [*((camera, "lse") for camera in CAMERAS), *((camera, "mle") for camera in [*CAMERAS][:3])],
)
def test_errors_are_right_without_a_camera(camera, estimator):
    movie, places = isolated(CAMERAS[camera])
    if estimator == "lse":
        fits = fit_at(movie, places, estimator=estimator)
    else:
        with pytest.warns(UserWarning, match="gain"):
            fits = fit_at(movie, places, estimator=estimator)
    truth = {"y": places[:, 1], "x": places[:, 2]}
    for name in PULLED:
        off = fits.columns[name] - truth.get(name, np.median(fits.columns[name]))
        pull = off / fits.columns[f"{name}_stderr"]
        assert 0.85 < np.std(pull[fits.good]) < 1.15, name
    assert fits.good.mean() > 0.99


@pytest.mark.parametrize(
    "options",
    [{}, {"pixel": "integrated"}, {"model": "gaussian_elliptical"}, {"fixed": {"sigma": 1.64}}],
)
def test_errors_of_a_filtered_image_are_those_of_coarse_noise(options):
    movie, places = isolated(CAMERAS["counts"], photons=800)
    movie = np.stack([gaussian_filter(frame.astype(float), 1.0) for frame in movie])
    sigma = float(np.hypot(1.3, 1.0))
    fits = fit_at(movie, places, settings=Settings(sigma=sigma, **options))
    assert fits.settings.noise.blur == pytest.approx(1, abs=0.05)
    truth = {"y": places[:, 1], "x": places[:, 2]}
    for name in ("y", "x", *fits.settings.profile.widths, "amplitude", "photons", "background"):
        error = fits.columns[f"{name}_stderr"]
        if name in fits.settings.fixed:
            assert (error == 0).all()
            continue
        off = fits.columns[name] - truth.get(name, np.median(fits.columns[name]))
        assert 0.85 < np.std((off / error)[fits.good]) < 1.15, name


def test_errors_of_a_filtered_image_are_corrected_alike_on_a_gpu():
    """By the kernel on the host; both beside their formula."""
    noise = NoiseModel(1.5, -30.0, 5.0, correlation=1.4, blur=0.8, unfiltered=1.6)
    known = Settings(noise=noise, offset=20.0)
    spots, _ = simulate_spots(1000, SIDE, photons=300, background=30, seed=2)
    plain = fit_spots(spots, settings=known.changed(noise=replace(noise, blur=0.0))).columns
    here, there = ({name: one.copy() for name, one in plain.items()} for _ in range(2))
    correct_errors(here, known, (SIDE, SIDE))
    names, numbers = filtered_noise(known, (SIDE, SIDE))
    columns = error_columns(there, names)
    on_a_gpu.correct_errors(numbers, columns, len(spots), detection_on_host.HOST.kernel)
    assert names == tuple(f"{name}_stderr" for name in ("y", "x", *PULLED[2:], "photons"))
    dark = np.maximum(1.5 * (plain["background"].astype(float) + 20) - 30, 5)
    peak = 1.5 * np.maximum(plain["amplitude"].astype(float), 0)
    for i, name in enumerate(names):
        expected = numbers.filtered_dark[i] * dark + numbers.filtered_peak[i] * peak
        expected /= numbers.white_dark[i] * dark + numbers.white_peak[i] * peak
        expected = plain[name] * np.sqrt(expected) * 1.6 / 1.4
        np.testing.assert_allclose(here[name], expected, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(there[name], here[name], rtol=1e-6, err_msg=name)
        assert (abs(here[name] / plain[name] - 1) > 0.02)[np.isfinite(plain[name])].any()


def test_the_estimate_is_made_once_and_kept():
    movie, places = isolated(CAMERAS["counts"], frames=5)
    fits = localize(movie, neighbours="exclude")
    noise = fits.settings.noise
    assert noise.gain == pytest.approx(1, rel=0.15)
    again = localize(movie, settings=fits.settings)
    part = localize(movie, frames=[1, 3], settings=fits.settings)
    for name in fits.columns:
        np.testing.assert_array_equal(fits.columns[name], again.columns[name], name)
        here = np.isin(fits.frame, [1, 3])
        np.testing.assert_array_equal(fits.columns[name][here], part.columns[name], name)
    # Whichever frames are fitted, the same ones tell.
    assert localize(movie, frames=2).settings.noise == noise
    assert fit_at(movie, places[:3]).settings.noise == noise
    assert localize(movie, errors=False).settings.noise == noise  # detection goes by it, too
    # By it hot pixels are found.
    assert fit_at(movie, places[:3], errors=False).settings.noise == noise


@pytest.mark.filterwarnings("ignore:the image has:UserWarning")  # of no such camera
def test_nothing_is_measured_where_the_noise_is_known(monkeypatch):
    def measured(*_):
        raise AssertionError("measured")

    monkeypatch.setattr("napari_spotfit.estimation.image_estimates.measured_noise", measured)
    movie, places = isolated(CAMERAS["counts"], frames=1)
    assert localize(movie, noise=NOISE).settings.noise == NOISE
    known = localize(movie, gain=2.0, offset=100.0, variance=9.0, emccd=True, noise=NOISE)
    assert known.settings.noise == NoiseModel(4.0, 9.0 - 400.0, 9.0)
    variance = np.full(movie.shape[1:], 9.0)
    variance[0, 0] = 1e6
    camera = Camera(gain=2.0, offset=100.0, variance=variance)
    assert localize(movie, camera=camera).settings.noise == NoiseModel(2.0, 9.0 - 200.0, 9.0)
    assert fit_at(movie, places[:3], noise=NOISE).settings.noise == NOISE


@pytest.mark.filterwarnings(
    "ignore:all pixels in which the noise is measured are NaN",
    "ignore:the image probably was filtered",
)
@pytest.mark.parametrize("image", [np.full((64, 64), 7.0), np.full((64, 64), np.nan)])
def test_an_image_without_noise_does_no_harm(image):
    image = image.copy()
    plain = fit_at(image, [[30, 30]])
    assert not plain.settings.noise.is_known
    image[25:35, 25:35] += np.outer(np.hanning(10), np.hanning(10)) * 50
    assert len(fit_at(image, [[30, 30]])) == 1
    with pytest.warns(UserWarning, match="gain"):
        assert len(fit_at(image, [[30, 30]], estimator="mle")) == 1


@pytest.mark.parametrize("side", [7, 10, 15])
def test_small_images_have_errors(side):
    """Frames that are smaller than what noise is measured in are pooled, and mirrored."""
    spots, truth = simulate_spots(400, side, photons=1500, background=20, offset=100, seed=4)
    centres = np.column_stack([np.arange(400), truth["y"], truth["x"]])
    fits = fit_at(spots, centres, 7)
    assert fits.settings.noise.is_known
    alone = fit_at(spots, centres, 7, gain=1.0, offset=100.0)
    ratio = np.median(fits.x_stderr / alone.x_stderr)
    assert ratio == pytest.approx(1, abs=0.35)


class TestLikelihoodWithoutAGain:
    """Maximum likelihood takes the gain of the image's noise, says so, and keeps counts."""

    def test_it_is_that_of_the_camera(self, backend):
        movie, places = isolated(CAMERAS["gain and read-out"], frames=3)
        with pytest.warns(UserWarning, match=r"takes what the image suggests, 2\.\d+ counts"):
            fits = fit_at(movie, places, estimator="mle", backend=backend)
        known = fit_at(
            movie, places, estimator="mle", gain=2.2, offset=100.0, variance=64.0, backend=backend
        )
        assert fits.settings.gain is None
        assert fits.units["photons"] == "counts"
        assert known.units["photons"] == "photons"
        np.testing.assert_allclose(fits.x, known.x, atol=0.03)
        np.testing.assert_allclose(fits.photons, 2.2 * known.photons, rtol=0.05)
        np.testing.assert_allclose(fits.photons_stderr, 2.2 * known.photons_stderr, rtol=0.15)
        # In counts as they are, since nobody has said what the offset is.
        np.testing.assert_allclose(fits.background - 100, known.background, atol=4)

    def test_it_is_said_once(self, recwarn):
        movie, _ = isolated(CAMERAS["counts"], frames=1)
        with pytest.warns(UserWarning, match="gain") as warned:
            fits = localize(movie, estimator="mle")
        assert len(warned) == 1
        assert warned[0].filename == __file__
        again = localize(movie, settings=fits.settings)
        np.testing.assert_array_equal(again.x, fits.x)
        localize(movie, estimator="mle", gain=1.0, offset=100.0)
        assert not recwarn.list

    def test_an_offset_that_is_given_counts(self):
        movie, places = isolated(CAMERAS["gain and read-out"], frames=3)
        with pytest.warns(UserWarning, match="gain"):
            fits = fit_at(movie, places, estimator="mle", offset=100.0)
        assert np.median(fits.background) == pytest.approx(2.2 * 20, abs=3)
        with pytest.raises(ValueError, match="below the camera's offset"):
            fit_at(movie, places, estimator="mle", offset=1000.0)

    def test_large_rois(self, backend):
        spots, _ = simulate_spots(
            4, 64, photons=3e5, background=30, sigma=6.0, gain=2.0, offset=50.0, seed=8
        )
        noise = NoiseModel.of_camera(2.0, 50.0)
        ours = fit_spots(spots, estimator="mle", noise=noise, backend=backend)
        known = fit_spots(spots, estimator="mle", gain=2.0, offset=50.0, backend=backend)
        np.testing.assert_allclose(ours.x, known.x, atol=1e-3)
        np.testing.assert_allclose(ours.x_stderr, known.x_stderr, rtol=1e-3)
        np.testing.assert_allclose(ours.photons, 2 * known.photons, rtol=1e-4)
        np.testing.assert_allclose(ours.background, known.background + 50, rtol=1e-3)


def test_settings_with_noise_survive_a_table():
    settings = Settings(noise=NOISE, emccd=True)
    plain = settings.to_dict()
    assert plain["noise"] == {
        "slope": 1.7, "intercept": -120.0, "least": 30.0, "correlation": 1.3, "slope_error": None,
        "blocks": 0, "blur": 0.0, "unfiltered": 1.0, "uneven": 1.0,
        "process": "", "level": None, "slope_of_spots": None, "planes": "", "dark": None,
    }  # fmt: skip
    assert Settings(**plain) == settings
    filtered = Settings(noise=replace(NOISE, process="filtered"))
    assert Settings(**filtered.to_dict()) == filtered != settings.changed(emccd=False)
    assert hash(Settings(**plain)) == hash(settings)
    with pytest.raises(TypeError, match="noise must be of noise_model"):
        Settings(noise=3.0)
    with pytest.raises(ValueError, match="least"):
        NoiseModel(1.0, 0.0, -1.0)
