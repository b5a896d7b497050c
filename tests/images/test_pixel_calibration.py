"""Per-pixel maps: the camera's calibration, weights, bad pixels."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import Kind
from same_fits import assert_same

from napari_spotfit import Camera, Settings, fit_at, fit_spots, localize, simulate_movie
from napari_spotfit import simulate_spots as simulate
from napari_spotfit.images.pixel_calibration import PixelCalibration
from napari_spotfit.models.estimators import ESTIMATORS

da = pytest.importorskip("dask.array")

SIDE = 9


def maps_of(rng, shape):
    """Return the offset, gain and variance of an sCMOS camera's pixels."""
    return rng.normal(100, 3, shape), rng.uniform(1.5, 2.5, shape), rng.uniform(1, 40, shape)


@pytest.fixture(scope="module")
def scene():
    """A movie of a camera with very different pixels, its truth and its maps."""
    maps = maps_of(np.random.default_rng(5), (70, 80))
    offset, gain, variance = maps
    movie, truth = simulate_movie(
        5, (70, 80), spots_per_frame=8, photons=3000, background=5, offset=offset, gain=gain,
        variance=variance, seed=6,
    )  # fmt: skip
    inside = truth["y"].between(6, 63) & truth["x"].between(6, 73)
    return movie, truth[inside].reset_index(drop=True), maps


class TestPlanes:
    """Weights and variances for backends, against the formulas."""

    numbers = np.arange(1, 3)

    def planes(self, estimator, shape=(70, 80), frames=4, **known):
        maps = PixelCalibration((frames, *shape), Settings(estimator=estimator), **known)
        return maps, maps.planes(self.numbers, np.zeros((2, *shape), np.uint16))

    def test_nothing_known_is_nothing_given(self):
        for estimator in ("lse", "mle"):
            maps, planes = self.planes(estimator, camera=Camera(offset=100.0, gain=2.0))
            assert planes is None
            assert maps.settings == Settings(estimator=estimator, offset=100.0, gain=2.0)
            assert maps.fitted is maps.settings
        settings = Settings()
        assert PixelCalibration((3, 9, 9), settings).settings is settings

    def test_bad_pixels_weigh_nothing(self):
        bad = np.random.default_rng(0).random((70, 80)) < 0.1
        _, planes = self.planes("lse", bad_pixels=bad)
        np.testing.assert_array_equal(planes.values, (~bad)[None])
        assert planes.values.dtype == np.float32
        _, planes = self.planes("mle", bad_pixels=bad)
        np.testing.assert_array_equal(planes.values, np.where(bad, np.nan, 0)[None])

    def test_weights(self):
        rng = np.random.default_rng(1)
        weights, bad = rng.random((4, 70, 80)), rng.random((70, 80)) < 0.1
        _, planes = self.planes("wlse", weights=weights, bad_pixels=bad)
        np.testing.assert_allclose(planes.values, np.where(bad, 0, weights[1:3]), rtol=1e-6)

    def test_variances_are_those_of_photo_electrons(self):
        _, gain, variance = maps_of(np.random.default_rng(2), (70, 80))
        _, planes = self.planes("mle", camera=Camera(100.0, gain, variance))
        np.testing.assert_allclose(planes.values[0], variance / gain**2, rtol=1e-6)
        _, planes = self.planes("mle", camera=Camera(gain=2.0, variance=12.0))
        np.testing.assert_allclose(planes.values, np.full((1, 70, 80), 3.0))

    def test_without_weights_inverse_variances_of_corrected_counts(self):
        _, gain, variance = maps_of(np.random.default_rng(3), (70, 80))
        _, planes = self.planes("wlse", camera=Camera(gain=gain, variance=variance))
        expected = 1 / (variance * (gain.mean() / gain) ** 2)
        np.testing.assert_allclose(planes.values[0], expected, rtol=1e-5)

    @pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.float32, np.float64])
    def test_frames_are_corrected(self, dtype):
        offset, gain, _ = maps_of(np.random.default_rng(4), (70, 80))
        maps, _ = self.planes("lse", camera=Camera(offset, gain))
        pixels = np.random.default_rng(5).integers(90, 900, (2, 70, 80)).astype(dtype)
        expected = (pixels - offset) * gain.mean() / gain
        corrected = maps.corrected(self.numbers, pixels)
        assert corrected.dtype == np.float32
        np.testing.assert_allclose(corrected, expected, rtol=1e-5, atol=1e-3)
        assert maps.fitted.offset == 0
        assert maps.fitted.gain == pytest.approx(gain.mean())
        assert maps.settings.offset == pytest.approx(offset.mean())

    def test_lazy_maps_are_read_frame_by_frame(self):
        weights = np.random.default_rng(6).random((2, 3, 20, 20))
        lazy = da.from_array(weights, chunks=(1, 1, 20, 20))
        maps = PixelCalibration(weights.shape, Settings(estimator="wlse"), weights=lazy)
        planes = maps.planes(np.array([2, 4]), np.zeros((2, 20, 20)))
        np.testing.assert_allclose(planes.values, weights.reshape(6, 20, 20)[[2, 4]], rtol=1e-6)


