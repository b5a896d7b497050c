"""Spots of volumes on a background that slopes, and flat ones, which nothing is taken off."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import fit_at, fit_spots

WIDTHS = (1.5, 1.3, 1.3)
SHAPE = (9, 9, 9)


def spots(count, slope, *, height=60.0, background=80.0, seed=1, shape=SHAPE):
    """Return volumes of a spot with shot noise, and its places."""
    rng = np.random.default_rng(seed)
    middle = (np.array(shape) - 1) / 2
    places = middle + rng.uniform(-0.5, 0.5, (count, 3))
    at = np.stack(np.indices(shape), axis=-1)
    u = (at - places[:, None, None, None]) / WIDTHS
    light = height * np.exp(-0.5 * (u**2).sum(axis=-1))
    ramp = np.maximum(background + (at - middle) @ np.asarray(slope, float), 1.0)
    return rng.poisson(light + ramp).astype(np.uint16), places


def off(fits, places):
    return np.column_stack([fits.columns[axis] for axis in "zyx"]) - places


@pytest.mark.parametrize("estimator", ["lse", "wlse", "mle"])
@pytest.mark.parametrize("slope", [(0, 0, 8), (6, -5, 0), (-5, 6, 6)])
def test_a_slope_does_not_shift_or_widen_spots(machine, estimator, slope):
    volumes, places = spots(300, slope)
    flat, _ = spots(300, (0, 0, 0))
    fit = {"model": "gaussian_3d", "estimator": estimator, "gain": 1.0, "backend": machine}
    if estimator == "wlse":
        fit["weights"] = np.random.default_rng(2).uniform(0.8, 1.2, SHAPE)
    start = np.column_stack([np.rint(places), np.full((300, 2), WIDTHS[1::-1])])
    found, best = (fit_spots(one, start=start, **fit) for one in (volumes, flat))
    worst = np.sqrt(np.median(off(best, places) ** 2, axis=0))
    assert (np.sqrt(np.median(off(found, places) ** 2, axis=0)) < 1.5 * worst).all()
    assert np.abs(np.median(off(found, places), axis=0)).max() < 0.06
    assert np.median(found.sigma) == pytest.approx(WIDTHS[1], abs=0.06)
    assert np.median(found.sigma_z) == pytest.approx(WIDTHS[0], abs=0.08)


def test_what_is_next_to_a_masked_side_is_fitted_on_a_slope_too(machine):
    volumes, places = spots(200, (0, 0, 8))
    stack = volumes.reshape(-1, *SHAPE)
    bad = np.zeros(SHAPE, bool)
    bad[:, :2] = True
    fits = fit_spots(
        stack, model="gaussian_3d", bad_pixels=bad, backend=machine,
        start=np.column_stack([np.rint(places), np.full((200, 2), WIDTHS[1::-1])]),
    )  # fmt: skip
    assert np.abs(np.median(off(fits, places), axis=0)).max() < 0.1


@pytest.mark.parametrize("height", [30.0, 3000.0])
def test_a_flat_background_keeps_its_precision(machine, height):
    """Neither noise nor the light of a bright spot beside its place is taken for a slope."""
    volumes, places = spots(2000, (0, 0, 0), height=height, background=10.0, seed=3)
    start = np.column_stack([np.rint(places), np.full((2000, 2), WIDTHS[1::-1])])
    fits = fit_spots(
        volumes, model="gaussian_3d", estimator="mle", gain=1.0, start=start, backend=machine
    )
    errors = np.column_stack([fits.columns[f"{axis}_stderr"] for axis in "zyx"])
    assert np.std(off(fits, places) / errors, axis=0) == pytest.approx(1, abs=0.06)


def test_a_neighbour_is_no_slope(machine):
    """A spot 4 widths away leaves its own pixels to the other one."""
    rng = np.random.default_rng(5)
    at = np.stack(np.indices((17, 21, 21)), axis=-1)
    places = np.array([[8.0, 10.0, 7.0], [8.2, 10.3, 12.4]])
    light = sum(
        100 * np.exp(-0.5 * (((at - place) / WIDTHS) ** 2).sum(axis=-1)) for place in places
    )
    stacks = rng.poisson(np.repeat((light + 10)[None], 50, axis=0)).astype(np.uint16)
    centers = np.column_stack([np.repeat(np.arange(50), 2), np.tile(np.rint(places), (50, 1))])
    fits = fit_at(
        stacks, centers, model="gaussian_3d", roi_size=9, sigma=1.3, sigma_z=1.5, backend=machine
    )
    assert np.abs(off(fits, np.tile(places, (50, 1))).reshape(50, 2, 3).mean(axis=0)).max() < 0.06
