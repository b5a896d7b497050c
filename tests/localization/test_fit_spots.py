"""fit_spots: right results and errors, stop conditions, and bad input."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from same_fits import assert_same

from napari_spotfit import Settings, StopCondition, fit_spots, simulate_spots

#: Agreement with double precision where both converge, and in how many spots.
CENTER_TOLERANCE, SIGMA_TOLERANCE, SHARE = 2e-3, 5e-3, 0.995

#: Absolute errors over the true σ, 9×9 (Leutenegger & Weber, Table 1): photons and
#: background of a ROI: centre and σ (Gpufit's row), each median and mean.
PAPER = {
    (400, 40): (0.0464, 0.0550, 0.0421, 0.0514),
    (1600, 40): (0.0228, 0.0270, 0.0205, 0.0249),
    (1600, 0): (0.0228, 0.0269, 0.0203, 0.0247),
}


def noise_free(shape, y, x, sigma, amplitude=100.0, background=10.0):
    return reference.model((y, x, sigma, amplitude, background), shape)


@pytest.mark.parametrize("shape", [(4, 4), (5, 8), (7, 7), (9, 9), (16, 16), (31, 6), (32, 32)])
def test_noise_free_spots_are_recovered(backend, shape):
    rng = np.random.default_rng(0)
    middle = (np.array(shape) - 1) / 2
    truth = np.column_stack([middle + rng.uniform(-0.5, 0.5, (50, 2)), rng.uniform(0.8, 1.3, 50)])
    spots = np.stack([noise_free(shape, *row) for row in truth])
    fits = fit_spots(spots, backend=backend)
    assert fits.converged.all()
    np.testing.assert_allclose(fits.y, truth[:, 0], atol=1e-4)
    np.testing.assert_allclose(fits.x, truth[:, 1], atol=1e-4)
    np.testing.assert_allclose(fits.sigma, truth[:, 2], atol=1e-4)
    np.testing.assert_allclose(fits.amplitude, 100, rtol=1e-4)
    np.testing.assert_allclose(fits.background, 10, atol=1e-3)
    np.testing.assert_allclose(fits.photons, 2 * np.pi * truth[:, 2] ** 2 * 100, rtol=2e-4)


@cache
def fitted_exactly(pixels, shape, dtype):
    """Return the reference's fits of spots."""
    return [reference.fit(spot) for spot in np.frombuffer(pixels, dtype).reshape(shape)]


def agreement(spots, fits):
    """Fraction of spots that agree, of those for which both fitters converged."""
    # The same for all instruction sets: most of the time is the reference's.
    results = fitted_exactly(spots.tobytes(), spots.shape, spots.dtype.str)
    exact = np.array([result.x for result in results])
    both = np.array([result.success for result in results]) & fits.converged
    rows, columns = np.array(spots.shape[1:])
    inside = (exact[:, 0] > -0.5) & (exact[:, 0] < rows - 0.5)
    inside &= (exact[:, 1] > -0.5) & (exact[:, 1] < columns - 0.5)
    inside &= (np.abs(exact[:, 2]) > 0.25) & (np.abs(exact[:, 2]) < max(rows, columns))
    both &= inside
    close = np.hypot(fits.y - exact[:, 0], fits.x - exact[:, 1]) < CENTER_TOLERANCE
    close &= np.abs(fits.sigma - np.abs(exact[:, 2])) < SIGMA_TOLERANCE
    return both.mean(), close[both].mean()


#: So that fits end where the minimum is, however flat it is.
TO_THE_BOTTOM = {"min_delta": 1e-8, "max_iterations": 200}


@pytest.mark.parametrize(("roi_size", "photons"), [(7, 400), (9, 1600), (11, 20_000)])
def test_agrees_with_double_precision_on_simulated_spots(backend, roi_size, photons):
    spots, _ = simulate_spots(1000, roi_size, photons=photons, sigma=(1.0, 2.0), seed=roi_size)
    both, close = agreement(spots, fit_spots(spots, backend=backend))
    assert both > 0.97
    assert close >= SHARE


def test_agrees_with_double_precision_on_real_spots(backend, dax, paint):
    rng = np.random.default_rng(1)
    movie, truth = dax
    rois = []
    for frame, y, x in truth[["frame", "y", "x"]].to_numpy():
        top, left = round(y) - 4, round(x) - 4
        if 0 <= top <= 247 and 0 <= left <= 247:
            rois.append(movie[int(frame), top : top + 9, left : left + 9])
    movie, localisations = paint
    for spot in localisations:
        top, left = round(float(spot["y"])) - 4, round(float(spot["x"])) - 4
        if 0 <= top <= 23 and 0 <= left <= 23:
            rois.append(movie[spot["frame"], top : top + 9, left : left + 9])
    spots = np.stack(rois).astype(np.float32)[rng.permutation(len(rois))[:1000]]
    # ROIs of crowded STORM have flat valleys, at whose bottom fits end later than others.
    both, close = agreement(spots, fit_spots(spots, backend=backend, **TO_THE_BOTTOM))
    assert both > 0.8
    assert close >= 0.997