class TestMapsAreAppliedWhereTheyBelong:
    @pytest.mark.parametrize("estimator", ["lse", "mle"])
    def test_to_each_roi(self, backend, scene, estimator):
        """ROIs of the image are cut-outs with cut-outs of the maps."""
        movie, truth, (offset, gain, variance) = scene
        places = truth[["frame", "y", "x"]].to_numpy()
        options = {"estimator": estimator, "backend": backend}
        camera = Camera(offset, gain, variance)
        fits = fit_at(movie, places, camera=camera, neighbours="ignore", **options)
        rois, maps, start = [], [], []
        for place, fit in zip(places, fits, strict=True):
            top, left = int(fit.roi_y[0]), int(fit.roi_x[0])
            window = slice(top, top + SIDE), slice(left, left + SIDE)
            rois.append(movie[int(place[0])][window])
            # The mean gain is that of the whole camera.
            maps.append((offset[window], gain[window], variance[window]))
            start.append((place[1] - top, place[2] - left, np.nan))
        offsets, gains, variances = np.array(maps).swapaxes(0, 1)
        camera = Camera(offsets, gains, variances)
        alone = fit_spots(np.array(rois), start=start, camera=camera, **options)
        scale = gain.mean() / gains.mean()
        np.testing.assert_allclose(fits.x - fits.roi_x, alone.x, atol=1e-4)
        np.testing.assert_allclose(fits.y - fits.roi_y, alone.y, atol=1e-4)
        np.testing.assert_allclose(fits.photons, alone.photons, rtol=1e-3)
        np.testing.assert_allclose(fits.amplitude, alone.amplitude * scale, rtol=1e-3)
        np.testing.assert_allclose(fits.photons_stderr, alone.photons_stderr, rtol=5e-3)

    def test_to_each_spot_found(self, backend, scene):
        movie, _, (offset, gain, variance) = scene
        camera = Camera(offset, gain, variance)
        fits = localize(movie, estimator="mle", camera=camera, backend=backend)
        again = fit_at(movie, fits.points(), estimator="mle", camera=camera, backend=backend)
        alike = (fits.roi_y == again.roi_y) & (fits.roi_x == again.roi_x) & fits.converged
        assert alike.mean() > 0.8
        np.testing.assert_allclose(fits.x[alike], again.x[alike], atol=3e-3)

    def test_light_is_right_in_photons(self, backend, scene):
        movie, truth, (offset, gain, variance) = scene
        camera = Camera(offset, gain, variance)
        places = truth[["frame", "y", "x"]].to_numpy()
        fits = fit_at(movie, places, 11, estimator="mle", camera=camera, backend=backend)
        ratio = (fits.photons / truth["photons"])[fits.converged]
        assert np.median(ratio) == pytest.approx(1, abs=0.02)
        assert fits.settings.gain == pytest.approx(gain.mean())


