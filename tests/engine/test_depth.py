"""z from widths reaches its bound, and every door to the fits has it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from napari_spotfit import (
    AstigmatismCalibration,
    Fitter,
    Flag,
    Settings,
    SpotFits,
    detect_spots,
    estimate_sigma,
    fit_at,
    fit_spots,
    localize,
    localize_iter,
    simulate_movie,
    simulate_spots,
)
from napari_spotfit.engine.depth import apparent_places
from napari_spotfit.models.astigmatism import Level
from napari_spotfit.models.calibration import Curve

#: Its molecules have an image that is none of a Gaussian with the widths of LENS.
pytestmark = pytest.mark.filterwarnings("ignore:the widths of")

X, Y = (Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0))
LENS = AstigmatismCalibration(
    X, Y, -500.0, 500.0, wobble_x=Curve("polynomial", (0.001, 0.0)), roi_size=(13, 13)
)
STILL = AstigmatismCalibration(X, Y, -500.0, 500.0)


def spots_at(z: float, count: int, photons: float, background: float):
    widths = float(X(z)), float(Y(z))
    return simulate_spots(
        count, 13, photons=photons, background=background, sigma=widths[0], sigma_y=widths[1],
        seed=int(z) + 1000,
    )  # fmt: skip


def bound(z: float, photons: float, background: float) -> tuple[float, float]:
    """Return the least standard deviations of z and x, by the Fisher information."""
    at = np.arange(13) - 6.0

    def light(p):
        x, y, z, photons, background = p
        sigma_x, sigma_y = X(z), Y(z)
        u, v = np.exp(-0.5 * ((at - x) / sigma_x) ** 2), np.exp(-0.5 * ((at - y) / sigma_y) ** 2)
        return photons * v[:, None] * u / (2 * np.pi * sigma_x * sigma_y) + background

    point, steps = (
        np.array([0, 0, z, photons, background], float),
        np.diag([1e-3, 1e-3, 0.1, 1, 0.01]),
    )
    slopes = np.array(
        [(light(point + s) - light(point - s)).ravel() / (2 * s.sum()) for s in steps]
    )
    error = np.sqrt(np.diag(np.linalg.inv(slopes / light(point).ravel() @ slopes.T)))
    return error[2], error[0]


@pytest.mark.parametrize("z", [-400, -150, 0, 300])
def test_z_reaches_the_bound(z):
    spots, truth = spots_at(z, 4000, 2000, 10)
    fits = fit_spots(spots, model=STILL, gain=1.0)
    assert fits.good.mean() > 0.995
    best_z, best_x = bound(z, 2000, 10)
    error = (fits.z - z)[fits.good]
    assert np.sqrt(np.mean(error**2)) < 1.06 * best_z
    assert np.std(error / fits.z_stderr[fits.good]) == pytest.approx(1, abs=0.05)
    assert abs(error.mean()) < 0.15 * best_z
    assert np.std((fits.x - truth["x"])[fits.good]) < 1.06 * best_x
    # The probability of the widths is one: evenly distributed.
    for part in (0.01, 0.1, 0.5):
        assert (fits.z_p_value < part).mean() == pytest.approx(part, rel=0.25, abs=0.005)


def test_spots_of_another_shape_are_improbable():
    round_ones, _ = simulate_spots(200, 13, photons=5000, background=10, sigma=2.6, seed=1)
    fits = fit_spots(round_ones, model=STILL, gain=1.0)
    assert np.median(fits.z_p_value) < 1e-6


def test_rounding_of_the_widths_does_not_move_z():
    rng = np.random.default_rng(1)
    z = rng.uniform(LENS.low + 20, LENS.high - 20, 5000)
    x, y = (curve(z) + rng.normal(0, 0.02, z.size) for curve in (LENS.x, LENS.y))
    found, again = (LENS.locate(x * (1 + e), y * (1 - e), 0.02, 0.02)[0] for e in (0, 1e-7))
    np.testing.assert_allclose(found, again, atol=0.01)


def test_z_at_an_end_of_the_range_is_flagged():
    spots, _ = spots_at(600, 200, 20_000, 2)
    fits = fit_spots(spots, model=STILL, gain=1.0)
    at_limit = (fits.flags & int(Flag.Z_AT_LIMIT)) != 0
    assert at_limit.mean() > 0.95
    assert not fits.good[at_limit].any()
    assert (fits.z[at_limit] == 500).all()
    assert np.isnan(fits.z_stderr[at_limit]).all()
    inside = fit_spots(spots_at(300, 200, 20_000, 2)[0], model=STILL, gain=1.0)
    assert not (inside.flags & int(Flag.Z_AT_LIMIT)).any()
    dark = fit_spots(np.full((3, 13, 13), 7.0), model=STILL, gain=1.0)
    assert np.isnan(dark.z).all()
    assert not (dark.flags & int(Flag.Z_AT_LIMIT)).any()


def test_places_are_those_at_zero_and_their_errors_grow_with_that_of_z():
    spots, _truth = spots_at(200, 500, 3000, 5)
    fits, still = (fit_spots(spots, model=one, gain=1.0) for one in (LENS, STILL))
    assert fits.x == pytest.approx(still.x - 0.001 * still.z, abs=1e-6)
    assert fits.y == pytest.approx(still.y)
    assert fits.x_stderr == pytest.approx(
        np.hypot(still.x_stderr, 0.001 * still.z_stderr), rel=1e-4
    )


def test_the_model_of_a_fit_lies_where_its_light_is():
    spots, _ = spots_at(200, 100, 3000, 5)
    fits, still = (fit_spots(spots, model=one, gain=1.0) for one in (LENS, STILL))
    apparent = apparent_places(fits.columns, fits.settings)
    assert apparent["x"] == pytest.approx(still.x)
    assert apparent["y"] == pytest.approx(still.y)
    one = {name: float(values[7]) for name, values in fits.columns.items()}
    assert apparent_places(one, fits.settings)["x"] == pytest.approx(still.x[7])


def test_dim_spots_have_curves_of_their_own():
    narrow = [curve._replace(numbers=(1.2, *curve.numbers[1:])) for curve in (X, Y)]
    flat = Curve("polynomial", (0.0,))
    level = Level(0.02, *narrow, flat._replace(numbers=(0.5,)), flat, flat._replace(numbers=(2.0,)))
    both = AstigmatismCalibration(X, Y, -500.0, 500.0, level=0.0002, dimmer=(level,))
    z = 200.0
    for place, level in ((0.0, 0.0002), (0.5, 0.002), (1.0, 0.02), (1.0, 1.0), (0.0, 0.0)):
        least = 1.3 - 0.1 * place
        widths = X(z) * least / 1.3, Y(z) * least / 1.3
        found, error, _p = both.locate(*widths, 0.02, 0.03, 0.1, level)
        assert float(found) == pytest.approx(z, abs=0.1)
        single = AstigmatismCalibration(
            *(curve._replace(numbers=(least, *curve.numbers[1:])) for curve in (X, Y)),
            -500.0,
            500.0,
        )
        expected = single.locate(*widths, 0.02, 0.03, 0.1)[1]
        assert float(error) == pytest.approx((1 + place) * float(expected), rel=1e-3)
        shift, slope = both.shift(np.array([z]), np.array([level]))["x"]
        assert shift[0] == pytest.approx(0.5 * place)
        assert slope[0] == 0


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(
        6, (80, 80), spots_per_frame=4, photons=4000, z=(-300, 300), seed=4,
        optics={"zernike": {"astigmatism": 0.1}},
    )  # fmt: skip


KNOWN = {"gain": 1.0, "offset": 100.0, "backend": "cpu"}


def test_every_door_gives_the_same(movie):
    frames, _ = movie
    fits = localize(frames, model=LENS, **KNOWN)
    assert list(fits.columns)[:4] == ["frame", "z", "y", "x"]
    assert fits.units["z"] == "nm"
    assert fits.axes == ("y", "x")
    parts = SpotFits.concatenate(list(localize_iter(frames, model=LENS, **KNOWN)))
    frame = localize(frames[0], model=LENS, settings=fits.settings)
    # Fitted at the detections, which the corners of the ROIs tell.
    places = np.column_stack([frame.roi_y + 6, frame.roi_x + 6])
    at = fit_at(frames[0], places, settings=fits.settings)
    with Fitter(settings=fits.settings) as fitter:
        again = fitter.fit_at(frames[0], places).copy()
        cut = np.stack([frames[0][y : y + 13, x : x + 13] for y, x in places - 6])
        cut_out = fitter.fit(cut).copy()
    assert set(at.columns) == set(again.columns) == set(frame.columns) - {"score"}
    for name in ("z", "y", "x", "z_stderr", "x_stderr", "z_p_value", "flags"):
        assert np.array_equal(parts.columns[name], fits.columns[name], equal_nan=True)
        assert np.array_equal(again.columns[name], at.columns[name], equal_nan=True)
    assert set(cut_out.columns) == set(fit_spots(cut, model=LENS, gain=1.0).columns)


def test_detection_and_widths_need_no_calibration(movie):
    settings = Settings(model=LENS, **KNOWN)
    assert len(detect_spots(movie[0], settings=settings)) > 15
    width = estimate_sigma(movie[0], settings=settings)
    assert 0.8 < width.sigma < 3


def test_lazy_fits_have_the_same_columns(movie):
    pytest.importorskip("dask")
    table = localize(movie[0], model=LENS, lazy=True, **KNOWN)
    fits = localize(movie[0], model=LENS, **KNOWN)
    assert list(table.columns) == list(fits.to_dataframe().columns)
    assert table.compute()["z"].to_numpy() == pytest.approx(fits.z, nan_ok=True)


def test_positions_outside_have_no_z(movie):
    with pytest.warns(UserWarning, match="1 of 3 centres are in frames"):
        fits = fit_at(movie[0], [[0, 40, 40], [0, -30, 5], [9, 5, 5]], model=LENS, **KNOWN)
    assert np.isnan(fits.z[1:]).all()
    assert np.isnan(fits.z_stderr[1:]).all()
    none = fit_at(movie[0], np.empty((0, 3)), model=LENS, **KNOWN)
    assert set(none.columns) == set(fits.columns)


def test_without_errors_z_is_the_same(movie):
    with_errors, without = (
        localize(movie[0], model=LENS, errors=e, **KNOWN) for e in (True, False)
    )
    assert not any(name.endswith("_stderr") for name in without.columns)
    assert np.array_equal(with_errors.z, without.z, equal_nan=True)
    assert "z_p_value" in without.columns


def test_a_turned_lens_holds_its_angle():
    turned = AstigmatismCalibration(X, Y, -500.0, 500.0, angle=30.0)
    z = 250.0
    spots, _ = simulate_spots(
        300,
        13,
        photons=5000,
        background=5,
        sigma=float(X(z)),
        sigma_y=float(Y(z)),
        angle=30,
        seed=2,
    )
    fits = fit_spots(spots, model=turned, gain=1.0)
    assert np.mean(fits.z) == pytest.approx(z, abs=3)
    assert (fits.angle_stderr == 0).all()
    assert Settings(model=turned).profile.name == "gaussian_rotated"


def test_a_calibration_of_another_camera_is_doubted(movie):
    frames, _ = movie
    double = [curve._replace(numbers=(2.6, *curve.numbers[1:])) for curve in (X, Y)]
    other = AstigmatismCalibration(*double, -500.0, 500.0, roi_size=(13, 13))
    with pytest.warns(UserWarning, match="of the spots do not go with the calibration"):
        localize(frames, model=other, **KNOWN)


@pytest.mark.parametrize("angle", [0.0, 20.0])
def test_z_has_settled_when_a_fit_ends(angle):
    lens = replace(LENS, angle=angle)
    spots, _ = simulate_spots(5000, 13, photons=3000, background=5, sigma=1.3, sigma_y=1.9, seed=1)
    fits = fit_spots(spots, model=lens, gain=1.0, backend="cpu")
    on = {"min_delta": 1e-12, "min_step": 1e-7, "max_iterations": 60}
    settled = fit_spots(spots, model=lens, gain=1.0, backend="cpu", **on)
    assert np.nanquantile(np.abs(fits.z - settled.z), 0.999) < 0.05


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("angle", [0.0, 20.0])
def test_z_on_a_gpu_is_that_of_the_cpu(angle):
    cupy = pytest.importorskip("cupy")
    lens = replace(LENS, angle=angle)
    spots, _ = simulate_spots(5000, 13, photons=3000, background=5, sigma=1.3, sigma_y=1.9, seed=1)
    theirs = fit_spots(spots, model=lens, gain=1.0, backend="cpu")
    ours = fit_spots(spots, model=lens, gain=1.0, backend="cuda")
    there = fit_spots(cupy.asarray(spots), model=lens, gain=1.0, on_device=True)
    assert isinstance(there.z, cupy.ndarray)
    for fits in (ours, there.to_host()):
        assert list(fits.columns) == list(theirs.columns)
        assert np.nanquantile(np.abs(fits.z - theirs.z), 0.999) < 0.1
        assert np.nanquantile(np.abs(fits.z_stderr / theirs.z_stderr - 1), 0.999) < 1e-2
        assert np.nanquantile(np.abs(fits.x - theirs.x), 0.999) < 1e-3