@pytest.mark.parametrize(("photons", "background"), list(PAPER))
def test_is_as_accurate_as_the_paper(backend, photons, background):
    spots, truth = simulate_spots(
        20_000, 9, photons=photons, background=background / 81, sigma=(1, 2), jitter=0.75, seed=5
    )
    fits = fit_spots(spots, errors=False, backend=backend)
    width = truth["sigma"].to_numpy()
    center = np.abs(np.r_[fits.x - truth["x"], fits.y - truth["y"]]) / np.r_[width, width]
    sigma = np.abs(fits.sigma - width) / width
    ours = np.median(center), center.mean(), np.median(sigma), sigma.mean()
    # 2 % for the bar, and what 20 000 spots scatter by themselves.
    assert np.all(np.array(ours) < np.array(PAPER[photons, background]) * 1.03)


@pytest.mark.parametrize("gain", [None, 1.0, 2.5])
def test_standard_errors_follow_the_formulas(backend, gain):
    spots, _ = simulate_spots(50, 9, photons=3000, background=5, seed=7)
    spots = spots * (gain or 1) + 100
    offset = 100.0
    fits = fit_spots(spots, gain=gain, offset=offset, backend=backend)
    for i, spot in enumerate(spots):
        best = reference.fit(spot - offset).x
        expected, covariance = reference.standard_errors(best, spot - offset, gain)
        ours = [
            fits.columns[f"{n}_stderr"][i] for n in ("y", "x", "sigma", "amplitude", "background")
        ]
        np.testing.assert_allclose(ours, expected, rtol=5e-3)
        slope = 2 * np.pi * np.array([0, 0, 2 * best[2] * best[3], best[2] ** 2, 0]) / (gain or 1)
        photons = np.sqrt(slope @ covariance @ slope)
        np.testing.assert_allclose(fits.photons_stderr[i], photons, rtol=5e-3)


@pytest.mark.parametrize(("photons", "background"), [(500, 0.5), (3000, 0.0), (3000, 10)])
def test_standard_errors_match_the_spread(backend, photons, background):
    spots, truth = simulate_spots(10_000, 9, photons=photons, background=background, seed=8)
    fits = fit_spots(spots, gain=1.0, backend=backend)
    for name in ("x", "y"):
        pull = (fits.columns[name] - truth[name]) / fits.columns[f"{name}_stderr"]
        assert np.std(pull) == pytest.approx(1, abs=0.05)


def test_errors_can_be_switched_off(backend):
    spots, _ = simulate_spots(20, seed=1)
    with_errors = fit_spots(spots, backend=backend)
    without = fit_spots(spots, errors=False, backend=backend)
    assert not [name for name in without.columns if name.endswith("_stderr")]
    assert all(np.array_equal(without.columns[n], with_errors.columns[n]) for n in without.columns)


def test_photons_follow_offset_and_gain(backend):
    spot = noise_free((9, 9), 4.2, 3.9, 1.3, amplitude=500, background=130)[None]
    fits = fit_spots(spot, offset=100, gain=2, backend=backend)
    assert fits.background[0] == pytest.approx(30, rel=1e-3)
    assert fits.photons[0] == pytest.approx(2 * np.pi * 1.3**2 * 500 / 2, rel=1e-3)


def conditions(fits):
    return {StopCondition(code) for code in np.unique(fits.stop_condition)}


def test_every_stop_condition_can_be_reached(backend):
    spots, _ = simulate_spots(500, seed=2, photons=1000)
    assert conditions(fit_spots(spots, backend=backend)) <= {
        StopCondition.MIN_DELTA,
        StopCondition.MIN_STEP,
    }
    assert conditions(fit_spots(spots, max_iterations=1, backend=backend)) == {
        StopCondition.MAX_ITERATIONS
    }
    assert conditions(fit_spots(spots, max_error=1e9, backend=backend)) == {StopCondition.MAX_ERROR}
    assert conditions(fit_spots(spots, min_step=0, backend=backend)) == {StopCondition.MIN_DELTA}
    assert StopCondition.MIN_STEP in conditions(
        fit_spots(spots, min_delta=0, min_step=1e-3, backend=backend)
    )
    # A single bright pixel is best fitted with a σ of 0, where nothing has a derivative.
    hot = np.random.default_rng(1).normal(size=(500, 9, 9))
    hot[:, 4, 4] += 30
    assert StopCondition.NO_DECREASE in conditions(fit_spots(hot, sigma_min=1e-6, backend=backend))
    assert conditions(fit_spots(spots * np.nan, backend=backend)) == {StopCondition.INVALID}


