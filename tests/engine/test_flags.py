"""Flags of fits of spots with known truth."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
from scenes import light, movie_of, on_grid

from napari_spotfit import (
    Flag,
    NoiseModel,
    Profile,
    Settings,
    SpotFits,
    StopCondition,
    fit_at,
    fit_spots,
    localize,
    simulate_spots,
)

SIGMA = 1.3


def has(fits, flag):
    return (fits.flags & flag) != 0


@pytest.mark.parametrize("known", [{}, {"gain": 1.0, "offset": 100.0}])
@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_spots_that_stand_alone_are_good(known, estimator):
    rng = np.random.default_rng(3)
    centres = on_grid(rng, (160, 160), 20)
    movie = movie_of(rng, centres, 4, (160, 160), photons=800)
    warns = estimator == "mle" and not known
    with pytest.warns(UserWarning, match="gain") if warns else contextlib.nullcontext():
        fits = localize(movie.astype(np.uint16), sigma=SIGMA, estimator=estimator, **known)
    assert len(fits) >= 4 * len(centres)
    near = np.min(np.hypot(fits.y - centres[:, [0]], fits.x - centres[:, [1]]), axis=0)
    true = near < 0.5
    assert true.sum() == 4 * len(centres)
    assert fits.good[true].all()
    assert not fits.flags[true].any()


@pytest.mark.parametrize(
    ("photons", "per_frame", "sigma", "neighbours"),
    # Of the crowd, what is fitted together has other limits.
    [(180, 200, 1.3, "auto"), (1000, 5000, 2.0, "exclude")],
)
def test_dim_and_crowded_spots_have_the_iterations_they_need(photons, per_frame, sigma, neighbours):
    rng = np.random.default_rng(14)
    places = rng.uniform(-0.5, 511.5, (4, per_frame, 2))
    frames = [light(own, photons, sigma, (512, 512)) + 10 for own in places]
    movie = (rng.poisson(frames) + 100).astype(np.uint16)
    fits = localize(movie, sigma=sigma, neighbours=neighbours)
    stopped = fits.stop_condition == StopCondition.MAX_ITERATIONS
    assert stopped.mean() < 0.003


def test_what_is_no_spot_is_not_good():
    """Noise, a hot pixel, three of them, a broad hump: clicks there say so, each in its own way."""
    rng = np.random.default_rng(4)
    image = rng.normal(100, 3, (160, 160))
    image[20, 20] += 300
    image[90, 20:22] += 300
    image[91, 20] += 300
    image += light([(44.0, 20.0)], 60_000, 6.0, (160, 160))
    places = [(90, 20), (44, 20), (12, 50), (12, 40), (52, 52), (36, 54), (20, 20)]
    fits = fit_at(image, places, settings=Settings(sigma=SIGMA))
    assert not fits.good.any()
    assert has(fits, Flag.NARROW)[0]
    assert has(fits, Flag.WIDE)[1]
    assert (has(fits, Flag.WEAK) | has(fits, Flag.NEGATIVE) | has(fits, Flag.AT_BOUND))[2:].all()


@pytest.mark.parametrize("options", [{}, {"emccd": True}], ids=["camera", "EMCCD"])
@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_few_photons_on_a_dark_background_are_not_weak(estimator, options):
    """Their own shot noise is no sign that there is no spot; where there is none, it says so."""
    rng = np.random.default_rng(12)
    centres = on_grid(rng, (240, 240), 16)
    image = movie_of(rng, centres, 1, (240, 240), photons=30, background=0.05)[0]
    known = {"gain": 1.0, "offset": 100.0, "sigma": SIGMA, "estimator": estimator, **options}
    fits = fit_at(image, centres, settings=Settings(**known))
    assert has(fits, Flag.WEAK).mean() < 0.03
    # Of these errors the spots have more than the background says.
    assert (fits.amplitude <= 3 * fits.amplitude_stderr).mean() > 0.06
    empty = rng.poisson(10.0, (240, 240)) + 100
    nothing = fit_at(empty, centres, settings=Settings(**known))
    assert nothing.good.mean() < 0.03


@pytest.mark.parametrize("photons", [100, 3000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fixed": {"sigma": SIGMA}},
        {"model": "gaussian_elliptical"},
        {"model": "gaussian_rotated", "fixed": {"angle": 0.0}},
        {"model": "moffat", "fixed": {"exponent": 4.0}},
        {"model": "lorentzian"},
    ],
    ids=lambda options: str(next(iter(options.values()), "gaussian")),
)
def test_without_its_own_shot_noise_an_error_is_at_least_that_of_the_background(options, photons):
    places = np.random.default_rng(2).uniform(-0.4, 0.4, (20, 2)) + 6
    spots = np.array([light([place], photons, SIGMA, (13, 13)) for place in places]) + 30.0
    settings = Settings(roi_size=13, gain=1.0, **options)
    fits = fit_spots(spots, settings=settings)
    level = float(np.median(fits.background))
    dark = NoiseModel(0.0, level, level)
    without = fit_spots(spots, settings=settings.changed(gain=None, noise=dark))
    np.testing.assert_allclose(without.amplitude, fits.amplitude, rtol=1e-5)
    # The faintest amplitude that is not weak is at 3 of the errors that the rule goes by.
    shrunk = fits.amplitude_stderr * np.sqrt(level / (level + fits.amplitude / 2))
    assert (shrunk > 0.98 * without.amplitude_stderr).all()
    assert (shrunk < 1.35 * without.amplitude_stderr).all()
    assert (fits.amplitude_stderr > shrunk).all()


def test_two_clicks_at_one_spot_are_one_good_fit():
    rng = np.random.default_rng(5)
    movie = movie_of(rng, [(20.2, 20.4)], 2, (40, 40), photons=3000)
    places = [(frame, 20 + dy, 20.0) for frame in (0, 1) for dy in (1.0, 0.0, -1.0)]
    settings = Settings(sigma=SIGMA, neighbours="exclude")
    fits = fit_at(movie, places, settings=settings)
    np.testing.assert_array_equal(has(fits, Flag.DUPLICATE), [1, 0, 1, 1, 0, 1])
    assert has(fits, Flag.NEIGHBOUR).all()
    alone = fit_at(movie, [(0, 20.0, 20.0), (1, 20.0, 20.0)], settings=settings)
    assert not alone.flags.any()


def test_a_fit_that_leaves_for_its_neighbour_has_moved():
    rng = np.random.default_rng(6)
    image = movie_of(rng, [(20.0, 20.0)], 1, (40, 40), photons=20_000)[0]
    settings = Settings(sigma=SIGMA, neighbours="exclude")
    fits = fit_at(image, [(20, 20), (20, 23)], settings=settings)
    np.testing.assert_array_equal(has(fits, Flag.MOVED), [False, True])
    np.testing.assert_array_equal(has(fits, Flag.DUPLICATE), [False, True])
    np.testing.assert_array_equal(fits.good, [True, False])


def test_spots_at_the_edge_say_so_and_may_be_good():
    rng = np.random.default_rng(7)
    image = movie_of(rng, [(2.0, 20.0), (20.0, 20.0)], 1, (40, 40), photons=3000)[0]
    fits = fit_at(image, [(2, 20), (20, 20)], settings=Settings(sigma=SIGMA))
    np.testing.assert_array_equal(has(fits, Flag.EDGE), [True, False])
    assert fits.good.all()


def test_places_outside_the_image_have_one_flag():
    with pytest.warns(UserWarning, match="2 of 2 centres lie outside of the image"):
        fits = fit_at(np.random.default_rng(0).normal(size=(30, 30)), [(-20, 3), (50, 50)])
    assert fits.flags.tolist() == [Flag.NOT_CONVERGED] * 2


@pytest.fixture(scope="module")
def poor_image():
    """Return an image of gain 2, and positions, the first nine with neighbours."""
    rng = np.random.default_rng(10)
    alone = on_grid(rng, (128, 128), 22)
    beside = alone[:9] + np.array([3, 2])
    shown = light(alone, 2000, SIGMA, (128, 128)) + light(beside, 1200, SIGMA, (128, 128))
    return 2.0 * rng.poisson(shown + 10) + 100, alone


def test_a_camera_that_is_known_tells_poor_fits(poor_image):
    image, alone = poor_image
    for estimator in ("lse", "mle"):
        known = Settings(sigma=SIGMA, gain=2.0, offset=100.0, estimator=estimator)
        poor = has(fit_at(image, alone, settings=known), Flag.POOR_FIT)
        np.testing.assert_array_equal(poor, np.arange(len(alone)) < 9)
        unknown = known.changed(model=FLAT)
        assert not has(fit_at(image, alone, settings=unknown), Flag.POOR_FIT).any()


def test_the_noise_of_the_image_tells_poor_fits(poor_image):
    image, alone = poor_image
    settings = Settings(sigma=SIGMA)
    fits = fit_at(image, alone, settings=settings)
    np.testing.assert_array_equal(has(fits, Flag.POOR_FIT), np.arange(len(alone)) < 9)
    # Cut-outs, by themselves, tell no noise, and that of a filtered image means little.
    rois = np.stack(
        [image[y : y + 9, x : x + 9] for y, x in zip(fits.roi_y, fits.roi_x, strict=True)]
    )
    assert not has(fit_spots(rois, settings=settings), Flag.POOR_FIT).any()
    known = fit_spots(rois, settings=fits.settings)
    np.testing.assert_array_equal(has(known, Flag.POOR_FIT), has(fits, Flag.POOR_FIT))
    noise = dataclasses.replace(fits.settings.noise, correlation=2.5)
    filtered = fit_at(image, alone, settings=settings.changed(noise=noise))
    assert not has(filtered, Flag.POOR_FIT).any()


FLAT = Profile.from_expression(
    "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)",
    start={"s": "sigma", "q": 1},
    bounds={"q": (0.2, 5)},
)


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"sigma_max": 1.1}, "sigma"),
        ({"sigma_min": 1.6}, "sigma"),
        ({"bounds": {"x": (0.6, 2.0)}}, "x"),
        ({"bounds": {"y": (-3.0, -0.7)}}, "y"),
        ({"amplitude_max": 50.0}, "amplitude"),
        ({"background_min": 12.5, "offset": 100.0}, "background"),
        ({"background_max": 101.0}, "background"),
        ({"model": "gaussian_elliptical", "bounds": {"sigma_y": (0.3, 1.0)}}, "sigma_y"),
        ({"model": "gaussian_rotated", "bounds": {"angle": (40.0, 50.0)}}, "angle"),
        ({"model": "lorentzian", "bounds": {"width": (2.5, 4.0)}}, "width"),
        ({"model": "moffat", "bounds": {"exponent": (1.1, 2.0)}}, "exponent"),
        ({"model": FLAT, "bounds": {"q": (0.2, 0.7)}}, "q"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_what_ends_at_a_bound_is_flagged(options, bound, estimator):
    """The engine leaves it at the bound, and has no standard error for it."""
    spots, _ = simulate_spots(
        60, roi_size=11, sigma=SIGMA, photons=3000, background=10, offset=100, seed=3
    )
    known = {"offset": 100.0} | options
    if estimator == "mle" and bound == "background" and "background_max" in options:
        known["background_max"] = 5.0
    elif "background_max" in options:
        known["offset"] = 0.0
    fits = fit_spots(spots, estimator=estimator, max_iterations=100, **known)
    at = has(fits, Flag.AT_BOUND)
    missing = np.isnan(fits.columns[f"{bound}_stderr"]) & fits.converged
    assert missing.sum() > 20
    assert at[missing].all()
    # Besides those that another parameter has stopped at a bound of its own.
    names = [name for name in fits.columns if name.endswith("_stderr") and "photons" not in name]
    none = np.array([~np.isnan(fits.columns[name]) for name in names]).all(axis=0)
    assert not (at & none).any()


def test_limits_of_nature_are_no_bounds():
    rng = np.random.default_rng(2)
    dim = rng.poisson(light([(5.0, 5.0)], 500, SIGMA, (11, 11)) + 0.001, (50, 11, 11))
    fits = fit_spots(dim, estimator="mle")
    assert (fits.background < 0.01).sum() > 10
    assert not has(fits, Flag.AT_BOUND).any()
    columns = {
        "stop_condition": np.full(3, StopCondition.MIN_DELTA, np.uint8),
        "y": np.full(3, 4.0),
    }
    columns["exponent"] = np.array([100, 3, 1.01], np.float32)
    wings = SpotFits(columns, (), Settings(model="moffat", roi_size=9))
    np.testing.assert_array_equal(has(wings, Flag.AT_BOUND), [False, False, True])
    bounds = {"exponent": (None, 3.0)}
    limited = SpotFits(columns, (), Settings(model="moffat", roi_size=9, bounds=bounds))
    np.testing.assert_array_equal(has(limited, Flag.AT_BOUND), [True, True, True])


def test_flags_that_need_what_is_not_there_stay_unset():
    spots, _ = simulate_spots(20, seed=1)
    noise = np.random.default_rng(1).normal(100, 5, (200, 9, 9))
    fits = fit_spots(np.concatenate([spots.astype(float), noise]), errors=False)
    unset = Flag.WEAK | Flag.MOVED | Flag.WIDE | Flag.NARROW | Flag.DUPLICATE | Flag.NEIGHBOUR
    unset |= Flag.EDGE | Flag.BAD_PIXELS | Flag.SATURATED | Flag.POOR_FIT
    assert not (fits.flags & unset).any()
    assert fits.good[:20].all()
    image = np.random.default_rng(1).normal(100, 5, (60, 60))
    places = np.random.default_rng(2).uniform(8, 50, (40, 2))
    with pytest.warns(UserWarning, match="so that widths are not judged"):
        nobody_said = fit_at(image, places)
    assert not (nobody_said.flags & (Flag.WIDE | Flag.NARROW)).any()
    held = fit_at(image, places, settings=Settings(sigma=SIGMA, fixed={"sigma": 5.0}))
    assert not (held.flags & (Flag.WIDE | Flag.NARROW)).any()
    own = fit_at(image, places, settings=Settings(sigma=SIGMA, model=FLAT))
    assert not (own.flags & (Flag.WIDE | Flag.NARROW)).any()


def test_cut_outs_of_any_size_know_their_bounds():
    small, _ = simulate_spots(30, roi_size=7, sigma=3.5, photons=500, seed=1)
    large, _ = simulate_spots(30, roi_size=21, sigma=3.5, photons=50_000, seed=1)
    parts = [fit_spots(small), fit_spots(large)]
    joined = SpotFits.concatenate(parts)
    np.testing.assert_array_equal(joined.flags, np.concatenate([part.flags for part in parts]))
    stuck = parts[0].sigma == 7.0
    assert stuck.any()
    np.testing.assert_array_equal(has(parts[0], Flag.AT_BOUND) & stuck, stuck)


def test_flags_go_with_their_rows():
    rng = np.random.default_rng(11)
    movie = movie_of(rng, rng.uniform(0, 64, (60, 2)), 3, (64, 64))
    settings = Settings(neighbours="exclude")
    fits = localize(movie, settings=settings)
    assert 0 < fits.good.sum() < len(fits)
    assert fits.flags.dtype == np.uint32
    for rows in (slice(5, 40), fits.good, fits.frame == 1, [3, 1]):
        np.testing.assert_array_equal(fits[rows].flags, fits.flags[rows])
        np.testing.assert_array_equal(fits[rows].good, fits.good[rows])
    assert fits[fits.good].good.all()
    by_frame = [localize(movie, frames=frame, settings=settings) for frame in range(3)]
    np.testing.assert_array_equal(SpotFits.concatenate(by_frame).flags, fits.flags)
    counts = fits.flag_counts()
    assert counts[Flag.NEIGHBOUR] == has(fits, Flag.NEIGHBOUR).sum()
    stack = localize(movie[None], settings=settings)
    np.testing.assert_array_equal(stack.flags, fits.flags)


def test_there_may_be_no_fits():
    fits = localize(np.zeros((2, 20, 20)), sigma=1.3)
    assert len(fits.flags) == len(fits.good) == 0
    assert len(fit_at(np.zeros((20, 20)), np.empty((0, 2))).flags) == 0
    assert len(fit_spots(np.zeros((0, 9, 9))).flags) == 0


@pytest.mark.parametrize("excess", [1, 2])
def test_a_spot_is_not_weak_for_the_noise_of_its_own_light(excess):
    """Noise alone does not come so high where there is no light."""
    rng = np.random.default_rng(5)
    places = on_grid(rng, (256, 256), 16)
    image = light(places, 50, 1.3, (256, 256)) + 0.05
    counts = rng.poisson(image).astype(float)
    if excess == 2:
        counts = rng.gamma(np.maximum(counts, 1)) * (counts > 0)
    known = {"gain": 1.0, "emccd": excess == 2, "variance": 0.01}
    fits = fit_at(counts, places, settings=Settings(sigma=1.3, **known))
    assert has(fits, Flag.WEAK).mean() < (0.03, 0.1)[excess - 1]
    beside = places + 8
    nothing = fit_at(counts, beside, settings=Settings(sigma=1.3, **known))
    assert nothing.good.mean() < 0.02