def test_read_out_noise_counts_in_the_likelihood(backend):
    """Of noisy pixels the fit thinks little: closer to the truth, and honest about it."""
    rng = np.random.default_rng(7)
    variance = np.where(rng.random((SIDE, SIDE)) < 0.15, 400.0, 4.0)
    spots, truth = simulate(
        3000, SIDE, photons=600, background=2, offset=100, gain=2, variance=variance, seed=8
    )
    options = {"estimator": "mle", "backend": backend}
    knowing = fit_spots(spots, camera=Camera(100, 2, variance), **options)
    naive = fit_spots(spots, camera=Camera(100, 2), **options)
    errors = [np.std((fits.x - truth["x"])[fits.converged]) for fits in (knowing, naive)]
    assert errors[0] < 0.85 * errors[1]
    assert knowing.converged.mean() > 0.99
    pull = ((knowing.x - truth["x"]) / knowing.x_stderr)[knowing.converged]
    assert np.std(pull) == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize("estimator", ["wlse", "mle"])
def test_agrees_with_double_precision(backend, estimator):
    rng = np.random.default_rng(9)
    offset, gain, variance = maps_of(rng, (SIDE, SIDE))
    bad = rng.random((SIDE, SIDE)) < 0.05
    spots, truth = simulate(
        100, SIDE, photons=1500, background=4, offset=offset, gain=gain, variance=variance, seed=10
    )
    camera = Camera(offset, gain, variance)
    fits = fit_spots(spots, estimator=estimator, camera=camera, bad_pixels=bad, backend=backend)
    electrons = (spots - offset) / gain
    mean = gain.mean()
    if estimator == "mle":
        plane, scale, squares = np.where(bad, np.nan, variance / gain**2), 1.0, 1.0
    else:
        plane, scale, squares = np.where(bad, 0, gain**2 / variance), mean, 1.0
    kind = Kind(estimator=estimator, plane=plane)
    close = []
    for spot, fit, (y, x) in zip(electrons, fits, truth[["y", "x"]].to_numpy(), strict=True):
        best = reference.best(kind, spot, [y, x, 1.3, 140, 4])
        close.append(
            abs(fit.y[0] - best.values[0]) < 3e-3
            and abs(fit.x[0] - best.values[1]) < 3e-3
            and abs(fit.sigma[0] - best.values[2]) < 5e-3
            and abs(fit.amplitude[0] / mean / best.values[3] - 1) < 5e-3
        )
        assert fit.chi_square[0] == pytest.approx(best.chi_square * squares, rel=2e-2)
    assert np.mean(close) > 0.98
    assert scale > 0


def test_bad_pixels_may_hold_anything(backend):
    spots, truth = simulate(50, SIDE, photons=2000, background=3, seed=11)
    bad = np.zeros((SIDE, SIDE), bool)
    bad[2, 3] = bad[7, 7] = True
    for estimator in ("lse", "mle"):
        options = {"estimator": estimator, "bad_pixels": bad, "backend": backend}
        fits = [
            fit_spots(np.where(bad, value, spots), **options)
            for value in (0, 1e6, np.nan, np.inf, -np.inf)
        ]
        for others in fits[1:]:
            assert_same(fits[0], others)
        assert fits[0].converged.mean() > 0.98
        good = fits[0].converged
        np.testing.assert_allclose(fits[0].x[good], truth["x"][good], atol=0.2)


def test_hot_pixels_are_no_spots(backend):
    movie, truth = simulate_movie(2, (60, 60), spots_per_frame=4, photons=4000, seed=12)
    hot = np.zeros((60, 60), bool)
    hot[20, 20] = hot[41, 13] = True
    movie[:, hot] = 60_000
    places = localize(movie, bad_pixels=hot, backend=backend).points()
    distance = np.hypot(*(places[:, None, 1:] - np.argwhere(hot)).transpose(2, 0, 1))
    assert distance.min() > 2 or len(truth) == len(places)
    # Where they are not known, what no spot can be is left out all the same; a wider one is not.
    assert len(localize(movie, backend=backend)) == len(places)
    movie[:, 20:22, 20:22] = 60_000
    assert len(localize(movie, backend=backend)) > len(places)