def test_iterations_never_pass_their_limit(backend):
    spots, _ = simulate_spots(300, seed=3, photons=100)
    for limit in (1, 3, 20):
        assert fit_spots(spots, max_iterations=limit, backend=backend).iterations.max() <= limit


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000])
def test_any_number_of_spots(backend, count):
    spots, truth = simulate_spots(count, 7, photons=5000, seed=4)
    fits = fit_spots(spots, backend=backend)
    assert len(fits) == count
    np.testing.assert_allclose(fits.x, truth["x"], atol=0.2)


def test_a_fit_does_not_depend_on_its_neighbours_or_the_threads(backend):
    spots, _ = simulate_spots(20_001, 7, photons=200, seed=5)
    fits = fit_spots(spots, backend=backend, threads=1)
    assert_same(fits, fit_spots(spots, backend=backend, threads=3))
    order = np.random.default_rng(0).permutation(len(spots))
    assert_same(fits[order], fit_spots(spots[order], backend=backend))
    assert_same(fits[77:78], fit_spots(spots[77:78], backend=backend))


def test_bad_spots_are_invalid_and_spoil_no_other(backend):
    spots, _ = simulate_spots(64, 7, photons=1000, seed=6)
    good = fit_spots(spots, backend=backend)
    bad = spots.copy()
    bad[3, 2, 2], bad[10, 0, 0], bad[20], bad[33, 6, 6] = np.nan, np.inf, 5, -np.inf
    fits = fit_spots(bad, backend=backend)
    invalid = np.isin(np.arange(64), (3, 10, 20, 33))
    assert np.array_equal(~fits.valid, invalid)
    assert_same(good[~invalid], fits[~invalid])
    assert not fits.iterations[invalid].any()
    for name, values in fits.columns.items():
        if name not in ("iterations", "stop_condition"):
            assert np.isnan(values[invalid]).all(), name


def test_saturated_spots_are_fitted(backend):
    spots, truth = simulate_spots(200, 9, photons=20_000, seed=9)
    fits = fit_spots(np.minimum(spots, 600), backend=backend)
    assert fits.converged.mean() > 0.95
    np.testing.assert_allclose(fits.x, truth["x"], atol=0.3)


@pytest.mark.parametrize("scale", [1e-20, 1e-6, 1.0, 1e12])
def test_the_scale_of_the_data_does_not_matter(backend, scale):
    spots, _ = simulate_spots(200, 9, photons=1000, seed=10)
    fits, scaled = fit_spots(spots, backend=backend), fit_spots(spots * scale, backend=backend)
    np.testing.assert_allclose(scaled.x, fits.x, atol=2e-3)
    np.testing.assert_allclose(scaled.amplitude, fits.amplitude * scale, rtol=1e-2)
    assert np.mean(scaled.stop_condition == fits.stop_condition) > 0.9


@pytest.mark.parametrize(
    ("dtype", "offset"), [("u2", 60_000), ("f4", 60_000), ("f8", 1e9), ("i4", 10**9)]
)
def test_a_large_offset_costs_no_precision(backend, dtype, offset):
    spots, _ = simulate_spots(300, 9, photons=1000, seed=11)
    fits = fit_spots(spots, backend=backend)
    raised = fit_spots((spots.astype(dtype) + np.dtype(dtype).type(offset)), backend=backend)
    np.testing.assert_allclose(raised.x, fits.x, atol=1e-3)
    np.testing.assert_allclose(raised.sigma, fits.sigma, atol=2e-3)


@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "u2", ">u2", "i2", "u4", "i4", "i8", "f2", "f4", ">f4", "f8"]
)
def test_any_real_number_type(backend, dtype):
    spots, _ = simulate_spots(70, 6, photons=400, seed=12)
    spots = np.minimum(spots, 127)
    assert_same(fit_spots(spots, backend=backend), fit_spots(spots.astype(dtype), backend=backend))


def test_strided_spots(backend):
    spots, _ = simulate_spots(40, 8, seed=13)
    padded = np.zeros((80, 8, 16), np.float32)
    padded[::2, ::-1, 3:11] = spots
    assert_same(
        fit_spots(spots, backend=backend), fit_spots(padded[::2, ::-1, 3:11], backend=backend)
    )


def test_own_start_values_are_used_and_nan_asks_for_ours(backend):
    spots, truth = simulate_spots(100, 9, photons=2000, seed=14)
    own = truth[["y", "x", "sigma"]].to_numpy()
    fits = fit_spots(spots, backend=backend)
    started = fit_spots(spots, start=own, backend=backend)
    assert started.iterations.mean() < fits.iterations.mean() - 0.5
    np.testing.assert_allclose(started.x, fits.x, atol=2e-3)
    assert_same(fits, fit_spots(spots, start=np.full((100, 3), np.nan), backend=backend))
    far = fit_spots(spots, start=np.tile([1e6, -1e6, 1e6], (100, 1)), backend=backend)
    assert np.isfinite(far.x[far.valid]).all()


