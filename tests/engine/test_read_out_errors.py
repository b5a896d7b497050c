"""Standard errors of least squares count the camera's read-out noise."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import Kind

from napari_spotfit import Camera, fit_at, fit_spots, localize, simulate_movie, simulate_spots
from napari_spotfit.models.profiles import MODELS

SIDE, COUNT = 9, 20_000
PULLED = ("y", "x", "sigma", "background", "photons")


def spreads(fits, truth, gain):
    """Return the spread of what was fitted around the truth, in standard errors, by name."""
    truth = truth.assign(background=truth["background"] * gain)
    known = {name: fits.columns[name] - truth[name] for name in PULLED}
    return {name: np.std(known[name] / fits.columns[f"{name}_stderr"]) for name in PULLED}


def maps_of(shape, seed=3):
    """Return the offset, gain and read-out variance of an sCMOS camera's pixels."""
    rng = np.random.default_rng(seed)
    return rng.normal(100, 3, shape), rng.uniform(1.5, 2.5, shape), rng.choice([4, 100.0], shape)


@pytest.mark.parametrize("variance", [4.0, 25.0, 100.0])
@pytest.mark.parametrize("estimator", ["lse", "wlse"])
@pytest.mark.parametrize("gain", [1.0, 2.2])
def test_one_number_for_all_pixels(machine, variance, estimator, gain):
    spots, truth = simulate_spots(
        COUNT, SIDE, photons=3000, background=2, gain=gain, variance=variance, seed=1
    )
    fits = fit_spots(spots, estimator=estimator, gain=gain, variance=variance, backend=machine)
    for name, spread in spreads(fits, truth, gain).items():
        assert 0.95 < spread < 1.05, name


@pytest.mark.parametrize("each", [False, True], ids=["one map", "a map for each"])
@pytest.mark.parametrize("estimator", ["lse", "wlse"])
def test_maps_of_all_three(machine, estimator, each):
    """Whose gain corrects the counts, and so scales the noise."""
    offset, gain, variance = maps_of((COUNT, SIDE, SIDE) if each else (SIDE, SIDE))
    spots, truth = simulate_spots(
        COUNT, SIDE, photons=3000, background=2, offset=offset, gain=gain, variance=variance, seed=1
    )
    camera = Camera(offset, gain, variance)
    fits = fit_spots(spots, estimator=estimator, camera=camera, backend=machine)
    for name, spread in spreads(fits, truth, fits.settings.gain).items():
        assert 0.95 < spread < 1.05, name


def test_weights_do_not_hide_the_noise(backend):
    rng = np.random.default_rng(2)
    variance, weights = rng.uniform(4, 100, (SIDE, SIDE)), rng.uniform(0.5, 2, (SIDE, SIDE))
    spots, truth = simulate_spots(
        COUNT, SIDE, photons=3000, background=2, variance=variance, seed=1
    )
    camera = Camera(gain=1.0, variance=variance)
    fits = fit_spots(spots, estimator="wlse", weights=weights, camera=camera, backend=backend)
    for name, spread in spreads(fits, truth, 1.0).items():
        assert 0.95 < spread < 1.05, name


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("estimator", ["lse", "wlse"])
def test_agrees_with_the_sandwich(backend, model, estimator):
    rng = np.random.default_rng(4)
    variance = rng.uniform(4, 100, (SIDE, SIDE)).astype(np.float32)
    bad = np.zeros((SIDE, SIDE), bool)
    bad[0, 0] = bad[7, 3] = True
    shape = {"y": 4.2, "x": 3.8, "angle": 20.0, "sigma_y": 1.3, "exponent": 2.5}
    at = dict.fromkeys(MODELS[model].widths, 1.7) | shape | {"amplitude": 900, "background": 60}
    clean = MODELS[model].evaluate(np.indices((SIDE, SIDE), float), at)
    spots = rng.poisson(clean, (40, SIDE, SIDE)) + rng.normal(
        0, np.sqrt(variance), (40, SIDE, SIDE)
    )
    # What a bad pixel's calibration says does not matter.
    camera = Camera(gain=1.0, variance=np.where(bad, np.nan, variance))
    fits = fit_spots(
        spots, model=model, estimator=estimator, camera=camera, bad_pixels=bad, backend=backend
    )
    plane = np.where(bad, 0, 1 / variance if estimator == "wlse" else 1.0)
    kind = Kind(MODELS[model], estimator="wlse", plane=plane)
    names = reference.names(kind)
    converged = np.flatnonzero(fits.converged)
    assert len(converged) > 30
    for i in converged:
        found = np.array([fits.columns[name][i] for name in names], float)
        errors = [fits.columns[f"{name}_stderr"][i] for name in names]
        expected, _ = reference.standard_error(kind, found, spots[i], 1.0, variance=variance)
        np.testing.assert_allclose(errors, expected, rtol=0.01)


def test_maps_belong_to_their_place_in_an_image(backend):
    offset, gain, variance = maps_of((40, 50))
    movie, truth = simulate_movie(
        1, (40, 50), spots_per_frame=1, photons=5000, offset=offset, gain=gain, variance=variance,
        seed=13,
    )  # fmt: skip
    camera = Camera(offset, gain, variance)
    place = truth[["frame", "y", "x"]]
    fits = fit_at(movie, place, camera=camera, backend=backend)
    top, left = int(fits.roi_y[0]), int(fits.roi_x[0])
    cut = (slice(top, top + SIDE), slice(left, left + SIDE))
    own = Camera(offset[cut], gain[cut], variance[cut])
    # The same gain as that of the whole map, to which the frames are corrected.
    factor = fits.settings.gain / float(np.mean(gain[cut]))
    alone = fit_spots(movie[(slice(None), *cut)], camera=own, backend=backend)
    np.testing.assert_allclose(fits.x_stderr, alone.x_stderr, rtol=0.01)
    np.testing.assert_allclose(fits.amplitude_stderr, alone.amplitude_stderr * factor, rtol=0.01)
    found = localize(movie, sigma=1.3, camera=camera, backend=backend)
    nearest = np.argmin(np.hypot(found.x - fits.x, found.y - fits.y))
    np.testing.assert_allclose(found.x_stderr[nearest], fits.x_stderr[0], rtol=0.01)


def test_without_a_gain_errors_follow_the_residuals(backend):
    spots, _ = simulate_spots(50, SIDE, photons=3000, variance=25.0, seed=1)
    plain = fit_spots(spots, backend=backend)
    known = fit_spots(spots, variance=25.0, backend=backend)
    np.testing.assert_array_equal(known.x_stderr, plain.x_stderr)