def test_bad_pixels_of_each_cut_out(backend):
    spots, _ = simulate(40, SIDE, photons=2000, seed=13)
    bad = np.random.default_rng(14).random(spots.shape) < 0.05
    fits = fit_spots(spots, bad_pixels=bad, backend=backend)
    alone = fit_spots(spots[7:8], bad_pixels=bad[7], backend=backend)
    assert_same(fits[7:8], alone)


def test_weights_of_one_change_nothing(backend):
    spots, _ = simulate(200, SIDE, photons=1000, background=2, seed=15)
    plain = fit_spots(spots, gain=1.0, backend=backend)
    weights = np.ones((SIDE, SIDE))
    weighted = fit_spots(spots, gain=1.0, estimator="wlse", weights=weights, backend=backend)
    for name in ("y", "x", "sigma"):
        np.testing.assert_allclose(weighted.columns[name], plain.columns[name], atol=3e-3)
    np.testing.assert_allclose(weighted.x_stderr, plain.x_stderr, rtol=2e-2)
    np.testing.assert_allclose(weighted.chi_square, plain.chi_square, rtol=1e-3)


@pytest.mark.parametrize("estimator", ["mle", "wlse"])
def test_a_variance_of_all_pixels_is_a_setting_too(backend, estimator):
    spots, _ = simulate(20, SIDE, photons=500, offset=100.0, variance=30.0, seed=3)
    options = {"estimator": estimator, "backend": backend, "offset": 100.0, "gain": 1.0}
    fits = fit_spots(spots, variance=30.0, **options)
    assert_same(fits, fit_spots(spots, camera=Camera(variance=30.0), **options))
    assert fits.settings.variance == 30.0
    if estimator == "mle":
        without = fit_spots(spots, **options)
        assert np.median(fits.x_stderr) > 1.1 * np.median(without.x_stderr)


def test_cut_outs_with_too_few_pixels_are_invalid(backend):
    spots, _ = simulate(4, SIDE, photons=2000, seed=16)
    bad = np.zeros(spots.shape, bool)
    bad[1] = True
    bad[2].flat[5:] = True
    for estimator in ("lse", "mle"):
        fits = fit_spots(spots, bad_pixels=bad, estimator=estimator, backend=backend)
        assert list(fits.valid) == [True, False, False, True]