def test_bounds_of_the_shape_hold(backend):
    spots, _ = simulate_spots(300, 9, photons=300, sigma=1.5, seed=15)
    fits = fit_spots(spots, sigma_min=1.6, sigma_max=1.7, backend=backend)
    assert fits.sigma.min() >= np.float32(1.6)
    assert fits.sigma.max() <= np.float32(1.7)
    assert fits.converged.mean() > 0.95
    # At its bound σ is a constant: the other parameters are the best for it.
    for spot, fit in zip(spots[:40], fits[:40], strict=True):
        low, high = np.full(5, -np.inf), np.full(5, np.inf)
        low[2], high[2] = 1.6, 1.7
        exact = reference.fit(spot, bounds=(low, high)).x
        assert fit.x[0] == pytest.approx(exact[1], abs=3e-3)
        assert fit.y[0] == pytest.approx(exact[0], abs=3e-3)


def test_centres_stay_inside_the_roi(backend):
    edge = noise_free((9, 9), -2.0, 11.0, 2.0)[None] + np.zeros((1, 9, 9))
    fit = fit_spots(edge, backend=backend)
    assert -0.5 <= fit.y[0] <= 8.5
    assert -0.5 <= fit.x[0] <= 8.5


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("background_min", 0.0),
        ("background_max", 0.3),
        ("amplitude_min", 30.0),
        ("amplitude_max", 28.0),
    ],
)
def test_bounds_of_the_amplitudes_hold_and_the_rest_is_optimal(backend, name, bound):
    spots, _ = simulate_spots(100, 9, photons=300, background=0.2, sigma=1.3, seed=16)
    fits = fit_spots(spots, **{name: bound}, backend=backend)
    column, side = name.split("_")
    values = fits.columns[column]
    assert np.all(values >= bound if side == "min" else values <= bound)
    assert 5 < np.isclose(values, bound, atol=1e-5).sum() < 100
    index = 4 if column == "background" else 3
    low, high = np.full(5, -np.inf), np.full(5, np.inf)
    (low if side == "min" else high)[index] = bound
    for spot, fit in zip(spots[:50], fits[:50], strict=True):
        exact = reference.fit(spot, bounds=(low, high))
        assert fit.chi_square[0] <= 2 * exact.cost * 1.001
        assert fit.sigma[0] == pytest.approx(exact.x[2], abs=1e-2)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 20), st.integers(4, 9), st.integers(4, 9)),
        elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
    )
)
def test_any_pixels_give_finite_parameters_or_an_invalid_fit(spots):
    fits = fit_spots(spots)
    assert len(fits) == len(spots)
    for name in ("y", "x", "sigma"):
        assert np.array_equal(np.isfinite(fits.columns[name]), fits.valid)
    finite = np.isfinite(spots).all(axis=(1, 2))
    assert not fits.valid[~finite].any()


@pytest.mark.parametrize(
    ("spots", "error", "words"),
    [
        (np.zeros((9, 9)), ValueError, r"\(n, rows, columns\)"),
        (np.zeros((1, 1, 9, 9)), ValueError, r"\(n, rows, columns\)"),
        (np.zeros((5, 3, 9)), ValueError, "4 to 4096 pixels"),
        (np.zeros((1, 4097, 4)), ValueError, "4 to 4096 pixels a side; got 4097×4"),
        (np.zeros((5, 9, 9), complex), TypeError, "real numbers"),
        (np.zeros((5, 9, 9), bool), TypeError, "real numbers"),
        (np.full((5, 9, 9), "a"), TypeError, "real numbers"),
    ],
)
def test_wrong_spots_are_named(spots, error, words):
    with pytest.raises(error, match=words):
        fit_spots(spots)


def test_wrong_start_and_settings_are_named():
    spots = np.zeros((5, 9, 9))
    with pytest.raises(ValueError, match=r"start must have the shape \(5, 3\): y, x and sigma of"):
        fit_spots(spots, start=np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"\(5, 5\): y, x, sigma_x, sigma_y and angle of each"):
        fit_spots(spots, start=np.zeros((5, 3)), model="gaussian_rotated")
    with pytest.raises(TypeError, match="unknown setting iterations; the settings are sigma"):
        fit_spots(spots, iterations=3)
    with pytest.raises(ValueError, match="max_iterations must be a whole number from 1 to 1000"):
        fit_spots(spots, settings=Settings(), max_iterations=0)