ZEROS, IMAGE = np.zeros((5, SIDE, SIDE)), np.ones((3, 40, 40))
ONES, NONE = np.ones((SIDE, SIDE)), np.zeros((SIDE, SIDE), bool)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"estimator": "wlse"}, ValueError, "'wlse' needs weights="),
        ({"weights": ONES}, ValueError, "weights are for estimator='wlse'; got estimator='lse'"),
        ({"weights": ONES, "estimator": "mle"}, ValueError, "got estimator='mle'"),
        ({"weights": -ONES, "estimator": "wlse"}, ValueError,
         r"weights must be finite and not negative in every pixel that is used; 81 of 81 are not, "
         r"the first at \(0, 0\)"),
        ({"weights": ONES * np.nan, "estimator": "wlse"}, ValueError, "weights must be finite"),
        ({"weights": 0 * ONES, "estimator": "wlse"}, ValueError,
         "leave 0 pixels; a fit of 5 parameters needs 6"),
        ({"weights": np.ones((5, 9)), "estimator": "wlse"}, ValueError,
         r"weights must have the shape \(9, 9\) or \(5, 9, 9\); got \(5, 9\)"),
        ({"weights": ONES * 1j, "estimator": "wlse"}, TypeError, "weights must hold"),
        ({"bad_pixels": ONES}, TypeError, "bad_pixels must be boolean, True where a pixel is not"),
        ({"bad_pixels": ~NONE}, ValueError, "leave 0 pixels"),
        ({"bad_pixels": ~NONE, "estimator": "mle"}, ValueError, "leave 0 pixels"),
        ({"camera": Camera(gain=0 * ONES)}, ValueError,
         "the camera's gain must be finite and above 0 in every pixel that is used; 81 of 81"),
        ({"camera": Camera(offset=ONES * np.nan)}, ValueError, "offset must be finite in every"),
        ({"camera": Camera(variance=-ONES)}, ValueError, "variance must be finite and not neg"),
        ({"camera": Camera(variance=0.0), "estimator": "wlse"}, ValueError, "must be above 0"),
        ({"camera": Camera(offset=np.ones((4, 9)))}, ValueError, "offset must have the shape"),
        ({"camera": Camera(offset=1.0), "offset": 2.0}, ValueError, "offset is given twice"),
        ({"camera": Camera(gain=1.0), "gain": 2.0}, ValueError, "gain is given twice"),
        ({"camera": Camera(variance=1.0), "variance": 2.0}, ValueError, "variance is given twice"),
        ({"variance": -1.0}, ValueError, "variance must be a finite number from 0 counts²"),
        ({"camera": 5}, TypeError, "must be a Camera"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(options, error, words):
    with pytest.raises(error, match=words):
        fit_spots(ZEROS, **options)


def test_a_bad_pixels_calibration_does_not_matter():
    spots, _ = simulate(5, SIDE, photons=2000, seed=17)
    bad = NONE.copy()
    bad[0, 0] = True
    gain, offset = np.where(bad, 0, 2.0), np.where(bad, np.nan, 0.0)
    fits = fit_spots(spots, camera=Camera(offset, gain), bad_pixels=bad)
    assert fits.valid.all()
    assert fits.settings.gain == 2


@pytest.mark.parametrize(
    ("quantity", "value", "error", "words"),
    [
        ("gain", 0, ValueError, r"gain must be finite and above 0 \(counts/e⁻\); got 0"),
        ("variance", -1.0, ValueError, r"not negative \(counts²\); got -1"),
        ("offset", np.inf, ValueError, "offset must be finite"),
        ("offset", np.ones(5), ValueError, r"a map with axes \(y, x\)"),
        ("gain", "two", TypeError, "real numbers"),
        ("gain", True, TypeError, "real numbers"),
    ],
)
def test_wrong_cameras_are_named(quantity, value, error, words):
    with pytest.raises(error, match=words):
        Camera(**{quantity: value})


@pytest.mark.filterwarnings("ignore:most pixels of the image have fewer counts")  # and so it is
@pytest.mark.parametrize("fit", [
    lambda image, **options: fit_spots(image[:, 10:19, 10:19], **options),
    lambda image, **options: fit_at(image, [[0, 20, 20], [2, 9, 9]], **options),
    lambda image, **options: localize(image, sigma=1.3, threshold=0.0, **options),
])  # fmt: skip
def test_counts_below_the_offset_are_not_photons(fit):
    """Of an image from which something was subtracted already."""
    image = np.random.default_rng(18).poisson(10, IMAGE.shape).astype(np.float32)
    with pytest.raises(ValueError, match=r"9\d%|100% of the pixels of the spots lie below"):
        fit(image, estimator="mle", offset=20.0)
    with pytest.raises(ValueError, match="subtracted"):
        fit(image - 15, estimator="mle", gain=1.0)
    assert len(fit(image - 15, estimator="lse", offset=20.0))
    assert len(fit(image, estimator="mle", gain=1.0))


@pytest.mark.gpu
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("on_device", [False, True])
def test_spots_and_maps_on_the_gpu(gpu, estimator, on_device):
    """As from the host, wherever the spots, the maps and the results are."""
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(19)
    offset, gain, variance = maps_of(rng, (SIDE, SIDE))
    spots, _ = simulate(
        2000, SIDE, photons=1500, offset=offset, gain=gain, variance=variance, seed=20
    )
    bad = rng.random(spots.shape) < 0.02

    def fit(place, pixels, **options):
        camera = Camera(place(offset), place(gain), place(variance))
        options |= {"estimator": estimator, "camera": camera, "bad_pixels": place(bad)}
        return fit_spots(pixels(spots), backend="cuda", **options).to_host()

    expected = fit(np.asarray, np.asarray)
    for place in (np.asarray, cupy.asarray):
        fits = fit(place, cupy.asarray, on_device=on_device)
        good = expected.converged & fits.converged
        assert good.mean() > 0.98
        np.testing.assert_allclose(fits.x[good], expected.x[good], atol=1e-3)
    np.testing.assert_array_equal(fit(cupy.asarray, np.asarray).x, expected.x)


@pytest.mark.gpu
def test_a_movie_on_the_gpu_with_maps_of_the_host(gpu, scene):
    cupy = pytest.importorskip("cupy")
    movie, _, (offset, gain, variance) = scene
    bad = np.random.default_rng(21).random(movie.shape[1:]) < 0.01
    options = {"camera": Camera(offset, gain, variance), "bad_pixels": bad, "estimator": "mle"}
    fits = localize(cupy.asarray(movie), backend="cuda", **options)
    expected = localize(movie, backend="cuda", **options)
    np.testing.assert_allclose(fits.x, expected.x, atol=1e-3)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_pixels_of_volumes(estimator):
    rng, shape = np.random.default_rng(3), (4, 6, 30, 20)
    offset, gain, variance = maps_of(rng, shape[1:])
    bad, taken = rng.random(shape) < 0.1, rng.poisson(300, shape).astype(np.uint16)
    settings = Settings(model="gaussian_3d", estimator=estimator, roi_size=(5, 7, 9))
    camera = Camera(offset, gain, variance)
    known = PixelCalibration(shape, settings, bad_pixels=bad, camera=camera)
    block = np.array([1, 3])
    frames = known.corrected(block, taken[block], mark_bad=True)
    expected = (taken[block] - offset) * gain.mean() / gain
    np.testing.assert_array_equal(np.isnan(frames), bad[block])
    np.testing.assert_allclose(frames[~bad[block]], expected[~bad[block]], rtol=1e-5)
    part = slice(2, 4), slice(5, 9), slice(0, 20)
    some = known.corrected(block, taken[block][(..., *part)], part=part)
    np.testing.assert_allclose(some, expected[(..., *part)], rtol=1e-5)
    planes = known.planes(block, taken[block]).values
    assert planes.shape == (2, *shape[1:])
    excluded = np.isnan(planes) if estimator == "mle" else planes == 0
    np.testing.assert_array_equal(excluded, bad[block])
    known.check_counts(frames, np.array([[0, 1, 2, 3], [1, 0, 20, 11]]))
    gain[2, 3, 4] = -1
    with pytest.raises(ValueError, match=r"the first at \(2, 3, 4\)"):
        PixelCalibration(shape, settings, camera=Camera(offset, gain, variance)).planes(
            block, taken[block]
        )


def test_counts_of_volumes_are_looked_at():
    settings = Settings(model="gaussian_3d", estimator="mle", roi_size=(5, 7, 9), offset=100.0)
    frames = np.full((2, 8, 30, 20), 200.0)
    frames[1, 2:7, 3:10, 4:13] = 50
    dark, bright = np.array([[1, 2, 3, 4]]), np.array([[0, 2, 3, 4]])
    PixelCalibration(frames.shape, settings).check_counts(frames, bright)
    with pytest.raises(ValueError, match="100% of the pixels"):
        PixelCalibration(frames.shape, settings).check_counts(frames, dark)


def test_too_few_voxels_are_left():
    bad = np.ones((5, 5, 5), bool)
    bad[0, 0, :3] = False
    with pytest.raises(ValueError, match="leave 3 pixels; a fit of 7 parameters needs 8"):
        PixelCalibration((9, 5, 5, 5), Settings(model="gaussian_3d"), bad_pixels=bad)
